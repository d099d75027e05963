"""preference_test.py GRADUS TINY_MODELS: the tasks reward, dpo and kto from files to result files:
whole, resumed, what they learn, and bad input. Uses only the standard library.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GRADUS, TINY_MODELS = (str(Path(word).resolve()) for word in sys.argv[1:3])
SHORT = [
    "--model_name_or_path", "llama", "--per_device_train_batch_size", "4", "--disable_tqdm",
    "--use_cpu", "--report_to", "none", "--bf16", "false", "--gradient_checkpointing", "false"
]
# A log every third step, a checkpoint every second one: what comes together between two logs must
# survive.
RESUMED = ["--max_steps", "8", "--logging_steps", "3", "--save_steps", "2", "--learning_rate",
           "1e-3"]
failures = []


def fail(name, problem, stderr=""):
    failures.append(name)
    print(f"FAILED {name}: {problem}\n{stderr[-2500:]}")


def gradus(cwd, *words):
    return subprocess.run([GRADUS, *words], cwd=cwd, capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, XDG_CACHE_HOME=str(cwd / "cache")))


def run(name, cwd, *words):
    done = gradus(cwd, *words)
    if done.returncode != 0:
        fail(name, f"exit code {done.returncode}", done.stderr)
    return done.returncode == 0


def history(folder):
    """The log without what depends on the clock."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [{key: value for key, value in entry.items()
             if not key.endswith(("_runtime", "_per_second", "_preparation_time"))}
            for entry in entries]


def refused(name, cwd, identifier, text, *words):
    done = gradus(cwd, words[0], *SHORT, "--output_dir", "bad", "--max_steps", "1", *words[1:])
    if done.returncode == 0 or identifier not in done.stderr or text not in done.stderr:
        fail(name, f"expected {identifier} with {text!r}", done.stderr)


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def pairs(subjects):
    return [{"prompt": f"{who} {does}", "chosen": f" {what} in Berlin.",
             "rejected": f" {what} without asking."}
            for who in subjects for does in ("may", "does not have to")
            for what in ("copy the work", "sleep all day", "flow to the sea")]


def resumes(name, cwd, weights, *words):
    """A run from the middle on is the same as the whole."""
    ok = run(name, cwd, *words, *SHORT, *RESUMED, "--output_dir", f"{name}-whole")
    ok = ok and run(name, cwd, *words, *SHORT, *RESUMED, "--output_dir", f"{name}-on",
                    "--resume_from_checkpoint", f"{name}-whole/checkpoint-4")
    if not ok:
        return
    whole, on = cwd / f"{name}-whole", cwd / f"{name}-on"
    if history(on)[:-1] != history(whole)[:-1]:
        fail(name, f"the log of the resumed run differs:\n{history(on)}\n{history(whole)}")
    if (on / weights).read_bytes() != (whole / weights).read_bytes():
        fail(name, "the weights of the resumed run differ")


