"""bad_inputs.py GRADUS: malformed inputs to the program. Each must end with exit code 1 or 2 and
one message with an id, and leave every file that was there as it was. Uses only the standard
library.
"""

import ctypes
import gzip
import hashlib
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
failures = []


def idx(path, shape, values, magic=None):
    header = struct.pack(">I", magic if magic is not None else 0x0800 | len(shape)) + b"".join(
        struct.pack(">I", n) for n in shape)
    path.write_bytes(header + bytes(values))


def tree(folder):
    """What every file holds: a digest, and of a run's log, which grows, the text."""
    return {
        str(p): p.read_text() if p.name == "run_log.jsonl" else hashlib.sha256(
            p.read_bytes()).hexdigest()
        for p in sorted(Path(folder).rglob("*"))
        if p.is_file()
    }


def changed(before, after):
    """The files that are not as they were. A log may have more lines, after those it had."""
    return [
        path for path in before.keys() | after.keys() if path not in before or path not in after or
        not (after[path].startswith(before[path]) if path.endswith("run_log.jsonl") else
             after[path] == before[path])
    ]


def check(name, words, code, text, cwd, **more):
    kept = tree(cwd / "keep")
    done = subprocess.run([GRADUS, *map(str, words)], cwd=cwd, capture_output=True, text=True,
                          timeout=120, **more)
    errors = [line for line in done.stderr.splitlines() if line.startswith("gradus: ")]
    problem = None
    if done.returncode != code:
        problem = f"exit code {done.returncode}, expected {code}"
    elif len(errors) != 1 or not re.search(r"\[G-[A-Z]+-\d+\]$", errors[0]):
        problem = "expected one line `gradus: … [G-…]`"
    elif text not in done.stderr:
        problem = f"expected the text {text!r}"
    elif different := changed(kept, tree(cwd / "keep")):
        problem = f"files that were there have changed: {different}"
    if problem:
        failures.append(name)
        print(f"FAILED {name}: {problem}\n{done.stderr[-1500:]}")


def small_limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))


