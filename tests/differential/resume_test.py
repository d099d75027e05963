"""Going on with a run, beside transformers: from the other side's checkpoint, and without skipping
the data. Without the peer: exit code 77.
"""

import json
import pathlib
import random
import shutil
import sys
import tempfile

from trainer_runs import python_runner
from trainer_test import TOOL, class_data, class_parameters, compare_logs, gradus, lengths


def to_torch_shards(checkpoint):
    """Puts the weights of a checkpoint into files of torch.save with an index, as older versions of
    transformers wrote them.
    """
    import torch
    from safetensors.torch import load_file

    tensors, index = load_file(checkpoint / "model.safetensors"), {}
    for number, (name, tensor) in enumerate(tensors.items(), 1):
        index[name] = f"pytorch_model-{number:05d}-of-{len(tensors):05d}.bin"
        torch.save({name: tensor}, checkpoint / index[name])
    (checkpoint / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index}))
    for name in ("model.safetensors", "manifest.json", "gradus_state.json"):
        (checkpoint / name).unlink(missing_ok=True)


def moves(rng, folder, train, strategy):
    """40 steps with a save at 20: each side goes on from the other's checkpoint, dropout and
    warm-up included.
    """
    args = {
        "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_steps": 40,
        "learning_rate": 0.01, "optim": "adamw_torch", "warmup_steps": 30, "logging_steps": 1,
        "save_steps": 20, "use_cpu": True, "report_to": "none", "disable_tqdm": True,
        "log_level": "error", "seed": 7, "train_sampling_strategy": strategy
    }
    run = {
        "args": args, "model": "classifier", "dropout": 0.2,
        "train": class_data(rng, 104) | {"lengths": lengths(rng, 104)},
        "parameters": class_parameters(rng)
    }

    def at(name, **more):
        return run | more | {"args": args | {"output_dir": f"{folder}/{strategy}/{name}"}}

    (ours,) = gradus([at("stay-ours")], folder)
    theirs = train(at("stay-theirs"))
    for source, target in (("stay-theirs", "to-ours"), ("stay-ours", "to-theirs")):
        shutil.copytree(f"{folder}/{strategy}/{source}/checkpoint-20",
                        f"{folder}/{strategy}/{target}/checkpoint-20")
        if strategy == "batch_rebalance":
            to_torch_shards(pathlib.Path(folder, strategy, target, "checkpoint-20"))
    (taken,) = gradus([
        at("to-ours",
           calls=[{"do": "train", "resume": f"{folder}/{strategy}/to-ours/checkpoint-20"}])
    ], folder)
    given = train(
        at("to-theirs",
           calls=[{"do": "train", "resume": f"{folder}/{strategy}/to-theirs/checkpoint-20"}]))
    wrong = 0
    for what, moved, stayed in (("gradus goes on with Python's", taken, theirs),
                                ("Python goes on with gradus'", given, ours)):
        entries = [[
            entry for entry in each["log_history"] if "loss" in entry and entry["step"] > 20
        ] for each in (moved, stayed)]
        problems = compare_logs(*entries)
        if len(entries[0]) != 20:
            problems.append(f"{len(entries[0])} losses after the move, expected 20")
        worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(*entries))
        print(f"{strategy}: {what}: worst relative difference of the next 20 losses {worst:.3g}")
        if problems:
            wrong += 1
            print("  " + "\n  ".join(problems[:8]))
    return wrong


def ignored_data(rng, folder, train):
    """7 steps a pass: each side goes on from its own checkpoint without skipping the data.

    The checkpoints are those of a pass's last step and of one inside a pass.
    """
    args = {
        "per_device_train_batch_size": 8, "num_train_epochs": 3, "learning_rate": 0.01,
        "optim": "adamw_torch", "logging_steps": 1, "save_steps": 1, "use_cpu": True,
        "report_to": "none", "disable_tqdm": True, "log_level": "error", "seed": 11
    }
    run = {
        "args": args, "model": "classifier", "dropout": 0.2, "train": class_data(rng, 56),
        "parameters": class_parameters(rng)
    }

    def at(side, step=None):
        if step is None:
            return run | {"args": args | {"output_dir": f"{folder}/{side}/whole"}}
        more = {
            "output_dir": f"{folder}/{side}/from-{step}", "ignore_data_skip": True,
            "save_strategy": "no"
        }
        return run | {
            "args": args | more,
            "calls": [{"do": "train", "resume": f"{folder}/{side}/whole/checkpoint-{step}"}]
        }

    gradus([at("ours")], folder)
    train(at("theirs"))
    wrong = 0
    for step in (7, 10, 14, 21):
        (ours,) = gradus([at("ours", step)], folder)
        theirs = train(at("theirs", step))
        entries = [
            [entry for entry in each["log_history"] if "loss" in entry] for each in (ours, theirs)
        ]
        problems = compare_logs(*entries)
        if ours["events"] != theirs["events"]:
            problems.append(f"events {ours['events'][:12]}, in Python {theirs['events'][:12]}")
        last = entries[0][-1]["epoch"]
        print(f"ignore_data_skip from step {step}: {len(entries[0])} losses, the last at epoch "
              f"{last}; {len(problems)} differences")
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
    rng = random.Random("1")
    with tempfile.TemporaryDirectory() as folder:
        wrong = moves(rng, folder, train, "random")
        wrong += moves(rng, folder, train, "batch_rebalance")
        wrong += ignored_data(rng, folder, train)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
