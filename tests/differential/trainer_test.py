"""The Trainer beside transformers': the same random option sets, and a run that moves from one to the other.

For each set: log_history entry by entry (1e-5 relative, learning rates 1e-9), the sequence of events, the names of all files
written (DESIGN: gradus_state.json, manifest.json and training_args.json are ours, training_args.bin is Python's), the final
state and parameters. The seed is printed; TRAINER_CASES_SEED repeats it. Without the peer: exit code 77.
"""

import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/trainer_tool"
SETS = 12
EVENTS = ("init_end train_begin train_end epoch_begin epoch_end step_begin pre_optimizer_step optimizer_step substep_end step_end "
          "evaluate predict save log prediction_step push_begin").split()
SCHEDULES = [("linear", None), ("cosine", None), ("constant", None), ("constant_with_warmup", None), ("polynomial", {"power": 2.0, "lr_end": 1e-4}),
             ("inverse_sqrt", None), ("cosine_with_restarts", {"num_cycles": 2}), ("cosine_with_min_lr", {"min_lr": 1e-3}),
             ("warmup_stable_decay", {"num_decay_steps": 3})]


def regression_data(rng, rows):
    x = [rng.gauss(0, 1) for _ in range(rows)]
    return {"x": x, "labels": [2 * v + 3 + rng.gauss(0, 0.1) for v in x]}


def class_data(rng, rows):
    x = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(rows)]
    return {"x": x, "labels": [max(range(3), key=lambda k: row[k]) for row in x]}


def lengths(rng, rows):
    return [int(rng.lognormvariate(2, 1)) + 1 for _ in range(rows)]


def class_parameters(rng):
    def matrix(rows, columns):
        return [[rng.gauss(0, 0.5) for _ in range(columns)] for _ in range(rows)]
    return {"l1.weight": matrix(8, 4), "l1.bias": matrix(1, 8)[0], "l2.weight": matrix(3, 8), "l2.bias": matrix(1, 3)[0]}


def option_set(rng, index):
    """One run of random options; those that exclude each other are put right as a user would."""
    classify = index % 4 == 3
    args = {
        "per_device_train_batch_size": rng.choice([2, 4, 8, 16, 20]), "per_device_eval_batch_size": rng.choice([4, 8, 16]),
        "gradient_accumulation_steps": rng.choice([1, 1, 2, 3, 4]), "learning_rate": rng.choice([0.1, 0.03, 0.01]),
        "max_grad_norm": rng.choice([1.0, 0.1, 0.0, 5.0]), "weight_decay": rng.choice([0.0, 0.1]),
        "optim": rng.choice(["adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"]), "seed": rng.randrange(1000),
        "logging_strategy": rng.choice(["steps", "steps", "epoch", "no"]), "logging_steps": rng.choice([1, 2, 5, 7, 0.25]),
        "logging_first_step": rng.random() < 0.3, "save_total_limit": rng.choice([None, 1, 2, 3]),
        "dataloader_drop_last": rng.random() < 0.3, "save_only_model": rng.random() < 0.2, "eval_on_start": rng.random() < 0.25,
        "include_num_input_tokens_seen": "no",
    }
    args["lr_scheduler_type"], kwargs = rng.choice(SCHEDULES)
    if kwargs:
        args["lr_scheduler_kwargs"] = kwargs
    args["warmup_steps"] = 0 if args["lr_scheduler_type"] == "polynomial" else rng.choice([0, 2, 4, 0.2])  # Python divides by the steps after it, which may be none
    length = rng.choice(["epochs", "fraction", "steps"])
    if length == "steps":
        args["max_steps"] = rng.randrange(5, 30)
    else:
        args["num_train_epochs"] = rng.choice([1, 2, 3]) if length == "epochs" else rng.choice([1.5, 0.7, 2.3])
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
        args |= {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5}, "metric_for_best_model": "loss"}
    best = args["eval_strategy"] != "no" and rng.random() < 0.6
    if best:
        args["metric_for_best_model"] = "loss"
        args["save_strategy"] = rng.choice([args["eval_strategy"], args["eval_strategy"], "best"])
        args["load_best_model_at_end"] = rng.random() < 0.7 or args["save_strategy"] == "best"
        if args["save_strategy"] == "steps":
            args["save_steps"] = args["eval_steps"] * rng.choice([1, 2])
    rows = rng.choice([40, 64, 66])
    data = class_data if classify else regression_data
    run = {"args": args, "model": "classifier" if classify else "regression", "train": data(rng, rows),
           "parameters": class_parameters(rng) if classify else {"a": 0.0, "b": 0.0}}
    if classify:
        run["dropout"] = 0.2
        args["bf16"] = rng.random() < 0.3
    if rng.random() < 0.3:
        args["train_sampling_strategy"] = "batch_rebalance"
        run["train"]["lengths"] = lengths(rng, rows)
        args["dataloader_drop_last"] &= args["per_device_train_batch_size"] * args["gradient_accumulation_steps"] <= rows  # it drops whole steps
    if rng.random() < 0.25:
        run["trains"] = 2
    if args["eval_strategy"] != "no":
        run["eval"] = data(rng, rng.choice([16, 30]))
        run["accuracy"] = not classify and rng.random() < 0.5
    if best and rng.random() < 0.5:
        run["early_stopping"] = rng.choice([1, 2])
    return run


