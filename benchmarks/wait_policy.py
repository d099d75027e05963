"""Steps per second of a small image classifier under the ways OpenMP's threads can wait.

    python benchmarks/wait_policy.py [ROUNDS]     prints a table of every setting (the figures of
                                                  docs/user/using-gradus.md)

As a benchmark it compares the program's own choice (see cli/wait_policy.cpp) with OpenMP's default,
on a machine as it is and on one whose cores other programs want.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benchmark_row import Row  # noqa: E402

SETTINGS = {
    # Any of the variables keeps the program from choosing; libgomp does not read this one.
    "OpenMP's default": {"KMP_BLOCKTIME": "200"},
    "the program's choice": {},
    "never spins": {"OMP_WAIT_POLICY": "passive"},
    "1000 rounds": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"},
    "10000 rounds": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"},
}


def steps_per_second(gradus, setting, steps):
    own = {k: v for k, v in os.environ.items()
           if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [gradus, "train", "--task", "image-classification", "--dataset_name", "fashion_mnist",
             "--per_device_train_batch_size", "64", "--max_steps", str(steps), "--save_strategy",
             "no", "--logging_strategy", "no", "--disable_tqdm", "--output_dir", folder + "/run",
             "--json"], env={**own, **SETTINGS[setting]}, capture_output=True, text=True,
            check=True)
    return json.loads(done.stdout)["metrics"]["train"]["train_steps_per_second"]


def measure(gradus, settings, rounds, steps, busy):
    """{setting: [steps per second]}, the settings in turn."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(os.cpu_count() if busy else 0)]
    try:
        found = {setting: [] for setting in settings}
        for _ in range(rounds):
            for setting in settings:
                found[setting].append(steps_per_second(gradus, setting, steps))
        return found
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(build):
    gradus = str(build / "bin/gradus")
    rows = []
    for busy, steps in ((False, 150), (True, 15)):
        found = measure(gradus, list(SETTINGS)[:2], 5, steps, busy)
        default, chosen = (statistics.median(each) for each in found.values())
        rows.append(Row(quantity="image classifier, " + ("busy cores" if busy else "quiet machine"),
                        gradus=chosen, other=default, unit="steps/s",
                        other_name="OpenMP's default", bound="none"))
    return rows


if __name__ == "__main__":
    build = Path(__file__).resolve().parents[1] / "build/release"
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    for busy, steps in ((False, 150), (True, 15)):
        print("busy" if busy else "quiet")
        for setting, each in measure(str(build / "bin/gradus"), SETTINGS, rounds, steps,
                                     busy).items():
            print(f"  {setting:22} median {statistics.median(each):6.2f}  "
                  f"{min(each):6.2f} to {max(each):6.2f}", flush=True)
