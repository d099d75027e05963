"""Time per step of the 2-parameter regression model, start-up, and how long a checkpoint of 30 M
parameters holds training up.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmark_row import Row, Skip, at_most

HERE = Path(__file__).resolve().parent
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True, timeout=600, **more)
    return json.loads(done.stdout.strip().splitlines()
                      [-1]) if done.stdout.strip().startswith("{") or "{" in done.stdout else None


def timed(command, **more):
    start = time.perf_counter()
    subprocess.run([str(word) for word in command], capture_output=True, check=True, timeout=600,
                   **more)
    return time.perf_counter() - start


def has_peer():
    return subprocess.run([sys.executable, "-c", "import transformers"],
                          capture_output=True).returncode == 0


def main(build):
    program, peer = build / "bin" / "bench_train_step", HERE / "train_step_peer.py"
    plain, ours, theirs = [], [], []
    for _ in range(5):  # interleaved: whatever else the machine does hits both
        plain.append(run([program, "plain", 20000], env=ENV)["microseconds"])
        ours.append(run([program, "trainer", 20000], env=ENV)["microseconds"])
    rows = [
        at_most(1.25, quantity="step, regression model, against a plain LibTorch loop",
                gradus=statistics.median(ours), other=statistics.median(plain), unit="µs")
    ]
    short, long = [], []
    for _ in range(3):
        for entries, seconds in ((0, short), (1_000_000, long)):
            folder = tempfile.mkdtemp()
            seconds.append(run([program, "history", folder, entries], env=ENV)["seconds"])
            shutil.rmtree(folder)
    rows.append(
        Row(quantity="a save with a log of 1,000,000 entries holds training up",
            gradus=statistics.median(long) * 1e3, other=statistics.median(short) * 1e3, unit="ms",
            other_name="without a log", bound="<= 5 ms more",
            holds=statistics.median(long) <= statistics.median(short) + 5e-3))
    if not has_peer():
        raise Skip("the Python peer is absent: make peer")
    ours, theirs = [], []
    for _ in range(3):
        theirs.append(run([sys.executable, peer, "step", 2000], env=ENV)["microseconds"])
        ours.append(run([program, "trainer", 20000], env=ENV)["microseconds"])
    rows.append(
        at_most(1 / 12, quantity="step, regression model, against the Python Trainer",
                gradus=statistics.median(ours), other=statistics.median(theirs), unit="µs"))
    ours, theirs = [], []
    for _ in range(3):
        theirs.append(timed([sys.executable, peer, "first"]))
        ours.append(timed([program, "first"]))
    rows.append(
        at_most(1 / 15, quantity="process start to the end of the first step",
                gradus=statistics.median(ours), other=statistics.median(theirs), unit="s"))
    ours, theirs = [], []
    for _ in range(3):
        folder = tempfile.mkdtemp()
        theirs.append(run([sys.executable, peer, "save", folder])["seconds"])
        shutil.rmtree(folder)
        folder = tempfile.mkdtemp()
        ours.append(run([program, "save", folder])["seconds"])
        shutil.rmtree(folder)
    rows.append(
        at_most(1 / 3, quantity="a save of 30 M parameters with AdamW holds training up",
                gradus=statistics.median(ours), other=statistics.median(theirs), unit="s"))
    return rows
