"""Runs the program that the test was started with, in a folder, and looks at what it says."""

import subprocess
import sys
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())


def run(code, folder, *words):
    """What the program prints; ends the test unless the exit code is `code`."""
    done = subprocess.run([GRADUS, *map(str, words)], cwd=folder, capture_output=True, text=True,
                          timeout=200)
    if done.returncode != code:
        said = done.stdout[-1500:] + done.stderr[-3000:]
        sys.exit(f"{words}: exit code {done.returncode}\n{said}")
    return done.stdout + done.stderr


def says(text, *parts):
    """Ends the test unless all parts are in the text."""
    for part in parts:
        if part not in text:
            sys.exit(f"expected '{part}', received: {text[-1500:]}")
