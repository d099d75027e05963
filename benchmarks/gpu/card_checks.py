"""What the issues ask of a card, as a list of checks: what is run, how long it takes, and which
figures of its output must hold. For benchmarks/gpu/must_hold.

A check is one command. Its figures are found in what it prints by a pattern with one group, the
last match, and judged by a bound.
"""
import os
import shutil
from dataclasses import dataclass, field
from typing import Optional

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Line:
    """A line of an issue: how its figure is found, and what it must be."""
    issue: int
    what: str
    pattern: str
    least: Optional[float] = None
    most: Optional[float] = None
    is_count: bool = False  # the figure is how often the pattern is found

    def wanted(self):
        """The bound in words."""
        if self.least is None:
            return "" if self.most is None else f"≤ {self.most:g}"
        return f"≥ {self.least:g}" if self.most is None else f"{self.least:g} to {self.most:g}"

    def holds(self, figure):
        return (self.least is None or figure >= self.least) and (self.most is None or
                                                                 figure <= self.most)


@dataclass
class Check:
    """A command and the lines that it decides. `seconds`: what it takes on an H200, about."""
    name: str
    command: list
    seconds: int
    lines: list = field(default_factory=list)
    limit: int = 0  # seconds after which it is stopped; 0: twice what it takes and a minute
    tiny: Optional[list] = None  # in place of the command, to try it on a CPU; None: not tried
    environment: dict = field(default_factory=dict)
    beside: str = ""  # runs at the same time as the check of this name: nothing of it is timed

    def most_seconds(self):
        return self.limit or 2 * self.seconds + 60


def script(name, *words):
    return [os.path.join(HERE, name), *words]


def ctest(folder):
    command = ["ctest", "--test-dir", folder, "-L", "gpu", "-j", "5", "--output-on-failure"]
    # threads of two programs on the same cores wait for each other
    threads = {"OMP_NUM_THREADS": "2"}
    return Check(
        "ctest", command, 150, limit=300, tiny=command, environment=threads, lines=[
            Line(14, "ctest -L gpu: tests that fail (waits between logs among them)",
                 r"(\d+) tests? failed out of", most=0),
            Line(14, "ctest -L gpu: tests", r"tests failed out of (\d+)", least=11),
            Line(14, "ctest -L gpu: tests that did not run", r"^\s+\d+ - \S+ \((Skipped|Not Run)\)",
                 most=0, is_count=True),
        ])


def group_of_processes(gradus):
    words = ["--gradus", gradus]
    return Check(
        "nccl", script("nccl", *words, "--rounds", "2"), 80,
        tiny=script("nccl", *words, "--rounds", "1", "--steps", "40"), lines=[
            Line(14, "GPT-2 124M 16 × 1024, ms", r": alone ([\d.]+) ms, with", most=31.5),
            Line(14, "the same, GB", r"alone: [\d.]+ ms, ([\d.]+) GB", most=6.9),
            Line(16, "NCCL in a group of one, of the time alone", r"with NCCL [\d.]+ ms: ([\d.]+)",
                 most=1.02),
        ])


def long_inputs(gradus, name, what, least, seconds):
    words = ["--gradus", gradus, "--only", name]
    return Check(name, script("long_inputs", *words), seconds,
                 tiny=script("long_inputs", *words, "--tiny", "--steps", "30"),
                 lines=[Line(19, what, name + r": ([\d.]+) times as fast", least=least)])


def plan(folder, name, seconds):
    # one row each with and without gradient checkpointing
    row = r"\| " + name + r"{} \| [\d.]+ \| [\d.]+ \| \+?(-?[\d.]+) %"
    return Check(
        "plan " + name, script("plan", name), seconds, environment={"GRADUS_BUILD": folder},
        tiny=script("plan", "--tiny", name), lines=[
            Line(20, f"plan, {name}{label}: % from the measured peak", row.format(label), -10, 10)
            for label in ("", " checkpointed")
        ])


