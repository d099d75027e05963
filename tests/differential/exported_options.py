"""The exporter's options, one tiny model (OPT) each, against Python.

  tests/differential/exported_options.py [bf16 dropout ...]

Each case exports the model with an option, compares the gradients of the first step with eager ones
and 20 losses with transformers' Trainer, and then looks at what the option is for. Takes about half
a minute for each; exported_test.py runs all of them with GRADUS_FULL_MATRIX=1.
"""
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile

import torch
import transformers

import exported_runs as runs

sys.path.insert(0, str(runs.ROOT / "tools"))
import export_products  # noqa: E402

CONFIG = dict(vocab_size=99, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
              max_position_embeddings=32, word_embed_proj_dim=32, pad_token_id=1, bos_token_id=2,
              eos_token_id=2, dropout=0.0)
BF16_STEP = 2.0**-8  # the rounding of one bfloat16 number
HERE = pathlib.Path(__file__).resolve().parent
WIDTH = 2000  # of the model that shows its masks


class Case:
    """An exported model with its source."""

    def __init__(self, work, options, config=None, source=None):
        self.work, self.folder = work, work / "exported"
        transformers.OPTConfig(**{**CONFIG, **(config or {})}).save_pretrained(work / "model")
        place = [source] if source else [
            str(work / "model"), "--auto_class", "CausalLM", "--random_weights"
        ]
        sizes = ["--max_batch", "8", "--length", "16", "--steps", "train"]
        self.source, self.made, _ = runs.export([*place, *sizes, *options], self.folder)

    def job(self, columns, output, more=None, **args):
        """A run of gradus on these columns."""
        file = self.work / "rows.safetensors"
        runs.save_file(columns, file)
        args = {**runs.ARGS, **args, "output_dir": str(self.work / output)}
        return {"folder": str(self.folder), "rows": str(file), "args": args, **(more or {})}

    def compare_losses(self, most, kind=runs.WithoutDropout, **args):
        """20 steps here and there; the model of the source is the trained one afterwards."""
        columns = runs.rows_of(self.source)
        ours = runs.ask(self.job(columns, "gradus", {"save": str(self.work / "saved")}, **args),
                        self.work)
        theirs, _ = runs.python_run(self.source, columns, {
            **runs.ARGS,
            **args, "output_dir": str(self.work / "python")
        }, kind=kind)
        worst = runs.compare_logs(ours["log_history"], theirs)
        assert worst <= most, (worst, most)
        return worst

    def compare(self, **args):
        """Gradients and losses in float32; returns both differences as a text."""
        gradients = runs.check_gradients(self.source, self.folder, self.work)
        assert gradients <= 1e-5, gradients
        return f"gradients {gradients:.1e}, losses {self.compare_losses(1e-4, **args):.1e}"

    def compare_saved(self):
        """What gradus saved, under Python's names, beside what Python has after the same steps."""
        saved = runs.load_file(self.work / "saved/model.safetensors")
        theirs = self.source.model.state_dict()
        assert saved.keys() <= theirs.keys(), sorted(saved.keys() - theirs.keys())[:5]
        worst = max((v - theirs[n]).abs().max().item() for n, v in saved.items())
        assert worst <= 1e-4, worst

    def ends(self, *kinds):
        """The weights at the end of runs with these arguments; "resumed" is one of two halves."""
        columns, ends = runs.rows_of(self.source), []
        for name, args in kinds:
            more = {"save": str(self.work / f"{name}-end")}
            if name == "resumed":
                shutil.copytree(self.work / "first/checkpoint-10",
                                self.work / "resumed/checkpoint-10")
                more["resume"] = True
            runs.ask(self.job(columns, name, more, save_strategy="steps", save_steps=10, **args),
                     self.work)
            ends.append((self.work / f"{name}-end/model.safetensors").read_bytes())
        return ends


def code_of(folder, ending):
    """What the compiler wrote into the package of a training step, in files with this ending."""
    with zipfile.ZipFile(folder / "train-cpu.pt2") as package:
        names = [name for name in package.namelist() if name.endswith(ending)]
        return "".join(package.read(name).decode() for name in names)


def distance(some, others):
    """The length of the difference of two sets of gradients, relative to the second."""
    assert some.keys() == others.keys(), sorted(some.keys() ^ others.keys())[:5]
    square = sum((some[n].double() - g.double()).square().sum() for n, g in others.items())
    return (square / sum(g.double().square().sum() for g in others.values())).sqrt().item()


