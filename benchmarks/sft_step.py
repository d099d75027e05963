"""Supervised fine-tuning of a Llama of 4 layers, 256 wide (vocabulary 8,192) on 8 rows of 128
tokens on the CPU, as trl does it by default (gradient checkpointing), without checkpointing, and
with LoRA.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_row import Skip, at_most

HERE = Path(__file__).resolve().parent
STEPS, TURNS = 25, 3
KINDS = {
    "as trl does by default": {},
    "without gradient checkpointing": {"gradient_checkpointing": False},
    "LoRA r = 16 on all linear layers": {"lora": True},
}


def arguments(kind):
    return dict(per_device_train_batch_size=8, max_steps=STEPS, learning_rate=5e-4, bf16=False,
                logging_steps=10, disable_tqdm=True, save_strategy="no", report_to="none",
                use_cpu=True, max_length=128, seed=1,
                gradient_checkpointing=kind.get("gradient_checkpointing", True))


def make_data(folder):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 8)))
             for _ in range(2000)]
    with open(folder / "rows.jsonl", "w") as out:
        for _ in range(8 * STEPS):
            out.write(json.dumps({"text": " ".join(rng.choices(words, k=140))}) + "\n")


def ours(build, folder, kind):
    """Seconds of a step."""
    flags = []
    for name, value in arguments(kind).items():
        flags += [f"--{name}", str(value)]
    if kind.get("lora"):
        flags += ["--use_peft", "--lora_r", "16", "--lora_target_modules", "all-linear",
                  "--lora_dropout", "0"]
    out = folder / "ours"
    subprocess.run([build / "bin/gradus", "sft", "--model_name_or_path", folder / "model",
                    "--train_file", folder / "rows.jsonl", "--output_dir", out,
                    "--overwrite_output_dir", *flags], check=True, capture_output=True,
                   timeout=600)
    return 1 / json.loads((out / "train_results.json").read_text())["train_steps_per_second"]


def theirs(folder, kind):
    done = subprocess.run([sys.executable, HERE / "sft_step_peer.py", "train", folder,
                           json.dumps([arguments(kind), bool(kind.get("lora"))])],
                          check=True, capture_output=True, text=True, timeout=600)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main(build):
    if subprocess.run([sys.executable, "-c", "import trl"], capture_output=True).returncode != 0:
        raise Skip("the Python peer is absent: make peer")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder)
        subprocess.run([sys.executable, HERE / "sft_step_peer.py", "make", folder], check=True,
                       capture_output=True, timeout=600)
        for label, kind in KINDS.items():
            mine, others = [], []
            for _ in range(TURNS):  # interleaved: whatever else the machine does hits both
                others.append(theirs(folder, kind))
                mine.append(ours(build, folder, kind))
            rows.append(
                at_most(0.8, quantity=f"SFT step, {label}", gradus=statistics.median(mine) * 1000,
                        other=statistics.median(others) * 1000, other_name="trl", unit="ms"))
    return rows
