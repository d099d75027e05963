"""What the tests of hostile files share.

Each test is a program `NAME_test.py GRADUS` in this folder. It writes hostile files and has gradus
read them. Every run has 2 GB of address space and 10 seconds. A hostile file must end the run with
exit code 1 or 2 and one line `gradus: ... [G-...]`, never by a signal, never in silence. Uses only
the standard library.
"""
import re
import resource
import subprocess
import sys
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
MEMORY = 2 << 30
SECONDS = 10
failures = []


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run(words, cwd, **options):
    """The finished process, or None if it took longer than SECONDS."""
    try:
        return subprocess.run([GRADUS, *map(str, words)], cwd=cwd, capture_output=True,
                              timeout=SECONDS, preexec_fn=limit_memory,
                              stdin=subprocess.DEVNULL, **options)
    except subprocess.TimeoutExpired:
        return None


def fail(name, problem, done):
    failures.append(name)
    shown = "" if done is None else done.stderr.decode(errors="replace")[-1500:]
    print(f"FAILED {name}: {problem}\n{shown}")


def refuses(name, words, text, cwd, **options):
    """Runs gradus, which must refuse what it reads with a message that has `text` in it."""
    done = run(words, cwd, **options)
    if done is None:
        return fail(name, f"not finished after {SECONDS} seconds", done)
    shown = done.stderr.decode(errors="replace")
    errors = [line for line in shown.splitlines() if line.startswith("gradus: ")]
    if done.returncode not in (1, 2):
        fail(name, f"exit code {done.returncode}, expected 1 or 2", done)
    elif not errors or not re.search(r"\[G-[A-Z]+-\d+\]$", errors[-1]):
        fail(name, "expected a line `gradus: ... [G-...]`", done)
    elif errors[-1].endswith("[G-CLI-3]"):
        fail(name, "a bare text of the standard library", done)
    elif text not in shown:
        fail(name, f"expected the text {text!r}", done)
    elif re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", done.stderr.replace(b"\r", b"")):
        fail(name, "control characters of a file reached the terminal", done)


def accepts(name, words, cwd, **options):
    """Runs gradus, which must end with exit code 0; returns what it wrote to standard output."""
    done = run(words, cwd, **options)
    if done is None:
        fail(name, f"not finished after {SECONDS} seconds", done)
    elif done.returncode != 0:
        fail(name, f"exit code {done.returncode}, expected 0", done)
    return "" if done is None else done.stdout.decode(errors="replace")


def finish(cases):
    print(f"{len(failures)} of {cases} hostile cases failed" if failures else
          f"{cases} hostile cases hold")
    sys.exit(1 if failures else 0)