def python_runner():
    """A function that does in Python what trainer_tool does."""
    import torch
    import transformers

    class Recorder(transformers.TrainerCallback):
        def __init__(self):
            self.events = []
    for event in EVENTS:
        setattr(Recorder, "on_" + event, lambda self, *_, event="on_" + event, **__: self.events.append(event))

    class Regression(torch.nn.Module):
        def __init__(self, run):
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor(run["parameters"]["a"]))
            self.b = torch.nn.Parameter(torch.tensor(run["parameters"]["b"]))

        def forward(self, x, labels=None):
            y = x * self.a + self.b
            return (y,) if labels is None else (torch.nn.functional.mse_loss(y, labels), y)

    class Classifier(torch.nn.Module):
        def __init__(self, run):
            super().__init__()
            self.l1, self.l2 = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
            self.load_state_dict({name: torch.tensor(value) for name, value in run["parameters"].items()})
            self.dropout = run.get("dropout", 0.0)
            self.config = types.SimpleNamespace()  # label smoothing looks into it

        def forward(self, x, labels=None):
            y = self.l2(torch.nn.functional.dropout(torch.relu(self.l1(x)), self.dropout, self.training))
            outputs = {} if labels is None else {"loss": torch.nn.functional.cross_entropy(y, labels)}
            return {**outputs, "logits": y}

    def rows(run, part):
        dtype = torch.long if run["model"] == "classifier" else torch.float
        table = [{"x": torch.tensor(x), "labels": torch.tensor(y, dtype=dtype)} for x, y in zip(run[part]["x"], run[part]["labels"], strict=True)]
        for row, length in zip(table, run[part].get("lengths", [])):
            row["input_ids"] = [0] * length
        return table

    def almost_accuracy(prediction):
        return {"accuracy": float((abs(prediction.predictions - prediction.label_ids) <= 0.25).mean())}

    def train(run):
        recorder = Recorder()
        callbacks = [transformers.EarlyStoppingCallback(run["early_stopping"])] if "early_stopping" in run else []
        model = (Classifier if run["model"] == "classifier" else Regression)(run)
        trainer = transformers.Trainer(
            model, transformers.TrainingArguments(**run["args"]), train_dataset=rows(run, "train"), eval_dataset=rows(run, "eval") if "eval" in run else None,
            compute_metrics=almost_accuracy if run.get("accuracy") else None, callbacks=callbacks + [recorder])
        trainer.remove_callback(transformers.PrinterCallback)
        for _ in range(run.get("trains", 1)):
            result = trainer.train(resume_from_checkpoint=run.get("resume"))
        state = {key: value for key, value in vars(trainer.state).items() if key != "log_history"}
        parameters = {name: value.detach().double().flatten().tolist() for name, value in trainer.model.state_dict().items()}
        return {"log_history": trainer.state.log_history, "events": recorder.events, "train_loss": result.training_loss,
                "global_step": result.global_step, "state": state, "parameters": parameters}
    return train


