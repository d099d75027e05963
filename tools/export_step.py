"""The steps of a model as functions of weights and batch, traced and compiled by AOTInductor.

tools/export_model.py uses it. A step takes the parameters, the persistent buffers, the batch, and,
where the model has a use for them, the number of items and a seed. The training step returns the
loss, the gradients, the buffers that it changed and, on request, the model's other outputs. The
forward step returns what the model returns in evaluation mode.
"""
import builtins
import contextlib
import ctypes
import os
import pathlib
import sys

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (DimDynamic, ShapeEnv, StatelessSymbolicContext)
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode

from export_speech import SpeechOperations

SEED_DISTANCE = 0x3C6EF372FE94F82B % 2**40  # between the seeds of two dropouts of one step


class ExportError(Exception):
    """The model cannot be exported; the text says why and what to do."""


def named_outputs(result):
    """What a model returned, as names and tensors. The loss is named so."""
    if isinstance(result, torch.Tensor):
        return {"loss": result}
    if hasattr(result, "items"):
        return {name: value for name, value in result.items() if isinstance(value, torch.Tensor)}
    if isinstance(result, (tuple, list)):
        names = ["loss", "logits"] + [f"output_{i}" for i in range(2, len(result))]
        return {n: value for n, value in zip(names, result) if isinstance(value, torch.Tensor)}
    raise ExportError(f"the model returns a {type(result).__name__}; expected a tensor, a tuple or "
                      "a dictionary with 'loss'")


class Chance(TorchFunctionMode):
    """What is left to chance in a step: dropout and stochastic depth (torch.rand) draw from a seed
    that is an input of the step.

    Without a seed there is no dropout. Layers are never left out as a whole (LayerDrop): a compiled
    step does the same work every time.
    """

    def __init__(self, seed=None):
        super().__init__()
        self.seed = seed
        self.count = 0

    def uniform(self, size):
        seed = self.seed + self.count * SEED_DISTANCE
        self.count += 1
        return torch.ops.prims.inductor_random(list(size), seed, "rand")

    def dropout(self, values, share):
        if share == 0.0 or self.seed is None:
            return values
        if share == 1.0:
            return values * 0.0
        mask = self.uniform(values.shape) >= share
        return values * mask.to(values.dtype) / (1.0 - share)

    def attention(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                  scale=None, enable_gqa=False):
        if enable_gqa:
            groups = query.size(-3) // key.size(-3)
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        scores = query @ key.transpose(-2, -1) * (query.size(-1)**-0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool,
                                   device=query.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        return self.dropout(scores.float().softmax(-1).to(query.dtype), dropout_p) @ value

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (torch.nn.functional.dropout, torch.dropout):
            given = dict(zip(("input", "p", "training"), args), **kwargs)
            is_on = given.get("training", given.get("train", True))
            return self.dropout(given["input"], given.get("p", 0.5)) if is_on else given["input"]
        if function is torch.nn.functional.scaled_dot_product_attention:
            given = dict(
                zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args),
                **kwargs)
            if given.get("dropout_p", 0.0) > 0.0:
                if self.seed is not None:
                    return self.attention(**given)
                return function(**{**given, "dropout_p": 0.0})
        if function is torch.rand and args in (([],), ((),)):
            return 1.0  # "if torch.rand([]) < self.layerdrop"
        if function is torch.arange and not (kwargs.get("dtype") or torch.float).is_floating_point:
            # XLNet's step of 1.0 would make the number of elements a float that is rounded.
            args = [int(a) if isinstance(a, float) and a.is_integer() else a for a in args]
        if function is torch.rand and args and self.seed is not None:
            size = args if isinstance(args[0], (int, torch.SymInt)) else args[0]
            return self.uniform(size).to(kwargs.get("dtype") or torch.get_default_dtype())
        return function(*args, **kwargs)


