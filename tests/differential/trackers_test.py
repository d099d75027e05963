#!/usr/bin/env python3
"""What gradus' trackers write, opened by the real packages: the same keys and values as the log.

    python trackers_test.py [TRACKER_TOOL] [NAME...]

Five random runs each (or GRADUS_TRACKER_RUNS), with NaN and infinity among the values. wandb's part
runs `wandb sync` against a server of this script, mlflow's REST part against MLflow's own server;
both listen on 127.0.0.1 only. A package that is absent skips its part. Exits 77 where all are.
"""

import csv
import gzip
import http.server
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
import threading
import urllib.request

# The packages do not install beside those of the peer: `make peer` makes an environment for them.
PEER = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
                    "gradus/tracker-peer/bin/python")
if os.path.exists(PEER) and os.path.realpath(sys.prefix) != os.path.realpath(
        os.path.dirname(os.path.dirname(PEER))):
    os.execv(PEER, [PEER] + sys.argv)

BUILD = os.environ.get("GRADUS_BUILD", os.path.join(os.path.dirname(__file__),
                                                    "../../build/release"))
TOOL = os.path.join(BUILD, "bin/tracker_tool")
RUNS = int(os.environ.get("GRADUS_TRACKER_RUNS", "5"))
SINGLE = {
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss",
    "total_flos"
}
root = tempfile.mkdtemp(prefix="gradus_trackers_")
CLEAN = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("MLFLOW", "WANDB", "TRACKIO", "HF_", "GRADUS_OPENMETRICS"))
}


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
    entries, step = [], 0
    for _ in range(rng.randrange(1, 40)):
        step += rng.randrange(1, 20)
        entries.append({"step": step, "values": {key: random_value(rng) for key in keys}})
        if rng.random() < 0.3:
            evaluation = {"eval_loss": random_value(rng), "eval_f1@1": random_value(rng)}
            entries.append({"step": step, "values": {**evaluation, "epoch": random_value(rng)}})
    last = {key: random_value(rng) for key in sorted(SINGLE)}
    entries.append({"step": step, "values": {**last, "epoch": 1.0}})
    after = [{"step": step, "values": {"eval_loss": random_value(rng)}},
             {"step": step, "values": {"test_loss": random_value(rng)}, "predict": True}]
    return {
        "args": {
            "output_dir": f"runs/{seed}",
            "run_name": f"run {seed}",
            "project": "huggingface",
            "learning_rate": rng.uniform(0, 1),
            "seed": seed,
            "optim": "adamw_torch_fused",
            "bf16": rng.random() < 0.5,
            "none": None,
            "lr_scheduler_kwargs": {},
            "debug": ["a", "ü"],
        },
        "config": rng.choice([None, {"hidden_size": rng.randrange(512), "seed": -1}]),
        "parameters": rng.randrange(1 << 40),
        "parts": [{"from": 0, "entries": entries}, {"entries": after}],
    }


def replay(name, run, folder, **environment):
    """Gives the run to the tracker, in `folder`."""
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, "run.json")
    written = json.loads(json.dumps(run))
    for part in written["parts"]:
        for entry in part["entries"]:
            entry["values"] = {key: repr(value) for key, value in entry["values"].items()}
    with open(file, "w") as out:
        json.dump(written, out)
    subprocess.run([TOOL, "replay", name, file, folder], check=True, cwd=folder, timeout=60,
                   env={**CLEAN, **environment})


def entries_of(run, predictions=False):
    return [
        entry for part in run["parts"] for entry in part["entries"]
        if predictions or not entry.get("predict")
    ]


def dashboard(key):
    for prefix in ("eval_", "test_"):
        if key.startswith(prefix):
            return f"{prefix[:-1]}/{key[len(prefix):]}"
    return f"train/{key}"


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and
                      math.isnan(b))


def assert_same(got, want, where):
    assert set(got) == set(want), (where, sorted(got), sorted(want))
    for key, value in want.items():
        assert same(got[key], value), (where, key, got[key], value)


def combined_config(run):
    """What transformers' integrations call the config."""
    return {**(run["config"] or {}), **run["args"]}


def rows_of(run):
    """The rows of wandb's and trackio's history."""
    rows = []
    for entry in entries_of(run, predictions=True):
        predict = entry.get("predict")
        row = {
            dashboard(key): value
            for key, value in entry["values"].items()
            if predict or key not in SINGLE
        }
        rows.append(row if predict else {**row, "train/global_step": entry["step"]})
    return rows


def check_csv(runs):
    for seed, run in runs.items():
        folder = os.path.join(root, "csv", str(seed))
        replay("csv", run, folder)
        with open(os.path.join(folder, "log.csv"), newline="") as file:
            table = list(csv.DictReader(file))
        want = entries_of(run)
        assert len(table) == len(want), (seed, len(table), len(want))
        for row, entry in zip(table, want):
            got = {key: float(value) for key, value in row.items() if value != ""}
            assert_same(got, {"step": float(entry["step"]), **entry["values"]}, seed)


