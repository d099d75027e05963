"""sweep.py GRADUS: `gradus sweep`: trials, pruning, errors, and a sweep that is killed 20 times.

Uses only the standard library. The study is read as a SQLite file; that Optuna opens it is the
business of tests/differential/search_test.py.
"""

import json
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
ROWS = 48
KILLS = 20


def idx(file, shape, values):
    header = struct.pack(">HBB", 0, 8, len(shape)) + b"".join(struct.pack(">I", n) for n in shape)
    file.write_bytes(header + bytes(values))


def make_data(folder):
    """Two classes: the upper or the lower half is bright."""
    rng = random.Random(1)
    labels = [i % 2 for i in range(ROWS)]
    pixels = []
    for label in labels:
        for y in range(28):
            bright = (y < 14) == (label == 0)
            pixels += [rng.randrange(120, 250) if bright else rng.randrange(90) for _ in range(28)]
    idx(folder / "images", (ROWS, 28, 28), pixels)
    idx(folder / "labels", (ROWS,), labels)


def space(folder, **changes):
    document = {
        "parameters": {
            "learning_rate": {
                "low": 1e-4, "high": 1e-1, "log": True
            }, "weight_decay": {
                "low": 0, "high": 0.2, "step": 0.1
            }, "per_device_train_batch_size": [8, 16]
        }, "arguments": {
            "task": "image-classification", "train_images": "images", "train_labels": "labels",
            "validation_images": "images", "validation_labels": "labels", "max_steps": 6,
            "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "logging_steps": 2,
            "use_cpu": True, "report_to": "none"
        }, "metric": "eval_loss", "seed": 5
    }
    document.update(changes)
    file = folder / "space.json"
    file.write_text(json.dumps(document))
    return file.name