def leave_out_dropout(model):
    """Sets the rates of all dropouts to 0, those of stochastic depth among them."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or
                                             (name == "p" and "Dropout" in type(module).__name__)):
                setattr(module, name, 0.0)


def enable_checkpointing(model):
    """Recomputes activations. Not with dropout: `Chance` does not see what is recomputed."""
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})


class Steps:
    """The two steps of a model. `batch` is an example; its sizes are those the trace is made with.

    `extra` are further arguments of the model's forward, the same in every call.
    """

    def __init__(self, model, batch, extra=None, precision="float32", takes_items=False,
                 dropout=False, training_outputs=False):
        self.model, self.batch, self.extra = model, batch, dict(extra or {})
        self.precision, self.takes_items = precision, takes_items
        self.dropout, self.training_outputs = dropout, training_outputs
        self.parameters = dict(model.named_parameters())
        persistent = set(model.state_dict(keep_vars=True))
        self.buffers = {n: b for n, b in model.named_buffers() if n in persistent}
        self.trained = [n for n, p in self.parameters.items() if p.requires_grad]
        self.with_gradient = self.updated_buffers = None  # known when the step was traced
        self.output_names = {}  # of each step
        self.ranges = {}  # of whole numbers in the batch; known when a step was traced
        if not self.trained:
            raise ExportError("no parameter of the model requires a gradient")

    def example(self):
        """The inputs of a step, in their order."""
        device = next(iter(self.parameters.values())).device
        values = [t.detach().contiguous() for t in self.parameters.values()]
        values += [t.detach().contiguous() for t in self.buffers.values()]
        values += [t.to(device).contiguous() for t in self.batch.values()]
        if self.takes_items:
            values.append(torch.tensor(7, device=device))
        if self.dropout:
            values.append(torch.tensor(1234, device=device))
        return values

    def unpack(self, values):
        values = list(values)
        parts = []
        for names in (self.parameters, self.buffers, self.batch):
            parts.append(dict(zip(names, values)))
            values = values[len(names):]
        items = values.pop(0) if self.takes_items else None
        return *parts, items, values.pop(0) if self.dropout else None

    def call(self, parameters, buffers, batch, items, seed, then=lambda outputs: outputs):
        """Runs the model with these tensors, and then `then` while it still has them: activations
        that are recomputed in the backward pass need them, too."""
        if self.precision == "bf16_weights":
            parameters = {
                n: p.to(torch.bfloat16) if p.is_floating_point() else p
                for n, p in parameters.items()
            }
            labels = label_names(batch)
            batch = {
                n: t.to(torch.bfloat16) if t.is_floating_point() and n not in labels else t
                for n, t in batch.items()
            }
        kwargs = {**batch, **self.extra}
        if items is not None:
            kwargs["num_items_in_batch"] = items
        device = next(iter(parameters.values())).device.type
        cast = contextlib.nullcontext()
        if self.precision == "bf16":
            cast = torch.autocast(device, torch.bfloat16, cache_enabled=False)
        with _reparametrize_module(self.model, {**parameters, **buffers}, tie_weights=True):
            speech = SpeechOperations() if "input_values" in batch else contextlib.nullcontext()
            with cast, Chance(seed), speech:
                outputs = named_outputs(self.model(**kwargs))
            return then(outputs)

    def train(self, *values):
        """The training step."""
        self.model.train()
        parameters, buffers, batch, items, seed = self.unpack(values)
        with torch.enable_grad():
            leaves = {
                n: p.detach().requires_grad_(self.parameters[n].requires_grad)
                for n, p in parameters.items()
            }
            buffers = {n: b.clone() for n, b in buffers.items()}
            before = {n: t._version for n, t in {**leaves, **buffers}.items()}

            def differentiate(outputs):
                if "loss" not in outputs or outputs["loss"].numel() != 1:
                    raise ExportError(f"the model gives no scalar loss for {', '.join(batch)}; it "
                                      f"gives {', '.join(outputs)}")
                loss = outputs.pop("loss").reshape(())
                wanted = [leaves[n] for n in self.trained]
                return loss, outputs, torch.autograd.grad(loss, wanted, allow_unused=True)

            loss, outputs, found = self.call(leaves, buffers, batch, items, seed, differentiate)
        changed = [n for n, p in leaves.items() if p._version != before[n]]
        if changed:
            raise ExportError(f"the model's code changes its parameter {changed[0]} itself, which "
                              "only an optimizer may do")
        gradients = dict(zip(self.trained, found))
        self.with_gradient = [n for n in self.trained if gradients[n] is not None]
        self.updated_buffers = [n for n, b in buffers.items() if b._version != before[n]]
        others = outputs if self.training_outputs else {}
        self.output_names["train"] = list(others)
        return (loss.detach().float(),
                *[gradients[n].to(self.parameters[n].dtype) for n in self.with_gradient],
                *[buffers[n] for n in self.updated_buffers], *[v.detach() for v in others.values()])

    def forward(self, *values):
        """The forward step, in evaluation mode and without gradients."""
        self.model.eval()
        parameters, buffers, batch, items, _ = self.unpack(values)
        with torch.no_grad():
            outputs = self.call(parameters, buffers, batch, items, None)
        if "loss" in outputs:
            outputs = {"loss": outputs.pop("loss").reshape(()).float(), **outputs}
        self.output_names["forward"] = list(outputs)
        return tuple(outputs.values())


def label_names(batch):
    """The inputs that are labels, by transformers' rule for names."""
    return [n for n in batch if "label" in n or n in ("start_positions", "end_positions")]


