"""The Python side of text_to_text: text_to_text_peer.py QUESTION, printed as `RESULT {json}`."""
import json
import sys
import time

import numpy as np
import torch
import transformers


class Clock(transformers.TrainerCallback):
    """Seconds at every log; a log has read the loss, so the device is done with the step."""
    def __init__(self):
        self.times = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in (logs or {}):
            self.times.append(time.perf_counter())


def rows_of(path, tokenizer, source, target):
    rows = []
    for line in open(path):
        row = json.loads(line)
        made = tokenizer(row["text"], truncation=True, max_length=source)
        labels = tokenizer(row["summary"], truncation=True, max_length=target)
        rows.append({
            "input_ids": made["input_ids"], "attention_mask": made["attention_mask"],
            "labels": labels["input_ids"]
        })
    return rows


def main():
    asked = json.loads(sys.argv[1])
    transformers.logging.set_verbosity_error()
    batch, source, target = asked["shape"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked["model"])
    model = transformers.T5ForConditionalGeneration.from_pretrained(asked["model"],
                                                                    dtype=torch.float32)
    training = asked["mode"] == "train"
    clock = Clock()
    args = transformers.Seq2SeqTrainingArguments(
        output_dir="/tmp/gradus-bench-peer", per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch, max_steps=asked["steps"], logging_steps=10,
        bf16=not asked["cpu"], use_cpu=asked["cpu"], save_strategy="no", report_to="none",
        disable_tqdm=True, learning_rate=3e-4, warmup_steps=10, seed=42, torch_compile=training and
        asked["compile"] and not asked["cpu"], dataloader_num_workers=2 if training else 0,
        optim="adamw_torch_fused", predict_with_generate=not training, generation_max_length=target,
        generation_num_beams=4)
    data = rows_of(asked["train" if training else "test"], tokenizer, source, target)
    trainer = transformers.Seq2SeqTrainer(
        model=model, args=args, train_dataset=data if training else None, callbacks=[clock],
        processing_class=tokenizer,
        data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, model=model))
    if training:
        trainer.train()
        gaps = [1000 * (b - a) / 10 for a, b in zip(clock.times, clock.times[1:])]
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        answer = {"ms": gaps, "losses": losses}
    else:
        trainer.evaluate(data)  # warms up
        made = trainer.predict(data)
        ids = np.where(made.predictions != -100, made.predictions, tokenizer.pad_token_id)
        answer = {
            "seconds": made.metrics["test_runtime"], "loss": made.metrics["test_loss"],
            "tokens": float(np.mean((ids != tokenizer.pad_token_id).sum(1))), "text": [
                text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)
            ]
        }
    print("RESULT " + json.dumps(answer))


if __name__ == "__main__":
    main()
