"""processes.py GRADUS PROCESSES_RUN: runs with several processes, started by `gradus launch`.

The same global batch gives the same losses with 1, 2 and 4 processes, in half precision those of
one process that takes the batch in as many parts; predictions come in order; a
signal saves once and ends all; a process that fails, dies or hangs ends the others with a message
that names it, whenever that happens; a run that is started again goes on as if nothing had
happened. With GRADUS_LONG=1 there are 180 such moments instead of 3. Uses only the standard library
and 127.0.0.1. Every process is waited for, at most TIMEOUT seconds.
"""

import concurrent.futures
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

GRADUS, RUN = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
TIMEOUT = 60
LONG = os.environ.get("GRADUS_LONG") == "1"
SETS = {
    "plain": [],
    "windows and clipping": ["--gradient_accumulation_steps", "2", "--max_grad_norm", "0.05"],
    "fp16": ["--fp16", "--optim", "sgd"],
    "fp16, windows and clipping":
        ["--fp16", "--gradient_accumulation_steps", "2", "--max_grad_norm", "0.5"],
    "bf16": ["--bf16", "--optim", "sgd"],
    "buckets": ["--ddp_bucket_cap_mb", "1", "--ddp_broadcast_buffers", "false"],
}
failures = []


def check(name, condition, *details):
    if not condition:
        failures.append(name)
        print(f"FAILED {name}:", *details)
    return condition


