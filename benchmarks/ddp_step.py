"""The model of gpt_step.py in two processes on the CPU, one thread each, 8 rows of 128 tokens per
process: the time of a step beside Python's Trainer with DistributedDataParallel, and how much of
the exchange of gradients runs beside the backward pass.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_row import Row, Skip, at_most

HERE = Path(__file__).resolve().parent
STEPS, WORLD, TOKENS = 30, 2, 8 * 128


def together(*command, cwd, trace=None):
    """Runs the command in two processes; the line of JSON of the first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = []
    for rank in range(WORLD):
        env = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD),
            "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"
        }
        if trace and rank == 0:
            env["TRACE"] = str(trace)
        running.append(
            subprocess.Popen([str(word) for word in command], env=env, cwd=cwd, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    said = [process.communicate(timeout=600) for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(said[0][1][-2000:] + said[1][1][-2000:])
    return json.loads(said[0][0].strip().splitlines()[-1])


def overlap(file):
    """Seconds of exchanges in a trace, and how many of them lie in the backward pass."""
    events = [each for each in json.loads(file.read_text())["traceEvents"] if "dur" in each]
    spans = lambda name: [(each["ts"], each["ts"] + each["dur"]) for each in events
                          if name in each["name"]]
    backward = spans("autograd::engine::evaluate_function")
    begin, end = min(a for a, _ in backward), max(b for _, b in backward)
    total, inside, last = 0.0, 0.0, 0.0
    for a, b in sorted(spans("gloo:all_reduce")):
        a = max(a, last)  # exchanges that run at once count once
        if b > a and b - a < 1e9:
            total += b - a
            inside += max(0.0, min(b, end) - max(a, begin))
            last = b
    return total / 1e6, inside / 1e6


def main(build):
    program, peer = build / "bin" / "bench_gpt_step", HERE / "gpt_step_peer.py"
    if subprocess.run([sys.executable, "-c", "import transformers"],
                      capture_output=True).returncode != 0:
        raise Skip("the Python peer is absent: make peer")
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):  # interleaved: whatever else the machine does hits both
            theirs.append(together(sys.executable, peer, "train", STEPS, cwd=folder))
            ours.append(together(program, "trainer", STEPS, cwd=folder))
        trace = Path(folder, "trace.json")
        together(program, "trainer", 8, cwd=folder, trace=trace)
        exchanged, beside = overlap(trace)
    step = lambda runs: statistics.median(1000 * TOKENS / one["tokens"] for one in runs)
    return [
        at_most(0.8, quantity="step in 2 processes, GPT-2 4 x 256, 8 x 128 tokens each",
                gradus=step(ours), other=step(theirs), other_name="Python Trainer, DDP",
                unit="ms"),
        Row(quantity="exchange of gradients that runs beside the backward pass",
            gradus=1000 * beside, other=1000 * exchanged, other_name="all of it", unit="ms"),
    ]
