"""SFTTrainer, RewardTrainer, DPOTrainer and KTOTrainer in two processes beside trl's in two.

Compared: the gradients of the first step, and every logged value of training and evaluation, within
1e-4 relative; those of process 1 equal those of process 0. A sharded run of ours (ZeRO-3) is
compared with trl's plain one, without gradients, which no process has whole. Where the rows do not
fill the last batches of a pass, both sides fill them up from its beginning. Five cases by default,
GRADUS_FULL_MATRIX=1 for all. Without the peer: exit code 77.
"""
import random

import preference_test
from trl_processes import main
from trl_runs import FULL, chosen

ARGS = dict(max_steps=10, eval_steps=5)
LLAMA, LORA = preference_test.LLAMA, preference_test.LORA
# label, case as in preference_test.py, rows to evaluate on, and rows to train on if not 64
CASES = [
    ("sft, the last evaluation batch is not full", ("sft", LLAMA, "text", {}, {}), 10),
    ("dpo, LoRA", ("dpo", LLAMA, "pair", {}, dict(lora=LORA)), 16),
    ("sft, LoRA, ZeRO-3", ("sft", LLAMA, "text", {}, dict(lora=LORA, zero_stage=3)), 16),
    ("sft, ZeRO-3", ("sft", LLAMA, "pair", {}, dict(zero_stage=3)), 16),
    ("sft, the last training batch is not full, label smoothing",
     ("sft", LLAMA, "pair", dict(label_smoothing_factor=0.1), {}), 8, 49),
]
if FULL:
    CASES += [
        ("sft", ("sft", LLAMA, "text", {}, {}), 16),
        ("sft, one batch a step",
         ("sft", LLAMA, "pair", dict(gradient_accumulation_steps=1), {}), 16),
        ("sft, one row is left", ("sft", LLAMA, "pair", {}, {}), 9),
        ("reward", ("reward", LLAMA, "pair", {}, {}), 16),
        ("reward, one row is left", ("reward", LLAMA, "pair", {}, {}), 9),
        ("dpo", ("dpo", LLAMA, "chat_pair", {}, {}), 16),
        ("dpo, two rows are left", ("dpo", LLAMA, "chat_pair", {}, {}), 10),
        ("dpo, one row is left", ("dpo", LLAMA, "pair", {}, {}), 9),
        ("dpo, LoRA, ZeRO-3", ("dpo", LLAMA, "pair", {}, dict(lora=LORA, zero_stage=3)), 16),
        ("kto", ("kto", LLAMA, "labelled", {}, {}), 16),
        ("kto, one row is left", ("kto", LLAMA, "labelled", {}, {}), 9),
        *[(f"{trainer}, {rows} rows to train on", (trainer, LLAMA, form, {}, {}), 8, rows)
          for trainer, form in (("sft", "messages"), ("dpo", "pair"), ("kto", "labelled"),
                                ("reward", "pair")) for rows in (43, 46, 49)],
        ("dpo, GPT-2, reference follows",
         ("dpo", preference_test.GPT2, "pair", dict(sync_ref_model=True, ref_model_sync_steps=3),
          {}), 8),
        ("sft, one batch a step, 45 rows to train on",
         ("sft", LLAMA, "text", dict(gradient_accumulation_steps=1, max_steps=14), {}), 8, 45),
        ("sft, 30 rows to train on, the rest left out",
         ("sft", LLAMA, "text", dict(dataloader_drop_last=True), {}), 8, 30),
        ("sft, LoRA, ZeRO-3, 45 rows to train on",
         ("sft", LLAMA, "text", {}, dict(lora=LORA, zero_stage=3)), 8, 45),
    ]


def make_cases(place):
    rng = random.Random(4)
    return [(label, preference_test.make_job(number, (*case[:3], ARGS | case[3], case[4]), place,
                                             rng, rows=(*train, 64)[:1] + (left,)))
            for number, (label, case, left, *train) in enumerate(chosen(CASES))]


if __name__ == "__main__":
    main(__file__, "preference_tool", make_cases, preference_test.trained_by_trl)
