#!/usr/bin/env python3
"""Folders of runs and studies from strangers, as watch, report, show and sweep read them.

    python run_folders_test.py GRADUS
"""
import json
import os
import shutil
import sqlite3
import struct
import tempfile
from pathlib import Path

import hostile

LONG = "x" * 300
BEGIN = '{"event": "begin", "time": 1.5, "pid": 1, "host": "a", "step": 0, "max_steps": 3}\n'
LINE = '{"step": 2, "time": 3.1, "epoch": 0.03, "loss": 2.71}\n'
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT "
# name, statements that spoil the study of a sweep; it is refused
STUDIES = [
    ("a category that is none", ["UPDATE trial_params SET param_value = 99"]),
    ("no number", ["UPDATE trial_params SET param_value = NULL"]),
    ("a distribution of nothing", ["UPDATE trial_params SET distribution_json = NULL"]),
    ("a word as number", ["UPDATE trials SET number = 'x'"]),
    ("a sampler that drew too much", [
        "UPDATE study_system_attributes SET value_json = "
        "replace(value_json, '\"drawn\": ', '\"drawn\": 99999999999')"
    ]),
    ("a sampler of words", [
        "UPDATE study_system_attributes SET value_json = "
        "replace(value_json, '\"seed\": ', '\"seed\": \"x\", \"was\": ')"
    ]),
    ("an endless view", [
        "ALTER TABLE studies RENAME TO others",
        f"CREATE VIEW studies AS {ENDLESS} x AS study_id, 'sweep' AS study_name FROM n"
    ]),
]
# name, lines of a run_log.jsonl that is shown, whatever is in it
LOGS = [
    ("huge numbers", BEGIN.replace("3}", "1e300}") + '{"step": 1e300, "loss": 1.7e308}\n'
     '{"step": -1e300, "loss": -1.7e308, "time": 1e300}\n{"step": 7, "loss": NaN}\n'),
    ("a long name", BEGIN + '{"step": 1, "' + "k" * (7 << 20) + '": 1}\n' + LINE),
    ("other kinds", '{"event": "begin", "time": "x", "host": {}, "settings": [1]}\n'
     '{"event": "progress", "system": [1]}\n[]\n5\n{"loss": {"a": 1}}\n' + LINE),
    ("a line without end", "x" * (40 << 20)),
]


def write_space(folder):
    for name, shape, values in [("images", (8, 28, 28), [i % 251 for i in range(8 * 784)]),
                                ("labels", (8,), range(8))]:
        header = struct.pack(">HBB", 0, 8, len(shape)) + b"".join(
            struct.pack(">I", size) for size in shape)
        (folder / name).write_bytes(header + bytes(values))
    data = {f"{split}_{kind}": str(folder / kind)
            for split in ("train", "validation") for kind in ("images", "labels")}
    (folder / "space.json").write_text(json.dumps({
        "parameters": {"weight_decay": [0.0, 0.1], "learning_rate": {"low": 0.001, "high": 0.01}},
        "arguments": {"task": "image-classification", "max_steps": 1, "report_to": "none",
                      "save_strategy": "no", "use_cpu": True, **data}, "seed": 1
    }))


def studies(top):
    write_space(top)
    sweep = ["sweep", top / "space.json", "--n_trials", 2, "--output_dir"]
    hostile.accepts("a good sweep", [*sweep, top / "good"], top)
    for name, statements in STUDIES:
        folder = top / name
        folder.mkdir()
        shutil.copy(top / "good" / "study.db", folder)
        with sqlite3.connect(folder / "study.db") as database:
            for statement in statements:
                database.execute(statement)
        database.close()
        hostile.refuses(name, [*sweep, folder, "--n_trials", 3], "", top)
        done = hostile.run(["watch", folder, "--once"], top)
        if done is None or done.returncode != 0:
            hostile.fail(f"{name}, watched", "expected to be passed over", done)
    folder = top / "FIFO"
    folder.mkdir()
    shutil.copy(top / "good" / "study.db", folder)
    os.mkfifo(folder / "study.db-journal")
    hostile.refuses("a FIFO as journal", [*sweep, folder], "a FIFO", top)
    return 2 * len(STUDIES) + 2


def logs(top):
    for name, text in LOGS:
        folder = top / name
        folder.mkdir()
        (folder / "run_log.jsonl").write_text(text)
        hostile.accepts(name, ["watch", folder, "--once"], top)
        hostile.accepts(f"{name}, followed", ["watch", folder], top)
        done = hostile.run(["report", folder, "--png", top / "a.png"], top)
        if done is None or done.returncode not in (0, 2):
            hostile.fail(f"{name}, as a picture", "neither a picture nor an error", done)
    state = top / "state"
    state.mkdir()
    for entry in ('{"step": "x", "loss": 1}', "5", "[]", '{"step": null, "loss": 1}'):
        (state / "trainer_state.json").write_text(f'{{"log_history": [{entry}]}}')
        hostile.refuses(f"{entry} in log_history", ["show", state], "[G-CKPT-4]", top)
    (state / "trainer_state.json").write_bytes(b'{"log_history": [' + b"0," * (60 << 20) + b"0]}")
    hostile.refuses("a state of numbers", ["show", state], "[G-JSON-1]", top)
    hostile.refuses("a folder with it", ["report", state, "--png", top / "a.png"], "", top)
    return 3 * len(LOGS) + 6


def names(top):
    """Paths that the system refuses to look at."""
    (top / "loop").symlink_to("loop")
    words = [["watch"], ["serve"], ["show"], ["verify"], ["report", "--png", "a.png"],
             ["data", "show"], ["consolidate", "--output_dir", "a"]]
    for path in (LONG, top / "loop" / "run"):
        for command in words:
            at = 2 if command[0] == "data" else 1
            hostile.refuses(f"{command[0]} of {str(path)[-8:]}",
                            [*command[:at], path, *command[at:]], "", top)
        hostile.refuses(f"a config {str(path)[-8:]}", [
            "train", "--task", "image-classification", "--config_name", path, "--output_dir", "o"
        ], "", top)
    return 2 * len(words) + 2


def main():
    with tempfile.TemporaryDirectory() as name:
        cases = 0
        for part in (studies, logs, names):
            folder = Path(name) / part.__name__
            folder.mkdir()
            cases += part(folder)
        hostile.finish(cases)


main()