def sweep(folder, *words, code=0):
    done = subprocess.run([GRADUS, "sweep", *words], cwd=folder, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def trials_of(file):
    """[(number, state, value, params)] as the tables of Optuna have them."""
    with sqlite3.connect(file) as database:
        rows = database.execute(
            "SELECT t.trial_id, t.number, t.state, v.value FROM trials t LEFT JOIN trial_values v "
            "ON v.trial_id = t.trial_id ORDER BY t.number").fetchall()
        params = {}
        for trial, name, value in database.execute(
                "SELECT trial_id, param_name, param_value FROM trial_params"):
            params.setdefault(trial, {})[name] = value
    return [(number, state, value, params[trial]) for trial, number, state, value in rows]


def check_plain(folder):
    name = space(folder)
    said = json.loads(
        sweep(folder, name, "--output_dir", "plain", "--n_trials", "4", "--n_jobs", "2", "--json"))
    trials = trials_of(folder / "plain/study.db")
    assert [trial[0] for trial in trials] == [0, 1, 2, 3]
    assert all(trial[1] == "COMPLETE" for trial in trials), trials
    best = min(trials, key=lambda trial: trial[2])
    assert said["best"]["number"] == best[0] and said["best"]["value"] == best[2]
    for number, _, value, params in trials:
        run = folder / f"plain/run-{number}"
        assert json.loads((run / "all_results.json").read_text())["eval_loss"] == value
        state = json.loads((run / "checkpoint-6/trainer_state.json").read_text())
        assert state["is_hyper_param_search"] and state["trial_name"] == f"run-{number}"
        assert state["trial_params"]["learning_rate"] == params["learning_rate"]
        args = json.loads((run / "checkpoint-6/training_args.json").read_text())
        assert args["learning_rate"] == params["learning_rate"]
        assert args["per_device_train_batch_size"] == [8, 16][int(
            params["per_device_train_batch_size"])]
    # More of the same, then nothing more to do.
    sweep(folder, name, "--output_dir", "plain", "--n_trials", "5")
    assert len(trials_of(folder / "plain/study.db")) == 5
    sweep(folder, name, "--output_dir", "plain", "--n_trials", "5")
    assert len(trials_of(folder / "plain/study.db")) == 5


def check_pruning(folder):
    """With two learning rates, one of which learns nothing, halving stops the latter."""
    name = space(folder, parameters={
        "learning_rate": [1e-9, 1e-2], "seed": [1, 2, 3, 4]
    }, sampler="grid", pruner="halving")
    sweep(folder, name, "--output_dir", "pruned", "--n_trials", "100")
    trials = trials_of(folder / "pruned/study.db")
    assert len(trials) == 8  # the grid
    assert len({json.dumps(params) for _, _, _, params in trials}) == 8
    states = [(state, params["learning_rate"]) for _, state, _, params in trials]
    assert ("PRUNED", 0.0) in states and ("COMPLETE", 1.0) in states, states
    assert sum(state == "PRUNED" for state, _ in states) >= 3, states
    stopped = next(number for number, state, _, _ in trials if state == "PRUNED")
    assert "is pruned at step 2" in (folder / f"pruned/run-{stopped}/log.txt").read_text()


def check_errors(folder):
    said = sweep(folder, space(folder, parameters={"learning_rat": [1, 2]}), "--output_dir", "bad",
                 code=2)
    assert "G-CLI-10" in said and "Did you mean learning_rate?" in said, said
    said = sweep(folder, space(folder, parameters={"learning_rate": {"low": 1}}), "--output_dir",
                 "bad2", code=2)
    assert "G-SEARCH-1" in said and "'learning_rate'" in said, said
    said = sweep(folder, space(folder), "--output_dir", "bad3", "--sampler", "grid", code=2)
    assert "endlessly many" in said, said
    said = sweep(folder, space(folder), "--output_dir", "bad4", "--", "--learning_rate", "1",
                 code=2)
    assert "fixed value" in said, said
    said = sweep(folder, space(folder), "--n_trials", "1", code=2)
    assert "--output_dir" in said, said
    # What belongs to the sweep, a grid without end, a metric that no evaluation has.
    words = ["--output_dir", "bad5", "--n_trials", "3"]
    for change in [{"parameters": {"output_dir": ["a", "b"]}},
                   {"arguments": {"task": "sft", "resume_from_checkpoint": "x"}}]:
        said = sweep(folder, space(folder, **change), *words, code=2)
        assert "no flag for trials" in said, said
    for flag in ("--output_dir=x", "--output-dir=x"):
        said = sweep(folder, space(folder), *words, "--", flag, code=2)
        assert "no flag for trials" in said and not (folder / "x").exists(), said
    for step in (1, 1e-300):
        wide = {"learning_rate": {"low": 0, "high": 10**12, "step": step}}
        said = sweep(folder, space(folder, parameters=wide), *words, "--sampler", "grid", code=2)
        assert "too many for a grid" in said, said
    said = sweep(folder, space(folder, metric="eval_los"), *words, code=2)
    assert "G-CLI-10" in said and "no metric 'eval_los'" in said and "eval_loss" in said, said
    assert not (folder / "bad5/run-1").exists(), "the other trials would fail, too"


def check_kills(folder):
    """Killed 20 times at any moment, a sweep ends with the trials of one that was left alone."""
    name, total = space(folder), 12
    words = [GRADUS, "sweep", name, "--n_trials", str(total), "--n_jobs", "1"]
    rng = random.Random(7)
    kills = 0
    while True:
        running = subprocess.Popen([*words, "--output_dir", "killed"], cwd=folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   start_new_session=True)
        limit = rng.uniform(0.2, 2.5) if kills < KILLS else 600
        try:
            running.wait(limit)
            assert running.returncode == 0, running.stderr.read().decode()
            break
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            kills += 1
    trials = trials_of(folder / "killed/study.db")
    assert [trial[0] for trial in trials] == list(range(total)), trials
    assert all(trial[1] == "COMPLETE" for trial in trials), trials
    assert len({json.dumps(trial[3], sort_keys=True) for trial in trials}) == total
    sweep(folder, name, "--n_trials", str(total), "--output_dir", "whole")
    whole = trials_of(folder / "whole/study.db")
    assert [trial[3] for trial in trials] == [trial[3] for trial in whole]
    assert [trial[2] for trial in trials] == [trial[2] for trial in whole]  # exact resume
    return kills


def check_signal(folder):
    """SIGTERM: the trial saves and ends; started again the sweep goes on with it."""
    name = space(folder)
    words = [GRADUS, "sweep", name, "--n_trials", "2", "--output_dir", "stopped"]
    running = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    file = folder / "stopped/run-0/log.txt"
    until = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < until:
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=60)[1].decode()
    if running.returncode == 143:  # it may have been over before
        assert "Start it again" in said, said
    sweep(folder, *words[2:])
    assert [trial[1] for trial in trials_of(folder / "stopped/study.db")] == ["COMPLETE"] * 2


def main():
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="gradus_sweep_") as name:
        folder = Path(name)
        make_data(folder)
        check_errors(folder)
        check_plain(folder)
        check_pruning(folder)
        check_signal(folder)
        kills = check_kills(folder)
    print(f"sweep: plain, pruned, stopped; killed {kills} times without a loss or a double")


main()
