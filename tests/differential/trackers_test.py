#!/usr/bin/env python3
"""What gradus' trackers write, opened by the real packages: the same keys and values as the log.

    python trackers_test.py [TRACKER_TOOL] [NAME...]

Random runs, with NaN and infinity among the values, and odd names of metrics, runs, projects and
parameters: five, GRADUS_FULL_MATRIX=1 for twenty, or GRADUS_TRACKER_RUNS. wandb's part runs `wandb
sync` against a server of this script, mlflow's REST part against MLflow's own server; both listen
on 127.0.0.1 only. A package that is absent skips its part. Exits 77 where all are.
tracker_runs_test.py does the same with runs of the Trainer.
"""

import importlib.util
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

import tracker_checks
from tracker_checks import CLEAN, SINGLE

tracker_checks.use_tracker_peer()

BUILD = os.environ.get("GRADUS_BUILD", os.path.join(os.path.dirname(__file__),
                                                    "../../build/release"))
TOOL = os.path.join(BUILD, "bin/tracker_tool")
IS_FULL = os.environ.get("GRADUS_FULL_MATRIX") == "1"
RUNS = int(os.environ.get("GRADUS_TRACKER_RUNS", "20" if IS_FULL else "5"))
root = tempfile.mkdtemp(prefix="gradus_trackers_")

ODD_KEYS = [
    "eval_f1@10", "acc (top-5)", "größe", "損失", "a/b", "a.b.c", "a  b", 'quo"te', "it's",
    "back\\slash", "line\nbreak", "tab\there", "😀", "comma,key", "eval_", "..", "../up", "a//b",
    "/root", "long" * 75, "eval_ü/ß@", "NaN", "100%", "{x}", "_private", "test_", " around "
]
ODD_NAMES = [
    "run {}", "größe {} 😀", "it's \"{}\"", "a: b #{}", "line\nbreak {}", "- {}", "'{}",
    "{}: [", "00{}", "back\\slash {}", "損失 {}", "tab\t{}", "\u2028 {}", "\x7f{}"
]
PROJECTS = ["huggingface", "größe", "a b/c", "😀", "模型-1", "../up"]


def random_value(rng):
    kind = rng.random()
    if kind < 0.05:
        return float("nan")
    if kind < 0.1:
        return rng.choice([float("inf"), float("-inf")])
    if kind < 0.2:
        return float(rng.randrange(1000))
    return rng.uniform(-1, 1) * 10.0**rng.randrange(-12, 12)


def random_run(seed):
    """Arguments, config and two parts: training, and an evaluation and a prediction after it."""
    rng = random.Random(seed)
    keys = ["loss", "grad_norm", "learning_rate", "epoch"]
    odd = rng.sample(ODD_KEYS, rng.randrange(2, 9))
    entries, step = [], 0
    for _ in range(rng.randrange(1, 40)):
        step += rng.randrange(1, 20)
        entries.append({"step": step, "values": {key: random_value(rng) for key in keys}})
        if rng.random() < 0.3:
            evaluation = {"eval_loss": random_value(rng), "eval_f1@1": random_value(rng)}
            entries.append({"step": step, "values": {**evaluation, "epoch": random_value(rng)}})
        if rng.random() < 0.3:
            some = rng.sample(odd, rng.randrange(1, len(odd)))
            entries.append({"step": step, "values": {key: random_value(rng) for key in some}})
    last = {key: random_value(rng) for key in sorted(SINGLE)}
    entries.append({"step": step, "values": {**last, "epoch": 1.0}})
    after = [{"step": step, "values": {"eval_loss": random_value(rng)}},
             {"step": step, "values": {"test_loss": random_value(rng)}, "predict": True}]
    project = rng.choice(PROJECTS)
    return {
        "args": {
            "output_dir": f"runs/{seed}",
            "run_name": ODD_NAMES[seed % len(ODD_NAMES)].format(seed),
            "project": project,
            "learning_rate": rng.uniform(0, 1),
            "tiny": 10.0**-rng.randrange(1, 30),
            "seed": seed,
            "optim": "adamw_torch_fused",
            "bf16": rng.random() < 0.5,
            "none": None,
            "lr_scheduler_kwargs": {},
            "debug": ["a", "ü"],
            "note": rng.choice(ODD_NAMES),
            "names": rng.sample(ODD_NAMES, 3),
            "nested": {"it's": [1, 2.5, None, True, {"b": rng.choice(ODD_KEYS)}]},
        },
        "config": rng.choice([None, {"hidden_size": rng.randrange(512), "seed": -1},
                              {rng.choice(ODD_KEYS): rng.choice(ODD_NAMES)},
                              {"vocabulary": "word " * rng.randrange(1100, 1300)}]),
        "parameters": rng.randrange(1 << 40),
        "project": project,
        "parts": [{"from": 0, "entries": entries}, {"entries": after}],
    }


