"""GRPO, RLOO and on-policy distillation in two processes beside trl's in two.

With given completions and with sampled ones; groups that lie in one process and groups that both
share. Compared: the gradients of the first step and every logged value of training and evaluation,
within 1e-4 relative; those of process 1 equal those of process 0. Both sides use Gloo on 127.0.0.1.
A selection by default, GRADUS_FULL_MATRIX=1 runs all. Without the peer: exit code 77.
"""
import functools

import grpo_test
from grpo_test import TWICE
from trl_processes import main
from trl_runs import FULL

# Each process has half of the completions of a prompt; `places` is where its half begins.
SHARED = dict(places=2)
HALVES = dict(per_device_train_batch_size=2)


def cases():
    """As grpo_test.py's."""
    yield ("groups shared by both", "grpo", True,
           dict(beta=0.1, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=4,
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


if __name__ == "__main__":
    main(__file__, "grpo_tool", functools.partial(grpo_test.make_cases, cases=cases),
         grpo_test.trained_by_trl, more="reward")