def beside_trl(gradus, work, name, bound, seconds):
    words = ["--gradus", gradus, "--only", name, "--results", os.path.join(work, "trl-" + name)]
    row = r"\| " + name + r" \| gradus \| "
    lines = [Line(18, f"{name}: of trl's step time", row + r"[\d.]+ \(([\d.]+) x", most=bound)]
    if name.startswith("sft"):
        lines.append(Line(18, f"{name}: of trl's memory", r"memory ([\d.]+) of trl's", most=0.5))
    if name.startswith("grpo"):
        lines.append(
            Line(18, f"{name}: trl's rollout takes × gradus'", row + r".*trl takes ([\d.]+) x",
                 least=5))
    return Check("trl " + name, script("trl_run", *words), seconds, lines=lines,
                 environment={"PYTHONPATH": os.path.join(work, "site-packages")},
                 tiny=script("trl_run", *words, "--tiny", "--steps", "12"))


def exported(gradus, work, name, seconds):
    words = [
        "--gradus", gradus, "--only", name, "--no-eager", "--results",
        os.path.join(work, "exported-" + name)
    ]
    return Check(
        "exported " + name, script("exported", *words), seconds,
        tiny=script("exported", *words, "--steps", "30", "--precision", "float32"), lines=[
            Line(22, f"{name}, exported: of Python compiled's time",
                 r"\| " + name + r" \| gradus \| [\d.]+ \| ([\d.]+) \(", most=0.9)
        ])


def export(gradus, name):
    """Only compiles: it takes cores, and the card for a moment."""
    words = ["--gradus", gradus, "--only", name, "--export-only"]
    return Check("export " + name, ["nice", *script("exported", *words)], 120, beside="ctest",
                 environment={"TORCHINDUCTOR_COMPILE_THREADS": "4"},
                 tiny=script("exported", *words, "--precision", "float32"))


# As in issue 21: most milliseconds, most GB.
TABLE = {
    "gpt2-124m": (27.5, 6.5),
    "llama-1b": (102, 20),
    "qwen-0.5b": (86, 15),
    "qwen3-0.6b": (135, None),
    "mistral-1.6b": (150, None),
    "gpt2-350m": (37, None),
    "gpt2-124m-dropout": (29.5, None),
    "bert-base": (6.5, None),
    "small-llama": (2.4, None),
    "small-gpt": (0.9, None),
}


def table_row(gradus, work, name):
    ms, memory = TABLE[name]
    words = [
        "--gradus", gradus, "--only", name, "--no-peer", "--results",
        os.path.join(work, "run-" + name)
    ]
    row = r"\| " + name + r" \| gradus \| "
    lines = [Line(21, f"{name}, ms", row + r"([\d.]+) ", most=ms)]
    if memory:
        lines.append(Line(21, f"{name}, GB", row + r"[^|]*\| [^|]*\| ([\d.]+) ", most=memory))
    return Check("run " + name, script("run", *words), 30, lines=lines,
                 tiny=script("run", *words, "--steps", "40"))


def compiled_row(gradus, work, name, seconds):
    """Python compiled, into the same file of results, beside which gradus stands."""
    words = [
        "--gradus", gradus, "--only", name, "--no-eager", "--results",
        os.path.join(work, "compiled-" + name)
    ]
    return Check(
        "compiled " + name, script("run", *words), seconds, lines=[
            Line(21, f"{name}, Python compiled, ms",
                 r"\| " + name + r" \| python compiled \| ([\d.]+) ")
        ])


def fp8(gradus):
    words = ["--gradus", gradus]
    return Check(
        "fp8", script("fp8_curve", *words, "--steps", "1000"), 270, lines=[
            Line(21, "fp8, Llama 1.24 B: times as fast as bf16", r"\(([\d.]+) times as fast\)",
                 least=1.2),
            Line(21, "fp8: % from bf16's loss after 1,000 steps", r"\(([+-][\d.]+) %\)", -0.5, 0.5),
        ])


def eight_bits(gradus):
    words = ["--gradus", gradus, "--workload", "small-gpt", "--flags", "--optim adamw_bnb_8bit"]
    return Check(
        "8 bits", script("fp8_curve", *words, "--steps", "1000"), 40,
        tiny=script("fp8_curve", *words, "--steps", "100"), lines=[
            Line(21, "AdamW of 8 bits: % from 32 bits' loss after 1,000 steps",
                 r"\(([+-][\d.]+) %\)", -1, 1)
        ])


