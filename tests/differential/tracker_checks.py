"""What trackers have written, read by the real packages and compared with a run's log.

A run is {"args", "config", "parameters", "project", "parts": [{"entries": [{"step", "values",
"predict"}]}]}: what the trackers were told. Every function raises AssertionError where something
is missing, too much or different.
"""

import ast
import csv
import gzip
import http.server
import json
import math
import os
import subprocess
import sys
import threading

# What wandb shows beside the curves, and trackio not at all.
SINGLE = {
    "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss",
    "total_flos"
}
CLEAN = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("MLFLOW", "WANDB", "TRACKIO", "HF_", "GRADUS_OPENMETRICS",
                           "TENSORBOARD"))
}


def use_tracker_peer():
    """The packages do not install beside those of the peer: `make peer` makes an environment for
    them, in which this goes on.
    """
    peer = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
                        "gradus/tracker-peer/bin/python")
    if os.path.exists(peer) and os.path.realpath(sys.prefix) != os.path.realpath(
            os.path.dirname(os.path.dirname(peer))):
        os.environ["GRADUS_PEER_PYTHON"] = sys.executable
        os.execv(peer, [peer] + sys.argv)


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
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and
                      math.isnan(b))


def assert_same(got, want, where):
    assert set(got) == set(want), (where, set(got) ^ set(want))
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


def check_csv(run, file):
    with open(file, newline="") as table:
        rows = list(csv.DictReader(table))
    want = entries_of(run)
    assert len(rows) == len(want), (file, len(rows), len(want))
    for row, entry in zip(rows, want):
        got = {key: float(value) for key, value in row.items() if value != ""}
        assert_same(got, {**entry["values"], "step": float(entry["step"])}, file)


def check_jsonl(run, file):
    with open(file) as lines:
        rows = [json.loads(line) for line in lines]
    want = entries_of(run)
    assert len(rows) == len(want), (file, len(rows), len(want))
    for row, entry in zip(rows, want):
        assert_same(row, {**entry["values"], "step": entry["step"]}, file)


def check_trackio(runs, folder):
    """The projects of trackio's folder: as we left them, and after trackio has opened them."""
    os.environ.update(TRACKIO_DIR=folder, HF_HUB_OFFLINE="1")
    from trackio.sqlite_storage import SQLiteStorage
    for is_current in (False, True):
        for project in {run["project"] for run in runs}:
            if is_current:
                SQLiteStorage.init_db(project)
            mine = [run for run in runs if run["project"] == project]
            names = set(SQLiteStorage.get_runs(project))
            assert names == {run["args"]["run_name"] for run in mine}, names
            for run in mine:
                check_trackio_run(SQLiteStorage, project, run)


def check_trackio_run(storage, project, run):
    name = run["args"]["run_name"]
    logs, want = storage.get_logs(project, name), rows_of(run)
    assert len(logs) == len(want), (name, len(logs), len(want))
    for index, (log, row) in enumerate(zip(logs, want)):
        assert log.pop("step") == index and log.pop("timestamp"), log
        assert_same(log, row, name)
    config = storage.get_run_config(project, name)
    want = {**combined_config(run), "model/num_parameters": run["parameters"]}
    assert_same({key: config[key] for key in want}, want, name)


def mlflow_name(key):
    """As transformers' integration names it; None for what MLflow itself refuses."""
    from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH, path_not_unique
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_-. :/") else "_" for c in key)
    return None if len(name) > MAX_ENTITY_KEY_LENGTH or path_not_unique(name) else name


def takes_parameter(key, value):
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH, _validate_param
    try:
        _validate_param(key, "")
    except MlflowException:
        return False
    return len(str(value)) <= MAX_PARAM_VAL_LENGTH


def check_mlflow_parameters(run, got):
    want = combined_config(run)
    want = {key: value for key, value in want.items() if takes_parameter(key, value)}
    assert set(got) == set(want), set(got) ^ set(want)
    for key, value in want.items():
        text = got[key]
        if isinstance(value, (dict, list)):  # the order of keys is ours
            assert ast.literal_eval(text) == value, (key, text, value)
        else:
            assert text == str(value), (key, text, value)


