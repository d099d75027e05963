"""Training steps of an exported GPT-2 of 10 million parameters on 4 rows of 128 tokens on the CPU,
beside Python's Trainer with the same weights, rows and flags.
"""

import json
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_row import Skip, at_most

HERE = Path(__file__).resolve().parent
CONFIG = dict(model_type="gpt2", vocab_size=8192, n_positions=128, n_embd=320, n_layer=6, n_head=5,
              resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
ROWS, TOKENS, STEPS, TURNS = 4, 128, 30, 3
FASTER = 1.3


def prepare(folder):
    make = ("import sys, torch, transformers; torch.manual_seed(0); "
            f"m = transformers.AutoModelForCausalLM.from_config("
            f"transformers.AutoConfig.for_model(**{CONFIG!r})); m.save_pretrained(sys.argv[1])")
    subprocess.run([sys.executable, "-c", make, folder / "model"], check=True, capture_output=True)
    subprocess.run([
        sys.executable, HERE.parent / "tools/export_model.py", folder / "model",
        folder / "exported", "--auto_class", "CausalLM", "--steps", "train", "--max_length",
        str(TOKENS)
    ], check=True, capture_output=True)
    rng = random.Random(1)
    count = ROWS * STEPS * TOKENS
    (folder / "tokens.bin").write_bytes(
        struct.pack(f"<{count}H", *[rng.randrange(1, 8192) for _ in range(count)]))


def ours(build, folder):
    """Seconds of a step; the first ones, which load the package, are left out."""
    out = folder / "ours"
    command = [
        build / "bin/gradus", "train", "--task", "causal-lm", "--model_name_or_path",
        folder / "exported", "--train_file", folder / "tokens.bin", "--block_size",
        str(TOKENS), "--output_dir", out, "--overwrite_output_dir", "--do_train",
        "--per_device_train_batch_size",
        str(ROWS), "--learning_rate", "5e-4", "--logging_steps", "10", "--save_strategy", "no",
        "--use_cpu", "--disable_tqdm", "--seed", "1", "--max_steps"
    ]
    seconds = {}
    for steps in (5, STEPS):
        subprocess.run([*command, str(steps)], check=True, capture_output=True)
        seconds[steps] = json.loads((out / "train_results.json").read_text())["train_runtime"]
    return (seconds[STEPS] - seconds[5]) / (STEPS - 5)


def main(build):
    if subprocess.run([sys.executable, "-c", "import transformers"],
                      capture_output=True).returncode != 0:
        raise Skip("the Python peer is absent: make peer")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        prepare(folder)
        mine, other = [], []
        for _ in range(TURNS):
            mine.append(ours(build, folder))
            done = subprocess.run(
                [sys.executable, HERE / "exported_step_peer.py", folder,
                 *map(str, (STEPS, ROWS, TOKENS))], check=True, capture_output=True, text=True)
            other.append(json.loads(done.stdout.strip().splitlines()[-1]))
        return [
            at_most(1 / FASTER, quantity="step of an exported GPT-2, 10 M parameters",
                    gradus=1000 * statistics.median(mine), other=1000 * statistics.median(other),
                    unit="ms", other_name="Python Trainer, eager")
        ]
