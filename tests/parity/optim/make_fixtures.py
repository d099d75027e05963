"""Writes optimizers.json: what torch, transformers and the packages behind HF's optimizer names do
in 30 steps.

Run with the peer's Python. The three packages that the peer does not have are taken from a folder:
    pip install --no-deps --target DIR schedulefree==1.4.1 torch-optimi==0.3.3 bitsandbytes==0.50.2
    python make_fixtures.py --packages DIR
Gradients follow from the parameters, so that an error in one step shows in all later ones.
"""
import argparse
import json
import math
import pathlib
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--packages", required=True)
sys.path.append(parser.parse_args().packages)

import bitsandbytes  # noqa: E402
import importlib.metadata  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import Trainer, TrainingArguments, get_scheduler  # noqa: E402
from transformers.optimization import Adafactor  # noqa: E402

torch.set_num_threads(1)
SHAPES = [(3, 4), (7,), (2, 3, 5)]
STEPS, KEEP = 30, (1, 10, 30)

# label, name, optim_args, weight_decay of the first group, other training arguments
CASES = [
    ("adamw_torch", "adamw_torch", "", 0.0, {}),
    ("adamw_torch_decay", "adamw_torch", "", 0.1,
     {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6}),
    ("adamw_torch_fused", "adamw_torch_fused", "", 0.1, {}),
    ("sgd", "sgd", "", 0.0, {}),
    ("sgd_momentum", "sgd", "momentum=0.9,dampening=0.1", 0.1, {}),
    ("sgd_nesterov", "sgd", "momentum=0.9, nesterov=True", 0.01, {}),
    ("adagrad", "adagrad", "", 0.0, {}),
    ("adagrad_decay", "adagrad", "lr_decay=0.05,eps=1e-6", 0.1, {}),
    ("rmsprop", "rmsprop", "", 0.0, {}),
    ("rmsprop_momentum", "rmsprop", "momentum=0.9,alpha=0.9", 0.1, {}),
    ("rmsprop_centered", "rmsprop", "momentum=0.5,centered=true,eps=1e-5", 0.1, {}),
    ("adafactor", "adafactor", "", 0.1, {}),
    ("lion_32bit", "lion_32bit", "", 0.1, {"adam_beta2": 0.99}),
    ("ademamix", "ademamix", "", 0.1, {}),
    ("ademamix_warm", "ademamix", "beta3=0.99,alpha=4,t_alpha=20,t_beta3=20", 0.1, {}),
    ("stable_adamw", "stable_adamw", "", 0.1, {"adam_beta2": 0.99}),
    ("schedule_free_adamw", "schedule_free_adamw", "", 0.1, {"warmup_steps": 5}),
    ("schedule_free_adamw_r", "schedule_free_adamw", "r=1.0,weight_lr_power=1.0", 0.0, {}),
    ("schedule_free_sgd", "schedule_free_sgd", "", 0.1, {"warmup_steps": 5}),
    ("schedule_free_radam", "schedule_free_radam", "", 0.1, {}),
]


def start(k):
    n = math.prod(SHAPES[k])
    values = [math.cos(0.7 * (i + 1) + k) for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(SHAPES[k])


def noise(k, step):
    n = math.prod(SHAPES[k])
    values = [math.sin(0.3 * (step + 1) * (i + 1) + k) for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(SHAPES[k])


def plain(value):
    if isinstance(value, torch.Tensor):
        data = value.detach().reshape(-1).tolist()
        return {
            "__tensor__": list(value.shape), "dtype": str(value.dtype).removeprefix("torch."),
            "data": data
        }
    if isinstance(value, dict):
        return {"__dict__": [[key, plain(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"__tuple__": [plain(item) for item in value]}
    return [plain(item) for item in value] if isinstance(value, list) else value


def run(label, name, arguments, optimizer, params, scheduler):
    after, states = {}, {}
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(STEPS):
        for k, p in enumerate(params):
            if p is not None:
                p.grad = (p.detach() * 0.5).add_(noise(k, step))
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if step + 1 in KEEP:
            after[str(step + 1)] = [
                None if p is None else p.detach().reshape(-1).tolist() for p in params
            ]
        if step + 1 in KEEP[1:]:
            states[str(step + 1)] = plain(optimizer.state_dict())
            json.dumps(states)
    case = {"label": label, "name": name, **arguments, "params_after": after, "state_after": states}
    if hasattr(optimizer, "eval"):
        optimizer.eval()
        case["params_eval"] = [p.detach().reshape(-1).tolist() for p in params]
    return case


def two_groups(params, weight_decay):
    return [{"params": [params[0], params[2]], "weight_decay": weight_decay},
            {"params": [params[1]], "weight_decay": 0.0}]


cases = []
for label, name, optim_args, weight_decay, extra in CASES:
    args = TrainingArguments(output_dir="unused", optim=name, optim_args=optim_args,
                             weight_decay=weight_decay, learning_rate=0.05, report_to="none",
                             use_cpu=True, **extra)
    cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(args)
    if name == "stable_adamw":
        kwargs[
            # optimi chooses triton by mistake where it is installed and there is no GPU
            "triton"] = False
    params = [torch.nn.Parameter(start(k)) for k in range(len(SHAPES))]
    optimizer = cls(two_groups(params, weight_decay), **kwargs)
    scheduler = None if name.startswith("schedule_free") else get_scheduler(
        "linear", optimizer, 5, 40)
    arguments = {
        "args": {
            "learning_rate": 0.05, "weight_decay": weight_decay, "optim_args": optim_args, **extra
        }, "scheduled": scheduler is not None
    }
    cases.append(run(label, name, arguments, optimizer, params, scheduler))

for label, options in [
    ("adafactor_relative", {"scale_parameter": True, "relative_step": True, "warmup_init": False}),
    ("adafactor_warmup",
     {"scale_parameter": True, "relative_step": True, "warmup_init": True, "beta1": 0.9})
]:
    params = [torch.nn.Parameter(start(k)) for k in range(len(SHAPES))]
    optimizer = Adafactor(two_groups(params, 0.1), lr=None, **options)
    text = ",".join(f"{key}={value}" for key, value in options.items())
    cases.append(
        run(
            label, "adafactor", {
                "args": {"learning_rate": 0.05, "weight_decay": 0.1, "optim_args": text},
                "scheduled": False
            }, optimizer, params, None))

for label, options in [("muon", {}),
                       ("muon_rms",
                        {"adjust_lr_fn": "match_rms_adamw", "nesterov": False, "momentum": 0.9})]:
    params = [torch.nn.Parameter(start(0)), None, None]
    optimizer = torch.optim.Muon([params[0]], lr=0.05, weight_decay=0.1, **options)
    scheduler = get_scheduler("linear", optimizer, 5, 40)
    text = ",".join(f"{key}={value}" for key, value in options.items())
    cases.append(
        run(label, "muon", {
            "args": {"learning_rate": 0.05, "weight_decay": 0.1, "optim_args": text},
            "scheduled": True
        }, optimizer, params, scheduler))

document = {
    "versions": {
        "torch": torch.__version__, "transformers": transformers.__version__,
        "bitsandbytes": bitsandbytes.__version__,
        "schedulefree": importlib.metadata.version("schedulefree"),
        "torch-optimi": importlib.metadata.version("torch-optimi")
    },
    "note": "parameters start at cos(0.7 (i + 1) + k); gradients are 0.5 p + sin(0.3 t (i + 1) + "
            "k), t from 1",
    "shapes": SHAPES,
    "cases": cases,
}
pathlib.Path(__file__).with_name("optimizers.json").write_text(
    json.dumps(document, separators=(",", ":")) + "\n")
