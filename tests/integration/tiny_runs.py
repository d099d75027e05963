"""tiny_runs.py GRADUS TINY_MODELS: every task of the program from end to end, on models made by
TINY_MODELS: trained, stopped by a signal, resumed, evaluated, used for predictions and for text;
and the commands that look at what is there.

Each run must end with the exit code that it should have. `make sanitize` runs this with programs
that end otherwise when a sanitizer has something to say. Uses only the standard library.
"""
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRADUS, TINY_MODELS = (str(Path(word).resolve()) for word in sys.argv[1:3])
TRAIN = [
    "--max_steps", 6, "--save_steps", 2, "--save_total_limit", 2, "--eval_strategy", "steps",
    "--eval_steps", 3, "--logging_steps", 2, "--per_device_train_batch_size", 4, "--learning_rate",
    "1e-3", "--use_cpu", "--dataloader_num_workers", 2, "--report_to", "jsonl", "tensorboard"
]
failures = []


def expect(name, code, words, cwd, **options):
    done = subprocess.run([GRADUS, *map(str, words)], cwd=cwd, capture_output=True, text=True,
                          timeout=600, env=environment(cwd), **options)
    if done.returncode != code:
        failures.append(name)
        print(f"FAILED {name}: exit code {done.returncode}, expected {code}\n"
              f"{done.stdout[-3000:]}\n{done.stderr[-20000:]}", flush=True)
    return done.stdout


def environment(cwd):
    return dict(os.environ, XDG_CACHE_HOME=str(cwd / "cache"))


def interrupted(name, words, cwd):
    """A run that a signal stops once its first checkpoint is there, or that was faster."""
    child = subprocess.Popen([GRADUS, *map(str, words)], cwd=cwd, env=environment(cwd), text=True,
                             stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    first = cwd / name / "checkpoint-2"
    while child.poll() is None and not first.exists():
        time.sleep(0.005)
    child.send_signal(signal.SIGTERM)
    said = child.communicate(timeout=600)[1]
    # 143: stopped and saved. -15: it had ended its training, and then the signal is the system's.
    if child.returncode not in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
        failures.append(name)
        print(f"FAILED {name}, stopped: exit code {child.returncode}\n{said[-20000:]}", flush=True)


def one_task(name, task, words, model, data, test, cwd):
    """Trains, stops, resumes, evaluates and predicts."""
    model_words = ["--model_name_or_path", model] if model else []
    train = ["train", "--task", task, *model_words, *words, *data, *TRAIN, "--output_dir", name]
    interrupted(name, train, cwd)
    expect(f"{name}: resume", 0, [*train, "--resume_from_checkpoint", "last"], cwd)
    common = ["--task", task, *words, "--model_name_or_path", name, "--use_cpu",
              "--dataloader_num_workers", 2]
    expect(f"{name}: eval", 0, ["eval", *common, *data, "--output_dir", f"{name}-eval"], cwd)
    expect(f"{name}: predict", 0,
           ["predict", *common, *(test or data), "--output_dir", f"{name}-predict"], cwd)
    expect(f"{name}: verify", 0, ["verify", name], cwd)


def files_of(name):
    return ["--train_file", name, "--validation_file", name]


def text_tasks(cwd):
    lines = (cwd / "text.txt").read_text().splitlines()
    (cwd / "classes.csv").write_text("sentence,label\n" + "".join(
        f"{line},{'cat' if 'cat' in line else 'other'}\n" for line in lines))
    (cwd / "tags.json").write_text("".join(
        json.dumps({
            "tokens": line.split(), "ner_tags": ["B-LOC" if word == "Berlin." else "O"
                                                 for word in line.split()]
        }) + "\n" for line in lines))
    block = ["--block_size", 16]
    text = files_of("text.txt")
    for model in ("gpt2", "llama"):
        one_task(f"run-{model}", "causal-lm", block, model, text, ["--test_file", "text.txt"], cwd)
        for flags in (["--do_sample", "--seed", 1], ["--num_beams", 2]):
            expect(f"generate {model}", 0, [
                "generate", "--model_name_or_path", f"run-{model}", "--prompt", "The river",
                "--max_new_tokens", 6, *flags
            ], cwd)
    one_task("run-bert", "masked-lm", ["--max_seq_length", 24], "bert", text,
             ["--test_file", "text.txt"], cwd)
    one_task("run-classes", "text-classification", ["--max_seq_length", 24], "bert",
             files_of("classes.csv"), ["--test_file", "classes.csv"], cwd)
    one_task("run-tags", "token-classification", [], "bert", files_of("tags.json"),
             ["--test_file", "tags.json"], cwd)


def image_task(cwd):
    pixels = bytes((i * 37 + i // 784 * 11) % 256 for i in range(40 * 784))
    (cwd / "images.idx").write_bytes(struct.pack(">4i", 2051, 40, 28, 28) + pixels)
    (cwd / "labels.idx").write_bytes(struct.pack(">2i", 2049, 40) + bytes(i % 10
                                                                         for i in range(40)))
    data = []
    for split in ("train", "validation"):
        data += [f"--{split}_images", "images.idx", f"--{split}_labels", "labels.idx"]
    one_task("run-images", "image-classification", [], None, data, None, cwd)


def main():
    with tempfile.TemporaryDirectory(prefix="gradus_tiny_") as folder:
        cwd = Path(folder)
        image_task(cwd)
        expect("options", 0, ["options"], cwd)
        made = subprocess.run([TINY_MODELS, folder], timeout=600, capture_output=True, text=True)
        if "G-TEXT-1" in made.stderr:
            print("built without the tokenizer: the text tasks are left out")
        elif made.returncode != 0:
            failures.append("tiny_models")
            print(made.stderr[-20000:])
        else:
            text_tasks(cwd)
    print(f"{len(failures)} failures" if failures else "all tiny runs end as they should")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
