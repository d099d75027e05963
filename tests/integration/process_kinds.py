"""process_kinds.py GRADUS PROCESSES_RUN: the hook and the functional trainer in several processes,
what every strategy costs, the environment of mpirun and srun, and what transformers' tests of
several processes check.

The other programs lie beside PROCESSES_RUN. Names of parts after the two run only these.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

from processes import (GRADUS, RUN, TIMEOUT, alive, check, distance, finish, losses, result, run,
                       run_parts)

FOLDER = pathlib.Path(RUN).parent


def launched(processes, *words, variables=()):
    command = [str(word) for word in words]
    if processes > 1:
        command = [GRADUS, "launch", "--nproc", str(processes), "--", *command]
    env = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    return finish(
        subprocess.Popen(command, env=env | {"OMP_NUM_THREADS": "1"} | dict(variables),
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))


def trainers(folder):
    """Hooks (accelerate's way) and functional (pmap's way): as one process with the whole batch."""
    for kind in ("hooks", "functional"):
        found = {}
        for processes in (1, 2, 4):
            target = folder / f"{kind}-{processes}"
            target.mkdir()
            code, output = launched(processes, FOLDER / "trainers_run", kind, target,
                                    8 // processes)
            if not check(kind, code == 0, processes, "processes:", code, output[-1500:]):
                return
            found[processes] = result(target)
            last = result(target, processes - 1)
            check(kind, last["weights"] == found[processes]["weights"],
                  "the processes have different weights")
            check(kind, last["losses"] == found[processes]["losses"], "or losses")
        for processes in (2, 4):
            one, many = found[1], found[processes]
            check(kind, one["steps"] == many["steps"] and one["samples"] == many["samples"],
                  one["steps"], many["steps"], one["samples"], many["samples"])
            for what in ("losses", "weights"):
                far = distance(one[what], many[what])
                check(kind, far < 1e-6, processes, "processes:", what, "differ by", far)
        saved = sorted(path.name for path in (folder / f"{kind}-2").iterdir())
        alone = sorted(path.name for path in (folder / f"{kind}-1").iterdir())
        check(kind, set(saved) - {"result-1.json"} == set(alone), saved, alone)
        target = folder / f"{kind}-fault"
        target.mkdir()
        code, output = launched(2, FOLDER / "trainers_run", kind, target, 4, "fault")
        check(kind, code not in (0, None) and "process 1 failed: a bad row" in output, code,
              output[-1500:])
        check(kind, not alive(target), "processes are left")


def costs(folder):
    """Bytes of tensors and bytes sent, beside the formulas of docs/dev/distributed.md."""
    for processes in (2, 4):
        share = 1 / processes
        moved = (processes - 1) / processes
        for stage in range(4):
            name, target = f"stage {stage}, {processes} processes", folder / f"{stage}-{processes}"
            code, output = launched(processes, FOLDER / "costs_run", "--output_dir", target,
                                    "--zero_stage", stage)
            if not check(name, code == 0, code, output[-1500:]):
                continue
            costs_of = [
                json.loads((target / f"costs-{rank}.json").read_text()) for rank in range(processes)
            ]
            most = max(cost["peak"] for cost in costs_of)
            for rank, cost in enumerate(costs_of):
                p = cost["parameters"]
                # after a step: parameters and AdamW's two moments; gradients only where they stay
                held = {0: 4 * p, 1: p + 2 * p * share, 2: p + 2 * p * share, 3: 3 * p * share}
                # before the optimizer's step
                full = {0: 4 * p, 1: p + 3 * p * share, 2: p + 3 * p * share, 3: 4 * p * share}
                # in a step: gradients before they move into their buckets; with sharding a few of
                # the 64 blocks, and activations
                peak = 5 * p if stage == 0 else full[stage]
                sent = {0: 2 * p, 1: 2 * p, 2: 2 * p, 3: 3 * p}[stage] * moved
                ideal = {"held": held[stage], "before_step": full[stage], "sent": sent}
                if rank == 0:
                    print(f"  {name}: " + ", ".join(
                        f"{what} {cost[what]:,} = {cost[what] / number:.3f} x"
                        for what, number in ideal.items()) +
                          f", peak {most:,} = {most / peak:.3f} x")
                for what, number in ideal.items():
                    check(name, 0.9 * number < cost[what] <= 1.1 * number, rank, what, cost[what],
                          "ideal:", number)
                check(name, cost["peak"] <= 1.1 * peak, rank, "peak", cost["peak"], "of", peak)


def launchers(folder):
    """Exactly the variables that Open MPI, MPICH and Slurm set."""
    sets = {
        "mpirun": lambda rank: {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK":
                rank, "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "OMPI_COMM_WORLD_NODE_RANK": rank,
            "OMPI_UNIVERSE_SIZE": 2
        }, "mpiexec": lambda rank: {
            "PMI_RANK": rank, "PMI_SIZE": 2, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": 2
        }, "srun": lambda rank: {
            "SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": 2, "SLURM_LOCALID": rank,
            "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NTASKS": 2, "SLURM_NPROCS": 2,
            "SLURM_TASKS_PER_NODE": "2", "SLURM_NODEID": 0, "SLURM_STEP_NUM_NODES": 1
        }
    }
    flags = ("--save_strategy", "no", "--max_steps", "6", "--logging_steps", "1",
             "--per_device_train_batch_size", "4")
    code, output = run(folder / "launch", 2, *flags)
    check("launchers", code == 0, output[-1500:])
    goal = losses(result(folder / "launch"))
    for name, variables in sets.items():
        target = folder / name
        port = free_port()
        running = [
            subprocess.Popen([RUN, "--output_dir", str(target), *flags],
                             env=os.environ | {"OMP_NUM_THREADS": "1", "MASTER_PORT": str(port)} |
                             {key: str(value)
                              for key, value in variables(rank).items()}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True) for rank in range(2)
        ]
        said = [finish(process) for process in running]
        if check(name, all(code == 0 for code, _ in said), said):
            check(name, result(target, 1)["world"] == 2 and losses(result(target)) == goal,
                  "the run differs")
    if shutil.which("mpirun") is None:
        print("  mpirun is not installed: only its variables were tried")
        return
    done = subprocess.run([
        "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "-x", "OMP_NUM_THREADS=1",
        "-x", "MASTER_ADDR=127.0.0.1", "-x", f"MASTER_PORT={free_port()}", RUN, "--output_dir",
        str(folder / "real"), *flags
    ], capture_output=True, text=True, timeout=TIMEOUT)
    if check("mpirun itself", done.returncode == 0, done.stdout, done.stderr):
        check("mpirun itself", losses(result(folder / "real")) == goal, "the run differs")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peers(folder):
    """What transformers' tests of two processes check (docs/dev/peer-tests.md, 155 to 160)."""
    flags = ("--max_steps", "4", "--save_strategy", "no", "--per_device_eval_batch_size", "4")
    for rows in (49, 7):
        for more in ((), ("--eval_accumulation_steps", "2")):
            name = f"order of {rows} rows {' '.join(more)}"
            target = folder / name.replace(" ", "-")
            found = {}
            for processes in (1, 2):
                code, output = run(target / str(processes), processes, *flags, *more,
                                   "--per_device_train_batch_size", str(8 // processes),
                                   variables={"TEST_ROWS": str(rows)})
                if not check(name, code == 0, code, output[-1500:]):
                    return
                found[processes] = result(target / str(processes))
            for rank in range(2):
                other = result(target / "2", rank)
                check(name, len(other["labels"]) == rows and
                      other["labels"] == found[1]["labels"], "labels of", rank)
                check(name, distance(other["predictions"], found[1]["predictions"]) < 1e-6,
                      "predictions of", rank)
    for number, (levels, count) in enumerate([(("--log_level", "info"), 1),
                                              (("--log_level", "debug", "--log_level_replica",
                                                "debug"), 2),
                                              (("--log_level", "error", "--log_level_replica",
                                                "debug"), 1),
                                              (("--log_level", "error", "--log_level_replica",
                                                "error"), 0)]):
        code, output = run(folder / f"levels-{number}", 2, *flags, *levels)
        check("log levels", code == 0 and output.count("Running training") == count, levels, code,
              output.count("Running training"), output[-1000:])
    for precision in ("--bf16", "--fp16"):
        code, output = run(folder / precision, 2, *flags, precision, "--eval_strategy", "steps",
                           "--eval_steps", "2", "--gradient_accumulation_steps", "2")
        found = result(folder / precision)
        check(precision, code == 0 and abs(found["eval_loss"]) < 1e3, code, output[-1000:])
    code, output = run(folder / "one row", 2, "--max_steps", "3", "--save_strategy", "no",
                       "--accelerator_config", '{"dispatch_batches": false}',
                       variables={"STREAM": "1"})
    check("a stream of one row", code == 0, code, output[-1500:])


def program(folder):
    """The program of docs/user/distributed.md, as one process and as many."""
    example = FOLDER / "docs_distributed_1"
    if not example.exists():
        print("  the programs of the pages are not built")
        return
    for processes in (1, 2, 4):
        code, output = launched(processes, example, "--output_dir", folder / str(processes),
                                "--per_device_train_batch_size", 8 // processes, "--use_cpu")
        check("the page's program", code == 0 and "256 rows" in output, processes, code,
              output[-1500:])


if __name__ == "__main__":
    sys.exit(run_parts(trainers, costs, launchers, peers, program))
