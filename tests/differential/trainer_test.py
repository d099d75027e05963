"""The Trainer beside transformers': the same random option sets.

For each set: log_history entry by entry (1e-5 relative, learning rates 1e-9), the sequence of
events and what was asked for when each came, the names of all files written (DESIGN:
gradus_state.json, manifest.json and training_args.json are ours, training_args.bin is Python's),
every trainer_state.json and *_results.json, what train, evaluate and predict returned, the final
state and parameters. The first half draws the options of a run; the second draws what is done with
a Trainer besides (callbacks that ask, streams, several evaluation sets, own losses, optimizers and
metrics, calls before and after). The sets are the same every time; TRAINER_CASES_SEED=N draws
others, TRAINER_CASES_SEED=random new ones. How many sets are equal to the last bit is printed: here
all of them, which is also why a run that diverges can be compared. Without the peer: exit code 77.
"""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from trainer_runs import EVENTS, FLAGS, python_runner

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/trainer_tool"
SETS = 12
SCHEDULES = [("linear", None), ("cosine", None), ("constant", None), ("constant_with_warmup", None),
             ("polynomial", {"power": 2.0, "lr_end": 1e-4}), ("inverse_sqrt", None),
             ("cosine_with_restarts", {"num_cycles": 2}), ("cosine_with_min_lr", {"min_lr": 1e-3}),
             ("warmup_stable_decay", {"num_decay_steps": 3})]
WIDE_SCHEDULES = [("cosine", {"num_cycles": 1.3}), ("inverse_sqrt", {"timescale": 3}),
                  ("cosine_with_min_lr", {"min_lr_rate": 0.2, "num_cycles": 0.7}),
                  ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.3}),
                  ("cosine_warmup_with_min_lr", {"min_lr": 1e-3}),
                  ("warmup_stable_decay", {
                      "num_decay_steps": 4, "num_stable_steps": 2, "decay_type": "1-sqrt",
                      "warmup_type": "cosine", "min_lr_ratio": 0.1
                  }), ("warmup_stable_decay", {"num_decay_steps": 2, "decay_type": "linear"}),
                  ("polynomial", {"power": 0.5})]


def regression_data(rng, rows):
    x = [rng.gauss(0, 1) for _ in range(rows)]
    return {"x": x, "labels": [2 * v + 3 + rng.gauss(0, 0.1) for v in x]}


def class_data(rng, rows):
    x = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(rows)]
    return {"x": x, "labels": [max(range(3), key=lambda k: row[k]) for row in x]}


def lengths(rng, rows):
    return [int(rng.lognormvariate(2, 1)) + 1 for _ in range(rows)]


def matrix(rng, rows, columns):
    return [[rng.gauss(0, 0.5) for _ in range(columns)] for _ in range(rows)]


def class_parameters(rng):
    return {
        "l1.weight": matrix(rng, 8, 4), "l1.bias": matrix(rng, 1, 8)[0],
        "l2.weight": matrix(rng, 3, 8), "l2.bias": matrix(rng, 1, 3)[0]
    }