@contextlib.contextmanager
def any_rows_in_convolutions():
    """While a step is traced on a CPU, convolutions are taken to use one kernel.

    Which one torch chooses depends on the number of rows (less than 16), and the choice would
    become a bound of the compiled step, though the compiler makes it anew.
    """
    choose = getattr(torch._C, "_select_conv_backend", None)
    kinds = getattr(torch._C, "_ConvBackend", None)
    if choose is None or not hasattr(kinds, "Mkldnn"):
        yield
        return

    def chosen(value, *args, **kwargs):
        return kinds.Mkldnn if value.device.type == "cpu" else choose(value, *args, **kwargs)

    torch._C._select_conv_backend = chosen
    try:
        yield
    finally:
        torch._C._select_conv_backend = choose


@contextlib.contextmanager
def scripts_as_python():
    """While a model's files are imported, what they hand to torch.jit.script stays Python.

    A script cannot look at a size without making it a number, which would become the only size
    that the step takes (DeBERTa's attention).
    """
    enabled = torch.jit._state._enabled
    before, enabled.enabled = enabled.enabled, False
    try:
        yield
    finally:
        enabled.enabled = before


@contextlib.contextmanager
def lengths_as_symbols(model):
    """While a step is traced, len(tensor) in the model's files is a symbol.

    Python's own makes a number of it, with the same effect as a script (CLIP's loss).
    """

    def length(value):
        is_tensor = isinstance(value, torch.Tensor) and value.dim() > 0
        return value.size(0) if is_tensor else builtins.len(value)

    names = {type(module).__module__ for module in model.modules()}
    files = [
        sys.modules[n] for n in names
        if n in sys.modules and n.split(".")[0] != "torch" and "len" not in vars(sys.modules[n])
    ]
    for file in files:
        file.len = length
    try:
        yield
    finally:
        for file in files:
            del file.len


# What gives the values of its first argument, in another order or shape.
REARRANGED = {
    getattr(torch.ops.aten, name).default
    for name in ("view", "_unsafe_view", "clone", "_to_copy", "detach", "alias", "unsqueeze",
                 "expand", "permute", "t", "constant_pad_nd")
} | {
    torch.ops.aten.slice.Tensor, torch.ops.aten.select.int, torch.ops.aten.transpose.int,
    torch.ops.aten.squeeze.dim, torch.ops.aten.squeeze.dims
}


def is_rearranged(node):
    return getattr(node, "op", None) == "call_function" and node.target in REARRANGED


def index_of(node):
    """The whole numbers that an operation of a trace uses as places or classes, how many of these
    there are, and the number that stands for none; (None, None, None) for others."""
    target = node.target if node.op == "call_function" else None
    if target is torch.ops.aten.embedding.default:
        return node.args[1], node.args[0].meta["val"].size(0), None
    if target in (torch.ops.aten.nll_loss_forward.default,
                  torch.ops.aten.nll_loss2d_forward.default):
        scores = node.args[0].meta["val"]
        return node.args[1], scores.size(min(1, scores.dim() - 1)), node.args[4]
    if target is torch.ops.gradus.ctc_loss_with_gradient.default:
        padded = node.args[1].args[0]  # clamp_min of SpeechOperations
        return padded, node.args[0].meta["val"].size(-1), -100
    return None, None, None


