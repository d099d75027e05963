#!/usr/bin/env python3
"""The hook trainer beside trainer-tools: the same weights and data, the same hooks, everything
noted and compared.

    python hooks_test.py [HOOKS_TOOL]

Eleven runs: plain, accumulation with a short last window, clipping, fp16 autocast, average +
validation, schedule, checkpoints with a resume in the middle of an epoch (also from the other
side's file), an interrupt with a resume, accelerate, also in two processes, and the table of all
hooks. For each: the sequence of hook calls, the loss of every step (1e-6), the counters after every
step, the learning rate, the files written, the metrics file and the describe_hooks table. Exits 77
with a reason where trainer-tools is absent.
"""

import contextlib
import io
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
    import torch.nn.functional as F
    import trainer_tools.all as tt
    from omegaconf import OmegaConf
    from trainer_tools.hooks.accelerate import AccelerateHook
    from trainer_tools.hooks.optimization import EmptyCudaCacheHook
    from trainer_tools.hooks.profiler import MemoryProfilerHook
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
BUILD = os.environ.get("GRADUS_BUILD", os.path.join(os.path.dirname(__file__),
                                                    "../../build/release"))
TOOL = sys.argv[1] if len(sys.argv) > 1 else os.path.join(BUILD, "bin/hooks_tool")
FOLDER = tempfile.mkdtemp(prefix="gradus_hooks_")
POINTS = ("before_fit before_epoch before_step after_pred after_loss after_backward after_step "
          "before_valid after_epoch after_fit after_cancel").split()
CASES = "plain accumulation clipping amp ema schedule checkpoint interrupt accelerate".split()


class Notebook(tt.BaseHook):
    def __init__(self, notes):
        self.notes = notes


def noting(point):
    def method(self, trainer):
        self.notes["calls"].append(f"{type(self).__name__}.{point}")
        if self.ord > 0 and point == "after_step":
            s = trainer.step_state
            self.notes["steps"].append({
                "loss": trainer.loss,
                "result": trainer.result["loss"].item(),
                "training": trainer.training,
                "did_opt_step": trainer._did_opt_step,
                "lr": trainer.opt.param_groups[0]["lr"],
                "state": [
                    s.batch_idx, s.optimizer_step, s.samples_seen, s.epoch, s.grad_accum_steps,
                    s.num_processes
                ],
            })

    return method


for point in POINTS:
    setattr(Notebook, point, noting(point))


class Early(Notebook):
    ord = -300


class Late(Notebook):
    ord = 300


class Interrupter(tt.MainProcessHook):
    ord = 1

    def __init__(self, at):
        self.left = at

    def before_step(self, trainer):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def make_net():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def batches(x, y):
    return [{"x": a, "y": b} for a, b in zip(x.split(4), y.split(4))]


def hooks_of(name, out, resume):
    def schedule(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1.0 + 0.1 * step))

    def metrics(*each):
        return tt.MetricsHook(list(each), tracker_type="file", log_file=f"{out}/metrics.jsonl")

    def checkpoints(every):
        return tt.CheckpointHook(f"{out}/saved", save_every_steps=every, keep_last=2,
                                 resume_path=resume)

    accuracy = tt.Accuracy(pred_key="logits", target_key="y")
    return {
        "plain": lambda: [metrics(tt.Loss(), accuracy)],
        "accumulation": lambda: [tt.GradientAccumulationHook(2),
                                 metrics(tt.Loss())],
        "clipping": lambda: [tt.GradClipHook(0.05)],
        "amp": lambda: [tt.AMPHook(dtype=torch.float16, device_type="cpu")],
        "ema": lambda: [tt.EMAHook(0.8), metrics(tt.Loss(), accuracy)],
        "schedule": lambda: [tt.LRSchedulerHook(schedule),
                             metrics(tt.LRStats(), tt.Loss())],
        "checkpoint": lambda: [
            checkpoints(3),
            metrics(tt.Loss()),
            tt.EMAHook(0.8),
            tt.LRSchedulerHook(schedule)
        ],
        "interrupt": lambda: [checkpoints(3),
                              tt.EMAHook(0.8),
                              Interrupter(1000 if resume else 10)],
        "accelerate": lambda:
                      [AccelerateHook(gradient_accumulation_steps=2, max_grad_norm=0.05, cpu=True)],
        "processes": lambda: [
            AccelerateHook(gradient_accumulation_steps=2, max_grad_norm=0.05, cpu=True),
            tt.LRSchedulerHook(schedule)
        ],
        "all": lambda: [
            EmptyCudaCacheHook(),
            MemoryProfilerHook(),
            tt.ProgressBarHook(),
            tt.EMAHook(),
            checkpoints(1),
            tt.GradClipHook(),
            tt.GradientAccumulationHook(2),
            metrics(tt.Loss()),
            tt.LRSchedulerHook(schedule),
            tt.AMPHook(),
            AccelerateHook(cpu=True),
            Interrupter(1),
        ],
    }[name]()


