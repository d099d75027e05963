#!/usr/bin/env python3
"""Random runs of the Trainer with all trackers on, each tracker read by its real package: the same
keys and values as the log_history of trainer_state.json.

    python tracker_runs_test.py [SEED...]

A run has random options (intervals of logs and evaluations, epochs, accumulation, several sets),
metrics and logs of the user's own with odd names and NaN, odd names of run, project and output
folder, and a config. It trains, and may evaluate and predict afterwards. Three runs;
GRADUS_FULL_MATRIX=1 for twenty, with MLflow's server among MLflow's stores, or
GRADUS_TRACKER_RUNS. Everything listens on 127.0.0.1 only. Exits 77 where a package is absent.
"""

import importlib.util
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.request

import tracker_checks
from tracker_checks import CLEAN, assert_same, dashboard, entries_of

tracker_checks.use_tracker_peer()
for package in ("wandb", "mlflow", "sqlalchemy", "trackio", "prometheus_client", "flask_cors"):
    if importlib.util.find_spec(package) is None:
        print(f"skipped: {package} is absent; 'make peer' installs it")
        sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(os.environ.get("GRADUS_BUILD", os.path.join(HERE, "../../build/release")),
                    "bin/tracked_run_tool")
IS_FULL = os.environ.get("GRADUS_FULL_MATRIX") == "1"
RUNS = int(os.environ.get("GRADUS_TRACKER_RUNS", "20" if IS_FULL else "3"))
STORES = ("folder", "database", "server") if RUNS >= 20 else ("folder", "database")
TRACKERS = ["csv", "jsonl", "mlflow", "openmetrics", "tensorboard", "trackio", "wandb"]
EXPERIMENT = 'größe: an "experiment"'

ODD_METRICS = [
    "f1@10", "acc (top-5)", "größe", "損失", "a/b", "a.b.c", "two  spaces", 'quo"te', "it's",
    "back\\slash", "line\nbreak", "😀", "comma,key", "../up", "a//b", "long" * 70, "100%",
    "_private", ""
]
ODD_NAMES = [
    "run {}", "größe {} 😀", "it's \"{}\"", "a: b #{}", "line\nbreak {}", "00{}", "損失/{}"
]


def random_text(rng):
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(["nan", "inf", "-inf"])
    return repr(rng.uniform(-1, 1) * 10.0**rng.randrange(-12, 12))


def random_job(seed, folder):
    rng = random.Random(1000 + seed)
    odd = rng.sample(ODD_METRICS, rng.randrange(1, 8))
    steps = rng.randrange(4, 25)
    args = {
        "output_dir": os.path.join(folder, rng.choice(["out", "größe", "a b", "it's"])),
        "run_name": ODD_NAMES[seed % len(ODD_NAMES)].format(seed),
        "project": rng.choice(["huggingface", "größe", "a b/c", "模型-1"]),
        "report_to": rng.sample(TRACKERS, len(TRACKERS)),
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "seed": rng.randrange(10000),
        "learning_rate": 10.0**rng.uniform(-5, -1),
        "per_device_train_batch_size": rng.choice([2, 4, 8]),
        "gradient_accumulation_steps": rng.choice([1, 1, 2, 3]),
        "lr_scheduler_type": rng.choice(["linear", "cosine", "constant"]),
        "warmup_steps": rng.choice([0, 3]),
        "logging_strategy": rng.choice(["steps", "steps", "epoch"]),
        "logging_steps": rng.choice([1, 2, 3, 7, 0.25]),
        "logging_first_step": rng.random() < 0.5,
        "logging_nan_inf_filter": rng.random() < 0.5,
        "log_histograms": rng.choice([0, 0, 2]),
        "eval_strategy": rng.choice(["no", "steps", "epoch"]),
        "eval_steps": rng.choice([1, 2, 5]),
        "weight_decay": rng.choice([0.0, 0.01]),
        "max_grad_norm": rng.choice([1.0, 0.0]),
    }
    if rng.random() < 0.5:
        args["max_steps"] = steps
    else:
        args["num_train_epochs"] = rng.choice([1, 2, 1.5])
    if args["lr_scheduler_type"] == "cosine" and rng.random() < 0.5:
        args["lr_scheduler_kwargs"] = {"num_cycles": 0.75}
    return {
        "args": args,
        "config": rng.choice([
            None, {"hidden_size": 3, "it's": [1, 2.5, None, {"b": "ü"}]},
            {"id2label": {"0": "it's", "1": "quo\"te"}, "../../up": 1, "größe": "a\nb", "": "x"}
        ]),
        "metrics": [{name: random_text(rng) for name in odd} for _ in range(rng.randrange(3))],
        "logs": {
            str(step): {name: random_text(rng) for name in rng.sample(odd, 1)}
            for step in rng.sample(range(1, 25), rng.randrange(6))
        },
        "nan_row": rng.random() < 0.2,
        "sets": rng.choice([[], [], ["a", "größe@2"]]),
        "calls": ["train"] + rng.choice([[], ["evaluate"], ["evaluate", "predict"], ["predict"]]),
    }


