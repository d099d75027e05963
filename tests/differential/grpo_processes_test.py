"""GRPO, RLOO and on-policy distillation in two processes beside trl's in two.

With given completions and with sampled ones; groups that lie in one process and groups that both
share. Compared: the gradients of the first step and every logged value of training and evaluation,
within 1e-4 relative; those of process 1 equal those of process 0. Both sides use Gloo on 127.0.0.1.
A selection by default, GRADUS_FULL_MATRIX=1 runs all. Without the peer: exit code 77.
"""
import json
import pathlib
import random
import sys
import tempfile
import warnings

import grpo_test
from grpo_test import FULL, TWICE
from processes_test import run_together

ARGS = dict(ddp_backend="gloo", ddp_timeout=60)
# Each process has half of the completions of a prompt; `places` is where its half begins.
SHARED = dict(places=2)
HALVES = dict(per_device_train_batch_size=2)


def cases():
    """As grpo_test.py's."""
    yield ("groups shared by both", "grpo", True,
           dict(beta=0.1, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=2,
                **HALVES), dict(rewards=2, **SHARED))
    yield ("whole groups, two iterations", "grpo", True,
           dict(loss_type="grpo", max_steps=20, gradient_accumulation_steps=2, **TWICE), {})
    yield ("rloo, shared", "rloo", True, dict(num_iterations=2, **HALVES),
           dict(rewards=2, **SHARED))
    yield "samples", "grpo", False, dict(max_steps=4, steps_per_generation=2, **HALVES), {}
    if not FULL:
        return
    for loss in grpo_test.LOSSES:
        yield (f"{loss}", "grpo", True, dict(loss_type=loss, beta=0.1, **TWICE, **HALVES),
               dict(rewards=2, **SHARED))
    yield ("batch scaling, truncated masked", "grpo", True,
           dict(scale_rewards="batch", mask_truncated_completions=True, **HALVES), SHARED)
    yield ("normalize then sum", "grpo", True,
           dict(multi_objective_aggregation="normalize_then_sum", **HALVES),
           dict(rewards=2, **SHARED))
    yield ("half of the tokens, adaptive entropy", "grpo", True,
           dict(top_entropy_quantile=0.5, use_adaptive_entropy=True, entropy_target=5.76,
                entropy_coef=0.01, gradient_accumulation_steps=2, **HALVES), SHARED)
    yield ("off-policy masked", "grpo", True,
           dict(off_policy_mask_threshold=0.001, **TWICE, **HALVES), SHARED)
    yield "reward model", "grpo", True, HALVES, dict(judge=True, **SHARED)
    yield ("adapter", "grpo", False, dict(beta=0.1),
           dict(lora=dict(r=4, target_modules=["q_proj", "v_proj"])))
    yield "rloo samples", "rloo", False, dict(max_steps=4), {}
    yield "distillation samples", "distillation", False, dict(max_steps=4, beta=0.5), {}


def worker(questions, answers):
    """One of the Python processes."""
    warnings.simplefilter("ignore")
    results = []
    for job in json.loads(pathlib.Path(questions).read_text()):
        with tempfile.TemporaryDirectory() as place:
            results.append(grpo_test.trained_by_trl(job, pathlib.Path(place)))
    pathlib.Path(answers).write_text(json.dumps(results))


def without_clock(history):
    return [{name: value for name, value in entry.items()
             if not name.endswith(("_runtime", "_per_second", "total_flos", "step_time"))}
            for entry in history]


def main():
    chosen = [case for case in cases() if not sys.argv[1:] or sys.argv[1] in case[0]]
    failures = []
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        grpo_test.make_place(place, random.Random(4))
        jobs = [grpo_test.make_job(number, case, place) for number, case in enumerate(chosen)]
        for job in jobs:
            job["args"] |= ARGS
        (place / "questions.json").write_text(json.dumps(jobs))
        theirs = run_together([sys.executable, __file__, "--worker"], place)
        ours = run_together([grpo_test.TOOL], place)
        for i, (label, *_) in enumerate(chosen):
            found = grpo_test.failures_of(label, ours[0][i], theirs[0][i], bound=1e-4)
            if not found and (without_clock(ours[0][i]["log_history"]) != without_clock(
                    ours[1][i]["log_history"])):
                found = [f"{label}: process 1 logs other values than process 0"]
            print(f"{label}: {'failed' if found else 'equal'}")
            failures += found
    print("\n".join(failures[:60]))
    print(f"{len(chosen)} runs in two processes, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main())