def qlora(gradus):
    words = ["--gradus", gradus]
    return Check(
        "qlora", script("qlora", *words), 200, limit=420,
        tiny=script("qlora", *words, "--layers", "2", "--tokens", "64"), lines=[
            Line(21, "QLoRA of a 7 B shape, GB", r"4 bits, nested: .*?peak ([\d.]+) GB", most=12),
            Line(21, "the same, ms", r"4 bits, nested: ([\d.]+) ms"),
            Line(21, "LoRA over bfloat16, ms", r"bfloat16: ([\d.]+) ms"),
        ])


def curves(gradus, name, seconds):
    words = ["--gradus", gradus, "--workload", name]
    return Check(
        "curves " + name, script("curves", *words), seconds, tiny=script("curves", *words), lines=[
            Line(21, f"{name}, 200 losses: distance of two seeds of Python", r"Python ([\d.]+);"),
            Line(21, f"{name}: gradus' distance, of that of the seeds", r"([\d.]+) of the seeds'",
                 most=1),
        ])


def memcheck(folder):
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    command = [
        program, "--tool", "memcheck", "--error-exitcode", "9",
        os.path.join(folder, "bin/unit_kernels"), "--gtest_filter=Gpu*"
    ]
    return Check("memcheck", command, 150, limit=300,
                 lines=[Line(21, "compute-sanitizer: errors", r"SUMMARY: (\d+) error", most=0)])


def profile(gradus, work, name):
    words = [
        "--gradus", gradus, "--only", name, "--results",
        os.path.join(work, f"profile-{name}.md")
    ]
    return Check(
        "profile " + name, script("profile", *words), 45, lines=[
            Line(21, f"{name}: sum of floors, ms", r"\*\*step\*\* \| [\d.]+ \| \d+ \| ([\d.]+)")
        ])


def text_to_text(gradus):
    words = ["--gradus", gradus]
    return Check(
        "text to text", script("text_to_text", *words), 150,
        tiny=script("text_to_text", *words, "--tiny", "--rows", "8"), lines=[
            Line(17, "T5-base, a training step: times as fast as Python compiled",
                 r"a training step \|.*\| ([\d.]+) \|", least=2),
            Line(17, "generation, 4 beams: times as fast as Python",
                 r"generation, 4 beams \|.*\| ([\d.]+) \|", least=3),
        ])


def checks(folder, work):
    """All of them, the most important ones first. `folder`: the build; `work`: for files."""
    gradus = os.path.join(folder, "bin/gradus")
    return [
        # what keeps issues 14, 16, 18, 19, 20 and 22 open
        ctest(folder),
        *(export(gradus, name) for name in ("gpt2-124m", "bert-base", "opt-125m")),
        group_of_processes(gradus),
        long_inputs(gradus, "wav2vec2", "wav2vec2-base: times as fast as Python compiled", 2, 110),
        long_inputs(gradus, "bigbird", "BigBird: times as fast as Python", 3, 70),
        plan(folder, "llama-1b-lora", 45),
        beside_trl(gradus, work, "sft-lora-llama-1b", 0.45, 90),
        beside_trl(gradus, work, "dpo-qwen-0.5b", 0.5, 80),
        beside_trl(gradus, work, "grpo-qwen-0.5b", 0.3, 140),
        exported(gradus, work, "gpt2-124m", 70),
        exported(gradus, work, "bert-base", 70),
        exported(gradus, work, "opt-125m", 80),
        plan(folder, "t5-base", 40),
        plan(folder, "gpt2-124m", 30),
        plan(folder, "llama-1b", 40),
        plan(folder, "qwen-0.5b", 40),
        plan(folder, "bert-base", 30),
        # issue 21
        *(table_row(gradus, work, name) for name in TABLE),
        eight_bits(gradus),
        memcheck(folder),
        fp8(gradus),
        qlora(gradus),
        *(profile(gradus, work, name) for name in ("llama-1b", "gpt2-124m", "qwen3-0.6b")),
        curves(gradus, "gpt2-124m", 110),
        *(compiled_row(gradus, work, name, 90) for name in TABLE),
        # issue 17, which is closed
        text_to_text(gradus),
    ]
