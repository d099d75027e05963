"""The packages behind the optimizer names of transformers, made to run on a CPU today, and their
states in the layout of gradus where the package keeps them elsewhere.

Changed are only things that keep the package from running:
- galore-torch passes `percentile_clipping` and `block_wise` to a constructor of bitsandbytes that
  no longer has them (they would land in other arguments), and waits for a GPU after each parameter;
- lomo-optim puts its states on a GPU;
- torchao compiles its step: the same operations run one by one here;
- torchdistx asks for a GPU when bfloat16 states are wanted, and for a module of setuptools.
"""
import importlib.util
import sys
import types

import torch


def load_torchdistx(file):
    """Makes `torchdistx.optimizers` importable from the one file that is needed."""
    sys.modules.setdefault("pkg_resources", types.ModuleType("pkg_resources"))
    import packaging
    sys.modules["pkg_resources"].packaging = packaging
    spec = importlib.util.spec_from_file_location("torchdistx.optimizers", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.AnyPrecisionAdamW.verify_bfloat_support = lambda self: (True, True)
    sys.modules["torchdistx"] = types.ModuleType("torchdistx")
    sys.modules["torchdistx.optimizers"] = module


def patch():
    """Changes the packages that are installed."""
    import galore_torch.adamw8bit as galore
    from bitsandbytes.optim.optimizer import Optimizer2State

    def galore_init(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        Optimizer2State.__init__(self, "adam", params, lr, betas, eps, weight_decay, 8)

    galore.AdamW8bit.__init__ = galore_init
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_: self
    torch.compile = lambda function, **_: function


class SteppedLomo:
    """Lomo and AdaLomo with a step of their own: their backward pass over a loss that has the
    gradients in question."""
    def __init__(self, inner, params):
        self.inner, self.params = inner, params
        self.rms = [None] * len(params)

    @property
    def param_groups(self):
        return self.inner.param_groups

    def step(self):
        grads = [p.grad for p in self.params]
        for p in self.params:
            p.grad = None
        self.rms = [torch.norm(p.detach(), 2.0) / p.numel()**0.5 for p in self.params]
        loss = sum((p * grad).sum() for p, grad in zip(self.params, grads))
        self.inner.fused_backward(loss, self.inner.param_groups[0]["lr"])

    def state_dict(self):
        state = self.inner.state_dict()
        if hasattr(self.inner, "step_num"):  # AdaLomo; its files have no states
            for number, (name, _) in enumerate(self.inner.model.named_parameters()):
                entry = {"step": self.inner.step_num}
                for key in ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"):
                    if name in getattr(self.inner, key):
                        entry[key] = getattr(self.inner, key)[name]
                state["state"][number] = {**entry, "RMS": self.rms[number]}
        else:
            for group in state["param_groups"]:  # gradus always writes the group's weight decay
                rest = dict(group)
                group.clear()
                group.update({"weight_decay": 0.0, **rest})
        return state


def copied_state(optimizer):
    """Its state, with entries that can be changed."""
    state = optimizer.state_dict()
    state["state"] = {number: dict(entry) for number, entry in state["state"].items()}
    return state


def grokadamw_state(optimizer):
    """Its states lie in the groups, under keys that nothing can find again."""
    state = optimizer.state_dict()
    number = 0
    for group in state["param_groups"]:
        entries = list(group.pop("state").values())
        for entry in entries:
            state["state"][number] = dict(entry)
            number += 1
    return state


def low_rank_state(optimizer):
    """The projector, an object of the package, becomes its matrices."""
    state = copied_state(optimizer)
    for entry in state["state"].values():
        projector = entry.pop("projector", None)
        if projector is None:
            continue
        inner = entry.get("__bnb_optimizer_quant_state__", entry)
        matrix = projector.ortho_matrix
        left, right = (matrix if isinstance(matrix, list) else
                       (None, matrix) if is_right(projector, matrix) else (matrix, None))
        for key, value in (("ortho_left", left), ("ortho_right", right)):
            if value is not None:
                inner[key] = value
    return state


def is_right(projector, matrix):
    return {"right": True, "left": False}.get(projector.proj_type, matrix.shape[0]
                                              <= matrix.shape[1])


def torchao_state(optimizer):
    """States of few bits, tensors of a type of their own there, become codes and scales."""
    state = copied_state(optimizer)
    for entry in state["state"].values():
        packed = {key: value for key, value in entry.items() if hasattr(value, "codes")}
        for key, value in packed.items():
            del entry[key]
            entry[key + ".codes"], entry[key + ".scale"] = value.codes, value.scale
    for group in state["param_groups"]:
        group["initial_lr"] = float(group["initial_lr"])
        group["lr"] = group["lr"].double()
        numbers = group.pop("params")
        group.update({
            "block_size": optimizer.block_size,
            "bf16_stochastic_round": bool(optimizer.bf16_stochastic_round), "params": numbers
        })
    return state