def without_override():
    # Root without the right to pass over permissions is, to another user's folder, a user like any
    # other. (Changing the user id instead would also lose the way to a LibTorch below root's home
    # folder.)
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def main():
    cwd = Path(tempfile.mkdtemp(prefix="gradus_bad_"))
    os.chmod(cwd, 0o755)
    keep = cwd / "keep"
    keep.mkdir()
    rows = 32
    idx(cwd / "images", (rows, 28, 28), [(i * 7) % 256 for i in range(rows * 784)])
    idx(cwd / "labels", (rows,), [i % 10 for i in range(rows)])
    data = ["--train_images", "images", "--train_labels", "labels"]
    train = ["train", "--task", "image-classification", *data, "--output_dir", "out"]
    # A run to be left alone: its folder is watched in every case.
    good = [
        "train", "--task", "image-classification", *data, "--output_dir", "keep/run", "--max_steps",
        "4", "--save_steps", "2", "--disable_tqdm"
    ]
    subprocess.run([GRADUS, *good], cwd=cwd, check=True, capture_output=True, timeout=120)

    options = {
        "unknown flag": (["--learning_rat", "1"], "Did you mean learning_rate?"),
        "flag without value": (["--max_steps"], "expected an integer, received nothing"),
        "word for a number": (["--learning_rate", "abc"], 'expected a number, received "abc"'),
        "fraction for an integer": (["--seed", "1.5"], "expected an integer"),
        "word for a boolean": (["--fp16", "perhaps"], "fp16"),
        "negative rate": (["--learning_rate", "-1"], "must be at least 0"),
        "batch size zero": (["--per_device_train_batch_size", "0"], "must be at least 1"),
        "accumulation zero": (["--gradient_accumulation_steps", "0"], "must be at least 1"),
        "beta one": (["--adam_beta1", "1"], "adam_beta1"),
        "negative warm-up": (["--warmup_steps", "-1"], "must be at least 0"),
        "broken steps": (["--save_steps", "10.5"], "must be an integer when above 1"),
        "logging steps zero": (["--logging_steps", "0"], "logging_steps"),
        "both precisions": (["--fp16", "--bf16"], "fp16 and bf16"),
        "unknown strategy": (["--eval_strategy", "sometimes"], "must be one of no, steps or epoch"),
        "unknown optimizer": (["--optim", "adamw_magic"], "adamw_magic"),
        "optimizer without targets": (["--optim", "galore_adamw"], "needs optim_target_modules"),
        "unknown schedule": (["--lr_scheduler_type", "foo"], "lr_scheduler_type"),
        "best model without match":
            (["--load_best_model_at_end", "--eval_strategy", "steps", "--save_strategy",
              "epoch"], "eval_strategy and save_strategy"),
        "best without metric": (["--save_strategy", "best"], "metric_for_best_model"),
        "evaluation without data": (["--eval_strategy", "steps"], "nothing to evaluate on"),
        "prefetch without workers": (["--dataloader_prefetch_factor",
                                      "2"], "dataloader_num_workers is 0"),
        "dictionary that is none": (["--lr_scheduler_kwargs", "{bad"], "not valid JSON"),
        "plateau without evaluation": (["--lr_scheduler_type",
                                        "reduce_lr_on_plateau"], "eval_strategy"),
        "hub": (["--push_to_hub"], "does not talk to the Hub"),
        "deepspeed": (["--deepspeed", "x.json"], "does not run DeepSpeed"),
        "tracker not there yet": (["--report_to", "comet_ml"], "does not report to comet_ml yet"),
        "missing config file": (["missing.yaml"], "No such file"),
        "data set and files": (["--dataset_name",
                                "fashion_mnist"], "both --dataset_name and files"),
    }
    for name, (words, text) in options.items():
        check(name, [*train, *words], 2, text, cwd)

    (cwd / "bad.yaml").write_text("learning_rate: [1, 2\n")
    check("YAML that does not end", [*train, "bad.yaml"], 2, "not valid YAML", cwd)
    (cwd / "bad.json").write_text('{"learning_rat": 1}')
    check("unknown key in a file", [*train, "bad.json"], 2, "unknown option learning_rat", cwd)
    (cwd / "type.json").write_text('{"learning_rate": "fast"}')
    check("wrong type in a file", [*train, "type.json"], 2, "learning_rate", cwd)
    check("no command", ["trian"], 2, "Did you mean train?", cwd)
    check("longer word for a command", ["evaluate"], 2, "Did you mean eval?", cwd)
    check("task in capitals", ["train", "--task", "CAUSAL-LM"], 2, "Did you mean causal-lm", cwd)
    check("no folder", [*train[:-1], ""], 2, "output_dir: must not be empty", cwd)
    check("no task", ["train"], 2, "Set --task", cwd)
    check("unknown task", ["train", "--task", "image-classificatio"], 2,
          "Did you mean image-classification", cwd)
    check("missing file", [
        "train", "--task", "image-classification", "--train_images", "no", "--train_labels", "no",
        "--output_dir", "out"
    ], 2, "there is no file no", cwd)
    check("checkpoints in the way", [*good[:-1], "--max_steps", "6"], 2, "--overwrite_output_dir",
          cwd)
    check("verify nothing", ["verify", "nowhere"], 2, "there is no such folder", cwd)
    check("evaluation without model", [
        "eval", "--task", "image-classification", "--validation_images", "images",
        "--validation_labels", "labels", "--output_dir", "out"
    ], 2, "--model_name_or_path", cwd)

    def images(name, make, code, text, labels="labels"):
        file = cwd / name.replace(" ", "_")
        make(file)
        check(name, [
            "train", "--task", "image-classification", "--train_images", file.name,
            "--train_labels", labels, "--output_dir", "out"
        ], code, text, cwd)

    whole = (cwd / "images").read_bytes()
    images("truncated idx", lambda f: f.write_bytes(whole[:5000]), 1, "the header says")
    images("truncated header", lambda f: f.write_bytes(whole[:7]), 1, "G-DATA-2")
    images("wrong magic number", lambda f: f.write_bytes(b"\x89PNG" + whole[4:]), 1,
           "expected 0x00000803")
    images("labels for images", lambda f: f.write_bytes((cwd / "labels").read_bytes()), 1,
           "expected 0x00000803")
    images("empty file", lambda f: f.write_bytes(b""), 1, "G-DATA-2")
    images("claims too much",
           lambda f: f.write_bytes(struct.pack(">IIII", 0x803, 0xFFFFFFFF, 0xFFFF, 0xFFFF)), 1,
           "G-DATA-2")
    images("truncated.gz", lambda f: f.write_bytes(gzip.compress(whole)[:200]), 1, "ends too early")
    images("fewer images than labels", lambda f: idx(f, (16, 28, 28), [0] * (16 * 784)), 1,
           "labels")
    idx(cwd / "labels99", (rows,), [99] * rows)
    check("label out of range", [
        "train", "--task", "image-classification", "--train_images", "images", "--train_labels",
        "labels99", "--output_dir", "out"
    ], 1, "out of range", cwd)

    (cwd / "a_file").write_text("x")
    check("output_dir is a file", [*train[:-1], "a_file"], 1, "a file of that name exists", cwd)
    check("resume without checkpoint", [*train, "--resume_from_checkpoint", "true"], 1,
          "no valid checkpoint found", cwd)
    check("resume from nowhere", [*train, "--resume_from_checkpoint", "nowhere"], 1,
          "can't find a valid checkpoint", cwd)
    damaged = keep / "damaged"
    subprocess.run(["cp", "-r", keep / "run", damaged], check=True)
    weights = damaged / "checkpoint-4" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    check("resume from a damaged checkpoint",
          [*train, "--resume_from_checkpoint", damaged / "checkpoint-4"], 1, "manifest.json says",
          cwd)

    # A file-size limit in the middle of a save: the older checkpoints stay, no part of the new one
    # is left.
    limited = [*good, "--resume_from_checkpoint", "last"]
    limited[limited.index("4")] = "6"
    check("file-size limit in a save", limited, 1, "could not be saved", cwd,
          preexec_fn=small_limit)
    left = [p.name for p in (keep / "run").iterdir() if p.name.startswith(".tmp")]
    if left:
        failures.append("file-size limit")
        print(f"FAILED: parts of a checkpoint are left: {left}")
    if os.geteuid() == 0:
        locked = cwd / "locked"
        locked.mkdir(mode=0o700)
        os.chown(locked, 65534, 65534)
        check("folder without rights", [*train[:-1], "locked/out"], 1, "ermission denied", cwd,
              preexec_fn=without_override)
    subprocess.run(["rm", "-r", cwd], check=True)
    print(f"{len(failures)} failed" if failures else "all malformed inputs were answered")
    return 1 if failures else 0


sys.exit(main())