def run_peer(name, out, resume=None):
    os.makedirs(out, exist_ok=True)
    start = torch.load(f"{FOLDER}/start.pt")
    net = make_net()
    net.load_state_dict(start["model"])

    def step(batch, trainer):
        logits = trainer.model(batch["x"])
        return {"loss": F.cross_entropy(logits, batch["y"]), "logits": logits, "y": batch["y"]}

    notes = {"calls": [], "steps": [], "cancelled": False}
    validates = name in ("ema", "checkpoint", "interrupt")
    train_dl, valid_dl = batches(start["x"], start["y"]), batches(start["vx"], start["vy"])
    if name in ("accelerate", "processes"):  # it prepares real loaders only
        train_dl = torch.utils.data.DataLoader(
            [{"x": a, "y": b} for a, b in zip(start["x"], start["y"])], batch_size=4)
        valid_dl = torch.utils.data.DataLoader(
            [{"x": a, "y": b} for a, b in zip(start["vx"], start["vy"])], batch_size=4)
    trainer = tt.Trainer(
        net,
        step,
        train_dl,
        valid_dl if validates else None,
        optim=torch.optim.AdamW(net.parameters(), lr=1e-2),
        epochs=3,
        hooks=[Late(notes), *hooks_of(name, out, resume),
               Early(notes)],
        device=torch.device("cpu"),
        config=OmegaConf.create({"width": 16, "name": "net"}),
    )
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        trainer.describe_hooks()
    notes["table"] = text.getvalue()
    try:
        if name != "all":
            trainer.fit()
    except KeyboardInterrupt:
        notes["cancelled"] = True
    return notes


def run_ours(name, out, resume=None):
    os.makedirs(out, exist_ok=True)
    done = subprocess.run([TOOL, name, FOLDER, out, *([resume] if resume else [])],
                          capture_output=True, text=True)
    assert done.returncode == 0, (name, done.stderr)
    with open(f"{out}/report.json") as file:
        report = json.load(file)
    os.remove(f"{out}/report.json")
    return report


def files(folder):
    return sorted(
        os.path.relpath(os.path.join(base, f), folder)
        for base, _, names in os.walk(folder)
        for f in names)


def close(a, b, where):
    assert abs(a - b) <= 1e-6, (where, a, b)


def same_metrics(theirs, ours, name):
    a, b = ([json.loads(line) for line in open(f"{side}/metrics.jsonl")] for side in (theirs, ours))
    if name.startswith("checkpoint "):
        b = b[len(b) - len(a):]  # a difference: our history goes on, theirs starts over
    assert len(a) == len(b), (name, len(a), len(b))
    for i, (x, y) in enumerate(zip(a, b)):
        assert x.keys() == y.keys(), (name, i, x, y)
        for key in x:
            if name == "checkpoint resumed" and key == "train_loss" and "valid_loss" in x:
                continue  # a difference: our mean of the resumed epoch covers all of it
            close(x[key], y[key], (name, i, key))


def compare(name, theirs, ours, their_folder, our_folder):
    assert theirs["table"] == ours["table"], f"{name}\n{theirs['table']}\n{ours['table']}"
    assert theirs["calls"] == ours["calls"], (name, theirs["calls"][:60], ours["calls"][:60])
    assert theirs["cancelled"] == ours["cancelled"], name
    assert len(theirs["steps"]) == len(ours["steps"]), name
    worst = 0.0
    for i, (a, b) in enumerate(zip(theirs["steps"], ours["steps"])):
        for key in ("loss", "result", "lr"):
            close(a[key], b[key], (name, i, key))
            worst = max(worst, abs(a[key] - b[key]))
        for key in ("state", "training", "did_opt_step"):
            assert a[key] == b[key], (name, i, key, a[key], b[key])
    assert files(their_folder) == files(our_folder), (name, files(their_folder), files(our_folder))
    if os.path.exists(f"{their_folder}/metrics.jsonl"):
        same_metrics(their_folder, our_folder, name)
    print(f"{name:34} {len(theirs['calls']):4} calls, {len(theirs['steps']):3} steps, largest "
          f"difference {worst:.1e}, files: {len(files(our_folder))}")
    return len(theirs["steps"])


