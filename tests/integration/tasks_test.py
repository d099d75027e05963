"""tasks_test.py GRADUS TINY_MODELS: the text tasks of the program, from files to result files, with
models made by TINY_MODELS.

Every task is trained, evaluated and used for predictions; what is wrong with flags or files is
answered with exit code 2 (before data or model was opened) or 1 (later) and one message with an id.
Uses only the standard library.
"""

import csv
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from on_gpu import on_gpu

GRADUS, TINY_MODELS = (str(Path(word).resolve()) for word in sys.argv[1:3])
ON_GPU = on_gpu(GRADUS)
failures = []
SHORT = [
    "--max_steps", "6", "--per_device_train_batch_size", "4", "--learning_rate", "1e-3",
    "--disable_tqdm", *([] if ON_GPU else ["--use_cpu"]), "--report_to", "none", "--save_strategy",
    "no", "--logging_steps", "2"
]
TRAIN_KEYS = {
    "epoch", "total_flos", "train_loss", "train_runtime", "train_samples",
    "train_samples_per_second", "train_steps_per_second"
}
EVAL_KEYS = {
    "epoch", "eval_loss", "eval_runtime", "eval_samples", "eval_samples_per_second",
    "eval_steps_per_second"
}


def fail(name, problem, stderr=""):
    failures.append(name)
    print(f"FAILED {name}: {problem}\n{stderr[-2500:]}")


def gradus(cwd, *words, cache="cache"):
    return subprocess.run([GRADUS, *map(str, words)], cwd=cwd, capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, XDG_CACHE_HOME=str(cwd / cache)))


def run(name, cwd, *words):
    """A run that must end well; its result document."""
    done = gradus(cwd, *words, "--json")
    if done.returncode != 0:
        fail(name, f"exit code {done.returncode}", done.stderr)
        return {"metrics": {}}
    return json.loads(done.stdout)


def refused(name, cwd, code, text, *words):
    done = gradus(cwd, *words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("gradus: ")]
    if done.returncode != code:
        fail(name, f"exit code {done.returncode}, expected {code}", done.stderr)
    elif len(errors) != 1 or not re.search(r"\[G-[A-Z]+-\d+\]", done.stderr):
        fail(name, "expected one line `gradus: … [G-…]`", done.stderr)
    elif text not in done.stderr:
        fail(name, f"expected the text {text!r}", done.stderr)


def expect(name, condition, problem):
    if not condition:
        fail(name, problem)


