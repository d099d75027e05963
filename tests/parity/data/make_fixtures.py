"""Writes cases.json: inputs of the data part with the peer's answers. Run with the Python that has
the peer installed.
"""

import json
import pathlib

import collator_cases
import data_cases

COUNTS = {
    "order": 40, "grouped": 12, "rebalance": 16, "repeat": 10, "shard": 15, "iterable_shard": 20,
    "shuffle": 6, "split": 10, "interleave": 16, "pack": 24
}


def main():
    cases = [case for kind, count in COUNTS.items() for case in data_cases.make(kind, count, 1)]
    rng = data_cases.random.Random("collators")
    for name in collator_cases.COLLATOR_ROWS:
        cases += [data_cases.answered(collator_cases.collate_case(rng, name)) for _ in range(14)]
    for lengths in data_cases.REBALANCE_SET_ORDER:
        case = {
            "kind": "rebalance", "lengths": lengths, "effective_batch_size": len(lengths),
            "grad_accum": 3, "shuffle": False, "seed": 42, "epoch": 0, "world": 4,
            "drop_last": False
        }
        cases += [data_cases.answered(case | {"rank": rank}) for rank in range(4)]
    cases.append(data_cases.answered(data_cases.pack_case(
        rng, rows=2300)))  # more than the peer packs at once
    lines = ",\n".join(json.dumps(case) for case in cases)
    pathlib.Path(__file__).with_name("cases.json").write_text(f"[\n{lines}\n]\n")
    print(len(cases), "cases,", sum(1 for case in cases if case["expected"].get("error")),
          "of them errors")


if __name__ == "__main__":
    main()
