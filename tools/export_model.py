#!/usr/bin/env python3
"""Exports a PyTorch model once, so that gradus trains it without Python.

  tools/export_model.py MODEL_FOLDER EXPORTED_DIR --auto_class CausalLM
  tools/export_model.py my_models:make_model EXPORTED_DIR

MODEL_FOLDER is a Hugging Face folder with weights (with --random_weights: with a config.json).
my_models:make_model names a function of a module on the Python path that returns the model and an
example batch (a dictionary of tensors); a third value may hold "axes" (for each input the names of
its dimensions, numbers for fixed sizes), "extra" (further arguments of forward) and "task".

Needs torch of the version that gradus was built with, and a C++ compiler. EXPORTED_DIR then holds
the compiled training step and forward step, the weights (model.safetensors), config.json, the
tokenizer's files and exported.json, which describes them. Run it again with another --device to add
packages for that device. A package is machine code: use only folders that you trust as you would
trust a program. docs/user/any-model.md has more.
"""
import argparse
import importlib
import inspect
import json
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

FORMAT = 1
# The head of each Auto class that gradus has a task for.
TASKS = {
    "CausalLM": "causal_lm", "MaskedLM": "masked_lm",
    "SequenceClassification": "sequence_classification",
    "TokenClassification": "token_classification", "QuestionAnswering": "question_answering",
    "Seq2SeqLM": "seq2seq_lm", "ImageClassification": "image_classification", "CTC": "ctc"
}
# What stands for an input that a batch lacks.
FILLS = {"attention_mask": 1, "decoder_attention_mask": 1, "token_type_ids": 0, "labels": -100}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                   "added_tokens.json", "vocab.json", "merges.txt", "preprocessor_config.json",
                   "chat_template.jinja", "generation_config.json")


def read_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("source", help="a Hugging Face folder, or module:function")
    add("output", help="the folder to write")
    add("--auto_class", help="the Auto class, for example CausalLM or AutoModelForMaskedLM")
    add("--random_weights", action="store_true", help="fresh weights from config.json")
    add("--num_labels", type=int, help="labels of a classifier; default: the config's")
    add("--adapter", help="a peft folder; the model is exported with this adapter, which trains")
    add("--device", default="cpu", help="cpu or cuda; several with commas")
    add("--precision", default="float32", choices=["float32", "bf16", "bf16_weights"],
        help="float32; bf16: autocast; bf16_weights: computes with bfloat16 weights. Weights in "
        "files and gradients are float32 in all three.")
    add("--batch", type=int, default=4, help="rows of the example batch")
    add("--length", type=int, help="tokens of the example batch (24), or samples of sound (16000)")
    add("--max_batch", type=int, default=256, help="the most rows of a batch")
    add("--max_length", type=int,
        help="the most tokens of a row; default: the model's positions, 30 seconds of sound")
    add("--static", action="store_true", help="only batches of exactly the example's sizes")
    add("--attention_mask", action="store_true",
        help="an attention_mask for a causal model, too: needed for padding on the left")
    add("--dropout", action="store_true", help="keep dropout, drawn from a seed per step")
    add("--gradient_checkpointing", action="store_true", help="recompute activations")
    add("--training_outputs", action="store_true", help="logits of the training step, too")
    add("--steps", default="train,forward", help="what to compile: train,forward or one of them")
    add("--attn_implementation", help="as in transformers: sdpa or eager")
    add("--torchscript", action="store_true",
        help="TorchScript in place of compiled steps (gradus::ScriptedModel), for models that "
        "cannot be compiled; float32, without dropout")
    add("--max_autotune", action="store_true", help="let the compiler try more kernels")
    add("--products", default="auto", choices=["auto", "torch", "onednn"],
        help="what multiplies float32 matrices on a CPU: at::mm (MKL) or oneDNN; auto: the faster "
        "one on this processor")
    add("--seed", type=int, default=0, help="of --random_weights")
    add("--trust_remote_code", action="store_true", help="as in transformers")
    options = parser.parse_args(arguments)
    options.command = "tools/export_model.py " + shlex.join(arguments or sys.argv[1:])
    options.devices = options.device.split(",")
    options.which = options.steps.split(",")
    if options.dropout and options.gradient_checkpointing:
        parser.error("--dropout does not go with --gradient_checkpointing: what is recomputed "
                     "would draw other masks")
    if options.torchscript and (options.dropout or options.precision != "float32" or
                                options.device != "cpu"):
        parser.error("--torchscript goes without --dropout, --precision and --device")
    if set(options.which) - {"train", "forward"}:
        parser.error("--steps takes train and forward")
    return options


