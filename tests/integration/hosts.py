"""hosts.py GRADUS PROCESSES_RUN: two "machines" with two processes each, and a cable between them.

The machines are network namespaces, the cable a pair of virtual interfaces. A run over both equals
one on a single machine. When the cable is cut in the middle of a run, all processes end within the
timeout and ten seconds, and say whom they lost; started again, the run goes on from its last
checkpoint, bit for bit. Needs root and `ip netns`; elsewhere exit code 77 and the reason.
"""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from processes import GRADUS, RUN, alive, check, failures, finish, losses, result, run

TIMEOUT = 8  # --ddp_timeout
NAMES = [f"gradus{os.getpid()}{side}" for side in "ab"]
CABLE = [f"gr{os.getpid() % 10**7}{side}" for side in "ab"]
SUBNET = f"10.{random.randrange(100, 250)}.{random.randrange(250)}"
FLAGS = ("--max_steps", "600", "--save_steps", "50", "--save_total_limit", "3", "--logging_steps",
         "50", "--per_device_train_batch_size", "2", "--ddp_timeout", str(TIMEOUT))


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def connect():
    for name in NAMES:
        ip("netns", "add", name)
    ip("link", "add", CABLE[0], "netns", NAMES[0], "type", "veth", "peer", "name", CABLE[1],
       "netns", NAMES[1])
    for number, (name, end) in enumerate(zip(NAMES, CABLE)):
        ip("-n", name, "addr", "add", f"{SUBNET}.{number + 1}/24", "dev", end)
        ip("-n", name, "link", "set", end, "up")
        ip("-n", name, "link", "set", "lo", "up")


def disconnect():
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)


def start_on(number, folder, *flags):
    words = ["ip", "netns", "exec", NAMES[number], GRADUS, "launch", "--nproc", "2", "--nnodes",
             "2", "--node_rank", str(number), "--master_addr", f"{SUBNET}.1", "--master_port",
             "29511", "--", RUN, "--output_dir", str(folder), *flags]
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": CABLE[number]}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def run_on_both(folder, *flags):
    return [finish(process) for process in [start_on(number, folder, *flags) for number in (0, 1)]]


def same_run(folder):
    code, output = run(folder / "one", 4, *FLAGS)
    check("one machine", code == 0, output[-1500:])
    for code, output in run_on_both(folder / "two", *FLAGS):
        check("two machines", code == 0, output[-1500:])
    one, two = result(folder / "one"), result(folder / "two")
    if one and two:
        check("two machines", losses(one) == losses(two) and one["weights"] == two["weights"],
              "they differ from one")
    return one


def cut(folder, goal):
    target = folder / "cut"
    running = [start_on(number, target, *FLAGS) for number in (0, 1)]
    until = time.monotonic() + 60
    while not list(target.glob("checkpoint-*")) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(random.random() * 0.3)
    ip("-n", NAMES[0], "link", "set", CABLE[0], "down")
    began = time.monotonic()
    said = [finish(process) for process in running]
    took = time.monotonic() - began
    print(f"  all ended {took:.1f} s after the cable was cut, timeout {TIMEOUT} s")
    check("cut", took < TIMEOUT + 10, f"it took {took:.1f} s")
    check("cut", all(code not in (0, None) for code, _ in said), [code for code, _ in said])
    for (code, output), lost in zip(said, ("processes 2, 3 of 4 ended, hangs or cannot be reached",
                                           "process 0, which holds the store, has ended")):
        check("cut", lost in output and output.count("[G-DIST-2]") == 1, code, output[-1500:])
    check("cut", not alive(target), "processes are left")
    done = subprocess.run([GRADUS, "verify", str(target)], capture_output=True, text=True,
                          timeout=60)
    check("cut", done.returncode == 0, done.stdout, done.stderr)
    ip("-n", NAMES[0], "link", "set", CABLE[0], "up")
    for code, output in run_on_both(target, *FLAGS):
        check("again", code == 0, output[-1500:])
    found = result(target)
    check("again", found and losses(found) == losses(goal) and
          found["weights"] == goal["weights"], "the run that went on differs")


def main():
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        return 77
    try:
        connect()
    except OSError as error:
        disconnect()
        print("skipped: network namespaces are not permitted:", error)
        return 77
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            goal = same_run(folder)
            if goal:
                cut(folder, goal)
    finally:
        disconnect()
    print("ok" if not failures else f"{len(failures)} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