def gradus(runs, folder):
    questions, answers = pathlib.Path(folder, "runs.json"), pathlib.Path(folder, "results.json")
    questions.write_text(json.dumps(runs))
    subprocess.run([TOOL, questions, answers], check=True)
    return json.loads(answers.read_text())


def is_speed(key):
    return key.endswith(("_runtime", "_per_second"))


def near(a, b, tolerance):
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return (math.isnan(a) and math.isnan(b)) or abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-6)
    return a == b


def compare_logs(ours, theirs):
    problems = []
    if len(ours) != len(theirs):
        problems.append(f"log_history has {len(ours)} entries, Python's {len(theirs)}: {[e['step'] for e in ours]} {[e['step'] for e in theirs]}")
    for i, (mine, other) in enumerate(zip(ours, theirs)):
        if mine.keys() != other.keys():
            problems.append(f"log {i}: keys {sorted(mine)} and {sorted(other)}")
            continue
        for key in mine:
            if not is_speed(key) and not near(mine[key], other[key], 1e-9 if key == "learning_rate" else 1e-5):
                problems.append(f"log {i} (step {mine['step']}): {key} is {mine[key]!r}, Python's {other[key]!r}")
    return problems


def files_of(folder):
    names = {str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file()}
    return {name for name in names if not name.endswith(("gradus_state.json", "manifest.json", "training_args.json", "training_args.bin"))}


def compare(ours, theirs, our_dir, their_dir):
    problems = compare_logs(ours["log_history"], theirs["log_history"])
    if ours["events"] != theirs["events"]:
        at = next((i for i, (a, b) in enumerate(zip(ours["events"], theirs["events"])) if a != b), min(len(ours["events"]), len(theirs["events"])))
        problems.append(f"events differ from number {at} on: {ours['events'][at:at + 6]} and {theirs['events'][at:at + 6]}")
    if not near(ours["train_loss"], theirs["train_loss"], 1e-5):
        problems.append(f"train_loss {ours['train_loss']} and {theirs['train_loss']}")
    if files_of(our_dir) != files_of(their_dir):
        problems.append(f"files: only here {sorted(files_of(our_dir) - files_of(their_dir))}, only in Python {sorted(files_of(their_dir) - files_of(our_dir))}")
    for folder in pathlib.Path(our_dir).glob("checkpoint-*"):
        wanted = {"training_args.json", "manifest.json"}
        if not wanted <= {path.name for path in folder.iterdir()}:
            problems.append(f"{folder.name} lacks one of {sorted(wanted)}")
    mine, other = dict(ours["state"]), dict(theirs["state"])
    for state in (mine, other):
        state["best_model_checkpoint"] = state["best_model_checkpoint"] and pathlib.Path(state["best_model_checkpoint"]).name
        state.pop("stateful_callbacks")
    for key in mine.keys() | other.keys():
        if not near(mine.get(key, "absent"), other.get(key, "absent"), 1e-5):
            problems.append(f"state.{key} is {mine.get(key, 'absent')!r}, Python's {other.get(key, 'absent')!r}")
    for name, values in theirs["parameters"].items():
        worst = max(abs(a - b) for a, b in zip(ours["parameters"][name], values, strict=True))
        if worst > 1e-5 * max(1, max(map(abs, values))):
            problems.append(f"parameter {name} differs by {worst}")
    return problems