def option_set(rng, index):
    """One run of random options; those that exclude each other are put right as a user would."""
    classify = index % 4 == 3
    args = {
        "per_device_train_batch_size": rng.choice([2, 4, 8, 16, 20]),
        "per_device_eval_batch_size": rng.choice([4, 8, 16]),
        "gradient_accumulation_steps": rng.choice([1, 1, 2, 3, 4]),
        "learning_rate": rng.choice([0.1, 0.03, 0.01]),
        "max_grad_norm": rng.choice([1.0, 0.1, 0.0, 5.0]),
        "weight_decay": rng.choice([0.0, 0.1]),
        "optim": rng.choice(
            ["adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"]),
        "seed": rng.randrange(1000),
        "logging_strategy": rng.choice(["steps", "steps", "epoch", "no"]),
        "logging_steps": rng.choice([1, 2, 5, 7, 0.25]),
        "logging_first_step": rng.random() < 0.3,
        "save_total_limit": rng.choice([None, 1, 2, 3]),
        "dataloader_drop_last": rng.random() < 0.3,
        "save_only_model": rng.random() < 0.2,
        "eval_on_start": rng.random() < 0.25,
        "include_num_input_tokens_seen": "no",
    }
    args["lr_scheduler_type"], kwargs = rng.choice(SCHEDULES)
    if kwargs:
        args["lr_scheduler_kwargs"] = kwargs
    args["warmup_steps"] = 0 if args["lr_scheduler_type"] == "polynomial" else rng.choice(
        [0, 2, 4, 0.2])  # Python divides by the steps after it, which may be none
    length = rng.choice(["epochs", "fraction", "steps"])
    if length == "steps":
        args["max_steps"] = rng.randrange(5, 30)
    else:
        args["num_train_epochs"] = rng.choice([1, 2, 3]) if length == "epochs" else rng.choice(
            [1.5, 0.7, 2.3])
    if rng.random() < 0.3:
        args["data_seed"] = rng.randrange(1000)
    if classify:
        args["label_smoothing_factor"] = rng.choice([0.0, 0.1, 0.3])
    args["eval_strategy"] = rng.choice(["no", "steps", "steps", "epoch"])
    args["save_strategy"] = rng.choice(["no", "steps", "steps", "epoch"])
    args["save_steps"] = rng.choice([2, 3, 5, 500])
    if args["eval_strategy"] == "steps":
        args["eval_steps"] = rng.choice([2, 3, 4])
    if args["eval_strategy"] == "no":
        args["eval_on_start"] = False
    elif rng.random() < 0.3:
        args["eval_delay"] = rng.choice([1, 3])
    if args["eval_strategy"] != "no" and rng.random() < 0.2:
        args |= {
            "lr_scheduler_type": "reduce_lr_on_plateau",
            "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5}, "metric_for_best_model": "loss"
        }
    best = args["eval_strategy"] != "no" and rng.random() < 0.6
    if best:
        args["metric_for_best_model"] = "loss"
        args["save_strategy"] = rng.choice([args["eval_strategy"], args["eval_strategy"], "best"])
        args["load_best_model_at_end"] = rng.random() < 0.7 or args["save_strategy"] == "best"
        if args["save_strategy"] == "steps":
            args["save_steps"] = args["eval_steps"] * rng.choice([1, 2])
    rows = rng.choice([40, 64, 66])
    data = class_data if classify else regression_data
    run = {
        "args": args, "model": "classifier" if classify else "regression", "train": data(rng, rows),
        "parameters": class_parameters(rng) if classify else {"a": 0.0, "b": 0.0}
    }
    if classify:
        run["dropout"] = 0.2
        args["bf16"] = rng.random() < 0.3
    if rng.random() < 0.3:
        args["train_sampling_strategy"] = "batch_rebalance"
        run["train"]["lengths"] = lengths(rng, rows)
        args["dataloader_drop_last"] &= args["per_device_train_batch_size"] * args[
            "gradient_accumulation_steps"] <= rows  # it drops whole steps
    if rng.random() < 0.25:
        run["calls"] = [{"do": "train"}, {"do": "train"}]
    if args["eval_strategy"] != "no":
        run["eval"] = data(rng, rng.choice([16, 30]))
        if rng.random() < 0.5:
            run["metrics"] = "whole"
    if best and rng.random() < 0.5:
        run["early_stopping"] = rng.choice([1, 2])
    if index % 3 == 1:  # the order is then drawn from torch's global generator
        args["accelerator_config"] = {"use_seedable_sampler": False}
    return run


def token_data(rng, rows):
    ids = [[rng.randrange(11) for _ in range(5)] for _ in range(rows)]
    mask = [
        [int(k < length) for k in range(5)] for length in (rng.randrange(1, 6) for _ in range(rows))
    ]
    return {
        "input_ids": ids, "attention_mask": mask,
        "labels": [[(3 * t) % 11 if m else -100 for t, m in zip(*row)] for row in zip(ids, mask)]
    }


def token_parameters(rng):
    return {
        "emb.weight": matrix(rng, 11, 4), "out.weight": matrix(rng, 11, 4),
        "out.bias": matrix(rng, 1, 11)[0]
    }