def check_trackio(runs):
    folder = os.path.join(root, "trackio")
    for run in runs.values():
        replay("trackio", run, folder, TRACKIO_DIR=folder)
    os.environ.update(TRACKIO_DIR=folder, HF_HUB_OFFLINE="1")
    from trackio.sqlite_storage import SQLiteStorage
    for is_current in (False, True):  # as we left it, and after trackio has opened it for writing
        if is_current:
            SQLiteStorage.init_db("huggingface")
        names = set(SQLiteStorage.get_runs("huggingface"))
        assert names == {run["args"]["run_name"] for run in runs.values()}, names
        for seed, run in runs.items():
            name = run["args"]["run_name"]
            logs = SQLiteStorage.get_logs("huggingface", name)
            want = rows_of(run)
            assert len(logs) == len(want), (seed, len(logs), len(want))
            for index, (log, row) in enumerate(zip(logs, want)):
                assert log.pop("step") == index and log.pop("timestamp"), log
                assert_same(log, row, seed)
            config = SQLiteStorage.get_run_config("huggingface", name)
            want = {**combined_config(run), "model/num_parameters": run["parameters"]}
            assert {key: config[key] for key in want} == want, (config, want)


def python_flat(values):
    return {key: str(value) for key, value in values.items()}


def sanitized(key):
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-. :/") else "_" for c in key)


def check_mlflow_client(runs, uri, infinity):
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("an experiment")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(found) == {run["args"]["run_name"] for run in runs.values()}, set(found)
    for seed, run in runs.items():
        got = found[run["args"]["run_name"]]
        assert got.info.status == "FINISHED" and got.info.end_time >= got.info.start_time, got.info
        assert got.data.tags["release"] == "RC1" and got.data.tags["mlflow.user"], got.data.tags
        assert got.data.params == python_flat(combined_config(run)), (seed, got.data.params)
        want = {}
        for entry in entries_of(run):
            for key, value in entry["values"].items():
                value = math.copysign(infinity, value) if math.isinf(value) else value
                want.setdefault(sanitized(key), []).append((entry["step"], value))
        assert set(got.data.metrics) == set(want), (seed, got.data.metrics)
        for key, points in want.items():
            history = [(m.step, m.value) for m in client.get_metric_history(got.info.run_id, key)]
            order = lambda point: (point[0], repr(point[1]))
            # A store may hold equal points of one millisecond once.
            a, b = sorted(set(map(repr, history))), sorted(set(map(repr, points)))
            assert a == b, (seed, key, sorted(history, key=order), sorted(points, key=order))


MLFLOW = {"MLFLOW_EXPERIMENT_NAME": "an experiment", "MLFLOW_TAGS": '{"release": "RC1"}'}


def check_mlflow_folder(runs):
    folder = os.path.join(root, "mlflow")
    uri = f"file://{folder}/mlruns"
    for run in runs.values():
        replay("mlflow", run, folder, MLFLOW_TRACKING_URI=uri, **MLFLOW)
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    check_mlflow_client(runs, uri, math.inf)


def check_mlflow_database(runs):
    folder = os.path.join(root, "mlflow-database")
    uri = f"sqlite:///{folder}/tracking.db"
    seeds = list(runs)
    for half in (seeds[::2], seeds[1::2]):  # into a new database, and into one of MLflow's version
        for seed in half:
            replay("mlflow", runs[seed], folder, MLFLOW_TRACKING_URI=uri, **MLFLOW)
        if half == seeds[::2]:
            check_mlflow_client({seed: runs[seed] for seed in half}, uri, sys.float_info.max)
    check_mlflow_client(runs, uri, sys.float_info.max)


def check_mlflow_server(runs):
    folder = os.path.join(root, "mlflow-server")
    os.makedirs(folder)
    os.environ.update(_MLFLOW_SERVER_FILE_STORE=f"sqlite:///{folder}/server.db",
                      _MLFLOW_SERVER_ARTIFACT_ROOT=folder, MLFLOW_SERVER_ALLOWED_HOSTS="*")
    import werkzeug.serving
    from mlflow.server import app
    server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
    import logging
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_port}"
    with urllib.request.urlopen(uri + "/version", timeout=60):  # its first answer takes seconds
        pass
    from mlflow.tracking import MlflowClient
    MlflowClient(tracking_uri=uri).search_experiments()
    for run in runs.values():
        replay("mlflow", run, folder, MLFLOW_TRACKING_URI=uri, **MLFLOW)
    check_mlflow_client(runs, uri, sys.float_info.max)
    server.shutdown()