def compare_bf16(case, around, kind, **args):
    """A step in bfloat16 is to be as near to float32 as Python's own, and yet not float32."""
    _, exact, _ = runs.eager_gradients(case.source, contextlib.nullcontext)
    _, theirs, _ = runs.eager_gradients(case.source, around)
    _, ours, _ = runs.gradus_gradients(case.source, case.folder, case.work)
    assert all(g.dtype == torch.float32 for g in ours.values())
    here, there = distance(ours, exact), distance(theirs, exact)
    assert 1e-4 < here <= 1.25 * there, (here, there)
    losses = case.compare_losses(BF16_STEP, kind, **args)
    saved = runs.load_file(case.work / "saved/model.safetensors")
    assert all(v.dtype == torch.float32 for v in saved.values())
    return f"from float32 {here:.1e} (Python {there:.1e}), losses {losses:.1e}"


def bf16(work):
    """Autocast, as transformers' --bf16."""
    case = Case(work, ["--precision", "bf16"])
    return compare_bf16(case, lambda: torch.autocast("cpu", torch.bfloat16), transformers.Trainer,
                        bf16=True)


def bf16_weights(work):
    """Weights rounded to bfloat16 for the step, float32 masters and gradients."""
    case = Case(work, ["--precision", "bf16_weights"])

    @contextlib.contextmanager
    def rounded():
        forward = case.source.model.forward
        case.source.model.forward = lambda **inputs: call(case.source.model, forward, inputs)
        try:
            yield
        finally:
            case.source.model.forward = forward

    def call(model, forward, inputs):
        weights = {n: p.to(torch.bfloat16) for n, p in model.named_parameters()}
        replaced, model.forward = model.forward, forward
        try:
            return torch.func.functional_call(model, weights, (), inputs)
        finally:
            model.forward = replaced

    class Rounded(transformers.Trainer):

        def compute_loss(self, *args, **kwargs):
            with rounded():
                return super().compute_loss(*args, **kwargs)

    return compare_bf16(case, rounded, Rounded)


def static(work):
    """The example's sizes and no others."""
    case = Case(work, ["--static"])
    assert not case.made["dims"], case.made["dims"]
    text = case.compare()
    columns = {n: v[:, :12].contiguous() for n, v in runs.rows_of(case.source).items()}
    answer = runs.ask(case.job(columns, "refused", {"error": True}), work)
    assert answer["error"] == "G-EXPORT-4" and "[4, 12]" in answer["text"], answer
    return text


def training_outputs(work):
    """Logits of the training step."""
    case = Case(work, ["--training_outputs"])
    _, _, theirs = runs.eager_gradients(case.source)
    _, _, ours = runs.gradus_gradients(case.source, case.folder, work)
    worst = (ours["logits"] - theirs["logits"]).abs().max().item()
    assert worst <= 1e-5, worst
    return f"logits {worst:.1e}, {case.compare()}"


def attention_mask(work):
    """Padding on the left, which a causal model sees only by its mask."""
    case = Case(work, ["--attention_mask"])
    _, unpadded, _ = runs.eager_gradients(case.source)
    case.source.batch["attention_mask"][:2, :5] = 0
    case.source.batch["labels"][:2, :6] = -100
    _, padded, _ = runs.eager_gradients(case.source)
    assert distance(padded, unpadded) > 1e-3
    return case.compare()


def adapter(work):
    """A LoRA adapter of peft: it alone trains."""
    import peft
    torch.manual_seed(3)
    base = transformers.OPTForCausalLM(transformers.OPTConfig(**CONFIG))
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"],
                           init_lora_weights=False, task_type="CAUSAL_LM")
    peft.get_peft_model(base, lora).save_pretrained(work / "adapter")
    case = Case(work, ["--adapter", str(work / "adapter")])
    trained = [p["name"] for p in case.made["parameters"] if p["trains"]]
    assert len(trained) == 8 and all("lora_" in n for n in trained), trained
    text = case.compare(learning_rate=1e-2)
    case.compare_saved()
    saved = runs.load_file(work / "saved/model.safetensors")
    start = runs.load_file(case.folder / "model.safetensors")
    assert {n for n, v in saved.items() if not torch.equal(v, start[n])} == set(trained)
    return text