def wide_strategies(rng, args):
    """When to log, evaluate and save: odd intervals, shares of the run, the best only."""
    interval = rng.choice([1, 2, 3, 5, 7, 0.13, 0.3, 0.5, 1000])
    args |= {
        "logging_strategy": rng.choice(["steps", "steps", "epoch", "no"]),
        "logging_steps": rng.choice([1, 3, 4, 0.1, 0.37,
                                     1000]), "logging_first_step": rng.random() < 0.3,
        "eval_strategy": rng.choice(["no", "steps", "steps", "epoch"]), "eval_steps": interval,
        "save_strategy": rng.choice(["no", "steps", "epoch",
                                     "best"]), "save_steps": rng.choice([1, 2, 4, 0.21, 1000]),
        "save_total_limit": rng.choice([None, 1, 2]), "save_only_model": rng.random() < 0.2
    }
    if args["eval_strategy"] != "no":
        args |= {
            "eval_delay": rng.choice([0, 0, 0, 1, 0.5, 2.5, 4]), "eval_on_start": rng.random() < 0.2
        }
    if rng.random() < 0.5 or args["save_strategy"] == "best":
        args |= {
            "metric_for_best_model": rng.choice(["loss", "eval_loss", "mean"]),
            "greater_is_better": rng.choice([None, True, False])
        }
        if args["eval_strategy"] != "no" and rng.random() < 0.6:
            args |= {
                "load_best_model_at_end": True,
                "save_strategy": rng.choice([args["eval_strategy"], "best"]), "save_steps": interval
            }
    if args["eval_strategy"] != "no" and rng.random() < 0.25:
        kind = rng.choice(["reduce_lr_on_plateau", "greedy"])
        kwargs = {"factor": rng.choice([0.5, 0.9]), "patience": rng.choice([0, 1])}
        args |= {
            "lr_scheduler_type": kind, "lr_scheduler_kwargs": kwargs if rng.random() < 0.8 else None
        }
        args.setdefault("metric_for_best_model", "loss")


def wide_evaluation(rng, run, data):
    """What is evaluated, how the metrics are made, and what is called before and after training."""
    args = run["args"]
    if rng.random() < 0.6 or args.get("metric_for_best_model") == "mean":
        run["metrics"] = rng.choice(["whole", "whole", "batched"])
        args |= {
            "batch_eval_metrics": run["metrics"] == "batched",
            "include_for_metrics": rng.choice([[], ["inputs"], ["loss"], ["inputs", "loss"]]),
            "eval_accumulation_steps": rng.choice([None, 1, 2]),
            "eval_do_concat_batches": rng.random() < 0.7, "prediction_loss_only": rng.random() < 0.1
        }
        run["preprocess"] = rng.random() < 0.3
    if args.get("metric_for_best_model") == "mean" and (run["metrics"] == "batched" or
                                                        args["prediction_loss_only"] or
                                                        not args["eval_do_concat_batches"]):
        args["metric_for_best_model"] = "loss"
    run["eval"], run["test"] = data(rng, rng.choice([7, 16, 30])), data(rng, rng.choice([5, 12]))
    if rng.random() < 0.2:
        run["test"] = {
            name: column
            for name, column in run["test"].items()
            if name in ("x", "input_ids", "attention_mask")
        }
    if rng.random() < 0.2 and args["eval_strategy"] != "no":
        run["eval"] = {"sets": [["b", data(rng, 9)], ["a", data(rng, 6)]]}
        if "metric_for_best_model" in args:
            args["metric_for_best_model"] = "b_" + args["metric_for_best_model"].removeprefix(
                "eval_")
    if "metric_for_best_model" in args and args["eval_strategy"] != "no" and rng.random() < 0.3:
        run["early_stopping"] = rng.choice([1, 2])
    run["calls"] = [{"do": "train"}]
    if rng.random() < 0.2:
        run["calls"].insert(0, {"do": "evaluate", "prefix": "eval"})
    after = [{"do": "evaluate", "prefix": rng.choice(["eval", "check"])},
             {"do": "evaluate", "prefix": "eval", "data": "test"},
             {"do": "predict", "prefix": rng.choice(["test", "eval"])}, {"do": "train"}]
    if run["model"] == "tokens":
        after[2]["ignore_keys"] = rng.choice([[], ["hidden"], ["nothing"]])
    run["calls"] += rng.sample(after, rng.randrange(4))
    of = rng.randrange(len(run["calls"]))
    run["calls"] += rng.choice(
        [[],
         [{"do": "save_metrics", "split": "train", "of": of, "combined": rng.random() < 0.7},
          {"do": "save_state"}]])