def start(folder, processes, *flags, launch=(), variables=()):
    """`gradus launch` with PROCESSES_RUN, or that alone."""
    command = [RUN, "--output_dir", str(folder), *flags]
    if processes > 1 or launch:
        command = [GRADUS, "launch", "--nproc", str(processes), *launch, "--", *command]
    env = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    return subprocess.Popen(command, env=env | {"OMP_NUM_THREADS": "1"} | dict(variables),
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    """Exit code and output; what does not end in time is killed."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(), "(it did not end in time)"
    return process.returncode, output


def run(*arguments, **options):
    return finish(start(*arguments, **options))


def result(folder, rank=0):
    file = pathlib.Path(folder, f"result-{rank}.json")
    return json.loads(file.read_text()) if file.exists() else None


def losses(found):
    """What the log says of training and evaluation."""
    return [[entry.get(key) for key in ("step", "loss", "grad_norm", "eval_loss")]
            for entry in found["log_history"]
            if "loss" in entry or "eval_loss" in entry]


def trained(found):
    """Step, loss and gradient norm of every log of training."""
    return [entry[:3] for entry in losses(found) if entry[1] is not None]


def distance(a, b):
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((distance(x, y) for x, y in zip(a, b)), default=0)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b)
    return 0 if a == b else float("inf")


def alive(folder):
    """Processes that still work on a folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def same_losses(folder):
    for name, flags in SETS.items():
        window = 2 if "--gradient_accumulation_steps" in flags else 1
        found = {}
        for processes, parts in WAYS if {"--fp16", "--bf16"} & set(flags) else WAYS[:3]:
            target = folder / f"{name}-{processes}-{parts}".replace(" ", "-")
            code, output = run(target, processes, "--eval_strategy", "epoch", "--save_strategy",
                               "no", "--max_steps", str(24 // window), *flags,
                               "--per_device_train_batch_size", str(8 // processes // parts),
                               "--gradient_accumulation_steps", str(window * parts))
            if not check(name, code == 0, processes, "processes:", code, output[-1500:]):
                return
            found[processes, parts] = result(target)
            world = found[processes, parts]["world"]
            check(name, world == processes, world)
            last = result(target, processes - 1)
            for key in ("predictions", "weights", "eval_loss"):
                check(name, last[key] == found[processes, parts][key], "the processes differ in",
                      key)
        for processes in (2, 4):
            compare(name, found, processes)


# Processes, and the parts in which each takes a micro-batch.
WAYS = [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4)]


def compare(name, found, processes):
    """Several processes with one, which in half precision takes a batch in as many parts.

    There, sums over the rows of a batch are rounded to 11 or 8 bits, and with fp16 they may be
    infinite where sums over its parts are not. One process that takes the batch in parts does what
    the processes do, so it is as far from the whole batch as they are.
    """
    whole, many = found[1, 1], found[processes, 1]
    one = found.get((1, processes), whole)
    # The last batch of an evaluation weighs as in transformers: not by its rows alone.
    far = distance(trained(one), trained(many))
    check(name, far < 1e-6, processes, "processes: the losses differ by", far,
          distance(losses(one), losses(many)))
    check(name, len(many["predictions"]) == 53 and many["labels"] == one["labels"],
          "predictions are not in order")
    far = distance(one["predictions"], many["predictions"])
    check(name, far < 1e-5, processes, "processes: predictions differ by", far)
    far, of_parts = (distance(trained(whole), trained(each)) for each in (many, one))
    print(f"  {name}, {processes} processes: {far:.2g} from the whole batch in one process")
    check(name, far < of_parts + 1e-6, far, of_parts)


def signals(folder):
    flags = ("--save_steps", "10000", "--num_train_epochs", "150", "--logging_steps", "100")
    code, output = run(folder / "whole", 2, *flags)
    check("signals", code == 0, output[-1500:])
    for name, to in (("to the launcher", None), ("to one process", 1)):
        target = folder / f"signal-{to}"
        if to is None:
            process = start(target, 2, *flags)
            while "loss" not in (line := process.stdout.readline()) and line:
                pass
            process.send_signal(signal.SIGTERM)
            code, output = finish(process)
        else:
            code, output = run(target, 2, *flags, variables={"FAULT": f"{to}:250:term"})
        saved = sorted(path.name for path in target.glob("checkpoint-*"))
        if not check(name, code == 143, "exit code", code, saved, output[-1500:]):
            continue
        check(name, len(saved) == 1, saved, output)
        check(name, not alive(target), "processes are left")
        check(name, {"rng_state_0.pth", "rng_state_1.pth"} <=
              {path.name for path in (target / saved[0]).iterdir()}, "no random states")
        code, output = run(target, 2, *flags)
        check(name, code == 0, output[-1500:])
        whole, resumed = result(folder / "whole"), result(target)
        check(name, losses(whole) == losses(resumed), "the resumed run differs")
        check(name, whole["weights"] == resumed["weights"], "its weights differ")


def faults(folder):
    flags = ("--save_steps", "5", "--max_steps", "12", "--ddp_timeout", "6")
    says = {
        "throw": "process {} failed: a bad row", "kill": "process {} ", "exit": "process {} ",
        "stop": "process {} of 3 ended, hangs or cannot be reached"
    }
    for how, text in says.items():
        for rank in (0, 2):
            name, target = f"{how} {rank}", folder / f"{how}-{rank}"
            began = time.monotonic()
            code, output = run(target, 3, *flags, variables={"FAULT": f"{rank}:7:{how}"})
            took = time.monotonic() - began
            text_of_rank = text.format(rank)
            if how == "stop" and rank == 0:  # the store stands still with it
                text_of_rank = "process 0"
            check(name, code not in (0, None), "exit code", code)
            check(name, text_of_rank in output, output[-1500:])
            check(name, output.count("[G-DIST-2]") == 1, output[-1500:])
            check(name, took < 6 + 10 + 3, f"it took {took:.1f} s")  # 3 s for the start
            check(name, not alive(target), "processes are left")


def pid_of(rank, launcher):
    """The process with this rank among the children of a launcher."""
    children = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True,
                              timeout=TIMEOUT).stdout.split()
    for pid in children:
        try:
            if f"RANK={rank}".encode() in pathlib.Path("/proc", pid, "environ").read_bytes().split(
                    b"\0"):
                return int(pid)
        except OSError:
            pass
    return None


def moment(folder, goal, how, rank, attempt):
    """One fault at a random moment, which all survive by ending; then the run goes on."""
    name, target = f"{how} {rank} at moment {attempt}", folder / f"{how}-{rank}-{attempt}"
    chance = random.Random(f"{how}-{rank}-{attempt}")
    if how == "throw":
        process = start(target, 3, *MOMENT_FLAGS,
                        variables={"FAULT": f"{rank}:{chance.randrange(1, 250)}:throw"})
        until_then = time.monotonic()
    else:
        process = start(target, 3, *MOMENT_FLAGS)
        until = time.monotonic() + TIMEOUT
        while not (target / "checkpoint-10").exists() and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.5)
        pid = pid_of(rank, process.pid)
        until_then = time.monotonic()
        if pid is not None:
            os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    code, output = finish(process)
    took = time.monotonic() - until_then
    if code == 0:
        return None  # it had ended before
    check(name, f"process {rank}" in output and output.count("[G-DIST-2]") == 1, output[-1500:])
    check(name, took < MOMENT_TIMEOUT + 10 + (5 if how == "throw" else 0), f"it took {took:.1f} s")
    check(name, not alive(target), "processes are left")
    if attempt % 4 == 0:
        code, output = run(target, 3, *MOMENT_FLAGS)
        check(name, code == 0 and losses(result(target)) == losses(goal) and
              result(target)["weights"] == goal["weights"], "the run that went on differs", code,
              output[-1500:])
    return took