def check_mlflow(runs, uri, infinity, experiment):
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=uri)
    found = {}
    for run in client.search_runs([client.get_experiment_by_name(experiment).experiment_id]):
        found[run.info.run_name] = run
    assert set(found) == {run["args"]["run_name"] for run in runs}, set(found)
    for run in runs:
        name = run["args"]["run_name"]
        got = found[name]
        assert got.info.status == "FINISHED" and got.info.end_time >= got.info.start_time, got.info
        assert got.data.tags["release"] == "RC1" and got.data.tags["mlflow.user"], got.data.tags
        check_mlflow_parameters(run, got.data.params)
        want = {}
        for entry in entries_of(run):
            for key, value in entry["values"].items():
                value = math.copysign(infinity, value) if math.isinf(value) else value
                if mlflow_name(key) is not None:
                    want.setdefault(mlflow_name(key), []).append((entry["step"], value))
        assert set(got.data.metrics) == set(want), (name, set(got.data.metrics) ^ set(want))
        for key, points in want.items():
            history = [(m.step, m.value) for m in client.get_metric_history(got.info.run_id, key)]
            # A store may hold equal points of one millisecond once.
            a, b = sorted(set(map(repr, history))), sorted(set(map(repr, points)))
            assert a == b, (name, key, a, b)


class MlflowServer:
    """MLflow's own server, on 127.0.0.1 and with a database in `folder`."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        os.environ.update(_MLFLOW_SERVER_FILE_STORE=f"sqlite:///{folder}/server.db",
                          _MLFLOW_SERVER_ARTIFACT_ROOT=folder, MLFLOW_SERVER_ALLOWED_HOSTS="*")
        import logging
        import urllib.request

        import werkzeug.serving
        from mlflow.server import app
        from mlflow.tracking import MlflowClient
        self.server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{self.server.server_port}"
        with urllib.request.urlopen(self.uri + "/version", timeout=60):  # its first answer takes
            pass  # seconds
        MlflowClient(tracking_uri=self.uri).search_experiments()

    def close(self):
        self.server.shutdown()


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


def wandb_sync(folder):
    """Uploads the runs of the folder "wandb" in `folder` to `Cloud`, by wandb's own program."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
    server.handle_error = lambda *_: None  # wandb closes connections as it likes
    threading.Thread(target=server.serve_forever, daemon=True).start()
    places = [
        os.path.join(folder, "wandb", name)
        for name in sorted(os.listdir(os.path.join(folder, "wandb")))
    ]
    environment = {
        **CLEAN, "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "WANDB_API_KEY": "0" * 40, "WANDB_ERROR_REPORTING": "false"
    }
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", *places], cwd=folder,
                          env=environment, timeout=300, capture_output=True, text=True)
    server.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    return len(places)


def check_wandb_upload(run, upload, project):
    name = run["args"]["run_name"]
    assert upload["project"] == project and upload["displayName"] == name, upload
    assert upload["exit"] == 0, upload
    config = {key: item["value"] for key, item in upload["config"].items()}
    assert config.pop("_wandb")["t"]["9"] == {"1": "transformers_trainer"}
    want = {**combined_config(run), "model/num_parameters": run["parameters"]}
    # wandb leaves out what is empty.
    assert_same(config, {key: value for key, value in want.items() if value != {}}, name)
    rows, want = upload["wandb-history.jsonl"], rows_of(run)
    assert len(rows) == len(want), (name, len(rows), len(want))
    summary = {}
    for index, (row, expected) in enumerate(zip(rows, want)):
        got = {key: value for key, value in row.items()
               if key not in ("_step", "_runtime", "_timestamp")}
        assert row["_step"] == index and row["_runtime"] >= 0, row
        assert_same({key: float(value) for key, value in got.items()},
                    {key: float(value) for key, value in expected.items()}, name)
        summary.update(expected)
    for entry in entries_of(run):
        summary.update({key: value for key, value in entry["values"].items() if key in SINGLE})
    got = upload["wandb-summary.json"][-1]
    got = {key: value for key, value in got.items()
           if key not in ("_step", "_runtime", "_timestamp", "_wandb")}
    assert_same({key: float(value) for key, value in got.items()},
                {key: float(value) for key, value in summary.items()}, name)
    system = upload["wandb-events.jsonl"][0]
    assert system["system.proc.memory.rssMB"] > 0 and system["system.memory_percent"] > 0


def check_openmetrics(run, text):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    want = {}
    for entry in entries_of(run):
        want.update(entry["values"], step=float(entry["step"]))
    got = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge", family
        for sample in family.samples:
            assert sample.labels["run"] == run["args"]["run_name"], sample
            key = sample.labels.get("key", sample.name.removeprefix("gradus_"))
            assert key not in got, key
            got[key] = sample.value
    assert got.pop("log_time_seconds") > 1e9
    assert_same(got, want, run["args"]["run_name"])