def memory_of_step(case, work):
    """Megabytes that a step of 64 rows and 512 tokens takes beyond one of 4 rows and 16 tokens."""
    peaks = []
    for rows, tokens in ((4, 16), (64, 512)):
        batch = {n: v.repeat(rows // 4, tokens // 16) for n, v in case.source.batch.items()}
        runs.save_file(batch, work / "sized.safetensors")
        job = {"folder": str(case.folder), "gradients": str(work / "sized.safetensors")}
        peaks.append(runs.ask(job, work)["peak_mb"])
    return peaks[1] - peaks[0]


def gradient_checkpointing(work):
    """Activations are recomputed: the same numbers from less memory."""
    deep = dict(num_hidden_layers=6, max_position_embeddings=512, hidden_size=64, ffn_dim=256,
                word_embed_proj_dim=64)
    plain = Case(work / "plain", ["--max_batch", "64"], deep)
    case = Case(work / "less", ["--max_batch", "64", "--gradient_checkpointing"], deep)
    text = case.compare(gradient_checkpointing=True)
    less, more = memory_of_step(case, work), memory_of_step(plain, work)
    text += f", {more:.0f} MB without, {less:.0f} MB with"
    assert less < 0.5 * more, text
    columns = runs.rows_of(plain.source)
    answer = runs.ask(
        plain.job(columns, "refused", {"error": True}, gradient_checkpointing=True), work)
    assert answer["error"] == "G-EXPORT-5", answer
    answer = runs.ask(
        case.job(columns, "budget", {"error": True}, activation_memory_budget=0.5), work)
    assert answer["error"] == "G-EXPORT-5", answer
    return text


class Masks(torch.nn.Module):
    """A model whose gradients are the masks of its two dropouts."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.ones(WIDTH))
        self.second = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        first = torch.nn.functional.dropout(x, 0.25, self.training) * self.first
        second = torch.nn.functional.dropout(x, 0.5, self.training) * self.second
        return {"loss": (first + second).sum()}


def make_masks():
    torch.manual_seed(0)
    return Masks(), {"x": torch.randn(4, WIDTH)}


def check_masks(work):
    """Shares, scale and independence of the masks; each step draws anew."""
    case = Case(work, ["--dropout"], source="exported_options:make_masks")
    jobs = []
    for i in range(2):
        runs.save_file({"x": torch.ones(1, WIDTH)}, work / f"ones{i}")
        jobs.append({"folder": str(case.folder), "gradients": str(work / f"ones{i}")})
    runs.ask_all(jobs, work)
    draws = [runs.load_file(f"{job['gradients']}.out") for job in jobs]
    for name, share in (("first", 0.25), ("second", 0.5)):
        mask = draws[0][name]
        kept = mask[mask != 0]
        assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - share))), (name, kept.unique())
        check_share((mask == 0).float().mean().item(), share)
        again = draws[1][name] == 0
        check_share((again & (mask == 0)).float().mean().item(), share**2)
    both = (draws[0]["first"] == 0) & (draws[0]["second"] == 0)
    check_share(both.float().mean().item(), 0.125)


def check_share(found, expected):
    """Within four standard deviations of what chance gives."""
    allowed = 4 * (expected * (1 - expected) / WIDTH)**0.5
    assert abs(found - expected) <= allowed, (found, expected, allowed)


def dropout(work):
    """Its losses have Python's mean and spread; runs repeat, and resume, bit for bit."""
    (work / "masks").mkdir()
    check_masks(work / "masks")
    case = Case(work, ["--dropout"], dict(dropout=0.2, attention_dropout=0.2))
    row = {n: v[:1].repeat(runs.ROWS, 1) for n, v in runs.rows_of(case.source).items()}
    count = 240  # steps of the same weights and data: only the masks differ
    args = dict(learning_rate=0.0, max_steps=count)
    ours = runs.ask(case.job(row, "still", **args), work)["log_history"]
    theirs, _ = runs.python_run(case.source, row, {
        **runs.ARGS,
        **args, "output_dir": str(work / "python")
    }, kind=transformers.Trainer)
    here, there = ([e["loss"] for e in log if "loss" in e] for log in (ours, theirs))
    assert len(here) == len(there) == count
    means = [statistics.fmean(losses) for losses in (here, there)]
    spreads = [statistics.stdev(losses) for losses in (here, there)]
    error = (sum(s**2 for s in spreads) / count)**0.5
    text = (f"mean loss {means[0]:.4f} (Python {means[1]:.4f}, {4 * error:.4f} allowed), spread "
            f"{spreads[0]:.4f} (Python {spreads[1]:.4f})")
    assert abs(means[0] - means[1]) <= 4 * error and 0.75 < spreads[0] / spreads[1] < 1.33, text

    ends = case.ends(("first", {}), ("same", {}), ("resumed", {}), ("other", {"seed": 12}))
    assert ends[0] == ends[1] == ends[2] != ends[3]
    return text


def broken_cache(work):
    """A try-out of vector instructions was killed: the exporter uses a cache of its own."""
    cache, place = work / "cache", work / "tmp"
    place.mkdir()
    settings = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TMPDIR": str(place)}

    def call(*words):
        done = subprocess.run([sys.executable, *map(str, words)], env=settings, cwd=HERE,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done

    look = ("-c", "from torch._inductor import cpu_vec_isa as c; print(bool(c.pick_vec_isa()))")
    if "True" not in call(*look).stdout:
        return "no vector instructions here"
    for library in cache.rglob("*.so"):
        library.write_bytes(library.read_bytes()[:100])
        library.with_name(library.name + ".load_ok").unlink(missing_ok=True)
    assert "False" in call(*look).stdout, "the cache is not broken"
    done = call(runs.ROOT / "tools/export_model.py", "exported_options:make_masks", work / "made",
                "--steps", "train")
    assert "compiling with an empty one" in done.stderr, done.stderr
    assert "vector instructions" not in done.stderr, done.stderr
    code = code_of(work / "made", ".kernel.cpp")
    assert "at::vec::Vectorized" in code, code[-2000:]
    assert not list(place.glob("*-inductor")), "the cache is left"
    return f"{code.count('at::vec::Vectorized')} vectors"


class Operands(torch.nn.Module):
    """Products whose operands are turned, parts of others, or one number seen many times."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(24, 16), torch.nn.Linear(8, 20, bias=False)
        self.table = torch.nn.Parameter(torch.randn(12, 40))

    def forward(self, x):
        y = self.first(x)
        part = self.second(y[:, 4:12]) @ self.table[:, 10:30].t()
        return {"loss": y.sum() + torch.mm(y.t(), x).square().mean() + part.sum()}


def make_operands():
    torch.manual_seed(0)
    return Operands(), {"x": torch.randn(4, 24)}


def products(work):
    """Products by oneDNN; by themselves only the large ones, where oneDNN is faster."""
    ours, theirs = "aoti_torch_cpu__linear_pointwise(", "aoti_torch_cpu_addmm_out("
    counts = {}
    for kind in ("auto", "torch", "onednn"):
        case = Case(work / kind, ["--products", kind])
        code = code_of(case.folder, ".wrapper.cpp")
        counts[kind] = code.count(ours)
        assert (counts[kind] > 0) == (kind == "onednn"), counts
        assert (theirs in code) == (kind != "onednn"), kind
    text = case.compare()
    ends = case.ends(("first", {}), ("same", {}), ("resumed", {}))
    assert ends[0] == ends[1] == ends[2]

    odd = Case(work / "odd", ["--products", "onednn"], source="exported_options:make_operands")
    gradients = runs.check_gradients(odd.source, odd.folder, odd.work)
    assert gradients <= 1e-5, gradients
    wide = dict(hidden_size=256, ffn_dim=512, word_embed_proj_dim=256)
    large = Case(work / "large", [], wide)
    count = code_of(large.folder, ".wrapper.cpp").count(ours)
    faster = export_products.onednn_is_faster()
    assert (count > 0) == faster, (count, faster)
    return f"{counts['onednn']} products, {text}; odd operands {gradients:.1e}; oneDNN is " + (
        f"faster here: {count} products of a larger model" if faster else "not faster here")


CASES = {
    case.__name__: case
    for case in (bf16, bf16_weights, static, training_outputs, attention_mask, adapter,
                 gradient_checkpointing, dropout, broken_cache, products)
}


def main(names):
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as work:
            print(f"--{name}: {CASES[name](pathlib.Path(work))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