def option_sets(rng, folder, train):
    runs, wrong = [option_set(rng, i) for i in range(SETS)], 0
    for i, run in enumerate(runs):
        run["args"] |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "log_level": "error"}
    ours = gradus([run | {"args": run["args"] | {"output_dir": f"{folder}/ours-{i}"}} for i, run in enumerate(runs)], folder)
    for i, run in enumerate(runs):
        theirs = train(run | {"args": run["args"] | {"output_dir": f"{folder}/theirs-{i}"}})
        problems = compare(ours[i], theirs, f"{folder}/ours-{i}", f"{folder}/theirs-{i}")
        if problems:
            wrong += 1
            print(f"set {i}:", json.dumps({key: value for key, value in run.items() if key not in ("train", "eval", "parameters")}))
            print("  " + "\n  ".join(problems[:8]))
    print(f"{SETS} option sets, {wrong} differ")
    return wrong


def to_torch_shards(checkpoint):
    """Puts the weights of a checkpoint into files of torch.save with an index, as older versions of transformers wrote them."""
    import torch
    from safetensors.torch import load_file

    tensors, index = load_file(checkpoint / "model.safetensors"), {}
    for number, (name, tensor) in enumerate(tensors.items(), 1):
        index[name] = f"pytorch_model-{number:05d}-of-{len(tensors):05d}.bin"
        torch.save({name: tensor}, checkpoint / index[name])
    (checkpoint / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    for name in ("model.safetensors", "manifest.json", "gradus_state.json"):
        (checkpoint / name).unlink(missing_ok=True)


def moves(rng, folder, train, strategy):
    """40 steps with a save at 20: each side goes on from the other's checkpoint, dropout and warm-up included."""
    args = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_steps": 40, "learning_rate": 0.01, "optim": "adamw_torch", "warmup_steps": 30,
            "logging_steps": 1, "save_steps": 20, "use_cpu": True, "report_to": "none", "disable_tqdm": True, "log_level": "error", "seed": 7, "train_sampling_strategy": strategy}
    run = {"args": args, "model": "classifier", "dropout": 0.2, "train": class_data(rng, 104) | {"lengths": lengths(rng, 104)}, "parameters": class_parameters(rng)}

    def at(name, **more):
        return run | more | {"args": args | {"output_dir": f"{folder}/{strategy}/{name}"}}

    (ours,) = gradus([at("stay-ours")], folder)
    theirs = train(at("stay-theirs"))
    for source, target in (("stay-theirs", "to-ours"), ("stay-ours", "to-theirs")):
        shutil.copytree(f"{folder}/{strategy}/{source}/checkpoint-20", f"{folder}/{strategy}/{target}/checkpoint-20")
        if strategy == "batch_rebalance":
            to_torch_shards(pathlib.Path(folder, strategy, target, "checkpoint-20"))
    (taken,) = gradus([at("to-ours", resume=f"{folder}/{strategy}/to-ours/checkpoint-20")], folder)
    given = train(at("to-theirs", resume=f"{folder}/{strategy}/to-theirs/checkpoint-20"))
    wrong = 0
    for what, moved, stayed in (("gradus goes on with Python's", taken, theirs), ("Python goes on with gradus'", given, ours)):
        entries = [[entry for entry in each["log_history"] if "loss" in entry and entry["step"] > 20] for each in (moved, stayed)]
        problems = compare_logs(*entries)
        if len(entries[0]) != 20:
            problems.append(f"{len(entries[0])} losses after the move, expected 20")
        worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(*entries))
        print(f"{strategy}: {what}: worst relative difference of the next 20 losses {worst:.3g}")
        if problems:
            wrong += 1
            print("  " + "\n  ".join(problems[:8]))
    return wrong


def main():
    try:
        train = python_runner()
    except ImportError as error:
        print("skipped: the Python peer is not there:", error)
        return 77
    if not TOOL.exists():
        print(f"skipped: {TOOL} is not built")
        return 77
    seed = os.environ.get("TRAINER_CASES_SEED") or str(random.SystemRandom().randrange(10**6))
    print("seed", seed)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        wrong = option_sets(rng, folder, train) + moves(rng, folder, train, "random") + moves(rng, folder, train, "batch_rebalance")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
