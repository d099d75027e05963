#!/usr/bin/env python3
"""Makes tpe.json: what Optuna's TPESampler suggests and finds on five functions.

    python make_tpe.py > tpe.json

For each function the whole history of one seed, and the best value after 60 trials for 20 seeds.
tests/unit/search/tpe_test.cpp replays them. Needs optuna.
"""

import json
import math
import statistics

import numpy
import optuna

TRIALS = 60
SEEDS = 20


def sphere(trial):
    x = [trial.suggest_float(f"x{i}", -5, 5) for i in range(3)]
    return sum(value * value for value in x)


def branin(trial):
    x, y = trial.suggest_float("x", -5, 10), trial.suggest_float("y", 0, 15)
    inner = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return inner * inner + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def rosenbrock(trial):
    x, y = trial.suggest_float("x", -2, 2), trial.suggest_float("y", -1, 3)
    return (1 - x)**2 + 100 * (y - x * x)**2


def ackley(trial):
    x, y = trial.suggest_float("x", -32, 32), trial.suggest_float("y", -32, 32)
    return (-20 * math.exp(-0.2 * math.sqrt((x * x + y * y) / 2)) -
            math.exp((math.cos(2 * math.pi * x) + math.cos(2 * math.pi * y)) / 2) + 20 + math.e)


def tuning(trial):
    """Shaped like the loss over the usual hyperparameters."""
    rate = trial.suggest_float("learning_rate", 1e-6, 1e-2, log=True)
    batch = trial.suggest_categorical("batch", [8, 16, 32, 64])
    decay = trial.suggest_float("weight_decay", 0, 0.3, step=0.05)
    width = trial.suggest_int("width", 16, 1024, log=True)
    depth = trial.suggest_int("depth", 1, 9, step=2)
    return (1 + (math.log10(rate) + 3.5)**2 + 0.1 * abs(math.log2(batch) - 5) +
            4 * abs(decay - 0.1) + 0.2 * abs(math.log2(width) - 8) + 0.05 * (depth - 5)**2)


FUNCTIONS = [sphere, branin, rosenbrock, ackley, tuning]


def run(function, seed, trials=TRIALS):
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed),
                                pruner=optuna.pruners.NopPruner())
    study.optimize(function, n_trials=trials)
    return study


def sort_stably():
    """In which order numpy's argsort has equal numbers depends on the processor, and Optuna's
    widths of kernels at the same place follow it. Here the order is that of the trials."""
    argsort = numpy.argsort
    numpy.argsort = lambda values, *rest, **named: argsort(values, *rest, **{
        **named, "kind": "stable"
    })


def main():
    sort_stably()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    functions = {}
    for function in FUNCTIONS:
        studies = [run(function, seed) for seed in range(SEEDS)]
        functions[function.__name__] = {
            "seed": 0,
            "history": [[trial.params[name] for name in sorted(trial.params)] +
                        [trial.value] for trial in studies[0].trials],
            "best": [study.best_value for study in studies],
            "median": statistics.median(study.best_value for study in studies),
        }
    print("{")
    print(f' "optuna": "{optuna.__version__}", "numpy": "{numpy.__version__}",')
    print(' "functions": {')
    blocks = []
    for name, data in functions.items():
        history = ",\n   ".join(json.dumps(row) for row in data["history"])
        blocks.append(f'  "{name}": {{"seed": {data["seed"]}, "median": {data["median"]!r},\n'
                      f'   "best": {json.dumps(data["best"])},\n   "history": [\n   {history}]}}')
    print(",\n".join(blocks))
    print(" }\n}")


if __name__ == "__main__":
    main()