class Cloud(http.server.BaseHTTPRequestHandler):
    """As much of W&B's server as `wandb sync` asks for; keeps what is uploaded."""
    protocol_version = "HTTP/1.1"
    uploads = {}  # run: {"config", "name", "history", "summary", "events", "exit"}

    def log_message(self, *_):
        pass

    def reply(self, answer):
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def content(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def do_GET(self):
        self.reply({})

    def do_PUT(self):
        self.content()
        self.reply({})

    def do_POST(self):
        content = json.loads(self.content())
        if self.path == "/graphql":
            self.reply({"data": self.graphql(content["query"], content.get("variables") or {})})
            return
        upload = self.uploads[self.path.split("/")[4]]
        for name, part in content.get("files", {}).items():
            lines = [json.loads(line) for line in part["content"]]
            upload.setdefault(name, []).extend(lines)
        if content.get("complete"):
            upload["exit"] = content.get("exitcode")
        self.reply({})

    def graphql(self, query, variables):
        if "upsertBucket" in query:
            upload = self.uploads.setdefault(variables["name"], {})
            if variables.get("config"):
                upload["config"] = json.loads(variables["config"])
            for key in ("project", "displayName"):
                upload[key] = variables.get(key) or upload.get(key)
            project = {"id": "p", "name": variables["project"],
                       "entity": {"id": "e", "name": "me"}}
            bucket = {"id": "b", "name": variables["name"], "displayName": "x",
                      "description": None, "config": "{}", "sweepName": None,
                      "historyLineCount": 0, "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if "createRunFiles" in query:
            port = self.server.server_address[1]
            files = [{"name": name, "uploadUrl": f"http://127.0.0.1:{port}/up/{name}"}
                     for name in variables["files"]]
            return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
        return {}


def check_wandb(runs):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    server.handle_error = lambda *_: None  # wandb closes connections as it likes
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = os.path.join(root, "wandb-runs")
    for seed, run in runs.items():
        replay("wandb", run, folder, WANDB_RUN_ID=f"run{seed}", WANDB_PROJECT="a project",
               WANDB_DIR=folder)
    places = [os.path.join(folder, "wandb", name)
              for name in sorted(os.listdir(os.path.join(folder, "wandb")))]
    assert len(places) == len(runs), places
    environment = {**CLEAN, "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}",
                   "WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", *places], cwd=folder,
                          env=environment, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for seed, run in runs.items():
        upload = Cloud.uploads[f"run{seed}"]
        assert upload["project"] == "a project" and upload["displayName"] == f"run {seed}", upload
        assert upload["exit"] == 0, upload
        config = {key: item["value"] for key, item in upload["config"].items()}
        assert config.pop("_wandb")["t"]["9"] == {"1": "transformers_trainer"}
        want = {**combined_config(run), "model/num_parameters": run["parameters"]}
        del want["lr_scheduler_kwargs"]  # wandb leaves out what is empty
        assert config == want, (config, want)
        rows = upload["wandb-history.jsonl"]
        want = rows_of(run)
        assert len(rows) == len(want), (seed, len(rows), len(want))
        summary = {}
        for index, (row, expected) in enumerate(zip(rows, want)):
            got = {key: value for key, value in row.items() if not key.startswith("_")}
            assert row["_step"] == index and row["_runtime"] >= 0, row
            assert_same({key: float(value) for key, value in got.items()},
                        {key: float(value) for key, value in expected.items()}, seed)
            summary.update(expected)
        for entry in entries_of(run):
            summary.update({key: value for key, value in entry["values"].items() if key in SINGLE})
        got = upload["wandb-summary.json"][-1]
        assert_same({key: float(value) for key, value in got.items() if not key.startswith("_")},
                    {key: float(value) for key, value in summary.items()}, seed)
        system = upload["wandb-events.jsonl"][0]
        assert system["system.proc.memory.rssMB"] > 0 and system["system.memory_percent"] > 0
    server.shutdown()


def check_openmetrics(runs):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    for seed, run in runs.items():
        folder = os.path.join(root, "openmetrics", str(seed))
        os.makedirs(folder)
        file = os.path.join(folder, "run.json")
        written = json.loads(json.dumps(run))
        for part in written["parts"]:
            for entry in part["entries"]:
                entry["values"] = {key: repr(value) for key, value in entry["values"].items()}
        with open(file, "w") as out:
            json.dump(written, out)
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
        want = {}
        for entry in entries_of(run):
            want.update(entry["values"], step=float(entry["step"]))
        got = {}
        for family in text_string_to_metric_families(text):
            assert family.type == "gauge" and len(family.samples) == 1, family
            sample = family.samples[0]
            assert sample.labels["run"] == run["args"]["run_name"], sample
            got[sample.labels.get("key", sample.name.removeprefix("gradus_"))] = sample.value
        assert got.pop("log_time_seconds") > 1e9
        assert_same(got, want, seed)


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
    "csv": ("csv", check_csv),
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
runs = {seed: random_run(seed) for seed in range(RUNS)}
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
