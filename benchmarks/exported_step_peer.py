"""The Python side of exported_step.py: prints the median seconds of a step of Python's Trainer."""

import json
import sys
import time

import numpy as np
import torch
import transformers

folder, steps, rows, tokens = sys.argv[1], *map(int, sys.argv[2:])
model = transformers.AutoModelForCausalLM.from_pretrained(folder + "/model")
ids = torch.from_numpy(np.fromfile(folder + "/tokens.bin", dtype=np.uint16).astype(np.int64))
data = [{"input_ids": row, "labels": row} for row in ids.view(-1, tokens)]
times = []


class Clock(transformers.TrainerCallback):

    def on_step_end(self, *_, **__):
        times.append(time.perf_counter())


transformers.Trainer(
    model,
    transformers.TrainingArguments(output_dir=folder + "/theirs", per_device_train_batch_size=rows,
                                   max_steps=steps, learning_rate=5e-4, logging_steps=10,
                                   save_strategy="no", report_to="none", use_cpu=True,
                                   disable_tqdm=True, seed=1), train_dataset=data,
    callbacks=[Clock()]).train()
gaps = sorted(b - a for a, b in zip(times[5:], times[6:]))
print(json.dumps(gaps[len(gaps) // 2]))
