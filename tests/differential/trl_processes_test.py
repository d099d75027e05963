"""SFTTrainer, RewardTrainer, DPOTrainer and KTOTrainer in two processes beside trl's in two.

Compared: the gradients of the first step, and every logged value of training and evaluation, within
1e-4 relative; those of process 1 equal those of process 0. Both sides use Gloo on 127.0.0.1. Two
cases by default, GRADUS_FULL=1 for all. Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import sys
import tempfile

import preference_test
from processes_test import run_together

ARGS = dict(ddp_backend="gloo", ddp_timeout=60, max_steps=10, eval_steps=5)
LLAMA, LORA = preference_test.LLAMA, preference_test.LORA
CASES = [
    ("sft", ("sft", LLAMA, "text", {}, {})),
    ("dpo, LoRA", ("dpo", LLAMA, "pair", {}, dict(lora=LORA))),
]
if os.environ.get("GRADUS_FULL"):
    CASES += [
        ("sft, one batch a step", ("sft", LLAMA, "pair", dict(gradient_accumulation_steps=1), {})),
        ("reward", ("reward", LLAMA, "pair", {}, {})),
        ("dpo", ("dpo", LLAMA, "chat_pair", {}, {})),
        ("kto", ("kto", LLAMA, "labelled", {}, {})),
    ]


def worker(questions, answers):
    """One of the Python processes."""
    trl, results = preference_test.trl, []
    preference_test.TRAINERS["sft"] = (trl.SFTTrainer, trl.SFTConfig)
    for job in json.loads(pathlib.Path(questions).read_text()):
        with tempfile.TemporaryDirectory() as place:
            result = preference_test.trained_by_trl(job, pathlib.Path(place))
        result["gradients"] = {name: gradient.tolist()
                               for name, gradient in result["gradients"].items()}
        results.append(result)
    pathlib.Path(answers).write_text(json.dumps(results))


def without_clock(history):
    return [{name: value for name, value in entry.items()
             if not name.endswith(("_runtime", "_per_second", "total_flos"))} for entry in history]


def difference(mine, theirs):
    """The first difference, as text; empty when there is none."""
    for name, gradient in theirs["gradients"].items():
        ours = mine["gradients"][name.replace(".base_layer", "")]
        largest = max(1.0, *map(abs, gradient))
        if len(ours) != len(gradient) or any(
                not abs(a - b) <= 1e-4 * largest for a, b in zip(ours, gradient)):
            return f"the gradient of {name}"
    ours, others = without_clock(mine["log_history"]), without_clock(theirs["log_history"])
    if len(ours) != len(others):
        return f"{len(ours)} log entries, trl {len(others)}"
    for entry, other in zip(ours, others):
        for name, value in other.items():
            if not abs(entry.get(name, float("nan")) - value) <= 1e-4 * max(1.0, abs(value)):
                return f"step {other['step']}, {name}: {entry.get(name)}, trl {value}"
    return ""


def make_jobs(place):
    rng, jobs = random.Random(4), []
    for number, (_, case) in enumerate(CASES):
        # 64 and 16 rows: whole batches in both processes
        job = preference_test.make_job(number, case, place, rng, rows=(64, 16))
        job["args"] |= ARGS
        jobs.append(job)
    return jobs


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        jobs = make_jobs(place)
        (place / "questions.json").write_text(json.dumps(jobs))
        theirs = run_together([sys.executable, __file__, "--worker"], place)
        ours = run_together([preference_test.TOOL], place)
        for i, (label, _) in enumerate(CASES):
            found = difference(ours[0][i], theirs[0][i])
            if not found and (without_clock(ours[0][i]["log_history"]) != without_clock(
                    ours[1][i]["log_history"])):
                found = "process 1 logs other values than process 0"
            print(f"{label}: {found or 'equal'}")
            failures += bool(found)
    print(f"{len(CASES)} runs in two processes, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main())