def wide_set(rng, index):
    """One run that draws what `option_set` does not."""
    model = rng.choice(["regression", "classifier", "tokens"])
    data = {"regression": regression_data, "classifier": class_data, "tokens": token_data}[model]
    args = {
        "per_device_train_batch_size": rng.choice([1, 3, 4, 7, 8]),
        "per_device_eval_batch_size": rng.choice([1, 3, 4, 8]),
        "gradient_accumulation_steps": rng.choice([1, 2, 3, 5]),
        "learning_rate": rng.choice([0.1, 0.03]),
        "max_grad_norm": rng.choice([1.0, 0.3, 0.0]),
        "weight_decay": rng.choice([0.0, 0.1]),
        "optim": rng.choice(["adamw_torch", "sgd", "adagrad", "rmsprop", "adafactor"]),
        "seed": rng.randrange(1, 1000),
        "dataloader_drop_last": rng.random() < 0.2,
        "include_num_input_tokens_seen": rng.choice(["no", "all", "non_padding"]),
        "average_tokens_across_devices": rng.random() < 0.7,
        "train_sampling_strategy": rng.choice(["random", "random", "sequential"]),
        "torch_empty_cache_steps": rng.choice([None, 2]),
        "warmup_steps": rng.choice([0, 3, 0.4]),
    }
    args["optim_args"] = rng.choice({
        "sgd": [None, "momentum=0.9", "momentum=0.9,nesterov=True",
                "momentum=0.5, dampening=0.1"], "adagrad": [None, "lr_decay=0.01", "eps=1e-4"],
        "rmsprop": [None, "momentum=0.9", "alpha=0.9,centered=True"]
    }.get(args["optim"], [None]))
    args["lr_scheduler_type"], args["lr_scheduler_kwargs"] = rng.choice(SCHEDULES + WIDE_SCHEDULES)
    if args["lr_scheduler_type"] == "polynomial":
        args["warmup_steps"] = 0
    run = {"model": model, "args": args, "train": data(rng, rng.choice([13, 23, 40]))}
    args |= rng.choice([{"max_steps": rng.randrange(1, 20)},
                        {"num_train_epochs": rng.choice([1, 2, 3, 0.4, 1.7, 2.05])}])
    if rng.random() < 0.15:
        run |= {
            "stream": rng.choice([["train"], ["train", "eval"], ["train", "eval", "test"]]),
            "sized": True
        }
    elif rng.random() < 0.15:
        run["stream"] = ["train"] if rng.random() < 0.6 else ["train", "eval", "test"]
        args["max_steps"] = rng.randrange(2, 25)
        args[
            # a short window at the end of a pass leaks its gradients in Python, not here
            "gradient_accumulation_steps"] = 1
    elif rng.random() < 0.1:
        run["stream"] = ["eval"]
    run["parameters"] = {
        "regression": lambda _: {"a": 0.5, "b": 0.0}, "classifier": class_parameters,
        "tokens": token_parameters
    }[model](rng)
    if model == "regression":
        run["loss_func"] = rng.random() < 0.25
        if rng.random() < 0.3 and not run["loss_func"]:
            args["label_names"] = ["labels", "weights"]
            data = lambda rng, rows: regression_data(
                rng, rows) | {"weights": [rng.random() for _ in range(rows)]}
            run["train"] = data(rng, 23)
    else:
        args["label_smoothing_factor"] = rng.choice([0.0, 0.0, 0.1])
    if model == "classifier":
        run["dropout"] = rng.choice([0.0, 0.2])
    if rng.random() < 0.15:
        names = list(run["parameters"])
        rng.shuffle(names)
        run["optimizer"] = {
            "optim": rng.choice(["sgd", "adamw_torch"]),
            "groups": [{"names": names[:1], "lr": 0.1, "weight_decay": 0.0},
                       {"names": names[1:3], "lr": 0.02, "weight_decay": 0.1}]
        }
        run["optimizer"]["groups"] = [
            group for group in run["optimizer"]["groups"][:rng.choice([1, 2])] if group["names"]
        ]
    elif rng.random() < 0.15:
        run["model_init"] = True
    if rng.random() < 0.3:
        run["train"]["extra"] = [0.0] * len(run["train"]["labels"])
    if rng.random() < 0.08 and model == "regression":
        run["train"]["x"][rng.randrange(10)] = float("inf")
        args["logging_nan_inf_filter"] = rng.random() < 0.5
    wide_strategies(rng, args)
    wide_evaluation(rng, run, data)
    if rng.random() < 0.4:
        events = [
            event for event in EVENTS
            if event not in ("init_end", "train_end", "push_begin", "predict")
        ]
        run["control"] = [["on_" + rng.choice(events),
                           rng.randrange(1, 7),
                           rng.choice(FLAGS)] for _ in range(rng.randrange(1, 4))]
        # a pass that ends inside a window leaks its gradients in Python, not here
        if args["gradient_accumulation_steps"] > 1:
            run["control"] = [
                what for what in run["control"]
                if what[2] != "should_epoch_stop" or what[0] in ("on_step_end", "on_optimizer_step")
            ]
    return run


