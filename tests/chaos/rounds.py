"""One round: a run from its start to its end, with everything that happens to it on the way."""
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import time

from disk import Disk
from kinds import STEPS, HookRun

# A run that nobody disturbs takes less than a second; a slow machine, many others.
MOST_SECONDS = 90
# What each call may answer.
ERRORS = {
    "open": [errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR, errno.EACCES],
    "read": [errno.EIO, errno.EINTR, "short"],
    "write": [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EDQUOT, "short"],
    "sync": [errno.EIO, errno.ENOSPC, errno.EINTR],
    "rename": [errno.EIO, errno.ENOSPC],
    "mkdir": [errno.EIO, errno.ENOSPC],
    "link": [errno.EIO, errno.ENOSPC],
    "unlink": [errno.EIO],
    "truncate": [errno.EIO, errno.EINTR],
    "map": [errno.ENOMEM, errno.EIO],
    "lock": [errno.ENOLCK, errno.EINTR],
    "list": [errno.EIO, errno.EMFILE],
}
HARMLESS = {errno.EINTR, "short"}


def is_harmless(event):
    """Whether a run must survive this fault: a read or a write that was interrupted or short."""
    return event[0] == "failed" and event[1] in ("read", "write") and \
        int(event[3]) in (0, errno.EINTR)


class Failure(Exception):
    """What must not happen. `kind` is lost, differing or other."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Process:
    """A run under the shim."""

    def __init__(self, command, folder, build, settings, name="run"):
        self.errors, self.events = folder / f"{name}-said.txt", folder / f"{name}-events.txt"
        self.events.write_bytes(b"")
        environment = dict(os.environ, OMP_NUM_THREADS="1",
                           XDG_CACHE_HOME=str(folder / "disk/cache"),
                           LD_PRELOAD=str(build / "lib/chaos_shim.so"),
                           CHAOS_ROOT=str(folder / "disk"), CHAOS_EVENTS=str(self.events),
                           **settings)
        environment.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
        with open(self.errors, "wb") as errors:
            self.child = subprocess.Popen(command, cwd=folder / "disk", env=environment,
                                          stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def wait(self, seconds=MOST_SECONDS):
        """The exit code, or None when it still runs after that time."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def finish(self):
        code = self.wait()
        if code is None:
            self.child.kill()
            self.child.wait()
            raise Failure("other", f"still running after {MOST_SECONDS} seconds")
        return code

    def send(self, number):
        self.child.send_signal(number)

    def said(self):
        return self.errors.read_text(errors="replace")

    def fired(self):
        return [line.split() for line in self.events.read_text().splitlines()
                if not line.startswith("count ")]

    def counts(self):
        lines = [line.split() for line in self.events.read_text().splitlines()]
        return {words[1]: int(words[2]) for words in lines if words[0] == "count"}


def make_folder(kind, folder, work):
    """disk/ with the inputs, which are links to the same files."""
    (folder / "disk").mkdir(parents=True)
    for name in kind.inputs:
        source, target = work / "inputs" / name, folder / "disk/inputs" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=os.link)
        else:
            os.link(source, target)


def measure(kind, work, build):
    """The run that nobody disturbs."""
    folder = work / f"whole-{kind.name}"
    make_folder(kind, folder, work)
    start = time.monotonic()
    process = Process(kind.command, folder, build, {})
    code = process.finish()
    kind.seconds, kind.calls = time.monotonic() - start, process.counts()
    run = folder / "disk/run"
    if code != 0 or kind.newest_good(run) != STEPS:
        raise SystemExit(f"chaos: {kind.name} fails undisturbed: exit code {code}, newest good "
                         f"checkpoint {kind.newest_good(run)}\n{process.said()[-3000:]}")
    kind.expected = kind.leaves.result(run)
    shutil.rmtree(folder)