def keys_of(path):
    return set(json.loads(path.read_text())) if path.exists() else set()


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def write_csv(path, header, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def causal(cwd):
    base = ["train", "--task", "causal-lm", *SHORT]
    result = run("causal-lm", cwd, *base, "--model_name_or_path", "gpt2", "--train_file",
                 "text.txt", "--validation_file", "text.txt", "--block_size", "32", "--do_eval",
                 "--max_eval_samples", "3", "--eval_strategy", "steps", "--eval_steps", "3",
                 "--output_dir", "clm")
    out = cwd / "clm"
    expect("causal-lm",
           keys_of(out / "train_results.json") == TRAIN_KEYS,
           f"train_results.json has {sorted(keys_of(out / 'train_results.json'))}")
    expect("causal-lm",
           keys_of(out / "eval_results.json") == EVAL_KEYS | {"eval_accuracy", "perplexity"},
           f"eval_results.json has {sorted(keys_of(out / 'eval_results.json'))}")
    expect(
        "causal-lm",
        keys_of(out / "all_results.json") == TRAIN_KEYS | EVAL_KEYS |
        {"eval_accuracy", "perplexity"}, "all_results.json lacks keys")
    expect("causal-lm", result["metrics"].get("eval", {}).get("eval_samples") == 3,
           "max_eval_samples counts blocks")
    for file in ("README.md", "trainer_state.json", "model.safetensors", "config.json",
                 "tokenizer.json", "generation_config.json"):
        expect("causal-lm", (out / file).exists(), f"{file} is missing")
    card = (out / "README.md").read_text() if (out / "README.md").exists() else ""
    loss = result["metrics"].get("eval", {}).get("eval_loss", 0)
    expect(
        "causal-lm card",
        "| Training Loss | Epoch  | Step | Validation Loss | Accuracy |\n|:-------------:|" in card
        and card.count("\n| ") == 3 and f"\n- Loss: {loss:.4f}\n- Accuracy: " in card and
        "\n![Training curves](training_curves.png)\n\n| Training Loss " in card, card)
    picture = (out / "training_curves.png").read_bytes()
    expect("causal-lm card", picture.startswith(b"\x89PNG") and picture.endswith(b"IEND\xaeB`\x82"),
           "training_curves.png is no picture")
    cached = sorted((cwd / "cache").rglob("*.arrow"))
    expect("causal-lm cache",
           len(cached) == 1,
           f"{len(cached)} cached files, expected 1: both splits have the same contents")
    before = cached[0].stat().st_mtime_ns if cached else 0
    evaluated = run("causal-lm eval", cwd, "eval", "--task", "causal-lm", "--model_name_or_path",
                    "clm", "--validation_file", "text.txt", "--block_size", "32",
                    "--max_eval_samples", "3", "--output_dir", "clm-eval", *SHORT[6:])
    if cached:
        expect("causal-lm cache", cached[0].stat().st_mtime_ns == before,
               "the cached file was made again")
    a, b = (each["metrics"].get("eval", {}).get("eval_loss", 0) for each in (result, evaluated))
    expect("causal-lm eval",
           abs(a - b) < 1e-6 * abs(a), f"eval_loss {b} of the saved model, {a} after training")
    expect("causal-lm eval", "eval_model_preparation_time"
           in keys_of(cwd / "clm-eval/eval_results.json"), "eval_model_preparation_time is missing")
    predicted = run("causal-lm predict", cwd, "predict", "--task", "causal-lm",
                    "--model_name_or_path", "clm", "--test_file", "text.txt", "--block_size", "32",
                    "--max_predict_samples", "3", "--output_dir", "clm-predict", *SHORT[6:])
    predicted = predicted["metrics"].get("predict", {})
    expect(
        "causal-lm predict",
        keys_of(cwd / "clm-predict/predict_results.json") == set(predicted) and
        {"predict_loss", "predict_perplexity", "predict_accuracy"} <= set(predicted),
        f"{sorted(predicted)}")
    expect(
        "causal-lm predict",
        abs(predicted.get("predict_loss", 0) - b) < 1e-6 * abs(b) and
        abs(predicted.get("predict_perplexity", 0) - math.exp(b)) < 1e-4 * math.exp(b),
        f"{predicted}, eval_loss of the same rows is {b}")
    overwritten(cwd, base)
    run("causal-lm fresh", cwd, *base, "--config_name", "config.json", "--tokenizer_name", "gpt2",
        "--train_file", "text.jsonl", "--block_size", "16", "--do_eval", "--output_dir", "fresh",
        "--overwrite_cache")
    expect("causal-lm fresh",
           json.loads((cwd / "fresh/config.json").read_text())["vocab_size"] >= 257,
           "100 vectors were not enough for the tokenizer")
    run(
        "causal-lm by type", cwd, *base, "--model_type", "llama", "--config_overrides",
        "hidden_size=32,intermediate_size=48,num_hidden_layers=1,num_attention_heads=4,"
        "num_key_value_heads=4,head_dim=8,vocab_size=300,max_position_embeddings=64",
        "--tokenizer_name", "gpt2", "--train_file", "text.txt", "--block_size", "32",
        "--output_dir", "typed")
    expect("causal-lm grows",
           json.loads((cwd / "typed/config.json").read_text())["vocab_size"] >= 300,
           "the embeddings do not hold all tokens")
    (cwd / "ids.bin").write_bytes(struct.pack("<600H", *[i % 250 for i in range(600)]))
    tokens = run("causal-lm tokens", cwd, *base, "--model_name_or_path", "llama", "--train_file",
                 "ids.bin", "--block_size", "20", "--do_eval", "--output_dir", "tokens")
    expect("causal-lm tokens", tokens["metrics"].get("train", {}).get("train_samples") == 29,
           f"{tokens['metrics'].get('train')}")

    def bad(name, code, text, *words):
        refused(f"causal-lm: {name}", cwd, code, text, *base, *words, "--output_dir", "bad")

    model, data = ["--model_name_or_path", "gpt2"], ["--train_file", "text.txt"]
    (cwd / "run.yaml").write_text('"task": causal-lm\nmodel_name_or_path: gpt2\nblock_size: 16\n')
    for words in (["--train_file", "text.json",
                   "run.yaml"], ["--do_eval", "run.yaml", "--train_file", "text.json"],
                  ["--config", "run.yaml", "--train_file", "text.json"]):
        run("causal-lm from a file", cwd, "train", *words, *SHORT, "--output_dir", "from-file")
    (cwd / "broken.json").write_text('{"task": "causal-lm",}')
    refused("config file", cwd, 2, "config file: ", "train", "broken.json")
    refused("no config file", cwd, 2, "config file: ", "train", "nowhere.yaml")
    refused("nothing to do", cwd, 2, "G-CLI-8", *base, *model, *data, "--do_train", "false",
            "--output_dir", "bad")
    (cwd / "tiny.bin").write_bytes(struct.pack("<8H", *range(8)))
    refused("no row to train on", cwd, 1, "no row to train on", *base, *model, "--train_file",
            "tiny.bin", "--block_size", "8", "--do_eval", "--output_dir", "bad")
    bad("no model", 2, "G-TASK-8", *data)
    bad("no folder", 2, "there is no folder nowhere", "--model_name_or_path", "nowhere", *data)
    bad("no data", 2, "--do_train requires a train dataset", *model)
    bad("no file", 2, "there is no file missing.txt", *model, "--train_file", "missing.txt")
    bad("no tokenizer", 2, "there is no tokenizer", "--config_name", "config.json", *data)
    bad("overrides beside a config", 2, "--config_overrides goes with --model_type alone",
        "--config_name", "config.json", "--config_overrides", "n_embd=8", "--tokenizer_name",
        "gpt2", *data)
    bad("unknown override", 2, "Did you mean n_embd", "--model_type", "gpt2", "--config_overrides",
        "n_embed=8", "--tokenizer_name", "gpt2", *data)
    bad("override of another type", 2, "must be an integer", "--model_type", "gpt2",
        "--config_overrides", "n_embd=many", "--tokenizer_name", "gpt2", *data)
    bad("unknown type", 2, "gpt2", "--model_type", "gpt3", "--tokenizer_name", "gpt2", *data)
    bad("batches apart", 2, "G-TASK-14", *model, *data, "--do_eval", "--eval_do_concat_batches",
        "false")
    bad("prediction", 2, "--do_predict requires a test dataset", *model, *data, "--do_predict")
    bad("tokens and text", 2, "of different kinds", *model, *data, "--do_predict", "--test_file",
        "ids.bin")
    bad("block above the text", 1, "at least one block of 64 tokens", *model, "--train_file",
        "short.txt")
    bad("empty file", 1, "no rows", *model, "--train_file", "empty.txt")
    bad("no text column", 1, "expected text", *model, "--train_file", "numbers.csv")
    bad("null", 1, "holds null, expected text (row ", *model, "--train_file", "null.csv")
    bad("ids outside the vocabulary", 1, "G-SRC-13", *model, "--train_file", "high.bin",
        "--block_size", "8")
    bad("ids of their own outside", 1, "G-TASK-12", *model, "--train_file", "ids.jsonl")
    bad("share too small", 1, "no row to evaluate on", *model, "--train_file", "short.txt",
        "--do_eval", "--block_size", "2")
    memory = gradus(cwd, *base, *model, *data, "--block_size", "32", "--output_dir", "no-cache",
                    cache="text.txt")
    expect("causal-lm: no place for the cache", memory.returncode == 0 and
           "kept in memory" in memory.stderr, memory.stderr[-800:])
    warned = gradus(cwd, *base, *model, *data, "--block_size", "4000", "--output_dir", "warned",
                    "--max_steps", "1")
    expect(
        "causal-lm: long blocks", warned.returncode == 0 and
        "larger than the maximum length for the model (64)" in warned.stderr, warned.stderr[-800:])


def overwritten(cwd, base):
    """--overwrite_output_dir leaves nothing that could pass for a result of the new run."""
    words = [
        "--model_name_or_path", "gpt2", "--train_file", "text.txt", "--block_size", "32",
        "--output_dir", "twice", "--save_strategy", "steps", "--save_steps", "6"
    ]
    run("overwritten: first", cwd, *base, *words, "--do_eval", "--do_predict", "--test_file",
        "text.txt")
    out = cwd / "twice"
    expect("overwritten", (out / "eval_results.json").exists() and
           (out / "predict_results.json").exists(), "the first run has no results")
    (out / "notes.txt").write_text("mine")
    run("overwritten: second", cwd, *base, *words, "--overwrite_output_dir")
    expect("overwritten", not (out / "eval_results.json").exists() and
           not (out / "predict_results.json").exists(), "results of the old run are left")
    expect("overwritten",
           keys_of(out / "all_results.json") == TRAIN_KEYS,
           f"all_results.json has {sorted(keys_of(out / 'all_results.json'))}")
    expect("overwritten", (out / "notes.txt").exists(), "a file that is not ours was removed")


def masked(cwd):
    base = [
        "train", "--task", "masked-lm", *SHORT, "--model_name_or_path", "bert", "--train_file",
        "text.txt", "--do_eval"
    ]
    for name, words, rows in (("lines", ["--line_by_line", "--max_seq_length",
                                         "24"], 114), ("chunks", ["--max_seq_length", "32"], None),
                              ("padded lines",
                               ["--line_by_line", "--pad_to_max_length", "--max_seq_length",
                                "32"], 114)):
        result = run(f"masked-lm {name}", cwd, *base, *words, "--output_dir",
                     f"mlm-{name}")["metrics"]
        expect(f"masked-lm {name}", rows is None or
               result.get("train", {}).get("train_samples") == rows, f"{result.get('train')}")
        expect(
            f"masked-lm {name}",
            keys_of(cwd /
                    f"mlm-{name}/eval_results.json") == EVAL_KEYS | {"eval_accuracy", "perplexity"},
            f"{sorted(keys_of(cwd / f'mlm-{name}/eval_results.json'))}")
    predicted = run("masked-lm predict", cwd, "predict", "--task", "masked-lm",
                    "--model_name_or_path", "mlm-chunks", "--test_file", "text.txt",
                    "--max_seq_length", "32", "--output_dir", "mlm-predict", *SHORT[6:])
    expect("masked-lm predict", {"predict_loss", "predict_perplexity"}
           <= set(predicted["metrics"].get("predict", {})), f"{predicted}")
    refused("masked-lm: head", cwd, 1, "has no head for masked language modeling", *base[:-5],
            "--model_name_or_path", "gpt2", "--train_file", "text.txt", "--output_dir", "bad")
    refused("masked-lm: blank lines", cwd, 1, "at least one line that is not blank", *base[:-3],
            "--train_file", "blank.txt", "--line_by_line", "--output_dir", "bad")


def class_labels(cwd, base):
    """A `datasets.save_to_disk` folder whose label is a ClassLabel: its names are the classes."""
    saved = Path(__file__).resolve().parents[1] / "parity/data/sources/saved_dict"
    run("class labels", cwd, *base, "--model_name_or_path", "bert", "--dataset_name", saved,
        "--text_column_names", "text", "--do_predict", "--output_dir", "named")
    config = json.loads((cwd / "named/config.json").read_text())
    expect("class labels",
           config.get("id2label") == {"0": "bad", "1": "good"}, f"{config.get('id2label')}")
    expect("class labels",
           config.get("label2id") == {"bad": 0, "good": 1}, f"{config.get('label2id')}")
    predicted = lines_of(cwd / "named/predict_results.txt")[1:]
    expect(
        "class labels",
        len(predicted) == 4 and all(line.split("\t")[1] in ("bad", "good") for line in predicted),
        f"{predicted}")
    run("class labels: eval", cwd, "eval", "--task", "text-classification", "--model_name_or_path",
        "named", "--dataset_name", saved, "--validation_split_name", "test", "--text_column_names",
        "text", "--max_seq_length", "32", "--output_dir", "named-eval", *SHORT[6:])


def classification(cwd):
    rows = [(line, "cat" if "cat" in line else "river" if "river" in line else "other")
            for line in (cwd / "text.txt").read_text().splitlines()]
    write_csv(cwd / "classes.csv", ["sentence", "label"], rows)
    write_csv(cwd / "values.csv", ["a", "b", "label"],
              [(text, text[::-1], len(text) / 10) for text, _ in rows])
    write_json_lines(cwd / "several.jsonl", [{
        "title": text[:20], "body": text,
        "topics": [word for word in ("cat", "Berlin", "asking") if word in text]
    } for text, _ in rows])
    base = ["train", "--task", "text-classification", *SHORT, "--max_seq_length", "32"]
    for model in ("gpt2", "bert"):
        result = run(f"classes {model}", cwd, *base, "--model_name_or_path", model, "--train_file",
                     "classes.csv", "--validation_file", "classes.csv", "--test_file",
                     "classes.csv", "--do_eval", "--do_predict", "--max_predict_samples", "5",
                     "--output_dir", f"classes-{model}")
        out = cwd / f"classes-{model}"
        expect(f"classes {model}",
               keys_of(out / "eval_results.json") == EVAL_KEYS | {"eval_accuracy"},
               f"{sorted(keys_of(out / 'eval_results.json'))}")
        expect(
            f"classes {model}",
            json.loads((out / "config.json").read_text()).get("id2label") == {
                "0": "cat", "1": "other", "2": "river"
            }, "id2label")
        predicted = lines_of(out / "predict_results.txt")
        expect(
            f"classes {model}", predicted[:1] == ["index\tprediction"] and len(predicted) == 6 and
            all(line.split("\t")[1] in ("cat", "other", "river") for line in predicted[1:]),
            f"{predicted}")
        expect(f"classes {model}", not (out / "predict_results.json").exists(),
               "predict_results.json is not written by the script")
    write_csv(cwd / "unlabelled.csv", ["sentence"], [(text,) for text, _ in rows])
    again = run("predict", cwd, "predict", "--task", "text-classification", "--model_name_or_path",
                "classes-bert", "--test_file", "unlabelled.csv", "--max_predict_samples", "5",
                "--max_seq_length", "32", "--output_dir", "again", *SHORT[6:])
    expect(
        "predict",
        lines_of(cwd / "again/predict_results.txt") == lines_of(
            cwd / "classes-bert/predict_results.txt") and again["metrics"],
        "the saved model predicts otherwise")
    class_labels(cwd, base)
    run("regression", cwd, *base, "--model_name_or_path", "bert", "--train_file", "values.csv",
        "--validation_file", "values.csv", "--test_file", "values.csv", "--do_eval", "--do_predict",
        "--metric_name", "spearmanr", "--no_pad_to_max_length", "--output_dir", "values")
    expect(
        "regression", "eval_spearmanr" in keys_of(cwd / "values/eval_results.json") and
        re.fullmatch(r"0\t-?\d+\.\d{3}",
                     (lines_of(cwd / "values/predict_results.txt") + ["", ""])[1]),
        "regression results")
    run("several labels", cwd, *base, "--model_name_or_path", "bert", "--train_file",
        "several.jsonl", "--validation_file", "several.jsonl", "--test_file", "several.jsonl",
        "--do_eval", "--do_predict", "--text_column_names", "title,body", "--label_column_name",
        "topics", "--shuffle_train_dataset", "--max_train_samples", "40", "--output_dir", "several")
    config = json.loads(
        (cwd / "several/config.json").read_text()) if (cwd /
                                                       "several/config.json").exists() else {}
    expect(
        "several labels",
        config.get("problem_type") == "multi_label_classification" and
        "eval_f1" in keys_of(cwd / "several/eval_results.json"), "multi-label results")
    expect(
        "several labels",
        all(
            re.fullmatch(r"\d+\t\[('\w+'(, '\w+')*)?\]", line)
            for line in lines_of(cwd / "several/predict_results.txt")[1:]),
        "predictions are Python lists")
    limited = [
        "--train_file", "classes.csv", "--max_train_samples", "1", "--ignore_mismatched_sizes"
    ]
    write_csv(cwd / "more.csv", ["sentence", "label"], [("a bird", "bird")])
    run("labels of all rows", cwd, *base, "--model_name_or_path", "bert", *limited,
        "--validation_file", "more.csv", "--output_dir", "limited")
    names = json.loads((cwd / "limited/config.json").read_text()).get("id2label") if (
        cwd / "limited/config.json").exists() else None
    expect("labels of all rows", names == {"0": "bird", "1": "cat", "2": "other", "3": "river"},
           f"{names}")
    write_csv(cwd / "sst2.csv", ["sentence", "label"],
              [(text, i % 2) for i, (text, _) in enumerate(rows)])
    write_csv(cwd / "mrpc.csv", ["sentence1", "sentence2", "label"],
              [(text, text, i % 2) for i, (text, _) in enumerate(rows)])
    run("mrpc", cwd, *base, "--task_name", "MRPC", "--model_name_or_path", "bert", "--train_file",
        "mrpc.csv", "--validation_file", "mrpc.csv", "--test_file", "mrpc.csv", "--do_eval",
        "--do_predict", "--output_dir", "mrpc")
    expect("mrpc", {"eval_accuracy", "eval_f1", "eval_combined_score"}
           <= keys_of(cwd / "mrpc/eval_results.json"), "metrics of mrpc")
    expect(
        "mrpc",
        set(line.split("\t")[1] for line in lines_of(cwd / "mrpc/predict_results_mrpc.txt")[1:])
        <= {"equivalent", "not_equivalent"} and (cwd / "mrpc/predict_results_mrpc.txt").exists(),
        "names of mrpc")

    def bad(name, code, text, *words):
        refused(f"text-classification: {name}", cwd, code, text, *base, "--model_name_or_path",
                "bert", *words, "--output_dir", "bad")

    write_csv(cwd / "one.csv", ["sentence", "label"], [(text, "same") for text, _ in rows])
    write_csv(cwd / "nolabel.csv", ["sentence", "lable"], rows)
    write_csv(cwd / "missing.csv", ["sentence", "label"], [*rows, ("no label", "")])
    bad("no label in a row", 1, "missing.csv, row 120: column 'label' holds null", "--train_file",
        "missing.csv")
    bad("one class", 1, "1 different labels, expected at least 2", "--train_file", "one.csv")
    bad("no label column", 1, "lable", "--train_file", "nolabel.csv")
    bad("no text column", 1, "columns", "--train_file", "classes.csv", "--text_column_names",
        "sentense")
    bad("numbers as text", 1, "expected text", "--train_file", "values.csv", "--text_column_names",
        "a", "--label_column_name", "a", "--text_column_names", "label")
    bad("words as numbers", 1, "expected a number", "--train_file", "classes.csv",
        "--do_regression", "true")
    bad("metric of numbers", 1, "does not fit the labels", "--train_file", "classes.csv",
        "--metric_name", "mse")
    bad("F1 of three classes", 1, "f1_macro", "--train_file", "classes.csv", "--metric_name", "f1")
    bad("unknown task name", 2, "Did you mean mrpc?", "--train_file", "mrpc.csv", "--task_name",
        "mrcp")
    bad("unknown metric", 2, "metric_name", "--train_file", "classes.csv", "--metric_name", "bleu")
    bad("no validation", 2, "--do_eval requires a validation dataset", "--train_file",
        "classes.csv", "--do_eval")
    bad("no test", 2, "--do_predict requires a test dataset", "--train_file", "classes.csv",
        "--do_predict")
    refused("text-classification: other head", cwd, 1, "ignore_mismatched_sizes", *base,
            "--model_name_or_path", "classes-bert", "--train_file", "sst2.csv", "--output_dir",
            "bad")
    refused("text-classification: larger tokenizer", cwd, 1, "G-TASK-12", *base,
            "--model_name_or_path", "bert", "--tokenizer_name", "gpt2", "--train_file",
            "classes.csv", "--output_dir", "bad")
    for what in ("eval", "predict"):
        refused(f"text-classification: every row to {what} on is dropped", cwd, 2,
                "--per_device_eval_batch_size 9999", what, "--task", "text-classification",
                "--model_name_or_path", "classes-bert", "--validation_file", "classes.csv",
                "--test_file", "classes.csv", "--dataloader_drop_last",
                "--per_device_eval_batch_size", "9999", "--output_dir", "bad", *SHORT[6:])
    refused("text-classification: unknown label", cwd, 1, "the label 'same'", "eval", "--task",
            "text-classification", "--model_name_or_path", "classes-bert", "--validation_file",
            "one.csv", "--output_dir", "bad", *SHORT[6:])


def tagging(cwd):
    tag = {"Anna": "B-PER", "Berlin.": "B-LOC", "cat": "B-PET"}
    rows = [{"tokens": line.split(), "ner_tags": [tag.get(word, "O")
                                                  for word in line.split()]}
            for line in (cwd / "text.txt").read_text().splitlines()]
    write_json_lines(cwd / "tags.json", rows)
    write_json_lines(cwd / "tags-test.json", rows[::24])
    base = ["train", "--task", "token-classification", *SHORT]
    files = [
        "--train_file", "tags.json", "--validation_file", "tags.json", "--test_file",
        "tags-test.json", "--do_eval", "--do_predict"
    ]
    for model, words, metric in (("bert", [], "eval_f1"), ("gpt2", [
            "--return_entity_level_metrics", "--label_all_tokens", "--pad_to_max_length",
            "--max_seq_length", "48"
    ], "eval_overall_f1")):
        run(f"tags {model}", cwd, *base, *files, "--model_name_or_path", model, *words,
            "--output_dir", f"tags-{model}")
        out = cwd / f"tags-{model}"
        expect(f"tags {model}", metric in keys_of(out / "eval_results.json"),
               f"{sorted(keys_of(out / 'eval_results.json'))}")
        expect(f"tags {model}", {"predict_loss",
                                 "predict_samples"} <= keys_of(out / "predict_results.json"),
               f"{sorted(keys_of(out / 'predict_results.json'))}")
        predicted = lines_of(out / "predictions.txt")
        expect(
            f"tags {model}",
            len(predicted) == 5 and
            all(set(line.split()) <= {"O", "B-PER", "B-LOC", "B-PET"} for line in predicted),
            f"{predicted}")
        if model == "bert":
            expect("tags bert", [len(line.split()) for line in predicted
                                ] == [len(row["tokens"]) for row in rows[::24]],
                   "one label per word")
            expect(
                "tags bert",
                json.loads((out / "config.json").read_text()).get("label2id") == {
                    "B-LOC": 0, "B-PER": 1, "B-PET": 2, "O": 3
                }, "label2id")
    expect("tags gpt2",
           re.search(r'"eval_LOC_number": \d+,', (cwd / "tags-gpt2/eval_results.json").read_text()),
           "numbers of entities are integers")
    expect("tags gpt2", {"eval_PER_precision", "eval_LOC_number", "eval_overall_accuracy"}
           <= keys_of(cwd / "tags-gpt2/eval_results.json"), "entity-level metrics")
    again = run("predict tags", cwd, "predict", "--task", "token-classification",
                "--model_name_or_path", "tags-bert", "--test_file", "tags-test.json",
                "--output_dir", "tags-again", *SHORT[6:])
    expect(
        "predict tags", again["metrics"] and
        lines_of(cwd / "tags-again/predictions.txt") == lines_of(cwd / "tags-bert/predictions.txt"),
        "the saved model predicts otherwise")
    write_json_lines(cwd / "words.json", [{"tokens": row["tokens"]} for row in rows[::24]])
    again = run("predict words", cwd, "predict", "--task", "token-classification",
                "--model_name_or_path", "tags-bert", "--test_file", "words.json", "--output_dir",
                "words", *SHORT[6:])
    expect("predict words",
           lines_of(cwd / "words/predictions.txt") == lines_of(cwd / "tags-bert/predictions.txt"),
           "other predictions without labels")
    expect(
        "predict words",
        set(again["metrics"].get("predict", {})) == {
            "predict_samples", "predict_runtime", "predict_samples_per_second",
            "predict_steps_per_second", "predict_model_preparation_time"
        }, f"{again['metrics']}")
    run("tags of all rows", cwd, *base, "--train_file", "tags.json", "--max_train_samples", "1",
        "--validation_file", "tags.json", "--do_eval", "--model_name_or_path", "bert",
        "--output_dir", "tags-one")
    write_json_lines(cwd / "uneven.json", [{"tokens": ["a", "b"], "ner_tags": ["O"]}])
    write_json_lines(cwd / "numbers.json", [{"tokens": ["a", "b"], "ner_tags": [0, 1]}])
    for name, file, text in (("uneven", "uneven.json", "2 words in column 'tokens' and 1 labels"),
                             ("numbers", "numbers.json",
                              "numbers without names"), ("no lists", "classes.csv", "G-SRC-7")):
        refused(f"token-classification: {name}", cwd, 1, text, *base, "--model_name_or_path",
                "bert", "--train_file", file, "--output_dir", "bad")


def main():
    with tempfile.TemporaryDirectory(prefix="gradus_tasks_") as folder:
        cwd = Path(folder)
        subprocess.run([TINY_MODELS, folder], check=True, timeout=120)
        (cwd / "text.json").write_text("".join(
            json.dumps({"text": line}) + "\n"
            for line in (cwd / "text.txt").read_text().splitlines()))
        (cwd / "short.txt").write_text("a few words\nand a few more\n")
        (cwd / "empty.txt").write_text("")
        (cwd / "blank.txt").write_text("\n  \n\t\n" * 40)
        write_csv(cwd / "numbers.csv", ["a", "b"], [(1, 2), (3, 4)])
        write_csv(cwd / "null.csv", ["text", "b"], [("some text", 2), ("NA", 4)])
        (cwd / "high.bin").write_bytes(struct.pack("<100H", *[60000] * 100))
        write_json_lines(cwd / "ids.jsonl", [{"input_ids": [1, 2, 99999]}] * 8)
        for test in (causal, masked, classification, tagging):
            test(cwd)
    print(f"{len(failures)} failed" if failures else "all tasks did what they should")
    return 1 if failures else 0


sys.exit(main())
