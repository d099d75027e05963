"""sharding.py GRADUS PROCESSES_RUN: ZeRO-1, 2 and 3 (--zero_stage, --fsdp) with real processes.

The losses are those of one process with the same global batch, with windows, clipping, the fp16
scaler, unused, tied and frozen parameters. A checkpoint of four processes goes on with any number
of processes and any strategy. A run that is killed while it saves leaves no damaged checkpoint.
With GRADUS_LONG=1 every combination is tried, and 40 kills instead of 1.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from processes import (GRADUS, LONG, TIMEOUT, check, distance, finish, losses, result, run,
                       run_parts, start, trained)

SHARDED = '{"state_dict_type": "SHARDED_STATE_DICT"}'


def go(name, target, processes, *flags, steps=12, batch=8):
    code, output = run(target, processes, "--per_device_train_batch_size",
                       str(batch // processes), "--max_steps", str(steps), "--logging_steps", "1",
                       *flags)
    if check(name, code == 0, processes, "processes:", code, output[-2500:]):
        return result(target)
    return None


def same_losses(folder):
    flags = ("--save_strategy", "no", "--gradient_accumulation_steps", "2", "--max_grad_norm",
             "0.05", "--weight_decay", "0.1")
    one = go("one process", folder / "one", 1, *flags)
    for stage in (1, 2, 3):
        for processes in (2, 4) if LONG or stage == 3 else (2,):
            name = f"stage {stage}, {processes} processes"
            target = folder / f"zero-{stage}-{processes}"
            many = go(name, target, processes, "--zero_stage", str(stage), *flags)
            if not one or not many:
                continue
            check(name, distance(trained(one), trained(many)) < 1e-6, "the losses differ by",
                  distance(trained(one), trained(many)))
            check(name, distance(one["predictions"], many["predictions"]) < 1e-5,
                  "predictions differ by", distance(one["predictions"], many["predictions"]))
            for key in one["weights"]:
                far = distance(one["weights"][key], many["weights"][key])
                check(name, far < 1e-5, key, "differs by", far)
            check(name, result(target, processes - 1)["weights"] == many["weights"],
                  "the processes end with different weights")


def scaled_losses(folder):
    """fp16 with its scaler, and with windows: one process that takes a batch in as many parts."""
    flags = ("--fp16", "--optim", "sgd", "--save_strategy", "no", "--max_grad_norm", "0.5")
    for window, processes in ((1, 2), (2, 2), (1, 4)):
        one = go("parts", folder / f"parts-{window}-{processes}", 1, *flags,
                 "--gradient_accumulation_steps", str(window * processes), batch=8 // processes)
        for stage in (0, 1, 2, 3):
            name = f"fp16, windows of {window}, stage {stage}, {processes} processes"
            many = go(name, folder / f"{window}-{processes}-{stage}", processes, "--zero_stage",
                      str(stage), "--gradient_accumulation_steps", str(window), *flags)
            if one and many:
                far = distance(trained(one), trained(many))
                check(name, far < 1e-6, "the losses differ by", far)


def master_weights(folder):
    """bf16 weights: plain data parallelism is the measure."""
    flags = ("--bf16", "--bf16_mode", "master", "--save_strategy", "no", "--max_grad_norm", "0.5")
    plain, first = go("masters", folder / "ddp", 2, *flags), None
    for stage in (1, 2, 3) if LONG else (3,):
        name = f"masters, stage {stage}"
        many = go(name, folder / f"stage-{stage}", 2, "--zero_stage", str(stage), *flags)
        if not plain or not many:
            continue
        first = first or many
        far = distance(trained(first), trained(many))
        check(name, far < 1e-6, "the stages differ by", far)
        # Gradients become a mean in bfloat16 there, in float32 here: about 2^-8 of the loss.
        far = distance([e[1] for e in trained(plain)], [e[1] for e in trained(many)])
        check(name, far < 4.0 / 256, "the losses differ by", far)


def checkpoints(folder):
    """From four processes with stage 3 to every other way."""
    flags = ("--save_steps", "6", "--lr_scheduler_type", "constant")
    whole = go("undisturbed", folder / "undisturbed", 1, *flags)
    go("first half", folder / "half", 4, "--fsdp", "full_shard auto_wrap", "--fsdp_config", SHARDED,
       *flags, steps=6)
    saved = folder / "half" / "checkpoint-6"
    files = sorted(path.name for path in saved.iterdir()) if saved.exists() else []
    check("files", {f"gradus_shard_{rank:05}-of-00004.pt" for rank in range(4)} <= set(files) and
          "model.safetensors" not in files and "optimizer.pt" not in files, files)
    done = subprocess.run([GRADUS, "verify", str(saved)], capture_output=True, text=True,
                          timeout=TIMEOUT)
    check("verify", done.returncode == 0, done.stdout, done.stderr)
    ways = [(1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (4, 0), (4, 1), (4, 2), (4, 3)]
    for processes, stage in ways if LONG else [(1, 0), (2, 0), (2, 1), (4, 3)]:
        name = f"on with {processes} processes, stage {stage}"
        target = folder / f"on-{processes}-{stage}"
        shutil.copytree(folder / "half", target)
        found = go(name, target, processes, "--zero_stage", str(stage), *flags)
        if whole and found:
            far = distance(trained(whole), trained(found))
            check(name, far < 1e-6, "the losses differ by", far)
    consolidated(folder, saved, whole, flags)


def consolidated(folder, saved, whole, flags):
    """One folder, as one process writes it; and a plain checkpoint into a sharded run."""
    target = folder / "plain" / "checkpoint-6"
    target.parent.mkdir()
    done = subprocess.run([GRADUS, "consolidate", str(saved), "--output_dir", str(target)],
                          capture_output=True, text=True, timeout=TIMEOUT)
    if not check("consolidate", done.returncode == 0, done.stdout, done.stderr):
        return
    files = sorted(path.name for path in target.iterdir())
    check("consolidate", "model.safetensors" in files and "optimizer.pt" in files and
          not any(name.startswith("gradus_shard") for name in files), files)
    found = go("from the consolidated", target.parent, 2, "--fsdp", "shard_grad_op", *flags)
    if whole and found:
        far = distance(trained(whole), trained(found))
        check("from the consolidated", far < 1e-6, "the losses differ by", far)
        # --fsdp writes what transformers writes: a checkpoint as of one process
        files = {path.name for path in (target.parent / "checkpoint-12").iterdir()}
        check("plain files", {"model.safetensors", "optimizer.pt"} <= files and
              "gradus_shards.json" not in files, files)


def kills(folder):
    """Killed while it saves: the newest checkpoint is complete, and the run goes on from it."""
    flags = ("--save_steps", "1", "--save_total_limit", "3", "--zero_stage", "3", "--max_steps",
             "60" if LONG else "20", "--ddp_timeout", "20")
    check("kills", run(folder / "kills", 2, *flags)[0] == 0)
    goal = losses(result(folder / "kills"))
    for attempt in range(40 if LONG else 1):
        target = folder / f"kill-{attempt}"
        chance = random.Random(attempt)
        process = start(target, 2, *flags)
        until = time.monotonic() + TIMEOUT
        while len(list(target.glob("checkpoint-*"))) < 1 and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(chance.random() * (0.3 if LONG else 0.05))
        victims = [int(pid) for pid in subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True,
            timeout=TIMEOUT).stdout.split()]
        for pid in victims if attempt % 2 else victims[:1]:
            os.kill(pid, signal.SIGKILL)
        finish(process)
        done = subprocess.run([GRADUS, "verify", str(target)], capture_output=True, text=True,
                              timeout=TIMEOUT)
        check(f"kill {attempt}", done.returncode == 0, done.stdout, done.stderr)
        code, output = run(target, 2, *flags)
        if check(f"kill {attempt}", code == 0, output[-2000:]):
            check(f"kill {attempt}", losses(result(target)) == goal, "the run differs")


def refusals(folder):
    code, output = run(folder / "adafactor", 2, "--zero_stage", "2", "--optim", "adafactor")
    check("adafactor", code != 0 and "[G-DIST-7]" in output, code, output[-1500:])
    code, output = run(folder / "hybrid", 2, "--fsdp", "hybrid_shard")
    check("hybrid", code == 2 and "[G-CONF-5]" in output, code, output[-1500:])


if __name__ == "__main__":
    sys.exit(run_parts(same_losses, scaled_losses, master_weights, checkpoints, kills, refusals))
