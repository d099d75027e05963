"""A GPT-2 of 4 layers, 256 wide (vocabulary 8,192, its usual dropout) on 8 rows of 128 tokens on
the CPU: tokens per second and peak memory; what loading 500 MB costs.
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_row import Row, Skip, at_least, at_most

HERE = Path(__file__).resolve().parent
STEPS = 30


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True, timeout=600, cwd=cwd)
    return json.loads(done.stdout.strip().splitlines()[-1])


def write_large_file(path, megabytes):
    """Ten float32 tensors in a safetensors file."""
    each = megabytes * 1_000_000 // 10 // 4 * 4
    header = json.dumps({
        f"layer.{i}.weight": {
            "dtype": "F32", "shape": [each // 4], "data_offsets": [i * each, (i + 1) * each]
        } for i in range(10)
    }).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        block = os.urandom(each)
        for _ in range(10):
            out.write(block)
    return os.path.getsize(path) / 2**20


def median(runs, name):
    return statistics.median(one[name] for one in runs)


def main(build):
    program, peer = build / "bin" / "bench_gpt_step", HERE / "gpt_step_peer.py"
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        size = write_large_file(Path(folder) / "large.safetensors", 500)
        loaded = run(program, "load", Path(folder) / "large.safetensors", cwd=folder)
        os.remove(Path(folder) / "large.safetensors")
        rows.append(
            at_most(0.01, quantity="memory taken by loading a 500 MB safetensors file",
                    gradus=loaded["resident"], other=size, other_name="file", unit="MiB"))
        rows.append(
            Row(quantity="loading a 500 MB safetensors file", gradus=loaded["seconds"] * 1000,
                other=float("nan"), unit="ms"))
        if subprocess.run([sys.executable, "-c", "import transformers"],
                          capture_output=True).returncode != 0:
            raise Skip("the Python peer is absent: make peer")
        plain, ours, theirs, onednn = [], [], [], []
        for _ in range(3):  # interleaved: whatever else the machine does hits all
            theirs.append(run(sys.executable, peer, "train", STEPS, cwd=folder))
            plain.append(run(program, "plain", STEPS, cwd=folder))
            ours.append(run(program, "trainer", STEPS, cwd=folder))
            onednn.append(run(program, "onednn", STEPS, cwd=folder))
    rows.append(
        at_least(0.97, quantity="GPT-2 4 x 256, 8 x 128 tokens", gradus=median(ours, "tokens"),
                 other=median(plain, "tokens"), other_name="plain C++ loop", unit="tokens/s"))
    rows.append(
        at_least(1.15, quantity="GPT-2 4 x 256, 8 x 128 tokens", gradus=median(ours, "tokens"),
                 other=median(theirs, "tokens"), other_name="Python Trainer", unit="tokens/s"))
    rows.append(
        Row(quantity="the same with --cpu_matmul onednn", gradus=median(onednn, "tokens"),
            other=median(theirs, "tokens"), other_name="Python Trainer", unit="tokens/s"))
    rows.append(
        at_most(0.4, quantity="its peak resident memory", gradus=median(ours, "peak"),
                other=median(theirs, "peak"), other_name="Python Trainer", unit="MiB"))
    return rows
