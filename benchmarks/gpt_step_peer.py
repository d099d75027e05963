"""The Python side of gpt_step.py, in a process of its own: gpt_step_peer.py train STEPS
[VOCABULARY].
"""

import json
import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

ROWS, BATCH, TOKENS, WARM_UP = 512, 8, 128, 5


class Marks(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == WARM_UP:
            self.begin = time.perf_counter()
        self.end = time.perf_counter()


def peak():
    return next(
        int(line.split()[1]) / 1024
        for line in open("/proc/self/status")
        if line.startswith("VmHWM"))


def main():
    steps = int(sys.argv[2])
    vocabulary = int(sys.argv[3]) if len(sys.argv) > 3 else 8192
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocabulary, n_positions=TOKENS, n_embd=256, n_layer=4, n_head=4,
                   bos_token_id=0, eos_token_id=0))
    ids = torch.randint(0, vocabulary, (ROWS, TOKENS))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    args = TrainingArguments(output_dir="gradus_bench_gpt_peer", per_device_train_batch_size=BATCH,
                             max_steps=steps, learning_rate=5e-4, weight_decay=0.01,
                             logging_steps=10, disable_tqdm=True, save_strategy="no",
                             report_to="none", use_cpu=True, dataloader_pin_memory=False,
                             ddp_backend="gloo" if "RANK" in os.environ else None)
    marks = Marks()
    result = Trainer(model=model, args=args, train_dataset=rows, callbacks=[marks]).train()
    if os.environ.get("RANK", "0") != "0":
        return
    print(
        json.dumps({
            "tokens": (steps - WARM_UP) * BATCH * TOKENS / (marks.end - marks.begin),
            "peak": peak(), "loss": result.training_loss
        }))


if __name__ == "__main__":
    main()