MOMENT_TIMEOUT = 4
MOMENT_FLAGS = ("--save_steps", "10", "--save_total_limit", "2", "--max_steps", "300",
                "--ddp_timeout", str(MOMENT_TIMEOUT))


def moments(folder):
    """Faults at random moments in every rank: 20 of each kind with GRADUS_LONG=1, else 1."""
    code, output = run(folder / "goal", 3, *MOMENT_FLAGS)
    if not check("moments", code == 0, output[-1500:]):
        return
    goal = result(folder / "goal")
    with concurrent.futures.ThreadPoolExecutor(2 if LONG else 1) as pool:
        for how in ("kill", "stop", "throw"):
            jobs = [
                pool.submit(moment, folder, goal, how, rank, attempt)
                for rank in range(3)
                for attempt in range(20 if LONG else 1)
                if LONG or rank == 1
            ]
            times = [job.result() for job in jobs]
            took = [each for each in times if each is not None]
            print(f"  {how}: {len(took)} of {len(times)} hit the run, the longest end took "
                  f"{max(took, default=0):.1f} s", flush=True)


def restarts(folder):
    flags = ("--save_steps", "4", "--max_steps", "20")
    code, output = run(folder / "undisturbed", 2, *flags)
    check("restarts", code == 0, output[-1500:])
    for how in ("kill", "throw"):
        target = folder / f"again-{how}"
        code, output = run(target, 2, *flags, launch=("--max_restarts", "2"),
                           variables={"FAULT": f"1:10:{how}"})
        if check(f"restart after {how}", code == 0, code, output[-1500:]):
            check(f"restart after {how}",
                  losses(result(target)) == losses(result(folder / "undisturbed")) and
                  result(target)["weights"] == result(folder / "undisturbed")["weights"],
                  "the run differs")


def other_numbers(folder):
    """A checkpoint of two processes goes on with one and with four."""
    flags = ("--save_steps", "6", "--lr_scheduler_type", "constant")
    for processes in (1, 4):
        target = folder / f"from-2-to-{processes}"
        code, output = run(target, 2, *flags, "--max_steps", "6", "--per_device_train_batch_size",
                           "4")
        check("other numbers", code == 0, output[-1500:])
        code, output = run(target, processes, *flags, "--max_steps", "12",
                           "--per_device_train_batch_size", str(8 // processes))
        if check("other numbers", code == 0, output[-1500:]):
            whole = folder / "of-one"
            run(whole, 1, *flags, "--max_steps", "12")
            far = distance([e[:3] for e in losses(result(whole))],
                           [e[:3] for e in losses(result(target))])
            check("other numbers", far < 1e-6, processes, "processes: the losses differ by", far)


def refusals(folder):
    code, output = run(folder / "odd", 2, variables={"ODD_RATE": "1"})
    check("different options", code == 2 or "G-DIST-5" in output, code, output)
    check("different options",
          "differ in learning_rate: 0.01 in process 0, 0.5 in process 1" in output, output)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    alone = {
        "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR":
            "127.0.0.1", "MASTER_PORT": str(port)
    }
    code, output = run(folder / "alone", 1, "--ddp_timeout", "2", variables=alone)
    check("a process is missing", code == 1 and "missing process 1" in output and
          "[G-DIST-3]" in output, code, output)
    done = subprocess.run([GRADUS, "launch", "--nproc", "2", "--", "/no/such/program"],
                          capture_output=True, text=True, timeout=TIMEOUT)
    check("no program", done.returncode == 127 and "[G-CLI-9]" in done.stderr, done)
    done = subprocess.run([GRADUS, "launch", "--nproc", "2"], capture_output=True, text=True,
                          timeout=TIMEOUT)
    check("nothing to start", done.returncode == 2 and "[G-CLI-4]" in done.stderr, done)


def run_parts(*parts):
    """Runs the parts that the command line names after the programs, or all; the exit code."""
    with tempfile.TemporaryDirectory() as name:
        for part in parts:
            if len(sys.argv) > 3 and part.__name__ not in sys.argv[3:]:
                continue
            began = time.monotonic()
            folder = pathlib.Path(name, part.__name__)
            folder.mkdir()
            part(folder)
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    print("ok" if not failures else f"{len(failures)} checks failed: {json.dumps(failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(run_parts(same_losses, signals, faults, moments, restarts, other_numbers, refusals))