def gradus(runs, folder):
    questions, answers = pathlib.Path(folder, "runs.json"), pathlib.Path(folder, "results.json")
    questions.write_text(json.dumps(runs))
    subprocess.run([TOOL, questions, answers], check=True)
    return json.loads(answers.read_text())


def is_speed(key):
    return key.endswith(("_runtime", "_per_second", "_model_preparation_time"))


def near(a, b, tolerance):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (math.isnan(a) and
                          math.isnan(b)) or abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-6)
    return a == b


def differences(what, ours, theirs):
    """Where two nested values differ: a line each. Numbers may differ by 1e-5 of their size,
    learning rates by 1e-9; speeds by anything.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return [
                f"{what}: only here {sorted(ours.keys() - theirs.keys())}, only in Python "
                f"{sorted(theirs.keys() - ours.keys())}"
            ]
        return [
            line for key in ours if not is_speed(key)
            for line in differences(f"{what}.{key}", ours[key], theirs[key])
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [
                f"{what} has {len(ours)} entries, Python's {len(theirs)}: {str(ours)[:300]} "
                f"{str(theirs)[:300]}"
            ]
        return [
            line for i, pair in enumerate(zip(ours, theirs))
            for line in differences(f"{what}[{i}]", *pair)
        ]
    if what.endswith("best_model_checkpoint") and ours and theirs:
        ours, theirs = pathlib.Path(ours).name, pathlib.Path(theirs).name
    if ".values[" in what:  # a sum of terms of size 1 in float32
        return [] if near(ours, theirs, 1e-5) or abs(ours - theirs) <= 1e-5 else [
            f"{what} is {ours!r}, Python's {theirs!r}"
        ]
    return [] if near(ours, theirs, 1e-9 if what.endswith("learning_rate") else 1e-5) else [
        f"{what} is {ours!r}, Python's {theirs!r}"
    ]


def compare_logs(ours, theirs):
    return differences("log_history", ours, theirs)


def files_of(folder):
    names = {
        str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file()
    }
    return {
        name for name in names if not name.endswith(("gradus_state.json", "manifest.json",
                                                     "training_args.json", "training_args.bin"))
    }


def compare(ours, theirs, our_dir, their_dir):
    problems = compare_logs(ours["log_history"], theirs["log_history"])
    for what in ("events", "controls"):
        if ours[what] != theirs[what]:
            at = next((i for i, (a, b) in enumerate(zip(ours[what], theirs[what])) if a != b),
                      min(len(ours[what]), len(theirs[what])))
            problems.append(
                f"{what} differ from number {at} on ({ours['events'][max(0, at - 1):at + 1]}): "
                f"{ours[what][at:at + 6]} and {theirs[what][at:at + 6]}")
    problems += differences("calls", ours["calls"], theirs["calls"])
    if files_of(our_dir) != files_of(their_dir):
        problems.append(
            f"files: only here {sorted(files_of(our_dir) - files_of(their_dir))}, only in Python "
            f"{sorted(files_of(their_dir) - files_of(our_dir))}")
    for name in files_of(our_dir) & files_of(their_dir):
        if name.endswith(("trainer_state.json", "_results.json")):
            problems += differences(
                name,
                *(json.loads(pathlib.Path(folder, name).read_text())
                  for folder in (our_dir, their_dir)))
    for folder in pathlib.Path(our_dir).glob("checkpoint-*"):
        wanted = {"training_args.json", "manifest.json"}
        if not wanted <= {path.name for path in folder.iterdir()}:
            problems.append(f"{folder.name} lacks one of {sorted(wanted)}")
    mine, other = dict(ours["state"]), dict(theirs["state"])
    for state in (mine, other):
        state.pop("stateful_callbacks")
    problems += differences("state", mine, other)
    for name, values in theirs["parameters"].items():
        worst = max(abs(a - b) for a, b in zip(ours["parameters"][name], values, strict=True))
        if worst > 1e-5 * max(1, max(map(abs, values))):
            problems.append(f"parameter {name} differs by {worst}")
    return problems


def is_bit_equal(ours, theirs):
    """Whether every logged number, every result of a call and every parameter is the same
    number.
    """
    if isinstance(ours, dict):
        return all(is_speed(key) or is_bit_equal(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return all(map(is_bit_equal, ours, theirs))
    return ours == theirs or ours != ours and theirs != theirs


def option_sets(rng, folder, train, draw, count):
    runs, wrong, bit_equal, compared = [draw(rng, i) for i in range(count)], 0, 0, 0
    for i, run in enumerate(runs):
        if sum(call["do"] == "train" for call in run.get("calls", [])) > 1:
            run["args"][
                # Python goes by time if the files are a second apart, else by number;
                # docs/differences.md
                "save_total_limit"] = None
        run["args"] |= {
            "use_cpu": True, "report_to": "none", "disable_tqdm": True, "log_level": "error"
        }
    ours = gradus([
        run | {"args": run["args"] | {"output_dir": f"{folder}/ours-{draw.__name__}-{i}"}}
        for i, run in enumerate(runs)
    ], folder)
    for i, run in enumerate(runs):
        try:
            theirs = train(
                run |
                {"args": run["args"] | {"output_dir": f"{folder}/theirs-{draw.__name__}-{i}"}})
        except Exception as error:  # options that do not go together: both must say so
            theirs = {"error": repr(error)}
        if "error" in ours[i] or "error" in theirs:
            problems = [] if "error" in ours[i] and "error" in theirs else [
                f"here: {ours[i].get('error')}", f"in Python: {theirs.get('error')}"
            ]
        else:
            problems = compare(ours[i], theirs, f"{folder}/ours-{draw.__name__}-{i}",
                               f"{folder}/theirs-{draw.__name__}-{i}")
            compared += 1
            bit_equal += not problems and all(
                is_bit_equal(ours[i][what], theirs[what])
                for what in ("log_history", "calls", "parameters"))
        if problems:
            wrong += 1
            print(
                f"{draw.__name__} {i}:",
                json.dumps({
                    key: value
                    for key, value in run.items()
                    if key not in ("train", "eval", "test", "parameters")
                }))
            print("  " + "\n  ".join(problems[:8]))
    print(f"{count} of {draw.__name__}, {wrong} differ; {bit_equal} of {compared} that train are "
          f"equal to the last bit")
    return wrong


def workers_that_stay(rng, folder, train):
    """With persistent workers Python draws their seeds once for each loader, not at every pass;
    dropout shows what was drawn.
    """
    run = {
        "model": "classifier", "parameters": class_parameters(rng), "dropout": 0.3,
        "train": class_data(rng, 31), "eval": class_data(rng, 9), "test": class_data(rng, 5),
        "args": {
            "per_device_train_batch_size": 4, "num_train_epochs": 3, "learning_rate": 0.03,
            "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 3, "save_strategy": "no",
            "dataloader_num_workers": 2, "dataloader_persistent_workers": True, "use_cpu": True,
            "report_to": "none", "disable_tqdm": True, "log_level": "error"
        },
        "calls": [{"do": "evaluate", "prefix": "eval"}, {"do": "train"},
                  {"do": "predict", "prefix": "test"}, {"do": "train"}]
    }
    at = lambda name: run | {"args": run["args"] | {"output_dir": f"{folder}/workers-{name}"}}
    (ours,) = gradus([at("ours")], folder)
    problems = compare(ours, train(at("theirs")), f"{folder}/workers-ours",
                       f"{folder}/workers-theirs")
    print(f"persistent workers: {len(problems)} differences")
    if problems:
        print("  " + "\n  ".join(problems[:8]))
    return bool(problems)


def main():
    try:
        train = python_runner()
    except ImportError as error:
        print("skipped: the Python peer is not there:", error)
        return 77
    if not TOOL.exists():
        print(f"skipped: {TOOL} is not built")
        return 77
    seed = os.environ.get("TRAINER_CASES_SEED", "1")
    if seed == "random":
        seed = str(random.SystemRandom().randrange(10**6))
    print("seed", seed)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        wrong = option_sets(rng, folder, train, option_set, SETS)
        wrong += option_sets(rng, folder, train, wide_set, SETS)
        wrong += workers_that_stay(random.Random(seed), folder, train)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