options = None if __name__ != "__main__" else read_options()  # before the seconds torch takes

import torch  # noqa: E402

from export_batch import (  # noqa: E402
    example_batch, forward_names, largest_sizes, leave_out_masks)
from export_check import difference, repeats  # noqa: E402
from export_step import (  # noqa: E402
    ExportError, Steps, SymbolicTrace, compile_step, enable_checkpointing, label_names,
    leave_out_dropout, script_step, scripts_as_python)
from export_products import with_products  # noqa: E402


class Source:
    """A model with an example batch: what is to be exported."""

    def __init__(self, model, batch, axes=None, extra=None, task=None):
        self.model, self.batch, self.extra = model, batch, dict(extra or {})
        self.axes = axes or default_axes(batch)
        self.task = task
        self.config = getattr(model, "config", None)


def default_axes(batch):
    rows = next(iter(batch.values())).size(0)
    axes = {}
    for name, value in batch.items():
        names = list(value.shape)
        if names and names[0] == rows:
            names[0] = "batch"
            if len(names) == 2 and not value.is_floating_point():
                names[1] = "length"
        axes[name] = names
    return axes


def auto_name(name):
    return name.removeprefix("AutoModelFor")


def load_hugging_face(options):
    import transformers
    folder = pathlib.Path(options.source)
    if not options.auto_class:
        raise ExportError("a Hugging Face folder needs --auto_class, for example CausalLM")
    name = auto_name(options.auto_class)
    auto = getattr(transformers, "AutoModelFor" + name, None) or getattr(
        transformers, options.auto_class, None)
    if auto is None:
        raise ExportError(f"transformers has no AutoModelFor{name}")
    config = transformers.AutoConfig.from_pretrained(
        folder, trust_remote_code=options.trust_remote_code)
    if options.num_labels:
        config.num_labels = options.num_labels
    if getattr(config, "rescale_every", 0):
        config.rescale_every = 0  # RWKV would multiply its weights between training and evaluation
    kwargs = {"trust_remote_code": options.trust_remote_code}
    if options.attn_implementation:
        kwargs["attn_implementation"] = options.attn_implementation
    if options.random_weights:
        torch.manual_seed(options.seed)
        model = auto.from_config(config, **kwargs)
    else:
        model = auto.from_pretrained(folder, config=config, dtype=torch.float32, **kwargs)
    if options.adapter:
        import peft
        model = peft.PeftModel.from_pretrained(model, options.adapter, is_trainable=True)
    model.float()
    extra = {"use_cache": False} if "use_cache" in forward_names(model) else {}
    batch, axes = example_batch(options, name, model)
    return Source(model, batch, axes, extra, TASKS.get(name))


def load_function(options):
    module, function = options.source.split(":")
    sys.path.insert(0, os.getcwd())
    made = getattr(importlib.import_module(module), function)()
    model, batch, more = (*made, {}) if len(made) == 2 else made
    return Source(model, batch, more.get("axes"), more.get("extra"), more.get("task"))


def load(options):
    """The model that the options name, with its example batch."""
    with scripts_as_python():
        source = (load_function if ":" in options.source else load_hugging_face)(options)
    if not options.dropout:
        leave_out_dropout(source.model)
    leave_out_masks(source.model)
    return source


