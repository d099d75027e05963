"""One workload with Python's Trainer: prints `RESULT {json}`. For benchmarks/gpu/long_inputs."""
import csv
import json
import os
import sys
import time
import wave

import numpy as np
import torch
import transformers

question = json.loads(sys.argv[1])
model_folder, data_folder = (os.path.join(question["folder"], f"{question['name']}-{part}")
                             for part in ("model", "data"))


class Clock(transformers.TrainerCallback):
    """Seconds at every log; a log has read the loss, so the device is done with the step."""
    def __init__(self):
        self.times = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            self.times.append(time.perf_counter())


class CtcCollator:
    """That of the speech recognition script."""
    def __init__(self, processor):
        self.processor = processor

    def __call__(self, rows):
        batch = self.processor.pad([{"input_values": row["input_values"]} for row in rows],
                                   padding=True, return_tensors="pt")
        labels = self.processor.pad(labels=[{"input_ids": row["labels"]} for row in rows],
                                    padding=True, return_tensors="pt")
        batch["labels"] = labels["input_ids"].masked_fill(labels.attention_mask.ne(1), -100)
        return batch


def speech():
    processor = transformers.Wav2Vec2Processor.from_pretrained(model_folder)
    rows = []
    with open(os.path.join(data_folder, "train", "metadata.csv")) as file:
        for row in csv.DictReader(file):
            with wave.open(os.path.join(data_folder, "train", row["file_name"])) as clip:
                sound = np.frombuffer(clip.readframes(clip.getnframes()), "<i2") / 32768
            rows.append({
                "input_values": processor(sound.astype(np.float32),
                                          sampling_rate=16000).input_values[0],
                "labels": processor.tokenizer(row["text"] + " ").input_ids
            })
    model = transformers.Wav2Vec2ForCTC.from_pretrained(model_folder, dtype=torch.float32)
    return model, rows, CtcCollator(processor)


def text():
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    with open(os.path.join(data_folder, "train.txt")) as file:
        ids = [tokenizer(line).input_ids for line in file]
    size = question["size"]
    joined = [token for row in ids for token in row]
    rows = [{"input_ids": joined[i:i + size]} for i in range(0, len(joined) - size + 1, size)]
    model = transformers.BigBirdForMaskedLM.from_pretrained(model_folder, dtype=torch.float32)
    return model, rows, transformers.DataCollatorForLanguageModeling(tokenizer)


model, rows, collator = speech() if question["name"] == "wav2vec2" else text()
clock = Clock()
trainer = transformers.Trainer(
    model=model,
    args=transformers.TrainingArguments(
        output_dir="/tmp/gradus-bench-peer", per_device_train_batch_size=question["batch"],
        max_steps=question["steps"], logging_steps=10, bf16=not question["cpu"],
        save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=question["cpu"],
        torch_compile=question["compile"], learning_rate=1e-4, warmup_steps=10,
        dataloader_num_workers=2, seed=42, optim="adamw_torch_fused"), train_dataset=rows,
    data_collator=collator, callbacks=[clock])
trainer.train()
print("RESULT " + json.dumps({
    "ms": [1000 * (b - a) / 10 for a, b in zip(clock.times, clock.times[1:])],
    "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
}))
