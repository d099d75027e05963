"""sft_test.py GRADUS TINY_MODELS: the task sft from files to result files, whole, resumed and with
bad input. Uses only the standard library.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GRADUS, TINY_MODELS = (str(Path(word).resolve()) for word in sys.argv[1:3])
SHORT = [
    "train", "--task", "sft", "--model_name_or_path", "llama", "--max_steps", "6",
    "--per_device_train_batch_size", "4", "--learning_rate", "1e-3", "--disable_tqdm", "--use_cpu",
    "--report_to", "none", "--logging_steps", "1", "--save_steps", "2", "--bf16", "false"
]
failures = []


def fail(name, problem, stderr=""):
    failures.append(name)
    print(f"FAILED {name}: {problem}\n{stderr[-2500:]}")


def program(cwd, *words):
    return subprocess.run([GRADUS, *words], cwd=cwd, capture_output=True, text=True,
                          timeout=120, env=dict(os.environ, XDG_CACHE_HOME=str(cwd / "cache")))


def gradus(cwd, *words):
    return program(cwd, *SHORT, *words)


def run(name, cwd, *words):
    done = gradus(cwd, *words)
    if done.returncode != 0:
        fail(name, f"exit code {done.returncode}", done.stderr)


def history(folder):
    """The log without what depends on the clock."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [{key: value for key, value in entry.items()
             if not key.endswith(("_runtime", "_per_second", "_preparation_time"))}
            for entry in entries]


def refused(name, cwd, identifier, text, *words):
    done = gradus(cwd, "--output_dir", "bad", *words)
    if done.returncode == 0 or identifier not in done.stderr or text not in done.stderr:
        fail(name, f"expected {identifier} with {text!r}", done.stderr)


CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
# Rows that cannot be used, and what is said about the last of them.
BAD_ROWS = [
    ([{"text": "a"}, {"text": None}], "row 1: text is null"),
    ([{"messages": CHAT}, {"messages": None}], "row 1: messages is null"),
    ([{"messages": CHAT}, {"messages": "a"}],
     "row 1: messages must be a list of messages, received text"),
    ([{"messages": CHAT, "tools": 5}], "row 0: tools must be a list of JSON schemas, received int"),
    ([{"messages": CHAT, "chat_template_kwargs": "x"}],
     "row 0: chat_template_kwargs must be an object, received text"),
    ([{"input_ids": [1, 2]}, {"input_ids": [1, 99999]}], "row 1: input_ids holds 99999"),
    ([{"input_ids": [1, 2], "labels": [1, -1]}], "row 0: labels holds -1"),
    ([{"input_ids": [1, 2], "labels": [1]}],
     "row 0: labels has length 1, but there are 2 token ids"),
    ([{"input_ids": [1, 2], "completion_mask": [1]}],
     "row 0: completion_mask has length 1, but there are 2 token ids"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        subprocess.run([TINY_MODELS, folder], check=True)
        pairs = [{"prompt": f"Anna may {word} ", "completion": "copy the work in Berlin."}
                 for word in ("not", "sleep", "flow", "change", "ask", "write", "see", "go")]
        (cwd / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
        adapter = ["--train_file", "pairs.jsonl", "--use_peft", "--lora_r", "4",
                   "--lora_target_modules", "q_proj", "v_proj"]
        run("text", cwd, "--train_file", "text.jsonl", "--validation_file", "text.jsonl",
            "--eval_strategy", "steps", "--eval_steps", "3", "--packing", "--max_length", "24",
            "--output_dir", "text")
        run("adapter", cwd, *adapter, "--output_dir", "whole")
        # One word is a list of one in a file, too.
        (cwd / "lora.yaml").write_text("use_peft: true\nlora_target_modules: all-linear\n"
                                       "attn_implementation: sdpa\ndataset_config: default\n"
                                       "pad_to_multiple_of: auto\n")
        run("options in a file", cwd, "--train_file", "pairs.jsonl", "--config", "lora.yaml",
            "--output_dir", "listed")
        run("resumed", cwd, *adapter, "--output_dir", "on", "--resume_from_checkpoint",
            "whole/checkpoint-4")
        run("adapter in 4 bits", cwd, *adapter, "--load_in_4bit", "--use_bnb_nested_quant",
            "--output_dir", "four")
        run("resumed in 4 bits", cwd, *adapter, "--load_in_4bit", "--use_bnb_nested_quant",
            "--output_dir", "four_on", "--resume_from_checkpoint", "four/checkpoint-4")
        refused("4 bits without an adapter", cwd, "G-TASK-8",
                "--load_in_4bit freezes the model's weights, but there is no adapter to train",
                "--train_file", "pairs.jsonl", "--load_in_4bit")
        refused("4 bits with DoRA", cwd, "G-TASK-8",
                "--use_dora reads and changes weights, which --load_in_4bit keeps in 4 bits",
                *adapter, "--load_in_4bit", "--use_dora")
        if not failures:
            entries = history(cwd / "text")
            if history(cwd / "four_on")[:-1] != history(cwd / "four")[:-1]:
                fail("resumed in 4 bits", "the log differs from that of the whole run")
            if history(cwd / "four")[0]["loss"] == history(cwd / "whole")[0]["loss"]:
                fail("adapter in 4 bits", "the loss is that of the model without 4 bits")
            for key in ("entropy", "mean_token_accuracy", "num_tokens", "eval_entropy"):
                if not any(key in entry for entry in entries):
                    fail("text", f"{key} is not in the log")
            if history(cwd / "on")[:-1] != history(cwd / "whole")[:-1]:
                fail("resumed", "the log differs from that of the whole run")
            weights = "adapter_model.safetensors"
            if (cwd / "on" / weights).read_bytes() != (cwd / "whole" / weights).read_bytes():
                fail("resumed", "the adapter differs from that of the whole run")
            if (cwd / "whole/model.safetensors").exists():
                fail("adapter", "the whole model was saved")
            done = program(cwd, "merge", "--adapter_name_or_path", "whole", "--output_dir",
                           "merged")
            files = {path.name for path in (cwd / "merged").glob("*")}
            if done.returncode != 0 or not {"model.safetensors", "tokenizer.json"} <= files:
                fail("merge", f"exit code {done.returncode}, files {files}", done.stderr)
            done = program(cwd, "merge", "--adapter_name_or_path", "whole", "--output_dir", "llama")
            if done.returncode != 2 or "the folder of the base model" not in done.stderr:
                fail("merge into the base model", f"exit code {done.returncode}", done.stderr)
            texts = []
            for model in ("merged", "whole"):
                done = program(cwd, "generate", "--model_name_or_path", model, "--prompt",
                               "Anna may", "--max_new_tokens", "3")
                texts.append(done.stdout)
                if done.returncode != 0:
                    fail(f"generate with {model}", f"exit code {done.returncode}", done.stderr)
            if texts[0] != texts[1]:
                fail("generate", f"adapter and merged model differ: {texts}")
            for flags, text in ((["--use_peft"], "G-TASK-8"), ([], "G-TRAIN-23")):
                done = program(cwd, "train", "--task", "causal-lm", "--model_name_or_path", "whole",
                               "--train_file", "text.txt", "--do_train", "--output_dir", "no",
                               "--report_to", "none", *flags)
                if done.returncode != 2 or text not in done.stderr:
                    fail("training a loaded adapter", f"exit code {done.returncode}", done.stderr)
        (cwd / "no_answer.jsonl").write_text(json.dumps(
            {"messages": [{"role": "user", "content": "Anna may"}]}) + "\n")
        (cwd / "long.jsonl").write_text(json.dumps({"text": "Anna may " * 5000}) + "\n")
        (cwd / "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        refused("no answer", cwd, "G-TRL-2", "assistant", "--train_file", "no_answer.jsonl",
                "--chat_template_path", "template.jinja")
        refused("no column", cwd, "G-TRL-2", "text", "--dataset_text_field", "none", "--train_file",
                "text.jsonl")
        refused("no such layer", cwd, "G-PEFT-2", "q_proj", "--train_file", "text.jsonl",
                "--use_peft", "--lora_target_modules", "q_prj", "k_prj")
        refused("one name is an expression", cwd, "G-PEFT-2", "write .*q_proj.", "--train_file",
                "text.jsonl", "--use_peft", "--lora_target_modules", "q_proj")
        refused("not conversations", cwd, "G-TRL-1", "assistant_only_loss", "--train_file",
                "text.jsonl", "--assistant_only_loss")
        for rows, text in BAD_ROWS:
            (cwd / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            refused(text, cwd, "G-TRL-2", text, "--train_file", "bad.jsonl",
                    "--chat_template_path", "template.jinja", "--completion_only_loss", "true")
        (cwd / "strict.jinja").write_text("{{ raise_exception('roles must alternate') }}")
        (cwd / "chat.jsonl").write_text(json.dumps({"messages": CHAT}) + "\n")
        refused("refused by the template", cwd, "G-TEXT-8",
                "train_dataset, row 0: the chat template refuses", "--train_file", "chat.jsonl",
                "--chat_template_path", "strict.jinja")
        refused("too long for the model", cwd, "G-TRL-2", "tokens, but the model takes",
                "--model_name_or_path", "gpt2", "--train_file", "long.jsonl")
        for flags, text in ((["--load_in_8bit"], "--load_in_8bit"),
                            (["--dataset_streaming"], "--dataset_streaming"),
                            (["--lora_target_parameters", "x"], "--lora_target_parameters")):
            refused(text, cwd, "G-TASK-8", text, "--train_file", "text.jsonl", *flags)
        refused("no such task type", cwd, "G-PEFT-1", "task_type must be one of", "--train_file",
                "text.jsonl", "--use_peft", "--lora_task_type", "CHAT")
        refused("prompts too long", cwd, "G-TRL-2", "max_length", "--train_file", "pairs.jsonl",
                "--max_length", "1")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
