"""One workload with Python's Trainer: prints `RESULT {json}`. Used by benchmarks/gpu/run."""
import argparse
import json
import time

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer,
    DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments
)
from workloads import IS_TINY, WORKLOADS


class Blocks(torch.utils.data.Dataset):
    def __init__(self, path, tokens, wide):
        self.ids = np.memmap(path, dtype=np.uint32 if wide else np.uint16, mode="r")
        self.tokens = tokens

    def __len__(self):
        return len(self.ids) // self.tokens

    def __getitem__(self, i):
        ids = torch.from_numpy(self.ids[i * self.tokens:(i + 1) * self.tokens].astype(np.int64))
        return {"input_ids": ids, "labels": ids}


class Texts(torch.utils.data.Dataset):
    def __init__(self, path, tokenizer):
        rows = [json.loads(line) for line in open(path)]
        self.rows = [
            dict(tokenizer(row["sentence"], truncation=True, max_length=128), label=row["label"])
            for row in rows
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Clock(TrainerCallback):
    """Seconds at every log; a log has read the loss, so the device is done with the step."""
    def __init__(self):
        self.times = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            if not IS_TINY:
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())


parser = argparse.ArgumentParser()
parser.add_argument("name")
parser.add_argument("model")
parser.add_argument("data")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--seed", type=int, default=42)
options = parser.parse_args()
work = WORKLOADS[options.name]

collator = None
if options.name == "bert-base":
    model = AutoModelForSequenceClassification.from_pretrained(options.model, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    data, collator = Texts(options.data, tokenizer), DataCollatorWithPadding(tokenizer)
else:
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    data = Blocks(options.data, work["tokens"], work["config"]["vocab_size"] > 65535)
clock = Clock()
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="/tmp/gradus-bench-peer",
                           per_device_train_batch_size=work["batch"], max_steps=options.steps,
                           logging_steps=10, bf16=not IS_TINY, use_cpu=IS_TINY, save_strategy="no",
                           report_to="none", disable_tqdm=True, torch_compile=options.compile,
                           learning_rate=3e-4, warmup_steps=10, dataloader_num_workers=2,
                           seed=options.seed,
                           optim="adamw_torch_fused"), train_dataset=data, data_collator=collator,
    callbacks=[clock])
trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
gaps = [1000 * (b - a) / 10 for a, b in zip(clock.times, clock.times[1:])]
peak = 0 if IS_TINY else torch.cuda.max_memory_allocated()
print("RESULT " + json.dumps({"ms": gaps, "losses": losses, "peak_gb": peak / 2**30}))
