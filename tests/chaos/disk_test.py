"""disk_test.py SHIM: whether the shim lets calls fail, and whether a cut of the power loses what
was not synced and nothing else. The programs that write are Python's own, run under the shim."""
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from disk import Disk

SHIM = str(Path(sys.argv[1]).resolve())
PROLOGUE = """
import os
def write(path, text, sync=True):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, text)
    if sync: os.fsync(file)
    os.close(file)
def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)
"""
# In memory, where there is such a folder: hundreds of syncs cost nothing there.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
failures = []


def check(name, good, found):
    if not good:
        failures.append(name)
        print(f"FAILED {name}: {found}")


def run(program, root, **settings):
    """The program's exit code, with `root` as its folder."""
    environment = dict(os.environ, LD_PRELOAD=SHIM, CHAOS_ROOT=str(root), **settings)
    return subprocess.run([sys.executable, "-I", "-S", "-c", PROLOGUE + program], cwd=root,
                          env=environment, stderr=subprocess.DEVNULL, timeout=30).returncode


def outcomes(program, seeds=30):
    """What is in the folder after a cut at the program's end, for many cuts: a set of
    (names and contents) and the set of names that were sure."""
    found, sure = set(), set()
    for seed in range(seeds):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            folder = Path(os.path.realpath(folder))
            root = folder / "root"
            root.mkdir()
            (root / "old").write_bytes(b"before")
            disk = Disk(root, folder / "log", folder / "grave")
            check("a run under the shim", run(program, root, **disk.environment()) == 0, program)
            reported, _ = disk.cut(random.Random(seed))
            sure |= {name for _, name in reported}
            files = [(str(path.relative_to(root)), path.read_bytes())
                     for path in sorted(root.rglob("*")) if path.is_file()]
            found.add(tuple(files))
    return found, sure


def contents(found, name):
    return {dict(files).get(name) for files in found}


def test_cuts():
    found, sure = outcomes('write("new.tmp", b"text"); os.rename("new.tmp", "new"); sync(".")')
    check("written with all its syncs", contents(found, "new") == {b"text"} and sure == {"new"},
          (found, sure))
    check("files that nobody touched", contents(found, "old") == {b"before"}, found)
    found, sure = outcomes('write("new.tmp", b"text"); os.rename("new.tmp", "new")')
    check("a folder that was not synced", contents(found, "new") == {None, b"text"} and not sure,
          (found, sure))
    found, _ = outcomes('write("o.tmp", b"after", False); os.rename("o.tmp", "old"); sync(".")')
    check("a file that was not synced", contents(found, "old") >= {b"", b"after", bytes(5)} and
          b"before" not in contents(found, "old"), found)
    found, _ = outcomes('os.unlink("old")')
    check("a removed file may come back", contents(found, "old") == {None, b"before"}, found)
    found, _ = outcomes('os.unlink("old"); sync(".")')
    check("a removed file", contents(found, "old") == {None}, found)
    found, _ = outcomes('os.mkdir("a"); write("a/b", b"text"); sync("a")')
    check("a folder in a folder that was not synced", contents(found, "a/b") == {None, b"text"},
          found)
    found, _ = outcomes('f = os.open("old", os.O_WRONLY | os.O_APPEND); os.write(f, b"+more")')
    check("an appended file", contents(found, "old") > {b"before", b"before+more"} and
          all(text.startswith(b"before") for text in contents(found, "old")), found)


def test_faults():
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = Path(os.path.realpath(folder))
        expects = 'write("a", b"12"); write("b", b"34")'
        for plan, code in (("write 2 28 1", 1), ("write 3 28 1", 0), ("sync 1 5 1", 1),
                           ("open 2 24 1", 1), ("any 2 kill 1", -9), ("rename 1 5 1", 0)):
            events = root.with_name(root.name + ".events")
            events.unlink(missing_ok=True)
            got = run(expects, root, CHAOS_PLAN=plan, CHAOS_EVENTS=str(events))
            check(plan, got == code, f"exit code {got}, expected {code}")
            said = events.read_text().splitlines()
            events.unlink()
            fired = [line for line in said if not line.startswith("count ")]
            check(plan, len(fired) == (code != 0), said)
        check("full disk", run(expects, root, CHAOS_SPACE="3 9") == 0 and
              (root / "b").read_bytes() == b"3", "a part is written before the disk is full")
        check("full disk", run(expects + '; write("c", b"5")', root, CHAOS_SPACE="3 9") == 1,
              "nothing is written to a full disk")
        check("elsewhere", run("os.write(1, b'')", root, CHAOS_PLAN="any 1 kill 1") == 0,
              "files outside of the folder count")


test_cuts()
test_faults()
print(f"{len(failures)} failures" if failures else "the shim and the model of a disk hold")
sys.exit(1 if failures else 0)
