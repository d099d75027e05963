"""The Python side of train_step.py, in a process of its own: train_step_peer.py step STEPS | first
| save DIR.
"""

import json
import sys
import time

import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(()))
        self.b = torch.nn.Parameter(torch.zeros(()))

    def forward(self, input_x, labels=None):
        y = input_x * self.a + self.b
        return (torch.nn.functional.mse_loss(y, labels), y)


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.x = np.random.RandomState(0).normal(size=64).astype(np.float32)

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {"input_x": self.x[i], "labels": 2 * self.x[i] + 3}


class Big(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(5477, 5477)

    def forward(self, x):
        return (self.linear(x).mean(),)


def arguments(folder, **more):
    return TrainingArguments(output_dir=folder, learning_rate=1e-3, logging_steps=500,
                             disable_tqdm=True, report_to="none", use_cpu=True, **more)


class Marks(TrainerCallback):
    def __init__(self):
        self.begin = self.step_end = None
        self.pauses = []

    def on_step_end(self, args, state, control, **kwargs):
        self.step_end = time.perf_counter()
        if state.global_step == 100:
            self.begin = time.perf_counter()

    def on_save(self, args, state, control, **kwargs):
        self.pauses.append(time.perf_counter() - self.step_end)


def main():
    mode = sys.argv[1]
    marks = Marks()
    if mode == "save":
        rows = [{"x": np.random.normal(size=5477).astype(np.float32)} for _ in range(16)]
        args = arguments(sys.argv[2], max_steps=9, per_device_train_batch_size=1,
                         save_strategy="steps", save_steps=3, save_total_limit=1)
        Trainer(model=Big(), args=args, train_dataset=rows, callbacks=[marks]).train()
        print(json.dumps({"seconds": sorted(marks.pauses)[len(marks.pauses) // 2]}))
        return
    torch.set_num_threads(1)
    steps = int(sys.argv[2]) if mode == "step" else 1
    args = arguments("/tmp/gradus_bench_peer", max_steps=steps, per_device_train_batch_size=8,
                     save_strategy="no")
    Trainer(model=Regression(), args=args, train_dataset=Rows(), callbacks=[marks]).train()
    if mode == "step":
        print(
            json.dumps({"microseconds": (time.perf_counter() - marks.begin) / (steps - 100) * 1e6}))


if __name__ == "__main__":
    main()
