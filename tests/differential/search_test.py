#!/usr/bin/env python3
"""Searches of gradus beside Optuna and transformers.

    python search_test.py [SEARCH_TOOL]

Studies that gradus writes are opened and continued by Optuna and the other way round, pruners stop
the same trials, and `hyperparameter_search` of both trainers tries the same parameters and finds
the same losses. Exits 77 where a package is missing.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile

try:
    import optuna
except ImportError:
    print("skipped: optuna is not installed (make peer)")
    sys.exit(77)

BUILD = os.environ.get("GRADUS_BUILD", os.path.join(os.path.dirname(__file__),
                                                    "../../build/release"))
TOOL = sys.argv[1] if len(sys.argv) > 1 else os.path.join(BUILD, "bin/search_tool")
root = tempfile.mkdtemp(prefix="gradus_search_")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def gradus(*jobs):
    names = os.path.join(root, "jobs.json"), os.path.join(root, "answers.json")
    with open(names[0], "w") as file:
        json.dump(list(jobs), file)
    subprocess.run([TOOL, *names], check=True)
    with open(names[1]) as file:
        return json.load(file)


def url(file):
    return "sqlite:///" + file


def described(study):
    """A study as search_tool describes it."""
    return [{
        "number": trial.number, "state": trial.state.name, "value": trial.value,
        "params": trial.params,
        "reports": {
            str(step): value if math.isfinite(value) else str(value)
            for step, value in trial.intermediate_values.items()
        }, "user_attrs": trial.user_attrs
    } for trial in study.trials]


def check_ours_in_optuna():
    for seed, pruner in [(1, "none"), (2, "median"), (3, "halving")]:
        file = os.path.join(root, f"ours{seed}.db")
        [ours] = gradus({
            "do": "run", "file": file, "seed": seed, "trials": 25, "pruner": pruner
        })
        study = optuna.load_study(study_name="bowl", storage=url(file))
        assert described(study) == ours, (pruner, described(study), ours)
        assert study.direction.name == "MINIMIZE"
        best = min((t for t in ours if t["state"] == "COMPLETE"), key=lambda t: t["value"])
        assert study.best_trial.number == best["number"]
        pruned = sum(trial["state"] == "PRUNED" for trial in ours)
        assert (pruned > 0) == (pruner != "none"), (pruner, pruned)
        assert study.trials[-1].datetime_complete >= study.trials[-1].datetime_start
        # Optuna goes on with it, and gradus after that.
        study.optimize(lambda trial: trial.suggest_float("x", -5, 5)**2, n_trials=3)
        [read] = gradus({"do": "read", "file": file, "name": "bowl", "direction": "minimize"})
        assert read["trials"] == described(study) and len(read["trials"]) == 28
        assert read["best"] == study.best_trial.number
        print(f"a study of ours with the pruner {pruner}: 25 trials, {pruned} pruned, as Optuna "
              "reads it")


def check_optunas_in_ours():
    file = os.path.join(root, "optuna.db")
    study = optuna.create_study(study_name="theirs", storage=url(file), direction="maximize",
                                sampler=optuna.samplers.TPESampler(seed=5),
                                pruner=optuna.pruners.SuccessiveHalvingPruner())

    def objective(trial):
        x = trial.suggest_float("x", 1e-5, 1, log=True)
        n = trial.suggest_int("n", 1, 7)
        c = trial.suggest_categorical("c", ["p", "q", None, False, 3])
        for step in range(6):
            trial.report(x * n - step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float("inf") if trial.number == 7 else x * n + (c == "p")

    study.optimize(objective, n_trials=20)
    try:
        study.optimize(lambda trial: 1 / 0, n_trials=1)
    except ZeroDivisionError:
        pass
    [read] = gradus({"do": "read", "file": file, "name": "theirs", "direction": "maximize"})
    ours, theirs = read["trials"], described(study)
    for trial in theirs:  # JSON has no infinity
        if trial["value"] == math.inf:
            trial["value"] = ours[trial["number"]]["value"] = "inf"
    assert ours == theirs, (ours, theirs)
    check_watched(file, study)
    print("a study of Optuna's: 21 trials as gradus reads and shows them")


def check_watched(file, study):
    """A line a trial and the best, as `gradus watch` shows a file that Optuna has written."""
    done = subprocess.run([os.path.join(BUILD, "bin/gradus"), "watch", root, "--once"], check=True,
                          capture_output=True, text=True)
    lines = done.stdout[done.stdout.index(f"theirs ({file})"):].splitlines()
    best = study.best_trial
    assert lines[1].startswith("21 trials") and lines[1].endswith("maximize value"), lines[1]
    assert lines[2].startswith(f"best {best.value:.4g} of trial {best.number}  c "), lines[2]
    for trial, line in zip(study.trials, lines[3:]):
        words = line.split()
        assert words[:2] == [str(trial.number), trial.state.name.lower()], (line, trial)
        if trial.value is not None:
            assert words[2] == f"{trial.value:.4g}", (line, trial)
        assert "n" not in trial.params or f"  n {trial.params['n']}" in line, (line, trial)


def check_pruners():
    rng = random.Random(11)
    pruners = {
        "halving": optuna.pruners.SuccessiveHalvingPruner, "median": optuna.pruners.MedianPruner
    }
    compared = stopped = 0
    for case in range(20):
        direction = rng.choice(["minimize", "maximize"])
        name = rng.choice(sorted(pruners))
        levels = [[rng.gauss(0, 1) for _ in range(rng.choice([1, 5, 20, 120]))] for _ in range(30)]
        study = optuna.create_study(direction=direction, pruner=pruners[name](),
                                    sampler=optuna.samplers.RandomSampler(seed=1))

        def objective(trial):
            for step, value in enumerate(levels[trial.number], 1):
                trial.report(value, step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return levels[trial.number][-1]

        study.optimize(objective, n_trials=len(levels))
        theirs = [len(trial.intermediate_values) for trial in study.trials]
        [ours] = gradus({
            "do": "prune", "pruner": name, "direction": direction, "levels": levels
        })
        assert ours == theirs, (name, direction, case, ours, theirs)
        compared += len(levels)
        stopped += sum(trial.state.name == "PRUNED" for trial in study.trials)
    print(f"pruners: {compared} trials, {stopped} of them stopped, at the same step as in Optuna")


def check_trainer():
    try:
        import torch
        import transformers
    except ImportError:
        print("transformers is not installed: its search is not compared")
        return
    rng = random.Random(2)
    x = [rng.gauss(0, 1) for _ in range(64)]
    labels = [2 * value + 3 + 0.1 * rng.gauss(0, 1) for value in x]
    args = {
        "learning_rate": 0.1, "eval_strategy": "epoch", "save_strategy": "no",
        "logging_strategy": "epoch", "report_to": "none", "use_cpu": True, "disable_tqdm": True,
        "seed": 7
    }

    class Line(torch.nn.Module):
        main_input_name = "x"

        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.zeros(()))
            self.b = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x, labels=None):
            y = x * self.a + self.b
            return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}

    rows = [{"x": torch.tensor(a), "labels": torch.tensor(b)} for a, b in zip(x, labels)]
    trainer = transformers.Trainer(
        args=transformers.TrainingArguments(output_dir=os.path.join(root, "theirs"), **args),
        model_init=Line, train_dataset=rows, eval_dataset=rows)
    trainer.remove_callback(transformers.PrinterCallback)
    storage = url(os.path.join(root, "theirs.db"))
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {
            "learning_rate": trial.suggest_float("learning_rate", 1e-3, 0.3, log=True),
            "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 3),
            "per_device_train_batch_size": trial.suggest_categorical(
                "per_device_train_batch_size", [4, 8, 16])
        }, n_trials=14, direction="minimize", backend="optuna", storage=storage, study_name="line",
        hp_name=lambda trial: f"trial_{trial.number}", sampler=optuna.samplers.TPESampler(seed=9))
    [ours] = gradus({
        "do": "train", "args": {
            **args, "output_dir": os.path.join(root, "ours")
        }, "x": x, "labels": labels, "seed": 9, "trials": 14, "direction": "minimize",
        "storage": os.path.join(root, "ours.db")
    })
    theirs = described(optuna.load_study(study_name="line", storage=storage))
    pruned = 0
    for mine, other in zip(ours["trials"], theirs, strict=True):
        assert mine["state"] == other["state"], (mine, other)
        for name, value in other["params"].items():
            assert math.isclose(mine["params"][name], value, rel_tol=1e-9), (mine, other)
        assert mine["reports"].keys() == other["reports"].keys(), (mine, other)
        for step, value in other["reports"].items():
            assert math.isclose(mine["reports"][step], value, rel_tol=1e-5), (mine, other)
        pruned += mine["state"] == "PRUNED"
    assert ours["run_id"] == best.run_id
    assert ours["hyperparameters"].keys() == best.hyperparameters.keys()
    assert math.isclose(ours["objective"], best.objective, rel_tol=1e-5)
    assert ours["is_hyper_param_search"] == trainer.state.is_hyper_param_search
    assert ours["trial_name"] == trainer.state.trial_name == "trial_13"
    assert ours["trial_params"].keys() == trainer.state.trial_params.keys()
    assert math.isclose(ours["learning_rate"], trainer.args.learning_rate, rel_tol=1e-9)
    print(f"hyperparameter_search: 14 trials, {pruned} pruned, best run {best.run_id} with "
          f"{best.objective:.6f}, as in transformers {transformers.__version__}")


check_ours_in_optuna()
check_optunas_in_ours()
check_pruners()
check_trainer()
