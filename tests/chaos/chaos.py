"""chaos.py --build DIR [--seconds N] [--seed N] [--workers N]: trains small models of every kind
while it kills them, stops them, fills the disk, lets system calls fail, damages files and cuts the
power; resumes them; and compares how they end with a run that nobody disturbed, bit for bit.

A round is one run, from its start to its end, with everything that happens to it on the way; its
number is the seed of all its choices. The folder of a round that fails is kept in DIR/chaos, and
`make chaos SEED=number` begins with that round. Uses only the standard library.
"""
import argparse
import collections
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import kinds as all_kinds
from rounds import Failure, Round, measure

THOUSANDS = "{:,}".format


class Tally:
    """What was done, counted by all workers."""

    def __init__(self):
        self.lock, self.counts = threading.Lock(), collections.Counter()

    def add(self, what, number=1):
        with self.lock:
            self.counts[what] += number

    def starting_with(self, prefix):
        return {what[len(prefix):]: number for what, number in sorted(self.counts.items())
                if what.startswith(prefix)}

    def report(self, seconds, first_seed):
        counts = self.counts
        details = lambda prefix: ", ".join(f"{what} {THOUSANDS(number)}" for what, number in
                                           self.starting_with(prefix).items()) or "none"
        kills, faults = (sum(self.starting_with(each).values()) for each in ("kill: ", "fault: "))
        return "\n".join([
            f"chaos: {THOUSANDS(counts['rounds'])} rounds with {THOUSANDS(counts['runs'])} runs in "
            f"{seconds:.0f} seconds, seeds from {first_seed} on",
            f"  rounds           {details('kind: ')}",
            f"  kills            {THOUSANDS(kills)}: {details('kill: ')}",
            f"  injected faults  {THOUSANDS(faults)}: {details('fault: ')}",
            f"  signals and such {details('signal: ')}",
            f"  damaged files    {details('damage: ')}",
            f"  lost             {THOUSANDS(counts['lost'])}",
            f"  differing        {THOUSANDS(counts['differing'])}",
            f"  other failures   {THOUSANDS(counts['other'])}",
        ])


class Chaos:
    """Workers that play rounds until the time is over."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.build = Path(options.build).resolve()
        self.tally, self.seeds = Tally(), itertools.count(options.seed)
        self.end, self.failed = 0.0, False
        self.kinds = all_kinds.all_kinds(self.build)

    def prepare(self):
        inputs = self.work / "inputs"
        inputs.mkdir()
        all_kinds.make_inputs(inputs, self.build / "bin/tiny_models")
        todo = list(self.kinds)

        def measure_some():
            while todo:
                kind = todo.pop()
                measure(kind, self.work, self.build)

        self.in_parallel(measure_some)

    def play(self):
        self.end = time.monotonic() + self.options.seconds
        self.in_parallel(self.play_rounds)

    def in_parallel(self, work):
        problems = []

        def guarded():
            try:
                work()
            except BaseException as problem:  # shown by the main thread
                problems.append(problem)

        threads = [threading.Thread(target=guarded, daemon=True)
                   for _ in range(self.options.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]

    def play_rounds(self):
        while time.monotonic() < self.end and not (self.failed and self.options.stop):
            seed = next(self.seeds)
            kind = random.Random(seed).choice(self.kinds)
            played = Round(seed, kind, self.work, self.build, self.tally, self.end)
            try:
                played.play()
            except Failure as failure:
                self.keep(played, failure)
            else:
                shutil.rmtree(played.folder)
            self.tally.add("rounds")
            self.tally.add(f"kind: {kind.name}")

    def keep(self, played, failure):
        self.failed = True
        self.tally.add(failure.kind)
        kept = self.build / "chaos" / f"seed-{played.seed}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(exist_ok=True)
        story = "\n".join([*played.history, f"{failure.kind}: {failure}"])
        (played.folder / "story.txt").write_text(story + "\n")
        shutil.move(played.folder, kept)
        print(f"FAILED, seed {played.seed}, {played.kind.name}\n{story}\n"
              f"kept in {kept}; make chaos SEED={played.seed} repeats it", flush=True)


def main():
    # Under nohup and in a script's background some are ignored, and gradus leaves those alone.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else
                      signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--stop", action="store_true", help="no new round after a failure")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1_000_000)
    # In memory where that is possible: a sync then costs nothing, and rounds are many.
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and \
        shutil.disk_usage(memory).free > 500_000_000
    with tempfile.TemporaryDirectory(prefix="gradus-chaos-", dir=memory if roomy else None,
                                     ignore_cleanup_errors=True) as folder:
        chaos = Chaos(options, Path(os.path.realpath(folder)))
        chaos.prepare()
        start = time.monotonic()
        chaos.play()
        print(chaos.tally.report(time.monotonic() - start, options.seed))
    return 1 if chaos.failed or not chaos.tally.counts["rounds"] else 0


if __name__ == "__main__":
    sys.exit(main())