def write_run(run, folder):
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "run.json")
    written = json.loads(json.dumps(run))
    for part in written["parts"]:
        for entry in part["entries"]:
            entry["values"] = {key: repr(value) for key, value in entry["values"].items()}
    with open(file, "w") as out:
        json.dump(written, out)
    return file


def replay(name, run, folder, **environment):
    """Gives the run to the tracker, in `folder`."""
    file = write_run(run, folder)
    subprocess.run([TOOL, "replay", name, file, folder], check=True, cwd=folder, timeout=60,
                   env={**CLEAN, **environment})


def check_files(runs):
    for seed, run in enumerate(runs):
        folder = os.path.join(root, "files", str(seed))
        replay("csv", run, folder)
        tracker_checks.check_csv(run, os.path.join(folder, "log.csv"))
        replay("jsonl", run, folder)
        tracker_checks.check_jsonl(run, os.path.join(folder, "log.jsonl"))


def check_trackio(runs):
    folder = os.path.join(root, "trackio")
    for run in runs:
        replay("trackio", run, folder, TRACKIO_DIR=folder)
    tracker_checks.check_trackio(runs, folder)


EXPERIMENT = 'an experiment: "größe" 😀 #1'
MLFLOW = {"MLFLOW_EXPERIMENT_NAME": EXPERIMENT, "MLFLOW_TAGS": '{"release": "RC1"}'}


def check_mlflow_folder(runs):
    folder = os.path.join(root, "mlflow")
    uri = f"file://{folder}/mlruns"
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient
    MlflowClient(tracking_uri=uri).create_experiment(EXPERIMENT)  # ours go into MLflow's own
    for run in runs:
        replay("mlflow", run, folder, MLFLOW_TRACKING_URI=uri, **MLFLOW)
    tracker_checks.check_mlflow(runs, uri, math.inf, EXPERIMENT)
    assert sorted(os.listdir(folder)) == ["mlruns", "run.json"], os.listdir(folder)


def check_mlflow_database(runs):
    folder = os.path.join(root, "mlflow-database")
    uri = f"sqlite:///{folder}/tracking.db"
    written = []
    for half in (runs[::2], runs[1::2]):  # into a new database, and into one of MLflow's version
        for run in half:
            replay("mlflow", run, folder, MLFLOW_TRACKING_URI=uri, **MLFLOW)
            written.append(run)
        tracker_checks.check_mlflow(written, uri, sys.float_info.max, EXPERIMENT)


def check_mlflow_server(runs):
    folder = os.path.join(root, "mlflow-server")
    server = tracker_checks.MlflowServer(folder)
    for run in runs:
        replay("mlflow", run, folder, MLFLOW_TRACKING_URI=server.uri, **MLFLOW)
    tracker_checks.check_mlflow(runs, server.uri, sys.float_info.max, EXPERIMENT)
    server.close()