class SymbolicTrace:
    """Traces a step with sizes that are symbols.

    `axes` has for each input of the batch the names of its dimensions; a number is a fixed size.
    """

    def __init__(self, steps, which, axes):
        self.shapes = ShapeEnv()
        self.symbols = {}  # of each name of a dimension
        mode = FakeTensorMode(shape_env=self.shapes, allow_non_fake_inputs=True)
        fakes, self.dynamic = [], []
        example = steps.example()
        first = len(steps.parameters) + len(steps.buffers)
        named = dict(zip(range(first, first + len(steps.batch)), steps.batch))
        for i, tensor in enumerate(example):
            names = axes[named[i]] if i in named else [None] * tensor.dim()
            free = [isinstance(name, str) for name in names]
            context = StatelessSymbolicContext(
                dynamic_sizes=[DimDynamic.DUCK if f else DimDynamic.STATIC for f in free])
            fake = mode.from_tensor(tensor, static_shapes=not any(free),
                                    symbolic_context=context if any(free) else None)
            for size, name in zip(fake.shape, names):
                if isinstance(name, str):
                    self.symbols.setdefault(name, size)
            self.dynamic.append({d: n for d, n in enumerate(names) if isinstance(n, str)})
            fakes.append(fake)
        with (mode, enable_python_dispatcher(), any_rows_in_convolutions(),
              lengths_as_symbols(steps.model)):
            self.graph = make_fx(getattr(steps, which))(*fakes)

    def fixed(self):
        """The dimensions that the model fixed to the example's size, with the size."""
        found = {}
        for name, size in self.symbols.items():
            value = size if isinstance(size, int) else self.shapes.simplify(size.node.expr)
            if isinstance(value, int) or value.is_number:
                found[name] = int(value)
        return found

    def value_ranges(self, steps):
        """What whole numbers of the batch may be, where the model looks up rows with them or takes
        them for classes: from 0 to below "below", or "ignored".

        Another one is found inside a loop of the compiled step. Where that runs on several threads,
        nothing can catch the error, and the program ends.
        """
        inputs = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        names = dict(zip(inputs[len(steps.parameters) + len(steps.buffers):], steps.batch))
        ranges = {}
        for node in self.graph.graph.nodes:
            values, below, ignored = index_of(node)
            while values not in names and is_rearranged(values):
                values = values.args[0]
            if values not in names or not isinstance(below, int):
                continue
            known = ranges.setdefault(names[values], {"below": below, "ignored": ignored})
            known["below"] = min(known["below"], below)
        return ranges

    def holds_for(self, sizes):
        """The first condition of the trace that sizes of the dimensions break; None if none."""
        values = {s.node.expr: sizes[n] for n, s in self.symbols.items() if hasattr(s, "node")}
        for guard in self.shapes.guards:
            if guard.expr.subs(values) == False:  # noqa: E712, a sympy value
                return str(guard.expr)
        return None


class ScriptedStep(torch.nn.Module):
    """A step as TorchScript sees it: a module that takes the batch and gives a tuple."""

    def __init__(self, steps, which):
        super().__init__()
        self.model = steps.model.train(which == "train")
        self.names, self.extra, self.takes_items = list(steps.batch), steps.extra, steps.takes_items
        self.output_names = []

    def forward(self, *values):
        kwargs = {**dict(zip(self.names, values)), **self.extra}
        if self.takes_items:
            kwargs["num_items_in_batch"] = values[len(self.names)]
        with Chance():
            outputs = named_outputs(self.model(**kwargs))
        outputs = {"loss": outputs.pop("loss").reshape(()), **outputs}
        self.output_names = list(outputs)
        return tuple(outputs.values())


def script_step(steps, which, file):
    """Traces a step as TorchScript into `file`; returns the script and the names of its results."""
    step = ScriptedStep(steps, which)
    weights = len(steps.parameters) + len(steps.buffers)
    script = torch.jit.trace(step, tuple(steps.example()[weights:]), check_trace=False)
    torch.jit.save(script, os.fspath(file))
    return script, step


class _Traced(torch.nn.Module):

    def __init__(self, graph):
        super().__init__()
        self.graph_module = graph

    def forward(self, *values):
        return self.graph_module(*values)


def show_torch_symbols():
    """Lets packages find torch's functions: they are not linked with libtorch.so, which gradus does
    not have."""
    folder = pathlib.Path(torch.__file__).parent / "lib"
    for name in ("libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so"):
        if (folder / name).exists() and ("cuda" not in name or torch.cuda.is_available()):
            ctypes.CDLL(os.fspath(folder / name), mode=ctypes.RTLD_GLOBAL)


def export_program(trace, steps, shapes):
    """The traced step with these dynamic sizes."""
    example = tuple(steps.example())
    try:
        return torch.export.export(_Traced(trace.graph), example, dynamic_shapes=(shapes,),
                                   strict=False)
    except torch._dynamo.exc.UserError:
        # Conditions that torch cannot prove for all sizes, though they hold (XLNet's 2 n - 1 is no
        # multiple of n): the step checks them when it runs.
        return torch.export.export(_Traced(trace.graph), example, dynamic_shapes=(shapes,),
                                   strict=False, prefer_deferred_runtime_asserts_over_guards=True)


def compile_step(trace, steps, bounds, file, settings):
    """Compiles a traced step into the package `file`."""
    dims = {n: torch.export.Dim(n, min=low, max=high) for n, (low, high) in bounds.items()}
    shapes = tuple({d: dims[n] for d, n in axes.items()} or None for axes in trace.dynamic)
    known = torch._inductor.config.get_config_copy()
    with any_rows_in_convolutions():
        program = export_program(trace, steps, shapes)
        torch._inductor.aoti_compile_and_package(
            program, package_path=os.fspath(file),
            inductor_configs={k: v for k, v in settings.items() if k in known})
    show_torch_symbols()
    return torch._inductor.aoti_load_package(os.fspath(file), run_single_threaded=True)