def train(seed, store):
    """Trains and returns the run as the Trainer kept it, with where it lies."""
    folder = os.path.join(root, f"run {seed}")
    job = random_job(seed, folder)
    os.makedirs(job["args"]["output_dir"])
    file = os.path.join(folder, "job.json")
    with open(file, "w") as out:
        json.dump(job, out)
    board = os.path.join(folder, "board")
    environment = {
        **CLEAN, "OMP_NUM_THREADS": "1", "TRACKIO_DIR": os.path.join(root, "trackio"),
        "WANDB_DIR": root, "WANDB_RUN_ID": f"run{seed}", "WANDB_PROJECT": "größe",
        "TENSORBOARD_LOGGING_DIR": board, "GRADUS_OPENMETRICS_PORT": "0",
        "MLFLOW_TRACKING_URI": URIS[store], "MLFLOW_EXPERIMENT_NAME": EXPERIMENT,
        "MLFLOW_TAGS": '{"release": "RC1"}'
    }
    said = open(os.path.join(folder, "said.txt"), "w+")
    with subprocess.Popen([TOOL, file], cwd=folder, env=environment, text=True, stderr=said,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tool:
        while (line := tool.stdout.readline()) not in ("ready\n", ""):
            pass
        said.seek(0)
        messages = said.read()
        assert line == "ready\n" and "was already added" not in messages, messages
        address = next(word for word in messages.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        tool.communicate("\n", timeout=60)
        assert tool.returncode == 0, messages
    said.close()
    output = job["args"]["output_dir"]
    answer = json.load(open(os.path.join(output, "answer.json")))
    history = json.load(open(os.path.join(output, "trainer_state.json")))["log_history"]
    entries = [{"step": entry.pop("step"), "values": entry} for entry in history]
    entries += [{"step": answer["step"], "values": metrics, "predict": True}
                for metrics in answer["predictions"]]
    return {
        "seed": seed, "args": answer["args"], "config": job["config"], "parameters": 4,
        "project": job["args"]["project"], "parts": [{"entries": entries}], "store": store,
        "output": output, "board": board, "metrics": text, "nan_row": job["nan_row"],
        "steps": answer["step"]
    }


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 3e38 else (
        math.copysign(math.inf, value) if math.isfinite(value) else value)


def check_tensorboard(runs):
    peer = os.environ.get("GRADUS_PEER_PYTHON", sys.executable)
    done = subprocess.run([peer, os.path.join(HERE, "tensorboard_dump.py"),
                           *(run["board"] for run in runs)], capture_output=True, text=True)
    if done.returncode == 77:
        print("tensorboard:", done.stdout.strip())
        return
    assert done.returncode == 0, done.stderr
    for run, found in zip(runs, json.loads(done.stdout)):
        want = {}
        for entry in entries_of(run):
            for key, value in entry["values"].items():
                want.setdefault(dashboard(key), []).append([entry["step"], single(value)])
        assert_same(found["scalars"], want, run["seed"])
        assert_same(json.loads(found["texts"]["args/text_summary"]), run["args"], run["seed"])
        if run["config"] is not None:
            assert json.loads(found["texts"]["model_config/text_summary"]) == run["config"]
        plain = {key: value for key, value in run["args"].items()
                 if isinstance(value, (bool, float, int, str))}
        assert_same(found["hparams"], plain, run["seed"])
        every, wanted = run["args"]["log_histograms"], {}
        if every:
            steps = list(range(every, run["steps"] + 1, every))
            wanted = {f"{kind}/{name}": steps for kind in ("weights", "gradients") for name in "ab"}
        if not run["nan_row"] and run["steps"] >= every:  # there are none of NaN
            assert_same(found["histograms"], wanted, run["seed"])


def check(runs):
    for run in runs:
        tracker_checks.check_csv(run, os.path.join(run["output"], "log.csv"))
        tracker_checks.check_jsonl(run, os.path.join(run["output"], "log.jsonl"))
        tracker_checks.check_openmetrics(run, run["metrics"])
    print("csv, jsonl, openmetrics: hold", flush=True)
    check_tensorboard(runs)
    print("tensorboard: holds", flush=True)
    tracker_checks.check_trackio(runs, os.path.join(root, "trackio"))
    print("trackio: holds", flush=True)
    for store, uri in URIS.items():
        mine = [run for run in runs if run["store"] == store]
        if mine:
            most = math.inf if store == "folder" else sys.float_info.max
            tracker_checks.check_mlflow(mine, uri, most, EXPERIMENT)
            print(f"mlflow, {store}: holds ({len(mine)} runs)", flush=True)
    assert tracker_checks.wandb_sync(root) == len(runs)
    for run in runs:
        upload = tracker_checks.Cloud.uploads[f"run{run['seed']}"]
        tracker_checks.check_wandb_upload(run, upload, "größe")
    print("wandb: holds", flush=True)


root = tempfile.mkdtemp(prefix="gradus_tracked_runs_")
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
URIS = {"folder": f"file://{root}/mlruns", "database": f"sqlite:///{root}/tracking.db"}
server = None
if "server" in STORES:
    server = tracker_checks.MlflowServer(os.path.join(root, "server"))
    URIS["server"] = server.uri
seeds = [int(word) for word in sys.argv[1:]] or range(RUNS)
runs = [train(seed, STORES[seed % len(STORES)]) for seed in seeds]
entries = sum(len(entries_of(run)) for run in runs)
print(f"{len(runs)} random runs, {entries} log entries", flush=True)
check(runs)
shutil.rmtree(root)