def check_wandb(runs):
    folder = os.path.join(root, "wandb-runs")
    for seed, run in enumerate(runs):
        replay("wandb", run, folder, WANDB_RUN_ID=f"run{seed}", WANDB_PROJECT="a project",
               WANDB_DIR=folder)
    assert tracker_checks.wandb_sync(folder) == len(runs)
    for seed, run in enumerate(runs):
        upload = tracker_checks.Cloud.uploads[f"run{seed}"]
        tracker_checks.check_wandb_upload(run, upload, "a project")


def check_openmetrics(runs):
    for seed, run in enumerate(runs):
        folder = os.path.join(root, "openmetrics", str(seed))
        file = write_run(run, folder)
        with subprocess.Popen([TOOL, "replay", "openmetrics", file, folder], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env={**CLEAN,
                                                           "GRADUS_OPENMETRICS_PORT": "0"}) as tool:
            address = next(word for line in tool.stderr for word in line.split()
                           if word.startswith("http://127.0.0.1:"))
            assert tool.stdout.readline() == "ready\n"
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                text = answer.read().decode()
            tool.communicate("\n", timeout=10)
            assert tool.returncode == 0
        tracker_checks.check_openmetrics(run, text)


def flood(names, count, folder, prefix=(), **environment):
    """Logs `count` entries, a thousand a second; returns what the program says."""
    os.makedirs(folder, exist_ok=True)
    return subprocess.run([*prefix, TOOL, "flood", names, str(count), folder], cwd=folder,
                          timeout=60, capture_output=True, text=True, env={**CLEAN, **environment})


def check_hanging_server(_):
    """A server that takes connections and never answers: the run neither waits nor fails."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = flood("mlflow", 1000, os.path.join(root, "hanging"), MLFLOW_TRACKING_URI=uri)
    assert done.returncode == 0, done.stderr
    assert "mlflow: no answer" in done.stderr and done.stdout.startswith("log_us"), done
    # One entry that waited for the server would take 8 s, and all of them take a second.
    assert float(done.stdout.split()[1]) < 4000, done.stdout


def check_full_disk(_):
    """A disk of 300 kB that fills up: every tracker says so, and the run goes on."""
    folder = os.path.join(root, "full")
    os.makedirs(folder)
    mount = f'mount -t tmpfs -o size=300k none {folder} && cd {folder} && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        print("full disk: skipped, no file system can be mounted here")
        return
    done = flood("csv,jsonl,tensorboard,trackio,wandb,mlflow", 3000, folder, prefix,
                 TRACKIO_DIR=folder, WANDB_DIR=folder)
    assert done.returncode == 0 and done.stdout.startswith("log_us"), done
    assert "No space left on device" in done.stderr or "is full" in done.stderr, done.stderr
    assert "could not be written" in done.stderr, done.stderr


PARTS = {
    "csv and jsonl": ("csv", check_files),
    "hanging server": ("csv", check_hanging_server),
    "full disk": ("csv", check_full_disk),
    "openmetrics": ("prometheus_client", check_openmetrics),
    "trackio": ("trackio", check_trackio),
    "wandb": ("wandb", check_wandb),
    "mlflow folder": ("mlflow", check_mlflow_folder),
    "mlflow database": ("sqlalchemy", check_mlflow_database),
    "mlflow server": ("flask_cors", check_mlflow_server),
}

wanted = sys.argv[1:]
if wanted and os.path.exists(wanted[0]):
    TOOL = os.path.realpath(wanted.pop(0))
TOOL = os.path.realpath(TOOL)
runs = [random_run(seed) for seed in range(RUNS)]
checked, skipped = [], []
for name, (module, check) in PARTS.items():
    if wanted and name not in wanted:
        continue
    if importlib.util.find_spec(module) is None:
        skipped.append(name)
        continue
    check(runs)
    checked.append(name)
    print(f"{name}: holds ({len(runs)} random runs)", flush=True)
shutil.rmtree(root)
if skipped:
    print(f"skipped, packages absent ('make peer' installs them): {', '.join(skipped)}")
if len(skipped) == 6:
    sys.exit(77)
