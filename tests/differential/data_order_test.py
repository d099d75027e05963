"""Data order, collators, packing, splits and mixing: gradus beside torch, accelerate, transformers,
trl and datasets.

The cases are the same every time; DATA_CASES_SEED=N draws others, DATA_CASES_SEED=random new ones.
Without the peer: exit code 77.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity/data"))
COUNTS = {
    "order": 60, "grouped": 20, "rebalance": 150, "repeat": 20, "shard": 20, "iterable_shard": 40,
    "shuffle": 10, "split": 10, "interleave": 30, "pack": 40, "collate": 300
}
FIXED = [(n, batch, seed, epoch, world)
         for n, batch in ((66, 16), (100, 8), (1000, 7), (5, 4), (1, 3))
         for seed, epoch in ((42, 0), (7, 3))
         for world in (1, 3)]


def fixed_orders():
    for rows, batch, seed, epoch, world in FIXED:
        for rank in range(world):
            yield {
                "kind": "order", "sampler": "random", "rows": rows, "batch_size": batch,
                "seed": seed, "epoch": epoch, "rank": rank, "world": world, "drop_last": False,
                "even_batches": True, "split_batches": False
            }


def main():
    try:
        import accelerate  # noqa: F401
        import data_cases
        import trl  # noqa: F401
    except ImportError as error:
        print("skipped: the Python peer is not there:", error)
        return 77
    program = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/unit_data"
    if not program.exists():
        print(f"skipped: {program} is not built")
        return 77
    seed = os.environ.get("DATA_CASES_SEED", "1")
    if seed == "random":
        seed = str(random.SystemRandom().randrange(10**6))
    print("seed", seed)
    cases = [data_cases.answered(case) for case in fixed_orders()]
    for kind, count in COUNTS.items():
        cases += data_cases.make(kind, count, seed)
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = pathlib.Path(folder,
                                          "cases.json"), pathlib.Path(folder, "answers.json")
        questions.write_text(
            json.dumps([{k: v for k, v in case.items() if k != "expected"} for case in cases]))
        subprocess.run(
            [program, "--gtest_filter=PeerCases.AreAnsweredForTheDifferentialTest"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ |
            {"GRADUS_DATA_CASES": str(questions), "GRADUS_DATA_ANSWERS": str(answers)},
        )
        given = json.loads(answers.read_text())
    wrong = [(case, answer)
             for case, answer in zip(cases, given, strict=True)
             if answer != case["expected"]]
    for case, answer in wrong[:5]:
        print("case", json.dumps(case), "\ngradus", json.dumps(answer))
    print(f"{len(cases)} cases, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
