"""Writes optimizers.json: what torch, transformers and the packages behind HF's optimizer names do
in 30 steps, and optimizers_low_bit.json: the same for states of 8 and 4 bits.

Run with the peer's Python. The packages that the peer does not have are taken from a folder:
    pip install --no-deps --target DIR schedulefree==1.4.1 torch-optimi==0.3.3 \\
        bitsandbytes==0.50.2 galore-torch==1.0 apollo-torch==1.0.3 lomo-optim==0.1.1 \\
        grokadamw==0.1.2 torchao==0.18.0
    python make_fixtures.py --packages DIR --torchdistx FILE
FILE is src/python/torchdistx/optimizers/anyprecision_optimizer.py of github.com/pytorch/torchdistx,
which no registry has.
Gradients follow from the parameters, so that an error in one step shows in all later ones.
What is changed in the packages so that they run here at all is in peer_packages.py.
"""
import argparse
import json
import math
import pathlib
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--packages", required=True)
parser.add_argument("--torchdistx", required=True)
given = parser.parse_args()
sys.path.append(given.packages)

import importlib.metadata  # noqa: E402
import peer_packages  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import Trainer, TrainingArguments, get_scheduler  # noqa: E402
from transformers.optimization import Adafactor  # noqa: E402

torch.set_num_threads(1)
peer_packages.load_torchdistx(given.torchdistx)
peer_packages.patch()
PACKAGES = ("bitsandbytes", "schedulefree", "torch-optimi", "galore-torch", "apollo-torch",
            "lomo-optim", "grokadamw", "torchao")
SHAPES = [(3, 4), (7,), (2, 3, 5)]
LOW_BIT_SHAPES = [(65, 64), (7,), (64, 64)]
STEPS = 30

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
    ("paged_adamw_32bit", "paged_adamw_32bit", "", 0.1, {"adam_beta1": 0.8}),
    ("paged_lion_32bit", "paged_lion_32bit", "", 0.1, {}),
    ("paged_ademamix_32bit", "paged_ademamix_32bit", "t_alpha=20", 0.1, {}),
    ("rmsprop_bnb", "rmsprop_bnb", "", 0.1, {}),
    ("rmsprop_bnb_32bit", "rmsprop_bnb_32bit", "", 0.0, {}),
    ("adamw_anyprecision", "adamw_anyprecision", "", 0.1, {}),
    ("adamw_anyprecision_bf16", "adamw_anyprecision",
     "use_kahan_summation=True,momentum_dtype=bfloat16,variance_dtype=bfloat16", 0.1,
     {"adam_beta2": 0.95}),
    ("grokadamw", "grokadamw", "", 0.1, {}),
    ("grokadamw_settings", "grokadamw", "alpha_init=0.9,lamb=1.5,gamma=0.2,gradient_clipping=0",
     0.0, {}),
]

# The same with few bits. Of each only the parameters in the last column are trained.
LOW_BIT_CASES = [
    ("adamw_bnb_8bit", "adamw_bnb_8bit", "", 0.1, {}, (0, 1)),
    ("paged_lion_8bit", "paged_lion_8bit", "", 0.1, {"adam_beta2": 0.99}, (0, 1)),
    ("ademamix_8bit", "ademamix_8bit", "t_alpha=20,t_beta3=20", 0.1, {}, (0, 1)),
    ("rmsprop_bnb_8bit", "rmsprop_bnb_8bit", "", 0.1, {}, (0, 1)),
    ("adamw_torch_8bit", "adamw_torch_8bit", "", 0.1, {}, (1, 2)),
    ("adamw_torch_4bit", "adamw_torch_4bit", "", 0.1, {}, (1, 2)),
]

