#!/usr/bin/env python3
"""What the program is started with: standard files that are closed, full or without a reader, and
signals that are ignored.

    python surroundings_test.py GRADUS
"""
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import hostile
import tiny_folder

PRINTERS = [["options", "--json"], ["--help"], ["--version"], ["train", "--help"], ["man"]]


def outputs(top):
    """Results that are not received are an error, never a silent success."""
    for words in PRINTERS:
        with open("/dev/full", "wb") as full:
            check(f"{words} to a full disk", words, top, "No space left", stdout=full)
        reader, writer = os.pipe()
        os.close(reader)
        check(f"{words} to nobody", words, top, "Broken pipe", stdout=writer)
        os.close(writer)
        check(f"{words} without an output", words, top, "cannot write to the standard output",
              preexec_fn=lambda: os.close(1))
    return 3 * len(PRINTERS)


def check(name, words, top, text, **options):
    done = subprocess.run([hostile.GRADUS, *words], cwd=top, stderr=subprocess.PIPE,
                          timeout=hostile.SECONDS, **options)
    if done.returncode != 1 or text.encode() not in done.stderr or b"[G-IO-2]" not in done.stderr:
        hostile.fail(name, f"exit code {done.returncode}, expected 1 and {text!r}", done)


def closed_files(top):
    """Standard files that are closed do not become the first files that are opened."""
    folder = tiny_folder.write(top / "model")
    (top / "text.txt").write_text("the cat sat on the mat .\n" * 20)
    words = ["train", "--task", "causal-lm", "--model_name_or_path", folder, "--train_file",
             "text.txt", "--block_size", 8, "--max_steps", 3, "--save_steps", 1, "--logging_steps",
             1, "--report_to", "jsonl", "--use_cpu", "--output_dir"]
    for name, closed in (("all", (0, 1, 2)), ("no stderr", (2,)), ("no stdin", (0,))):
        def close():
            for file in closed:
                os.close(file)

        done = subprocess.run([hostile.GRADUS, *map(str, words), name], cwd=top, timeout=60,
                              preexec_fn=close)
        checked = hostile.run(["verify", name], top)
        if done.returncode != 0 or checked is None or checked.returncode != 0:
            hostile.fail(name, f"exit code {done.returncode}, or a damaged checkpoint", checked)
        for file in (top / name).rglob("*.json*"):
            if b"LOAD REPORT" in file.read_bytes() or b"it/s" in file.read_bytes():
                hostile.fail(name, f"messages were written into {file}", checked)
    return 3


def ignored_signals(top):
    """`nohup gradus serve`: the terminal may close."""
    run = top / "run"
    run.mkdir()
    (run / "log.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    child = subprocess.Popen([hostile.GRADUS, "serve", run, "--port", "0"], cwd=top, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    said = child.stdout.readline()
    if "http://" not in said:
        print(f"serve is left out: {child.communicate()[1]}")
        return 0
    status = Path(f"/proc/{child.pid}/status")

    def mask(kind):
        line = next(line for line in status.read_text().splitlines() if line.startswith(kind))
        return int(line.split()[1], 16)

    while child.poll() is None and not mask("SigCgt") & 1 << signal.SIGTERM - 1:
        time.sleep(0.005)
    if not mask("SigIgn") & 1 << signal.SIGHUP - 1:
        hostile.fail("serve", "SIGHUP, which was ignored, ends it", None)
    child.send_signal(signal.SIGTERM)
    ended = child.wait(hostile.SECONDS)
    if ended != 0:
        hostile.fail("serve", f"exit code {ended}, expected 0", None)
    return 1


def main():
    with tempfile.TemporaryDirectory() as name:
        cases = 0
        for part in (outputs, closed_files, ignored_signals):
            folder = Path(name) / part.__name__
            folder.mkdir()
            cases += part(folder)
        hostile.finish(cases)


main()