def learns(name, cwd, metric, *words):
    """The metric of the evaluation on pairs that were not trained on is at least 0.95."""
    if not run(name, cwd, name, *words, *SHORT, "--train_file", "pairs.jsonl", "--validation_file",
               "held_out.jsonl", "--eval_strategy", "steps", "--eval_steps", "40", "--max_steps",
               "40", "--save_strategy", "no", "--learning_rate", "3e-3", "--output_dir",
               f"{name}-learned"):
        return
    found = [entry[metric] for entry in history(cwd / f"{name}-learned") if metric in entry]
    if not found or found[-1] < 0.95:
        fail(name, f"{metric} is {found}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        subprocess.run([TINY_MODELS, folder], check=True)
        write_rows(cwd / "pairs.jsonl", pairs(["Anna", "The river", "Nobody", "A program"]))
        write_rows(cwd / "held_out.jsonl", pairs(["The old cat", "The license"]))
        learns("reward", cwd, "eval_accuracy")
        learns("dpo", cwd, "eval_rewards/accuracies")
        if run("eval", cwd, "eval", "--task", "reward", *SHORT, "--model_name_or_path",
               "reward-learned", "--validation_file", "held_out.jsonl", "--output_dir",
               "evaluated"):
            found = json.loads((cwd / "evaluated/eval_results.json").read_text())
            if found.get("eval_accuracy", 0) < 0.95:
                fail("eval", f"the results are {found}")
        train = ["--train_file", "pairs.jsonl"]
        adapter = ["--use_peft", "--lora_r", "4", "--lora_target_modules", "q_proj", "v_proj"]
        resumes("reward", cwd, "adapter_model.safetensors", "reward", *train, *adapter,
                "--lora_task_type", "SEQ_CLS")
        resumes("dpo", cwd, "model.safetensors", "train", "--task", "dpo", *train,
                "--sync_ref_model", "--ref_model_sync_steps", "3")
        resumes("kto", cwd, "adapter_model.safetensors", "kto", *train, *adapter,
                "--precompute_ref_log_probs")
        # Five pairs are ten rows: enough for a batch of eight.
        write_rows(cwd / "five.jsonl", pairs(["Anna", "The river"])[:5])
        run("pairs that become rows", cwd, "kto", *SHORT, *train, "--validation_file",
            "five.jsonl", "--do_eval", "--dataloader_drop_last", "--per_device_eval_batch_size",
            "8", "--max_steps", "1", "--save_strategy", "no", "--output_dir", "few")
        # A row that is longer than the context and than max_length is left out, as in trl.
        long = {"prompt": "Anna", "chosen": " may" * 90, "rejected": " sleeps"}
        write_rows(cwd / "one_long.jsonl", [*pairs(["Anna", "The river"]), long])
        run("reward, longer than max_length", cwd, "reward", *SHORT, "--train_file",
            "one_long.jsonl", "--model_name_or_path", "gpt2", "--max_length", "80",
            "--max_steps", "1", "--save_strategy", "no", "--output_dir", "short")

        user = [{"role": "user", "content": "Anna"}]
        write_rows(cwd / "no_answer.jsonl", [{"chosen": user, "rejected": user}])
        write_rows(cwd / "no_rejected.jsonl", [{"prompt": "Anna", "chosen": " may"}])
        write_rows(cwd / "no_label.jsonl", [{"prompt": "Anna", "completion": " may", "label": 3}])
        write_rows(cwd / "long.jsonl", [{"prompt": "Anna may " * 40, "chosen": " go",
                                         "rejected": " sleep"}])
        dpo = ["dpo", "--train_file"]
        (cwd / "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        refused("no answer", cwd, "G-TRL-2", "assistant", "reward", "--train_file",
                "no_answer.jsonl", "--chat_template_path", "template.jinja")
        refused("no rejected", cwd, "G-TRL-2", "rejected", *dpo, "no_rejected.jsonl")
        pair = {"chosen": "Anna may", "rejected": "Anna sleeps"}
        for margins, text in (([1, "x"], "row 1: margin must be a number, received text"),
                              ([1, None], "row 1: margin is null"),
                              ([None, 1], "row 1: it has a margin, but row 0 has none")):
            (cwd / "margins.jsonl").write_text("".join(
                json.dumps(dict(pair, margin=margin)) + "\n" for margin in margins))
            refused(text, cwd, "G-TRL-2", text, "reward", "--train_file", "margins.jsonl")
        (cwd / "long_pair.jsonl").write_text(json.dumps(dict(pair, chosen="Anna may " * 90)) + "\n")
        refused("reward, longer than the context", cwd, "G-TRL-2", "64 at most", "reward",
                "--train_file", "long_pair.jsonl", "--model_name_or_path", "gpt2")
        write_rows(cwd / "long_rejected.jsonl", [
            {"prompt": "Anna", "chosen": " may", "rejected": " sleeps" * times} for times in (1, 90)
        ])
        refused("the pair behind a row of kto", cwd, "G-TRL-2", "row 1", "kto", "--train_file",
                "long_rejected.jsonl", "--model_name_or_path", "gpt2")
        refused("label", cwd, "G-TRL-2", "true or false", "kto", "--train_file", "no_label.jsonl")
        refused("prompt too long", cwd, "G-TRL-2", "max_length", *dpo, "long.jsonl",
                "--max_length", "20")
        refused("longer than the context", cwd, "G-TRL-2", "64 at most", *dpo, "long.jsonl",
                "--model_name_or_path", "gpt2")
        refused("weights", cwd, "G-TRL-1", "loss_weights", *dpo, "pairs.jsonl", "--loss_type",
                "ipo", "--loss_weights", "0.5", "1")
        refused("robust without a difference", cwd, "G-TRL-1", "label_smoothing", *dpo,
                "pairs.jsonl", "--loss_type", "robust", "--label_smoothing", "0.5")
        refused("divergence", cwd, "G-TRL-1", "aot", *dpo, "pairs.jsonl", "--loss_type", "aot",
                "--f_divergence_type", "forward_kl")
        refused("no such loss", cwd, "G-CONF-3", "sigmoid", *dpo, "pairs.jsonl", "--loss_type",
                "sigmod")
        refused("reference", cwd, "G-TRL-1", "sync_ref_model", *dpo, "pairs.jsonl",
                "--sync_ref_model", *adapter)
        refused("kto one row", cwd, "G-TRL-1", "per_device_train_batch_size", "kto", "--train_file",
                "pairs.jsonl", "--per_device_train_batch_size", "1")
        refused("two tasks", cwd, "G-CLI-4", "--task", *dpo, "pairs.jsonl", "--task", "sft")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