class Round:
    def __init__(self, seed, kind, work, build, tally, end):
        self.seed, self.kind, self.build, self.tally, self.end = seed, kind, build, tally, end
        self.random = random.Random(seed * 7919 + 1)
        self.folder = work / f"round-{seed}"
        self.run = self.folder / "disk/run"
        self.history, self.damaged, self.uncertain = [], set(), set()
        make_folder(kind, self.folder, work)
        # The power is cut in some rounds only: noting every change takes time.
        self.disk = None
        if self.random.random() < 0.4:
            self.disk = Disk(self.folder / "disk", self.folder / "log", self.folder / "grave")

    def play(self):
        for left in range(self.random.randint(2, 9), -1, -1):
            disturbed = left > 0 and time.monotonic() < self.end
            code = self.pick()() if disturbed else self.undisturbed()
            if code == 0:
                break
        if self.kind.leaves.result(self.run) != self.kind.expected and \
                self.kind.newest_good(self.run) < STEPS:
            self.undisturbed()  # the last save failed, which the run may survive
        self.compare("at the end")
        if self.leftovers():
            self.undisturbed()
        if self.leftovers():
            raise Failure("other", f"left behind: {self.leftovers()}")
        if self.disk and self.random.random() < 0.5:
            self.cut_power()
            self.compare_model()
            self.undisturbed()
            self.compare("after a cut of the power at the end")

    def pick(self):
        choices = [(self.kill_in_call, 30), (self.kill_at_moment, 10), (self.fail_call, 34),
                   (self.fill_disk, 8), (self.send_signal, 8), (self.stop_and_continue, 3)]
        if self.disk:
            choices.append((self.cut_in_call, 25))
        elif self.kind.locks:
            choices.append((self.run_twice, 4))
        if self.kind.checkpoints(self.run):
            choices.append((self.damage_checkpoint, 6))
        actions, weights = zip(*choices)
        return self.random.choices(actions, weights)[0]

    # What may happen to a run. Each returns its exit code.

    def undisturbed(self):
        return self.go("undisturbed", {}, lambda process: process.finish())

    def kill_in_call(self):
        plan = f"{self.call_and_number('kill')} kill 1"
        code = self.go(f"kill at: {plan}", {"CHAOS_PLAN": plan}, lambda p: p.finish(), kill=True)
        if code == -signal.SIGKILL:
            self.tally.add("kill: in a call on a file")
        return code

    def kill_at_moment(self):
        moment = self.moment()

        def disturb(process):
            code = process.wait(moment)
            if code is not None:
                return code
            process.send(signal.SIGKILL)
            return process.finish()

        code = self.go(f"kill after {moment:.3f} s", {}, disturb, kill=True)
        if code == -signal.SIGKILL:
            self.tally.add("kill: at a random moment")
        return code

    def cut_in_call(self):
        plan = f"{self.call_and_number('kill')} kill 1"
        code = self.go(f"power cut at: {plan}", {"CHAOS_PLAN": plan}, lambda p: p.finish(),
                       kill=True)
        if code == -signal.SIGKILL:
            self.tally.add("kill: by a power cut")
            self.cut_power()
        return code

    def fail_call(self):
        call_and_number = self.call_and_number("fail")
        call = call_and_number.split()[0]
        error = self.random.choice(ERRORS.get(call, [errno.EIO, errno.ENOSPC]))
        times = self.random.choice([1, 1, 1, 3, 1000])
        if error in HARMLESS:
            times = 1  # a call that is interrupted for ever is no fault that a disk has
        plan = f"{call_and_number} {error} {times}"
        return self.go(f"fault: {plan}", {"CHAOS_PLAN": plan}, lambda p: p.finish())

    def fill_disk(self):
        size, failures = self.random.randint(0, 400_000), self.random.choice([1, 2, 20, 100_000])
        return self.go(f"disk full after {size} bytes, for {failures} calls",
                       {"CHAOS_SPACE": f"{size} {failures}"}, lambda p: p.finish())

    def send_signal(self):
        number = self.random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
        moment, second = self.moment(), self.random.random() < 0.3

        def disturb(process):
            code = process.wait(moment)
            if code is not None:
                return code
            process.send(number)
            if second and process.wait(0.02) is None:
                process.send(number)
            self.tally.add(f"signal: {number.name}")
            return process.finish()

        words = f"{number.name} after {moment:.3f} s{', twice' if second else ''}"
        return self.go(words, {}, disturb, sent=number)

    def stop_and_continue(self):
        moments = [self.moment() / 2, self.random.uniform(0.02, 0.3)]

        def disturb(process):
            if process.wait(moments[0]) is None:
                process.send(signal.SIGSTOP)
                time.sleep(moments[1])
                process.send(signal.SIGCONT)
                self.tally.add("signal: SIGSTOP")
            return process.finish()

        return self.go(f"SIGSTOP after {moments[0]:.3f} s", {}, disturb)

    def damage_checkpoint(self):
        checkpoints = self.kind.checkpoints(self.run)
        path = checkpoints[max(checkpoints)]
        files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
        if not self.kind.has_checksums:
            files = [each for each in files if each.name in self.kind.leaves.needed]
        victim = self.random.choice(sorted(files))
        content = victim.read_bytes()
        ways = ["cut", "emptied", "removed"]
        if self.kind.has_checksums and content:
            ways += ["flipped", "flipped", "flipped"]
        elif not self.kind.has_checksums:
            ways = ["emptied", "removed"]
        way = self.random.choice(ways)
        if way == "flipped":
            at = self.random.randrange(len(content))
            content = content[:at] + bytes([content[at] ^ (1 << self.random.randrange(8))]) + \
                content[at + 1:]
        elif way == "cut":
            content = content[:self.random.randrange(max(1, len(content)))]
        victim.unlink()
        if way != "removed":
            victim.write_bytes(content if way != "emptied" else b"")
        self.damaged.add(path.name)
        if isinstance(self.kind.leaves, HookRun):
            self.uncertain.add(str(max(checkpoints)))  # parts of a zip file mean nothing
        self.tally.add(f"damage: {way}")
        self.history.append(f"{victim.relative_to(self.run)} was {way}")
        if self.kind.is_program and not self.kind.leaves.is_good(path):
            self.refuse_damaged()
        if self.disk:
            self.disk.settle()
        return self.undisturbed() if self.random.random() < 0.3 else self.pick()()

    def run_twice(self):
        """Two runs in one folder: the second one is refused, and the first one does not notice."""
        processes = [Process(self.kind.command, self.folder, self.build, {})]
        processes[0].wait(self.random.uniform(0, 0.8) * self.kind.seconds)
        processes.append(Process(self.kind.command, self.folder, self.build, {}, "second"))
        codes = [process.finish() for process in processes]
        self.tally.add("runs", 2)
        self.tally.add("signal: second run")
        self.history.append(f"two runs at once: exit codes {codes}")
        for code, process in zip(codes, processes):
            if code != 0 and (code != 1 or "[G-CKPT-7]" not in process.said()):
                raise Failure("other", f"exit codes {codes} of two runs\n{process.said()[-2500:]}")
        if 0 not in codes:
            raise Failure("other", "each of two runs was refused because of the other")
        return 0

    def refuse_damaged(self):
        """With `true` a run takes the newest checkpoint, which it must not when that is damaged."""
        process = Process(self.kind.from_newest(), self.folder, self.build, {})
        code, said = process.finish(), process.said()
        self.tally.add("runs")
        if code != 1 or not re.search(r"\[G-CKPT-\d\]", said):
            raise Failure("other", f"the damaged checkpoint was not refused: exit code {code}\n"
                          f"{said[-2500:]}")

    # Choices.

    def call_and_number(self, why):
        """A call on a file that this run will probably make, and which one of its kind."""
        left = 1 - self.kind.newest_good(self.run) / STEPS
        calls = self.kind.calls
        weights = {"kill": {"any": 3, "write": 4, "sync": 3, "rename": 4, "unlink": 2, "mkdir": 1,
                            "open": 2},
                   "fail": {"any": 2, "open": 4, "read": 3, "write": 5, "sync": 4, "rename": 4,
                            "mkdir": 2, "unlink": 2, "map": 1, "link": 2, "truncate": 1, "lock": 1,
                            "list": 1}}[why]
        there = [call for call in weights if calls.get(call, 0) > 0]
        call = self.random.choices(there, [weights[each] for each in there])[0]
        return f"{call} {self.random.randint(1, max(2, round(calls[call] * (0.1 + 0.9 * left))))}"

    def moment(self):
        return self.random.uniform(0.3, 1.1) * self.kind.seconds

    # The run and what must hold after it.

    def go(self, what, settings, disturb, kill=False, sent=None):
        """Starts the run, disturbs it and checks how it ended."""
        before = self.kind.newest_good(self.run)
        if self.disk:
            settings = {**settings, **self.disk.environment()}
        process = Process(self.kind.command, self.folder, self.build, settings)
        try:
            code = disturb(process)
        finally:
            if process.child.poll() is None:
                process.child.kill()
                process.child.wait()
        self.tally.add("runs")
        fired = [words for words in process.fired() if words[0] != "killed"]
        for words in fired[:1]:
            self.tally.add("fault: full disk" if words[0] == "full" else f"fault: {words[1]}")
        if self.disk and code < 0 and not any(words[0] == "killed" for words in process.fired()):
            self.disk.settle()  # a change may have been made and not noted
        now = self.kind.newest_good(self.run)
        self.history.append(f"{what}: exit code {code}, checkpoint {before} before, {now} after")
        self.check_exit(code, process.said(), fired, kill, sent)
        self.check_resume(before, process.said(), fired, code)
        self.check_checkpoints(before)
        return code

    def check_exit(self, code, said, fired, kill, sent):
        shown = f"exit code {code}\n{said[-2500:]}"
        if code == 0:
            return
        if code < 0:
            if -code != (signal.SIGKILL if kill else sent):
                raise Failure("other", f"ended by a signal that nobody sent: {shown}")
        elif sent and code == 128 + sent:
            return
        elif code not in (1, 2) or not fired:
            raise Failure("other", f"failed for no reason: {shown}")
        elif not re.search(r"\[G-[A-Z]+-\d+\]", said):
            raise Failure("other", f"no message with an id: {shown}")
        elif all(is_harmless(words) for words in fired):
            raise Failure("other", f"ended by a call that had to be repeated: {shown}")

    def check_resume(self, expected, said, fired, code):
        """The run went on from the newest good checkpoint."""
        if fired:
            return  # it may not have been able to read it
        found = re.search(r"Continuing from \S*?(\d+)(?:\.pt)?:", said)
        if found and found[1] in self.uncertain:
            return
        if found and int(found[1]) != expected:
            kind = "lost" if int(found[1]) < expected else "other"
            raise Failure(kind, f"it went on from {found[1]}, expected {expected}\n{said[-2500:]}")
        if not found and 0 < expected < STEPS and code == 0:
            raise Failure("lost", f"it began anew, expected {expected}\n{said[-2500:]}")

    def check_checkpoints(self, before):
        """None was lost, and each that has its name is whole."""
        now = self.kind.newest_good(self.run)
        if now < before:
            raise Failure("lost", f"the newest good checkpoint was {before} and is now {now}")
        self.damaged &= {path.name for path in self.kind.checkpoints(self.run).values()}
        for path in self.kind.checkpoints(self.run).values():
            if path.name not in self.damaged and not self.kind.leaves.is_good(path):
                raise Failure("other", f"{path.name} has its name and is not complete")

    def cut_power(self):
        run = self.run.stat().st_ino if self.run.is_dir() else 0
        reported, how = self.disk.cut(self.random)
        self.history.append(how)
        found = [re.fullmatch(self.kind.leaves.names, name)
                 for folder, name in reported if folder == run]
        sure = max((int(match[1]) for match in found if match), default=0)
        now = self.kind.newest_good(self.run)
        if now < sure:
            raise Failure("lost", f"checkpoint {sure} was reported as saved; {now} is left")
        # An older one that was being deleted may have come back in part.
        self.damaged |= {path.name for path in self.kind.checkpoints(self.run).values()
                         if not self.kind.leaves.is_good(path)}

    def leftovers(self):
        """Temporary files and folders, of which the next start must leave none."""
        return sorted(path.name for path in self.run.rglob(".tmp-*"))

    def compare(self, when):
        self.differences(self.kind.leaves.result(self.run), when)

    def compare_model(self):
        """A run that has ended well has its model on the disk."""
        found = self.kind.leaves.result(self.run)
        missing = {name: value for name, value in found.items()
                   if value == "missing" and self.kind.expected[name] != "missing"}
        if missing:
            raise Failure("lost", f"the run had ended, and the power cut took {sorted(missing)}")
        self.differences(found, "after a cut of the power")

    def differences(self, found, when):
        different = [name for name, value in self.kind.expected.items() if found[name] != value]
        if different:
            raise Failure("differing", f"{when} these differ: {', '.join(different)}")
