"""Studies of hyperparameter searches, made up: for tests of watch, serve and report. That gradus'
and Optuna's own files have these tables is the business of tests/differential/search_test.py.
"""
import json
import sqlite3

TABLES = """
CREATE TABLE IF NOT EXISTS studies (study_id INTEGER PRIMARY KEY, study_name TEXT);
CREATE TABLE IF NOT EXISTS study_directions (study_id INTEGER, direction TEXT, objective INTEGER);
CREATE TABLE IF NOT EXISTS study_user_attributes (study_id INTEGER, key TEXT, value_json TEXT);
CREATE TABLE IF NOT EXISTS trials (trial_id INTEGER PRIMARY KEY, number INTEGER, study_id INTEGER,
  state TEXT);
CREATE TABLE IF NOT EXISTS trial_params (trial_id INTEGER, param_name TEXT, param_value REAL,
  distribution_json TEXT);
CREATE TABLE IF NOT EXISTS trial_values (trial_id INTEGER, objective INTEGER, value REAL,
  value_type TEXT);
CREATE TABLE IF NOT EXISTS trial_intermediate_values (trial_id INTEGER, step INTEGER,
  intermediate_value REAL, intermediate_value_type TEXT);
CREATE TABLE IF NOT EXISTS trial_system_attributes (trial_id INTEGER, key TEXT, value_json TEXT);
"""
RATE = json.dumps({"name": "FloatDistribution", "attributes": {
    "low": 1e-5, "high": 1e-1, "log": True, "step": None}})
OPTIM = json.dumps({"name": "CategoricalDistribution", "attributes": {
    "choices": ["adamw_torch", "sgd", "lion_32bit"]}})


def open_study(file, name="sweep", metric="eval_loss", direction="MINIMIZE"):
    """A new study in the file; returns the connection."""
    study = sqlite3.connect(file)
    study.executescript(TABLES)
    study.execute("INSERT INTO studies VALUES (1, ?)", (name,))
    study.execute("INSERT INTO study_directions VALUES (1, ?, 0)", (direction,))
    study.execute("INSERT INTO study_user_attributes VALUES (1, 'gradus:sweep', ?)",
                  (json.dumps({"metric": metric, "output_dir": "/nowhere"}),))
    study.commit()
    return study


def add_trial(study, number, state, value, rate, optim, steps=()):
    trial = number + 1
    study.execute("INSERT INTO trials VALUES (?, ?, 1, ?)", (trial, number, state))
    study.execute("INSERT INTO trial_params VALUES (?, 'learning_rate', ?, ?)", (trial, rate, RATE))
    study.execute("INSERT INTO trial_params VALUES (?, 'optim', ?, ?)", (trial, optim, OPTIM))
    if value is not None:
        study.execute("INSERT INTO trial_values VALUES (?, 0, ?, 'FINITE')", (trial, value))
    for step, at_step in steps:
        study.execute("INSERT INTO trial_intermediate_values VALUES (?, ?, ?, 'FINITE')",
                      (trial, step, at_step))
    study.commit()


def write_study(file, **more):
    """Seven trials: the best is number 4; 2 is pruned, 5 failed, and 6 runs. Returns the study."""
    study = open_study(file, **more)
    for number, value in enumerate([0.9, 0.7, 0.95, 0.8, 0.35]):
        state = "PRUNED" if number == 2 else "COMPLETE"
        add_trial(study, number, state, value, 10.0**(-5 + number), number % 3,
                  [(10, value + 0.1), (20, value)])
    add_trial(study, 5, "FAIL", None, 1e-3, 1)
    add_trial(study, 6, "RUNNING", None, 2e-3, 0, [(10, 0.66)])
    return study