def both(name, resume=(None, None), label=None):
    label = label or name
    folders = [os.path.join(FOLDER, side, name) for side in ("theirs", "ours")]
    return compare(label, run_peer(name, folders[0], resume[0]),
                   run_ours(name, folders[1], resume[1]), *folders)


def in_two_processes():
    """Both sides again, as two processes; each rank is compared with the same rank."""
    reports = {}
    for side, command in (("theirs", [sys.executable, __file__, "--worker", FOLDER]),
                          ("ours", [TOOL, "processes", FOLDER])):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        running = []
        for rank in range(2):
            out = os.path.join(FOLDER, side, f"processes-{rank}")
            os.makedirs(out)
            env = os.environ | {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE":
                    "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS":
                        "1", "GLOO_SOCKET_IFNAME": "lo"
            }
            running.append(
                subprocess.Popen([*command, out], env=env, stderr=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=120)[1] for process in running]
        assert all(process.returncode == 0 for process in running), (side, said)
        for rank in range(2):
            with open(os.path.join(FOLDER, side, f"processes-{rank}", "report.json")) as file:
                reports[side, rank] = json.load(file)
    steps = 0
    for rank in range(2):
        for step in reports["theirs", rank]["steps"]:
            step["state"][2] *= 2  # a difference: it counts before it knows of the processes
            step["state"][5] = 2
        folders = [os.path.join(FOLDER, side, f"processes-{rank}") for side in ("theirs", "ours")]
        steps += compare(f"process {rank} of 2", reports["theirs", rank], reports["ours", rank],
                         *folders)
    return steps


def worker(folder, out):
    """One of the Python processes."""
    global FOLDER
    FOLDER = folder
    report = run_peer("processes", out)
    with open(f"{out}/report.json", "w") as file:
        json.dump(report, file)


def forget_the_missing_update(torch, file):
    """trainer-tools saves the average before the last step is in it, and a resumed run never makes
    up for it. Ours does, because its file says so; without that entry it does as trainer-tools.
    """
    state = torch.load(file, weights_only=True)
    assert state.pop("ema_is_behind") is True
    torch.save(state, file)


def main():
    torch.manual_seed(5)
    net = make_net()
    x, vx = torch.randn(18,
                        6), torch.randn(7,
                                        6)  # 5 batches of which the last is short; 2 for validation
    start = {
        "model": dict(net.state_dict()), "x": x, "y": x[:, :3].argmax(1), "vx": vx,
        "vy": vx[:, :3].argmax(1)
    }
    torch.save(start, f"{FOLDER}/start.pt")
    steps = 0
    for name in CASES:
        steps += both(name)
    both("all")

    saved = [os.path.join(FOLDER, side, "checkpoint/saved") for side in ("theirs", "ours")]
    for side in saved:
        assert sorted(f for f in os.listdir(side) if f.startswith("checkpoint_step")) == [
            "checkpoint_step_12.pt", "checkpoint_step_15.pt"
        ], os.listdir(side)
    middle = [f"{side}/checkpoint_step_12.pt" for side in saved]
    copies = []  # step 12 is in the middle of the third epoch
    for i, file in enumerate(middle):
        copies.append(f"{FOLDER}/middle_{i}.pt")
        os.rename(file, copies[-1])
    assert torch.load(copies[1], weights_only=True)["batch_idx"] == 2
    forget_the_missing_update(torch, copies[1])
    steps += both("checkpoint", copies, "checkpoint resumed")
    steps += both("checkpoint", copies[::-1], "checkpoint from the other's file")
    interrupted = [
        os.path.join(FOLDER, side, "interrupt/saved/checkpoint_interrupted.pt")
        for side in ("theirs", "ours")
    ]
    steps += both("interrupt", interrupted, "interrupt resumed")
    steps += in_two_processes()
    print(f"same: {steps} steps compared")


if sys.argv[1:2] == ["--worker"]:
    worker(*sys.argv[2:])
else:
    main()