def accepts_loss_kwargs(model):
    """Whether transformers' Trainer passes num_items_in_batch to the model."""
    if hasattr(model, "accepts_loss_kwargs"):
        return bool(model.accepts_loss_kwargs)
    kinds = [p.kind for p in forward_names(model).values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def items_rule(source):
    """Whether the loss divides by num_items_in_batch, and whether its count skips first labels."""
    model, labels = source.model, source.batch.get("labels")
    if labels is None or not accepts_loss_kwargs(model):
        return False, False

    def loss(**more):
        with torch.no_grad():
            return model(**source.batch, **source.extra, **more).loss.item()

    model.eval()
    shifted = labels[..., 1:].ne(-100).sum() if labels.dim() > 1 else labels.ne(-100).sum()
    try:
        plain, divided = loss(), loss(num_items_in_batch=shifted)
        halved = loss(num_items_in_batch=2 * shifted)
        whole = loss(num_items_in_batch=labels.ne(-100).sum())
    except Exception:  # a forward with **kwargs that takes no such argument
        return False, False
    if abs(2 * halved - divided) > 1e-4 * abs(divided):
        return False, False
    if abs(plain - divided) <= 1e-4 * abs(plain):
        return True, labels.dim() > 1
    return abs(plain - whole) <= 1e-4 * abs(plain), False


def counts_shifted_labels(model):
    """transformers' rule for how its Trainer counts the items."""
    try:
        from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss
    except ImportError:
        return False
    return (LOSS_MAPPING.get(getattr(model, "loss_type", None)) is ForCausalLMLoss and
            not getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def bounds_of(options, source):
    """The least and the largest size of each named dimension."""
    limits, bounds = largest_sizes(options, source.config, source.batch), {}
    for name, value in source.batch.items():
        for axis, size in zip(source.axes[name], value.shape):
            if isinstance(axis, str):
                bounds[axis] = (1 if axis == "batch" else 2, limits.get(axis, limits["length"]))
                if size > bounds[axis][1]:
                    raise ExportError(f"the example has {size} as {axis}, above the bound of "
                                      f"{bounds[axis][1]}; give --batch, --length or --max_length")
    return bounds


def resized(source, sizes):
    """The example with other sizes of its named dimensions."""
    batch = {}
    for name, value in source.batch.items():
        for d, axis in enumerate(source.axes[name]):
            if isinstance(axis, str) and sizes.get(axis, value.size(d)) != value.size(d):
                index = torch.arange(sizes[axis]) % value.size(d)
                value = value.index_select(d, index.to(value.device))
        batch[name] = value.contiguous()
    return batch


def make_step(source, steps, which, bounds, file, settings, tell):
    """Traces, compiles and tries one step. Returns the bounds it holds for."""
    trace = SymbolicTrace(steps, which, source.axes)
    while trace.fixed():  # a loop over the length, for example: the graph has its turns in it
        for name, size in trace.fixed().items():
            tell(f"the model's code fixes {name} to the example's size: batches must have {size}")
            bounds.pop(name)
            source.axes = {
                n: [size if axis == name else axis for axis in axes]
                for n, axes in source.axes.items()
            }
        trace = SymbolicTrace(steps, which, source.axes)
    steps.ranges |= trace.value_ranges(steps)
    example = sizes_of(source)
    for name, bound in bounds.items():
        bounds[name] = narrowed(trace, example, name, bound)
        if bounds[name] != bound:
            tell(f"the model's code limits {name} to {bounds[name][0]} to {bounds[name][1]}")
    tell(f"traced the {which} step; compiling")
    runner = compile_step(trace, steps, bounds, file, settings)
    random = steps.dropout and which == "train"
    tries = [example]
    if bounds:
        tries.append({n: min(high, example[n] + 3) for n, (_, high) in bounds.items()})
        tries.append({**example, **({"batch": 1} if "batch" in bounds else {})})
    if random and not repeats(steps, runner):
        raise ExportError("the compiled step gives other results for the same seed, or the same "
                          "for another")
    for sizes in tries:
        try:
            found = (0.0, 0.0) if random else difference(steps, which, runner,
                                                         resized(source, sizes))
        except (ExportError, RuntimeError) as error:
            if sizes.get("batch") != 1 or sizes is example:
                raise
            tell(f"a single row does not work ({str(error).splitlines()[0]}): at least 2 rows")
            bounds["batch"] = (2, bounds["batch"][1])
            continue
        worst, allowed = found
        of_what = "Python" if steps.precision == "float32" else "float32"
        tell(f"{which} step with {sizes}: relative difference from {of_what} {worst:.1e} (at most "
             f"{allowed:.1e})")
        if worst > allowed:
            raise ExportError(f"the compiled {which} step differs from {of_what} by {worst:.1e} "
                              f"for {sizes}, at most {allowed:.1e} is allowed")
    return bounds


def make_script(source, steps, which, bounds, file, tell):
    """Traces and tries one step as TorchScript. Returns the names of its results."""
    script, step = script_step(steps, which, file)
    for sizes in ({}, {n: min(high, sizes_of(source)[n] + 3) for n, (_, high) in bounds.items()}):
        before, steps.batch = steps.batch, resized(source, sizes)
        try:
            values = steps.example()[len(steps.parameters) + len(steps.buffers):]
            with torch.no_grad():
                worst = max(
                    (a.float() - b.float()).abs().max().item()
                    for a, b in zip(script(*values), step(*values)))
        finally:
            steps.batch = before
        tell(f"{which} script with {sizes or 'the example'}: difference from Python {worst:.1e}")
        if not worst <= 1e-4:
            raise ExportError(f"the {which} script differs from Python by {worst:.1e} for {sizes}; "
                              "--static allows the example's sizes only")
    return step.output_names


def narrowed(trace, example, name, bound):
    """The part of a bound, around the example, in which the conditions of a trace hold."""

    def holds(size):
        return trace.holds_for({**example, name: size}) is None

    low, high = bound
    while low < example[name] and not holds(low):
        low += 1
    reached = example[name]
    while reached < high:  # the conditions are bounds: halve the distance
        middle = (reached + high + 1) // 2
        if holds(middle):
            reached = middle
        else:
            high = middle - 1
    return low, high


def sizes_of(source):
    return {
        axis: size for name, value in source.batch.items()
        for axis, size in zip(source.axes[name], value.shape) if isinstance(axis, str)
    }


def describe_file(file):
    data = file.read_bytes()
    return {"file": file.name, "bytes": len(data), "checksum": f"crc32:{zlib.crc32(data):08x}"}


def describe(options, source, steps, bounds, rule):
    """exported.json without its packages."""
    model = source.model
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    unique = steps.parameters
    first = {id(p): n for n, p in unique.items()}
    tied = {
        n: first[id(p)]
        for n, p in model.named_parameters(remove_duplicate=False) if first[id(p)] != n
    }
    labels = label_names(source.batch)
    inputs = [{
        "name": n, "dtype": str(v.dtype).removeprefix("torch."), "shape": source.axes[n],
        "is_label": n in labels, "fill": FILLS.get(n, 0 if n in labels else None),
        "values": steps.ranges.get(n)
    } for n, v in source.batch.items()]
    return {
        "format": FORMAT, "class_name": type(inner).__name__, "task": source.task,
        "command": options.command, "inputs": inputs,
        "dims": {n: {"min": low, "max": high} for n, (low, high) in bounds.items()},
        "parameters": [{
            "name": n, "shape": list(p.shape), "dtype": str(p.dtype).removeprefix("torch."),
            "trains": p.requires_grad
        } for n, p in unique.items()],
        "buffers": [{
            "name": n, "shape": list(b.shape), "dtype": str(b.dtype).removeprefix("torch.")
        } for n, b in steps.buffers.items()],
        "tied": tied,
        "layer_norms": [n for n, m in model.named_modules() if isinstance(m, torch.nn.LayerNorm)],
        "embeddings": [
            n + ".weight" for n, m in model.named_modules() if isinstance(m, torch.nn.Embedding)
        ],
        "accepts_loss_kwargs": accepts_loss_kwargs(model), "takes_items": rule[0],
        "shifts_labels": rule[1] or source.task == "causal_lm",
        "counts_shifted_labels": counts_shifted_labels(inner),
        "main_input_name": getattr(model, "main_input_name", next(iter(source.batch))),
        "ignored_outputs": list(
            getattr(source.config, "keys_to_ignore_at_inference", None) or ["past_key_values"]),
        "dropout": options.dropout, "gradient_checkpointing": options.gradient_checkpointing,
        "precision": options.precision
    }


def save_weights(source, steps, folder):
    from safetensors.torch import save_file
    tensors = {**steps.parameters, **steps.buffers}
    save_file({n: t.detach().cpu().contiguous() for n, t in tensors.items()},
              folder / "model.safetensors", {"format": "pt"})
    if source.config is not None and hasattr(source.config, "to_dict"):
        config = source.config.to_dict()
        config["architectures"] = [type(source.model).__name__]
        config["dtype"] = "float32"
    else:
        config = dict(source.config) if isinstance(source.config, dict) else {}
        config.setdefault("model_type", "exported")
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")


def settings_for(options, device):
    settings = {"aot_inductor.link_libtorch": False}
    if options.max_autotune:
        settings["max_autotune"] = True
    if options.gradient_checkpointing:  # what is recomputed stays where the backward pass needs it
        settings["reorder_for_locality"] = False
    if device == "cuda":
        settings["aot_inductor.use_runtime_constant_folding"] = False
    return settings


def export(options, tell=lambda text: print(text, flush=True)):
    """Does what the options say; returns the content of exported.json."""
    output = pathlib.Path(options.output)
    source = load(options)
    if options.gradient_checkpointing:
        enable_checkpointing(source.model)
    if options.static:
        source.axes = {n: list(v.shape) for n, v in source.batch.items()}
    rule = items_rule(source)
    bounds = bounds_of(options, source)
    made, packages = {}, []
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output, prefix=".tmp-export-") as work:
        work = pathlib.Path(work)
        for device in options.devices:
            source.model.to(device)
            source.batch = {n: v.to(device) for n, v in source.batch.items()}
            steps = Steps(source.model, source.batch, source.extra, options.precision, rule[0],
                          options.dropout, options.training_outputs)
            package = {
                "device": device, "torch_version": torch.__version__.split("+")[0],
                "cpu_capability": torch.backends.cpu.get_cpu_capability() if device == "cpu" else
                                  None
            }
            if options.torchscript:
                package["cpu_capability"] = None
                for which in ("train", "forward"):
                    file = work / f"{which}.pt"
                    names = make_script(source, steps, which, bounds, file, tell)
                    package[which] = dict(describe_file(file), outputs=names, gradients=[],
                                          buffers=[])
                packages.append(package)
                continue
            for which in options.which:
                file = work / f"{which}-{device}.pt2"
                products = options.products if device == "cpu" else "torch"
                bounds = with_products(
                    products, lambda: make_step(source, steps, which, bounds, file,
                                                settings_for(options, device), tell), tell)
                package[which] = describe_file(file)
                package[which]["outputs"] = steps.output_names[which]
                if which == "train":
                    package["train"]["gradients"] = steps.with_gradient
                    package["train"]["buffers"] = steps.updated_buffers
            packages.append(package)
        made = describe(options, source, steps, bounds, rule)
        manifest = "scripted.json" if options.torchscript else "exported.json"
        made["packages"] = packages
        if not options.torchscript:
            made["packages"] += kept_packages(output, made, options.devices)
        save_weights(source, steps, work)
        (work / manifest).write_text(json.dumps(made, indent=1) + "\n")
        if ":" not in options.source:
            for name in TOKENIZER_FILES:
                if (pathlib.Path(options.source) / name).exists():
                    shutil.copyfile(pathlib.Path(options.source) / name, work / name)
        for file in sorted(work.iterdir(), key=lambda f: f.name == manifest):
            os.replace(file, output / file.name)
    tell(f"{output}: {made['class_name']}, {sum(p.numel() for p in steps.parameters.values()):,} "
         f"parameters, for {', '.join(p['device'] for p in made['packages'])}" +
         ("" if options.dropout else "; dropout is left out (--dropout keeps it)"))
    return made


def kept_packages(output, made, devices):
    """Packages for other devices that an earlier run left, if they are of the same model."""
    file = output / "exported.json"
    if not file.exists():
        return []
    earlier = json.loads(file.read_text())
    same = ("format", "class_name", "dims", "parameters", "buffers", "dropout", "precision",
            "takes_items")

    def inputs_of(manifest):  # an earlier version did not write "values"
        return [{**each, "values": None} for each in manifest["inputs"]]

    if any(earlier.get(key) != made[key] for key in same) or inputs_of(earlier) != inputs_of(made):
        return []
    return [p for p in earlier["packages"] if p["device"] not in devices]


AGAIN = "GRADUS_EXPORT_AGAIN"  # set in a program that was started again: its cache


def look_for_vectors():
    """Sees that compiled steps use the processor's vector instructions.

    torch tries them out once and keeps the library it made for that. A try-out that was killed
    leaves a broken one, with which every later export would be slow without a word: then this
    program starts again with a cache of its own.
    """
    from torch._inductor import cpu_vec_isa

    if "cpu" not in options.device or options.torchscript or cpu_vec_isa.pick_vec_isa():
        return
    if AGAIN not in os.environ:
        print("export_model: torch's cache may hold a broken file; compiling with an empty one",
              file=sys.stderr, flush=True)
        own = tempfile.mkdtemp("-inductor")
        os.environ |= {AGAIN: own, "TORCHINDUCTOR_CACHE_DIR": own}
        os.execv(sys.executable, [sys.executable, *sys.argv])
    print("export_model: the compiler cannot use vector instructions here; steps will be slow",
          file=sys.stderr)


def main():
    try:
        look_for_vectors()
        export(options)
    except ExportError as error:
        sys.exit(f"export_model: {error}")
    finally:
        if AGAIN in os.environ:
            shutil.rmtree(os.environ[AGAIN], ignore_errors=True)


if __name__ == "__main__":
    main()
