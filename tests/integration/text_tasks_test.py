"""text_tasks_test.py GRADUS TINY_MODELS: the tasks that write or find text, from files to result
files, with models made by TINY_MODELS.

Each is trained, evaluated and used for predictions, and goes on from a checkpoint as if nothing had
happened. What is wrong with flags or files is answered with one message that has an id. Uses only
the standard library.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GRADUS, TINY_MODELS = (str(Path(word).resolve()) for word in sys.argv[1:3])
SHORT = [
    "--max_steps", "6", "--per_device_train_batch_size", "4", "--learning_rate", "1e-3",
    "--disable_tqdm", "--use_cpu", "--report_to", "none", "--logging_steps", "1", "--eval_strategy",
    "steps", "--eval_steps", "2", "--save_steps", "2"
]
failures = []


def fail(name, problem, stderr=""):
    failures.append(name)
    print(f"FAILED {name}: {problem}\n{stderr[-2500:]}")


def expect(name, condition, problem):
    if not condition:
        fail(name, problem)


def gradus(cwd, *words):
    return subprocess.run([GRADUS, *map(str, words)], cwd=cwd, capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, XDG_CACHE_HOME=str(cwd / "cache")))


def run(name, cwd, *words):
    done = gradus(cwd, *words, "--json")
    if done.returncode != 0:
        fail(name, f"exit code {done.returncode}", done.stderr)
        return {}
    return json.loads(done.stdout)["metrics"]


def refused(name, cwd, code, text, *words):
    done = gradus(cwd, *words, "--output_dir", "bad")
    if done.returncode != code:
        fail(name, f"exit code {done.returncode}, expected {code}", done.stderr)
    elif not re.search(r"\[G-[A-Z]+-\d+\]", done.stderr) or text not in done.stderr:
        fail(name, f"expected an error with {text!r}", done.stderr)


def history(folder):
    """The log without what depends on the clock."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [{
        key: value
        for key, value in entry.items()
        if not key.endswith(("_runtime", "_per_second", "_preparation_time"))
    }
            for entry in entries]


