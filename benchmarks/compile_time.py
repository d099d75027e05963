"""Time to compile a file that includes <gradus/gradus.h>, beside one that includes <torch/torch.h>;
nothing precompiled, no ccache.
"""

import json
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from benchmark_row import Skip, at_most

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 3


def flags_of(build):
    """The compiler and the include, define and standard flags that the library itself is compiled
    with.
    """
    database = build / "compile_commands.json"
    if not database.exists():
        raise Skip(f"{database} is not there: make build")
    command = next(entry["command"]
                   for entry in json.loads(database.read_text())
                   if "/src/core/" in entry["file"] or
                   "/gradus_core.dir/" in entry["file"])  # a unity build has files of its own
    words = shlex.split(command)
    while not words[0].endswith(
        ("++", "++-12", "++-13", "++-14")):  # ccache, or the env in front of it
        words = words[1:]
    flags = [words[0]]
    for word, following in zip(words[1:], words[2:]):
        if word == "-isystem":
            flags += [word, following]
        elif word.startswith(("-I", "-D", "-std=", "-O")) and not word.endswith("/src"):
            flags.append(word)
    return flags


def seconds(flags, header, folder):
    source = Path(folder) / "one.cpp"
    source.write_text(
        f"#include <{header}>\nint main() {{ return torch::ones({{2}}).sum().item<int>(); }}\n")
    started = time.monotonic()
    subprocess.run(flags + ["-c", str(source), "-o", str(source.with_suffix(".o"))], check=True)
    return time.monotonic() - started


def main(build):
    flags = flags_of(build)
    with tempfile.TemporaryDirectory() as folder:
        seconds(flags, "gradus/gradus.h", folder)  # brings the headers into the page cache
        pairs = [(seconds(flags, "gradus/gradus.h",
                          folder), seconds(flags, "torch/torch.h", folder)) for _ in range(REPEATS)]
    ours, torchs = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    return [
        at_most(1.3, quantity="compile one file", gradus=ours, other=torchs, unit="s",
                other_name="<torch/torch.h>")
    ]
