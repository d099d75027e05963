"""Time per step of a small model that logs every step, about a thousand times a second: with all
trackers on and with none, in turn, on one thread; and whether the losses are the same, bit for bit.

How many rows a step has is chosen first, so that a step without trackers takes a millisecond here.

    python benchmarks/trackers.py [BUILD]     what each tracker costs alone
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_row import Row, at_most

NAMES = ["jsonl", "tensorboard", "csv", "mlflow", "openmetrics", "trackio", "wandb"]
STEPS, ROUNDS = 1050, 12
STEP = 1000  # µs, at a thousand logs a second


def run(program, batch, trackers, steps=STEPS):
    with tempfile.TemporaryDirectory() as folder:
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("MLFLOW", "WANDB", "TRACKIO", "TENSORBOARD"))
        } | {
            "OMP_NUM_THREADS": "1", "TRACKIO_DIR": f"{folder}/trackio", "WANDB_DIR": folder,
            "GRADUS_OPENMETRICS_PORT": "0"
        }
        words = [str(program), f"{folder}/run", str(steps), str(batch), trackers]
        done = subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True,
                              check=True, timeout=600)
        if "could not be written" in done.stderr or "no answer" in done.stderr:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)


def batch_of_a_millisecond(program):
    """The rows with which a step without trackers comes nearest to a millisecond."""

    def time(rows):
        return statistics.median(run(program, rows, "none", 300)["worked"] for _ in range(3))

    few, many = 32, 160
    slope = (time(many) - time(few)) / (many - few)
    rows = round(few + (STEP - time(few)) / slope)
    return max(8, min(rows, 512))


def measure(program, batch, trackers, rounds=ROUNDS):
    """Runs without and with them, in turn: now the one first, now the other."""
    plain, tracked = [], []
    for turn in range(rounds):
        pair = [(plain, "none"), (tracked, trackers)]
        for found, names in pair if turn % 2 == 0 else reversed(pair):
            found.append(run(program, batch, names))
    return plain, tracked


def median(found, key):
    return statistics.median(one[key] for one in found)


def main(build):
    program = build / "bin" / "bench_trackers"
    batch = batch_of_a_millisecond(program)
    plain, tracked = measure(program, batch, ",".join(NAMES))
    logs = median(tracked, "logs")
    equal = len({one["losses"] for one in plain + tracked}) == 1
    row = dict(other_name="without trackers", unit="µs")
    return [
        at_most(1.02, quantity=f"step with all trackers, {logs:.0f} logs a second",
                gradus=median(tracked, "step"), other=median(plain, "step"), **row),
        Row(quantity="the training thread's own time of it", gradus=median(tracked, "worked"),
            other=median(plain, "worked"), **row),
        Row(quantity="a log itself, with all that listens to it", gradus=median(tracked, "log"),
            other=median(plain, "log"), **row),
        Row(quantity="runs with the same losses, bit for bit",
            gradus=float(sum(one["losses"] == plain[0]["losses"] for one in tracked)),
            other=float(len(plain)), unit="runs", other_name="without trackers", bound="all",
            holds=equal),
    ]


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "build/release")
    program = place / "bin" / "bench_trackers"
    batch = batch_of_a_millisecond(program)
    print(f"{batch} rows a step")
    for name in [*NAMES, ",".join(NAMES)]:
        without, with_it = measure(program, batch, name, 5)
        for key in ("step", "worked", "log"):
            print(f"{name}: {key} {median(without, key):.1f} µs, {median(with_it, key):.1f} with",
                  flush=True)