def resumed(name, cwd, words):
    """A run from the middle on ends as the whole run has ended."""
    run(f"{name} resumed", cwd, *words, "--output_dir", f"{name}-on", "--resume_from_checkpoint",
        f"{name}/checkpoint-2")
    whole, other = cwd / name, cwd / f"{name}-on"
    expect(name,
           (whole / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes(),
           "other weights after a resume")
    expect(name, history(whole) == history(other), "another log after a resume")


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def summarization(cwd, lines):
    rows = [{"text": line, "summary": " ".join(line.split()[:3])} for line in lines]
    write_rows(cwd / "sums.json",
               rows + [{"text": "no summary", "summary": ""}, {"text": None, "summary": "no text"}])
    base = [
        "train", "--task", "summarization", *SHORT, "--train_file", "sums.json",
        "--validation_file", "sums.json"
    ]
    words = [
        *base, "--model_name_or_path", "t5", "--test_file", "sums.json", "--do_predict",
        "--max_eval_samples", "9", "--max_predict_samples", "5", "--predict_with_generate",
        "--max_target_length", "12", "--num_beams", "2", "--source_prefix", "short: "
    ]
    metrics = run("sums", cwd, *words, "--output_dir", "sums")
    expect("sums", {
        "eval_rouge1", "eval_rouge2", "eval_rougeL", "eval_rougeLsum", "eval_gen_len", "eval_loss"
    } <= set(metrics.get("eval", {})), f"metrics {metrics.get('eval')}")
    expect("sums",
           metrics.get("train", {}).get("train_samples") == len(lines),
           "rows without text or summary are left out")
    expect("sums", metrics.get("predict", {}).get("predict_samples") == 5, "max_predict_samples")
    expect("sums",
           len((cwd / "sums/generated_predictions.txt").read_text().split("\n")) == 5,
           "generated_predictions.txt")
    resumed("sums", cwd, words)
    metrics = run("sums without generating", cwd, *base, "--model_name_or_path", "t5",
                  "--output_dir", "sums-loss")
    expect("sums without generating", "eval_rouge1" not in metrics.get("eval", {"eval_rouge1": 0}),
           "scores without predict_with_generate")
    refused("no decoder", cwd, 1, "bert", *base, "--model_name_or_path", "bert")
    refused("no such column", cwd, 2, "needle", *base, "--model_name_or_path", "t5",
            "--text_column", "needle")
    write_rows(cwd / "single.json", [{"text": "a"}])
    refused("one column", cwd, 1, "has 1 columns", "train", "--task", "summarization", *SHORT,
            "--train_file", "single.json", "--validation_file", "single.json",
            "--model_name_or_path", "t5")
    config = json.loads((cwd / "t5/config.json").read_text())
    subprocess.run(["cp", "-r", cwd / "t5", cwd / "startless"], check=True)
    del config["decoder_start_token_id"]
    (cwd / "startless/config.json").write_text(json.dumps(config))
    refused("no start", cwd, 1, "decoder_start_token_id", *base, "--model_name_or_path",
            "startless")


def translation(cwd, lines):
    rows = [{"translation": {"en": line, "xx": line[::-1]}} for line in lines]
    write_rows(cwd / "pairs.jsonl", rows)
    write_rows(cwd / "lacking.jsonl", rows[:3] + [{"translation": {"en": "only this"}}])
    write_rows(cwd / "flat.jsonl", [{"translation": "text"}])
    base = ["train", "--task", "translation", *SHORT, "--model_name_or_path", "t5"]
    langs = ["--source_lang", "en_XX", "--target_lang", "xx"]
    words = [
        *base, *langs, "--train_file", "pairs.jsonl", "--validation_file", "pairs.jsonl",
        "--max_eval_samples", "7", "--predict_with_generate", "--max_target_length", "10",
        "--pad_to_max_length", "--max_source_length", "20", "--generation_max_length", "11"
    ]
    metrics = run("pairs", cwd, *words, "--output_dir", "pairs")
    expect("pairs", {"eval_bleu", "eval_gen_len"} <= set(metrics.get("eval", {})),
           f"metrics {metrics.get('eval')}")
    resumed("pairs", cwd, words)
    refused("no languages", cwd, 2, "--target_lang is not set", *base, "--source_lang", "en",
            "--train_file", "pairs.jsonl", "--validation_file", "pairs.jsonl")
    for name, file, text in (("a language is missing", "lacking.jsonl", "nothing under 'xx'"),
                             ("no object", "flat.jsonl",
                              "expected an object"), ("no column", "sums.json", "translation")):
        refused(name, cwd, 1, text, *base, *langs, "--train_file", file, "--validation_file", file)


def questions(cwd, lines):
    rows = [{
        "id": str(i), "question": "  Who?", "context": line,
        "answers": {"text": [line.split()[0]], "answer_start": [0]}
    } for i, line in enumerate(lines)]
    rows[1]["answers"]["answer_start"] = [5000]  # not in its context: trained as no answer
    (cwd / "qa.json").write_text(json.dumps({"data": rows}))
    for row in rows[::3]:
        row["answers"] = {"text": [], "answer_start": []}
    write_rows(cwd / "qa2.jsonl", rows)
    base = [
        "train", "--task", "question-answering", *SHORT, "--model_name_or_path", "bert",
        "--max_seq_length", "16", "--doc_stride", "4"
    ]
    files = ["--train_file", "qa.json", "--validation_file", "qa.json", "--test_file", "qa.json"]
    words = [*base, *files, "--do_predict"]
    metrics = run("qa", cwd, *words, "--output_dir", "qa")
    expect("qa", {"eval_exact_match", "eval_f1"} <= set(metrics.get("eval", {})) and
           "eval_loss" not in metrics["eval"], f"metrics {metrics.get('eval')}")
    expect("qa", {"test_exact_match", "test_f1", "predict_samples"}
           <= set(metrics.get("predict", {})), f"metrics {metrics.get('predict')}")
    for name in ("eval_predictions", "eval_nbest_predictions", "predict_predictions",
                 "predict_nbest_predictions"):
        expect("qa", len(json.loads((cwd / f"qa/{name}.json").read_text())) == len(lines), name)
    resumed("qa", cwd, words)
    metrics = run("qa2", cwd, *base, "--train_file", "qa2.jsonl", "--validation_file", "qa2.jsonl",
                  "--version_2_with_negative", "--no_pad_to_max_length", "--output_dir", "qa2")
    expect("qa2", {"eval_exact", "eval_HasAns_f1", "eval_NoAns_exact", "eval_best_f1_thresh"}
           <= set(metrics.get("eval", {})), f"metrics {metrics.get('eval')}")
    expect("qa2", (cwd / "qa2/eval_null_odds.json").exists(), "eval_null_odds.json")
    expect("qa2", re.search(r'"eval_total": \d+[,\n]', (cwd / "qa2/eval_results.json").read_text()),
           "counts are integers")
    written = [
        "train", "--task", "seq2seq-question-answering", *SHORT, "--model_name_or_path", "t5",
        *files, "--do_predict", "--predict_with_generate", "--max_seq_length", "20",
        "--generation_max_length", "8"
    ]
    metrics = run("written", cwd, *written, "--output_dir", "written")
    expect("written",
           {"eval_exact_match", "eval_f1", "eval_loss"} <= set(metrics.get("eval", {})) and
           {"test_f1", "predict_samples"} <= set(metrics.get("predict", {})), f"{metrics}")
    resumed("written", cwd, written)
    refused("rows of a question are cut off", cwd, 1, "no row left", *written, "--max_eval_samples",
            "3", "--max_seq_length", "8")
    for rows_of_batch in ("7", "11"):  # the number of rows is no multiple of one of them
        done = gradus(cwd, *written, "--per_device_eval_batch_size", rows_of_batch,
                      "--dataloader_drop_last", "--output_dir", "dropped", "--overwrite_output_dir")
        expect("rows are dropped", done.returncode in (0, 2) and
               ("G-TASK-16" in done.stderr) == (done.returncode == 2), done.stderr[-500:])
    refused("questions without answers", cwd, 1, "--version_2_with_negative", *base, "--train_file",
            "qa2.jsonl", "--validation_file", "qa2.jsonl")
    write_rows(cwd / "texts.jsonl", [row | {"answers": "the cat"} for row in rows])
    refused("answers as text", cwd, 1, "expected an object", *base, "--train_file", "texts.jsonl",
            "--validation_file", "texts.jsonl")
    write_rows(cwd / "void.jsonl", [rows[1] | {"context": ""}])
    refused("no context", cwd, 1, "no context", *base, "--train_file", "void.jsonl",
            "--validation_file", "void.jsonl")
    refused("no list under data", cwd, 1, "data", *base, "--train_file", "sums.json",
            "--validation_file", "sums.json")


def rounded_lengths(cwd, lines):
    """--pad_to_multiple_of: batches have other lengths and the same losses."""
    rows = [{
        "translation": {"en": line[:3 + i % 9], "xx": line[:4]}
    } for i, line in enumerate(lines)]
    write_rows(cwd / "short.jsonl", rows)
    words = [
        "--task", "translation", "--model_name_or_path", "t5", "--source_lang", "en",
        "--target_lang", "xx", "--train_file", "short.jsonl", "--validation_file", "short.jsonl",
        "--max_source_length", "32", "--max_target_length", "32"
    ]
    losses, tokens = [], []
    for more in ([], ["--pad_to_multiple_of", "16"]):
        name = f"rounded-{len(more)}"
        metrics = run(name, cwd, "train", *words, *SHORT, *more, "--learning_rate", "0",
                      "--per_device_train_batch_size", "1", "--include_num_input_tokens_seen",
                      "all", "--output_dir", name)
        losses.append(metrics.get("eval", {}).get("eval_loss", 0))
        tokens.append(history(cwd / name)[-1].get("num_input_tokens_seen", 0))
    expect("rounded lengths", losses[0] > 0 and abs(losses[0] - losses[1]) < 1e-5, f"{losses}")
    expect("rounded lengths", tokens[0] % 16 != 0 and tokens[1] % 16 == 0, f"{tokens}")
    refused("a length that is no multiple", cwd, 2, "max_source_length is 32, no multiple", "train",
            *words, *SHORT, "--pad_to_multiple_of", "12")
    refused("rows of one length", cwd, 2, "pad_to_max_length fills all rows", "train", "--task",
            "text-classification", *SHORT, "--model_name_or_path", "bert", "--train_file",
            "classes.csv", "--validation_file", "classes.csv", "--pad_to_multiple_of", "16")


def distillation(cwd, lines):
    rows = "sentence,label\n" + "".join(
        f"{line},{'city' if 'Berlin' in line else 'other'}\n" for line in lines)
    (cwd / "classes.csv").write_text(rows)
    (cwd / "renamed.csv").write_text(rows.replace(",city", ",town"))
    files = ["--train_file", "classes.csv", "--validation_file", "classes.csv"]
    run("teacher", cwd, "train", "--task", "text-classification", *SHORT, *files,
        "--model_name_or_path", "bert", "--output_dir", "teacher")
    base = ["train", "--task", "distillation", *SHORT, "--model_name_or_path", "bert"]
    words = [
        *base, *files, "--teacher_name_or_path", "teacher", "--temperature", "3", "--alpha_soft",
        "0.8", "--alpha_cos", "0.5"
    ]
    metrics = run("student", cwd, *words, "--output_dir", "student")
    expect("student", {"eval_loss", "eval_accuracy"} <= set(metrics.get("eval", {})), f"{metrics}")
    expect("student",
           json.loads((cwd / "student/training_args.json").read_text())["alpha_soft"] == 0.8,
           "its arguments are saved")
    resumed("student", cwd, words)
    refused("no teacher", cwd, 2, "--teacher_name_or_path is not set", *base, *files)
    refused("no folder", cwd, 2, "there is no folder nobody", *base, *files,
            "--teacher_name_or_path", "nobody")
    refused("other classes", cwd, 1, "the teacher knows the classes city, other", *base,
            "--train_file", "renamed.csv", "--validation_file", "renamed.csv",
            "--teacher_name_or_path", "teacher")


def language_distillation(cwd, lines):
    """Language models: the student is fresh and smaller."""
    for task, folder, fresh in (("causal-lm", "gpt2", ["gpt2", "n_embd=16,n_layer=1,n_head=2"]),
                                ("masked-lm", "bert", ["bert", "num_hidden_layers=1"])):
        name = f"{task}-distillation"
        more = ["--block_size", "16"] if task == "causal-lm" else ["--max_seq_length", "16"]
        sizes = fresh[1] + (",hidden_size=16,num_attention_heads=2" if folder == "bert" else "")
        vocabulary = json.loads((cwd / folder / "config.json").read_text())["vocab_size"]
        words = [
            "train", "--task", name, *SHORT, *more, "--model_type", fresh[0], "--config_overrides",
            f"{sizes},vocab_size={vocabulary}", "--tokenizer_name", folder, "--train_file",
            "text.txt", "--validation_file", "text.txt"
        ]
        metrics = run(name, cwd, *words, "--teacher_name_or_path", folder, "--output_dir", name)
        expect(name, {"eval_loss", "eval_accuracy", "perplexity"} <= set(metrics.get("eval", {})),
               f"{metrics}")
        resumed(name, cwd, [*words, "--teacher_name_or_path", folder])
        refused(name + " of another kind", cwd, 1, "", *words, "--teacher_name_or_path", "t5")


def fresh_models(cwd, lines):
    """--config_name alone: the weights are new."""
    rows = [{"text": line, "summary": " ".join(line.split()[:3])} for line in lines]
    write_rows(cwd / "fresh.jsonl", rows)
    words = [
        "train", "--task", "summarization", *SHORT, "--train_file", "fresh.jsonl",
        "--validation_file", "fresh.jsonl", "--max_source_length", "16", "--max_target_length", "8"
    ]
    metrics = run("fresh", cwd, *words, "--config_name", "t5", "--tokenizer_name", "t5",
                  "--output_dir", "fresh")
    expect("fresh", "eval_loss" in metrics.get("eval", {}), f"{metrics}")
    refused("no model", cwd, 2, "--config_name", *words, "--tokenizer_name", "t5")


def main():
    with tempfile.TemporaryDirectory(prefix="gradus_text_tasks_") as folder:
        cwd = Path(folder)
        subprocess.run([TINY_MODELS, folder], check=True, timeout=120)
        lines = (cwd / "text.txt").read_text().splitlines()[:40]
        for test in (summarization, translation, questions, distillation, rounded_lengths,
                     language_distillation, fresh_models):
            test(cwd, lines)
    print(f"{len(failures)} failed" if failures else "all tasks did what they should")
    return 1 if failures else 0


sys.exit(main())