# The layer of the first parameter is the target; label, name, optim_args, other arguments
TARGET_CASES = [
    ("galore_adamw", "galore_adamw", "rank=2,update_proj_gap=7", {}),
    ("galore_adamw_reverse", "galore_adamw", "rank=2,scale=0.5,proj_type=reverse_std", {}),
    ("galore_adamw_full", "galore_adamw", "rank=2,update_proj_gap=20,proj_type=full", {}),
    ("galore_adamw_8bit", "galore_adamw_8bit", "rank=2,update_proj_gap=7", {}),
    ("galore_adafactor", "galore_adafactor", "rank=2,update_proj_gap=7", {}),
    ("apollo_adamw", "apollo_adamw", "rank=2,update_proj_gap=7", {"adam_beta2": 0.95}),
    ("apollo_adamw_right", "apollo_adamw",
     "rank=3,update_proj_gap=4,scale=4,scale_type=tensor,proj_type=right", {}),
    ("apollo_adamw_svd", "apollo_adamw", "rank=2,proj=svd", {"adam_epsilon": 1e-6}),
]


def start(shape, k):
    values = [math.cos(0.7 * (i + 1) + k) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def noise(shape, k, step):
    values = [math.sin(0.3 * (step + 1) * (i + 1) + k) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def parameters(shapes, wanted):
    return [
        torch.nn.Parameter(start(shape, k)) if k in wanted else None
        for k, shape in enumerate(shapes)
    ]


def numbers(tensor):
    data = tensor.detach().reshape(-1).tolist()
    return data if tensor.numel() < 256 or data[0].__class__ is int else [
        float(f"{value:.9g}") for value in data
    ]


def plain(value):
    if isinstance(value, torch.Tensor):
        return {
            "__tensor__": list(value.shape), "dtype": str(value.dtype).removeprefix("torch."),
            "data": numbers(value)
        }
    if isinstance(value, dict):
        return {"__dict__": [[key, plain(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"__tuple__": [plain(item) for item in value]}
    if isinstance(value, torch.dtype):
        return str(value)
    return [plain(item) for item in value] if isinstance(value, list) else value


def run(label, name, arguments, optimizer, params, scheduler, shapes=SHAPES, keep=(1, 10, 30),
        state_of=lambda optimizer: optimizer.state_dict()):
    after, states = {}, {}
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(STEPS):
        for k, p in enumerate(params):
            if p is not None:
                p.grad = (p.detach() * 0.5).add_(noise(shapes[k], k, step))
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if step + 1 in keep:
            after[str(step + 1)] = [None if p is None else numbers(p) for p in params]
        if step + 1 in (10, 30):
            states[str(step + 1)] = plain(state_of(optimizer))
            json.dumps(states)
    case = {"label": label, "name": name, **arguments, "params_after": after, "state_after": states}
    if hasattr(optimizer, "eval"):
        optimizer.eval()
        case["params_eval"] = [p.detach().reshape(-1).tolist() for p in params]
    return case


def described(optim_args, weight_decay, scheduled, extra, **more):
    return {
        "args": {
            "learning_rate": 0.05, "weight_decay": weight_decay, "optim_args": optim_args, **extra
        }, "scheduled": scheduled, **more
    }


def training_arguments(name, optim_args, weight_decay, extra, **more):
    return TrainingArguments(output_dir="unused", optim=name, optim_args=optim_args,
                             weight_decay=weight_decay, learning_rate=0.05, report_to="none",
                             use_cpu=True, **extra, **more)


def two_groups(params, weight_decay):
    return [{
        "params": [p for p in (params[0], params[2]) if p is not None], "weight_decay": weight_decay
    }, {"params": [params[1]], "weight_decay": 0.0}]


def named_case(label, name, optim_args, weight_decay, extra, shapes=SHAPES, wanted=(0, 1, 2),
               keep=(1, 10, 30)):
    args = training_arguments(name, optim_args, weight_decay, extra)
    cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(args)
    if name == "stable_adamw":
        # optimi chooses triton by mistake where it is installed and there is no GPU
        kwargs["triton"] = False
    params = parameters(shapes, wanted)
    optimizer = cls(two_groups(params, weight_decay), **kwargs)
    scheduler = None if name.startswith("schedule_free") else get_scheduler(
        "linear", optimizer, 5, 40)
    how = {}
    if name == "grokadamw":
        how["state_of"] = peer_packages.grokadamw_state
    if name in ("adamw_torch_8bit", "adamw_torch_4bit"):
        how["state_of"] = peer_packages.torchao_state
    return run(label, name, described(optim_args, weight_decay, scheduler is not None, extra),
               optimizer, params, scheduler, shapes, keep, **how)


class WithTarget(torch.nn.Module):
    """Named parameters: rest1 and rest2, which are no linear layer, then layer.weight."""
    def __init__(self, params):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3, bias=False)
        self.layer.weight = params[0]
        self.rest1, self.rest2 = params[1], params[2]


def target_case(label, name, optim_args, extra):
    params = parameters(SHAPES, (0, 1, 2))
    args = training_arguments(name, optim_args, 0.1, extra, optim_target_modules=["lay"])
    cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(args, WithTarget(params))
    optimizer = cls(kwargs.pop("params"), **kwargs)
    scheduler = get_scheduler("linear", optimizer, 5, 40)
    return run(label, name, described(optim_args, 0.1, True, extra, target="lay"), optimizer,
               params, scheduler, state_of=peer_packages.low_rank_state)


def lomo_case(name, wanted):
    params = parameters(SHAPES, wanted)
    model = WithTarget(params)
    cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(training_arguments(name, "", 0.1, {}), model)
    inner = cls(kwargs.pop("model"), **kwargs)
    scheduler = get_scheduler("linear", inner, 5, 40)
    stepped = peer_packages.SteppedLomo(inner, [p for _, p in model.named_parameters()])
    return run(name, name, described("", 0.1, True, {}, target=""), stepped, params, scheduler)


def adafactor_case(label, options):
    params = parameters(SHAPES, (0, 1, 2))
    optimizer = Adafactor(two_groups(params, 0.1), lr=None, **options)
    text = ",".join(f"{key}={value}" for key, value in options.items())
    return run(label, "adafactor", described(text, 0.1, False, {}), optimizer, params, None)


def muon_case(label, options):
    params = parameters(SHAPES, (0,))
    optimizer = torch.optim.Muon([params[0]], lr=0.05, weight_decay=0.1, **options)
    scheduler = get_scheduler("linear", optimizer, 5, 40)
    text = ",".join(f"{key}={value}" for key, value in options.items())
    return run(label, "muon", described(text, 0.1, True, {}), optimizer, params, scheduler)


def write(file, shapes, cases):
    document = {
        "versions": {
            "torch": torch.__version__, "transformers": transformers.__version__,
            **{package: importlib.metadata.version(package) for package in PACKAGES}
        },
        "note": "parameters start at cos(0.7 (i + 1) + k); gradients are 0.5 p + sin(0.3 t (i + 1) "
                "+ k), t from 1",
        "shapes": shapes,
        "cases": cases,
    }
    pathlib.Path(__file__).with_name(file).write_text(
        json.dumps(document, separators=(",", ":")) + "\n")


write("optimizers.json", SHAPES,
      [named_case(*case) for case in CASES] + [target_case(*case) for case in TARGET_CASES] + [
          lomo_case("lomo", (0, 1, 2)),
          lomo_case("adalomo", (0, 1)),
          adafactor_case("adafactor_relative",
                         {"scale_parameter": True, "relative_step": True, "warmup_init": False}),
          adafactor_case(
              "adafactor_warmup",
              {"scale_parameter": True, "relative_step": True, "warmup_init": True, "beta1": 0.9}),
          muon_case("muon", {}),
          muon_case("muon_rms",
                    {"adjust_lr_fn": "match_rms_adamw", "nesterov": False, "momentum": 0.9}),
      ])
write("optimizers_low_bit.json", LOW_BIT_SHAPES,
      [named_case(*case[:5], LOW_BIT_SHAPES, case[5], (10, 30)) for case in LOW_BIT_CASES])
