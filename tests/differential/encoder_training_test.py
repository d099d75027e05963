"""Encoders through both trainers: a tiny model of each kind, the same folder, rows and flags, no
dropout.

50 steps with accumulation, warm-up, clipping and evaluation (label smoothing where the head is a
classifier; the masks of masked language modelling are in the rows): every logged loss, gradient
norm, rate and metric within 1e-5 relative. Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/encoders_tool"
AUTO = {
    "masked_lm": transformers.AutoModelForMaskedLM,
    "sequence_classification": transformers.AutoModelForSequenceClassification,
    "token_classification": transformers.AutoModelForTokenClassification,
    "question_answering": transformers.AutoModelForQuestionAnswering
}
VOCAB, TOKENS, PAD = 60, 12, 1
BERT = dict(model_type="bert", vocab_size=VOCAB, hidden_size=32, intermediate_size=64,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=20,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD)
DISTILBERT = dict(model_type="distilbert", vocab_size=VOCAB, dim=32, hidden_dim=64, n_layers=2,
                  n_heads=4, max_position_embeddings=20, dropout=0.0, attention_dropout=0.0,
                  qa_dropout=0.0, seq_classif_dropout=0.0, pad_token_id=PAD)
ROBERTA = {**BERT, "model_type": "roberta"}
ARGS = dict(max_steps=50, per_device_train_batch_size=4, per_device_eval_batch_size=8,
            gradient_accumulation_steps=3, learning_rate=2e-3, warmup_steps=10, max_grad_norm=0.5,
            weight_decay=0.01, logging_steps=1, eval_strategy="steps", eval_steps=20,
            save_strategy="no", seed=11, report_to="none", use_cpu=True, disable_tqdm=True)
RUNS = [("bert", BERT, "sequence_classification", {"label_smoothing_factor": 0.1}),
        ("bert", BERT, "masked_lm", {}),
        ("bert", BERT, "token_classification", {"gradient_checkpointing": True}),
        ("roberta", ROBERTA, "masked_lm", {"gradient_accumulation_steps": 1}),
        ("roberta", ROBERTA, "sequence_classification", {}),
        ("distilbert", DISTILBERT, "question_answering", {}),
        ("distilbert", DISTILBERT, "sequence_classification",
         {"lr_scheduler_type": "cosine", "label_smoothing_factor": 0.2})]


def make_rows(rng, task, types, count):
    rows = []
    for _ in range(count):
        length = rng.randrange(5, TOKENS + 1)
        ids = [rng.randrange(4, VOCAB) for _ in range(length)]
        row = {
            "input_ids": ids + [PAD] * (TOKENS - length),
            "attention_mask": [1] * length + [0] * (TOKENS - length)
        }
        if types:
            row["token_type_ids"] = [int(place >= 4) for place in range(TOKENS)]
        if task == "sequence_classification":
            row["label"] = sum(ids) % 3
        elif task == "token_classification":
            row["labels"] = [token % 3 for token in ids] + [-100] * (TOKENS - length)
        elif task == "masked_lm":
            row["labels"] = [-100] * TOKENS
            for place in rng.sample(range(length), max(1, length // 4)):
                row["labels"][place], row["input_ids"][place] = row["input_ids"][place], 3
        else:
            row["start_positions"] = rng.randrange(length)
            row["end_positions"] = rng.randrange(row["start_positions"], length)
        rows.append(row)
    return rows


def python_logs(job):
    model = AUTO[job["task"]].from_pretrained(job["folder"])

    def accuracy(prediction):
        return {
            "accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())
        }

    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(**job["args"]), train_dataset=job["train"],
        eval_dataset=job["eval"], data_collator=transformers.default_data_collator,
        compute_metrics=accuracy if job["task"] == "sequence_classification" else None)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return trainer.state.log_history


def compare(ours, theirs, what):
    assert len(ours) == len(theirs), (what, len(ours), len(theirs))
    worst = 0.0
    for mine, other in zip(ours, theirs):
        assert mine.keys() == other.keys(), (what, sorted(mine), sorted(other))
        for key, value in other.items():
            if key.endswith(("_runtime", "_per_second")) or key == "total_flos":
                continue
            difference = abs(mine[key] - value) / max(abs(value), 1e-3)
            assert difference <= 1e-5, (what, mine["step"], key, mine[key], value)
            worst = max(worst, difference)
    return worst


def make_jobs(count, make_job, folder, seed):
    """`make_job(number, folder, rng)` for each number, on one thread and without the messages of
    transformers.
    """
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rng, jobs = random.Random(seed), []
    for number in range(count):
        torch.manual_seed(number)
        jobs.append(make_job(number, os.path.join(folder, str(number)), rng))
    return jobs


def ask(tool, jobs, folder):
    questions, answers = pathlib.Path(folder, "jobs.json"), pathlib.Path(folder, "answers.json")
    questions.write_text(json.dumps(jobs))
    subprocess.run([tool, questions, answers], check=True)
    return json.loads(answers.read_text())


def train_both(labels, make_job):
    """Trains `make_job(number, folder, rng)` of every label with both trainers: 50 steps, whose
    logs must be equal.
    """
    with tempfile.TemporaryDirectory() as folder:
        jobs = make_jobs(len(labels), make_job, folder, seed=3)
        for label, job, answer in zip(labels, jobs, ask(TOOL, jobs, folder), strict=True):
            assert answer["global_step"] == 50
            worst = compare(answer["log_history"], python_logs(job), label)
            losses = [entry["loss"] for entry in answer["log_history"] if "loss" in entry]
            print(f"{label}: 50 steps equal (largest relative difference {worst:.1e}), loss "
                  f"{losses[0]:.3f} to {losses[-1]:.3f}")


def make_job(number, place, rng):
    label, config, task, changes = RUNS[number]
    extra = {"num_labels": 3} if task in ("sequence_classification", "token_classification") else {}
    config = transformers.AutoConfig.for_model(**config, **extra)
    AUTO[task].from_config(config).save_pretrained(place)
    types = label != "distilbert"
    return {
        "folder": place, "task": task, "train": make_rows(rng, task, types, 90),
        "eval": make_rows(rng, task, types,
                          20), "args": {**ARGS, **changes, "output_dir": place + "/out"}
    }


if __name__ == "__main__":
    train_both([f"{label} {task}" for label, _, task, _ in RUNS], make_job)
