"""What a benchmark returns, how it says that it cannot run here, and how it asks a program."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Optional


class Skip(Exception):
    """Raised by a benchmark that lacks something it needs; the text says what, and how to get
    it.
    """


@dataclass
class Row:
    """One measured quantity of gradus beside the same quantity of what it is compared with,
    measured in the same run.
    """

    quantity: str
    gradus: float
    other: float
    unit: str
    other_name: str = ""  # what `other` is, e.g. "Python Trainer"
    bound: str = ""  # in words, e.g. "at most 1.3 times"
    holds: Optional[bool] = None  # whether the bound held; None when there is none

    @property
    def ratio(self):
        return self.gradus / self.other if self.other else float("nan")


def needs_python(*modules):
    """Raises Skip where this Python lacks one of the modules."""
    if subprocess.run([sys.executable, "-c", "import " + ", ".join(modules)],
                      capture_output=True).returncode != 0:
        raise Skip("the Python peer is absent: make peer")


def value(*command):
    """The number that a program prints as the "value" of its last line."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True, timeout=600)
    return json.loads(done.stdout.strip().splitlines()[-1])["value"]


def at_most(factor, **row):
    """A row whose bound is gradus <= factor * other."""
    return Row(bound=f"<= {factor:g} x", holds=row["gradus"] <= factor * row["other"], **row)


def at_least(factor, **row):
    """A row whose bound is gradus >= factor * other."""
    return Row(bound=f">= {factor:g} x", holds=row["gradus"] >= factor * row["other"], **row)
