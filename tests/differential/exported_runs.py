"""Exports a model, trains it with gradus and with transformers' Trainer, and compares.

exported_test.py does this for one small model, exported_architectures.py for a list of them.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "tools"))
import export_model  # noqa: E402
from export_step import Chance, named_outputs  # noqa: E402

ROWS, STEPS = 48, 20
ARGS = dict(max_steps=STEPS, per_device_train_batch_size=4, learning_rate=1e-3, warmup_steps=4,
            weight_decay=0.01, max_grad_norm=1.0, logging_steps=1, save_strategy="no", seed=11,
            report_to="none", use_cpu=True, disable_tqdm=True)


class WithoutDropout(transformers.Trainer):
    """Python's Trainer on the model as it was exported: no dropout, no LayerDrop."""

    def compute_loss(self, *args, **kwargs):
        with Chance():
            return super().compute_loss(*args, **kwargs)


def with_arguments(kind, extra):
    """A Trainer that also passes what the exporter passes to the model's forward."""

    class WithArguments(kind):

        def compute_loss(self, model, inputs, *args, **kwargs):
            return super().compute_loss(model, {**inputs, **extra}, *args, **kwargs)

    return WithArguments


def rows_of(source, count=ROWS):
    """Made-up rows of the example's kind."""
    torch.manual_seed(5)
    columns = {}
    for name, value in source.batch.items():
        shape = [count, *value.shape[1:]]
        if value.is_floating_point():
            columns[name] = torch.randn(shape)
        elif "mask" in name or name == "token_type_ids":
            columns[name] = value[:1].expand(shape).clone()
        else:
            known = value[value >= 0]
            columns[name] = torch.randint(int(known.min()), int(known.max()) + 1, shape)
    if "input_ids" in columns and source.task == "causal_lm":
        columns["labels"] = columns["input_ids"].clone()
    return columns


def ask_all(jobs, folder):
    """What exported_tool answers to jobs, in one process."""
    questions, answers = folder / "job.json", folder / "answer.json"
    questions.write_text(json.dumps(jobs))
    done = subprocess.run([BUILD / "bin/exported_tool", questions, answers], capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return json.loads(answers.read_text())


def ask(job, folder):
    """What exported_tool answers to a job."""
    return ask_all([job], folder)[0]


def fixed_sizes(source, made):
    return {n: size for n, size in export_model.sizes_of(source).items() if n not in made["dims"]}


def export(options, folder):
    """Exports; the source is kept so that Python trains exactly what was exported. Its `fixed` has
    the dimensions that are not free, with their sizes."""
    told = []
    options = export_model.read_options([*options[:1], str(folder), *options[1:]])
    source = export_model.load(options)
    manifest = folder / ("scripted.json" if options.torchscript else "exported.json")
    if manifest.exists():
        made = json.loads(manifest.read_text())
        source.fixed = fixed_sizes(source, made)
        # What the export learned of the model: dimensions that its code fixes.
        source.axes = {i["name"]: i["shape"] for i in made["inputs"]}
        return source, made, 0.0
    begin = time.time()
    made = export_model.export(options, told.append)
    source.fixed = fixed_sizes(source, made)
    return source, made, time.time() - begin


def eager_gradients(source, around=Chance):
    """Loss, gradients and other outputs of Python's first step; `around` makes its context."""
    model = source.model.train()
    model.zero_grad()
    with around():
        outputs = named_outputs(model(**source.batch, **source.extra))
    loss = outputs.pop("loss")
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return loss.item(), gradients, {n: v.detach() for n, v in outputs.items()}


def gradus_gradients(source, folder, work):
    """The same of gradus."""
    file = work / "batch.safetensors"
    save_file({n: v.contiguous() for n, v in source.batch.items()}, file)
    answer = ask({"folder": str(folder), "gradients": str(file)}, work)
    return answer["loss"], load_file(f"{file}.out"), load_file(f"{file}.outputs")


def check_gradients(source, folder, work):
    """The largest difference of the first step's gradients from eager ones, relative to the
    gradient's largest value where that is above 1."""
    loss, expected, _ = eager_gradients(source)
    ours, found, _ = gradus_gradients(source, folder, work)
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())[:5]
    assert abs(ours - loss) <= 1e-5 * max(1, abs(loss)), (ours, loss)
    return max(
        ((found[n] - g).abs().max() / max(1.0, g.abs().max())).item() for n, g in expected.items())


def python_run(source, rows, args, compiled=False, kind=WithoutDropout,
               collate=transformers.default_data_collator):
    """The log of transformers' Trainer, and its seconds per step without the first ones. `rows` may
    be columns of tensors."""
    if isinstance(rows, dict):
        count = len(next(iter(rows.values())))
        rows = [{n: v[i] for n, v in rows.items()} for i in range(count)]
    times = []

    class Clock(transformers.TrainerCallback):

        def on_step_end(self, *_, **__):
            times.append(time.perf_counter())

    model = source.model
    forward = model.forward  # mixed precision replaces it
    trainer = with_arguments(transformers.Trainer if compiled else kind, source.extra)(
        model, transformers.TrainingArguments(**args, torch_compile=compiled), train_dataset=rows,
        callbacks=[Clock()], data_collator=collate)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    model.forward = forward
    middle = sorted(b - a for a, b in zip(times[3:], times[4:]))
    return trainer.state.log_history, middle[len(middle) // 2]


def compare_logs(ours, theirs):
    """The largest relative difference of losses."""
    mine = [entry["loss"] for entry in ours if "loss" in entry]
    other = [entry["loss"] for entry in theirs if "loss" in entry]
    assert len(mine) == len(other) == STEPS, (len(mine), len(other))
    assert all(map(math.isfinite, mine + other)), (mine, other)
    return max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(mine, other))
