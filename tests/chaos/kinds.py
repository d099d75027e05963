"""The kinds of runs that chaos.py disturbs: how each is started, what its checkpoints are called,
when one is good, and what two runs that end alike have in common, bit for bit."""
import hashlib
import json
import os
import re
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

STEPS = 12
FLAGS = [
    "--max_steps", STEPS, "--save_steps", 3, "--save_total_limit", 3, "--eval_strategy", "steps",
    "--eval_steps", 6, "--logging_steps", 2, "--per_device_train_batch_size", 4,
    "--learning_rate", "1e-3", "--disable_tqdm", "--use_cpu", "--output_dir", "run"
]
TRAINER_FILES = [
    "model.safetensors", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth",
    "gradus_state.json"
]


def steps_of(run, pattern):
    """Checkpoints by step: those entries of the run's folder whose name fits."""
    found = {}
    for entry in os.scandir(run) if run.is_dir() else []:
        if match := re.fullmatch(pattern, entry.name):
            found[int(match[1])] = Path(entry.path)
    return dict(sorted(found.items()))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


class TrainerRun:
    """What gradus::Trainer writes: folders with a manifest."""
    names = r"checkpoint-(\d+)"

    def is_good(self, checkpoint):
        try:
            manifest = json.loads((checkpoint / "manifest.json").read_bytes())
            return manifest["format"] == "gradus-checkpoint" and bool(manifest["files"]) and all(
                self.is_intact(checkpoint / name, entry)
                for name, entry in manifest["files"].items())
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def is_intact(self, path, entry):
        content = path.read_bytes()
        return (len(content) == entry["size"] and
                entry["checksum"] == f"crc32:{zlib.crc32(content):08x}")

    def result(self, run):
        """Weights, moments, schedule, generators, place in the data and logs at the end."""
        last = run / f"checkpoint-{STEPS}"
        found = {name: digest(last / name) for name in TRAINER_FILES}
        found["the model"] = digest(run / "model.safetensors")
        state = last / "trainer_state.json"
        found["trainer_state.json"] = without_clocks(state) if state.exists() else "missing"
        return found


def without_clocks(state):
    """trainer_state.json without what a clock decides, and without the best checkpoint's name: a
    save that a signal asked for may be the first at the best step."""
    found = json.loads(state.read_bytes())
    found.pop("best_model_checkpoint", None)
    for entry in found["log_history"]:
        for key in [key for key in entry if key.endswith(("_runtime", "_per_second"))]:
            del entry[key]
    return found


class HookRun:
    """What CheckpointHook writes: torch files."""
    names = r"checkpoint_step_(\d+)\.pt"

    def is_good(self, checkpoint):
        try:
            with zipfile.ZipFile(checkpoint) as file:
                return file.testzip() is None
        except Exception:  # pylint: disable=broad-except  # zipfile raises many
            return False

    def result(self, run):
        return {name: digest(run / name) for name in ("model_final.pt", "model.pt")}


class FunctionalRun:
    """What functional::Trainer writes: folders in Flax's format, which has no checksums."""
    names = r"state-e0-s(\d+)"
    needed = ("flax_model.msgpack", "opt_state.msgpack", "training_state.json")
    files = (*needed, "args.json", "data_collator.json")  # the last two are not Python's

    def is_good(self, checkpoint):
        return all((checkpoint / name).is_file() and (checkpoint / name).stat().st_size > 0
                   for name in self.needed)

    def result(self, run):
        return {name: digest(run / "final" / name) for name in self.files}


class Kind:
    """A run: its command, the files it starts from and what it leaves."""

    def __init__(self, name, command, inputs, leaves):
        self.name, self.command, self.inputs = name, [str(word) for word in command], inputs
        self.leaves = leaves
        # Damage to files is found only where there are checksums.
        self.has_checksums = not isinstance(leaves, FunctionalRun)
        self.is_program = Path(self.command[0]).name == "gradus"
        self.locks = isinstance(leaves, TrainerRun)
        # Measured on the run that nobody disturbs:
        self.seconds, self.calls, self.expected = 0.0, {}, {}

    def checkpoints(self, run):
        return steps_of(run, self.leaves.names)

    def from_newest(self):
        """The command that takes the newest checkpoint or none."""
        return [*self.command[:-1], "true"]

    def newest_good(self, run):
        return max((step for step, path in self.checkpoints(run).items()
                    if self.leaves.is_good(path)), default=0)


def make_inputs(folder, tiny_models):
    """Models and data of all kinds."""
    subprocess.run([tiny_models, str(folder)], check=True, timeout=120, stdout=subprocess.DEVNULL)
    lines = (folder / "text.txt").read_text().splitlines()
    (folder / "classes.csv").write_text("sentence,label\n" + "".join(
        f"{line},{'cat' if 'cat' in line else 'other'}\n" for line in lines))
    (folder / "tags.json").write_text("".join(
        json.dumps({"tokens": line.split(),
                    "ner_tags": ["B-LOC" if word == "Berlin." else "O" for word in line.split()]
                   }) + "\n" for line in lines))
    pixels = bytes((i * 37 + i // 784 * 11) % 256 for i in range(40 * 784))
    (folder / "images.idx").write_bytes(struct.pack(">4i", 2051, 40, 28, 28) + pixels)
    (folder / "labels.idx").write_bytes(struct.pack(">2i", 2049, 40) +
                                        bytes(i % 10 for i in range(40)))


def all_kinds(build):
    gradus, program = build / "bin/gradus", build / "bin/chaos_run"

    def task(name, *words, model=None, inputs=()):
        model_words = ["--model_name_or_path", f"inputs/{model}"] if model else []
        return [
            gradus, "train", "--task", name, *model_words, *words, *FLAGS,
            "--resume_from_checkpoint", "last"
        ], [*([model] if model else []), *inputs]

    text = ["--train_file", "inputs/text.txt", "--validation_file", "inputs/text.txt",
            "--max_eval_samples", 6]
    classes = ["--train_file", "inputs/classes.csv", "--validation_file", "inputs/classes.csv",
               "--max_eval_samples", 6, "--max_seq_length", 24, "--report_to", "none"]
    tags = ["--train_file", "inputs/tags.json", "--validation_file", "inputs/tags.json",
            "--max_eval_samples", 6, "--report_to", "none"]
    images = []
    for split in ("train", "validation"):
        images += [f"--{split}_images", "inputs/images.idx", f"--{split}_labels",
                   "inputs/labels.idx"]
    tasks = {
        "gpt2": task("causal-lm", *text, "--block_size", 16, "--report_to", "jsonl", "tensorboard",
                     model="gpt2", inputs=["text.txt"]),
        "llama": task("causal-lm", *text, "--block_size", 16, "--report_to", "none", model="llama",
                      inputs=["text.txt"]),
        "bert": task("masked-lm", *text, "--max_seq_length", 24, "--report_to", "none",
                     model="bert", inputs=["text.txt"]),
        "classes": task("text-classification", *classes, model="bert", inputs=["classes.csv"]),
        "tags": task("token-classification", *tags, model="bert", inputs=["tags.json"]),
        "images": task("image-classification", *images, "--report_to", "none",
                       inputs=["images.idx", "labels.idx"]),
    }
    kinds = [Kind(name, words, inputs, TrainerRun()) for name, (words, inputs) in tasks.items()]
    for name, leaves in (("trainer", TrainerRun()), ("seq2seq", TrainerRun()),
                         ("hooks", HookRun()), ("functional", FunctionalRun())):
        kinds.append(Kind(name, [program, name, "run", STEPS], [], leaves))
    return kinds
