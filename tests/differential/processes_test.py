"""The Trainer in two processes beside transformers' in two: the same random option sets.

The sets are those of trainer_test.py, with what accelerate offers besides: batches that are split,
dispatched or uneven, streams, data that does not fill the last step. What process 0 says is
compared as there: logs, events, files, states, what calls returned, parameters. Process 1 must have
the same parameters and predictions. Both sides use Gloo on 127.0.0.1. PROCESSES_CASES_SEED=N draws
other sets. Without the peer: exit code 77.
"""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile

from trainer_runs import python_runner
from trainer_test import (TOOL, class_data, class_parameters, compare, compare_logs, is_bit_equal,
                          option_set, wide_set)

WORLD = 2
SETS = 12
TIMEOUT = 300
COMMON = {
    "use_cpu": True, "ddp_backend": "gloo", "ddp_timeout": 60, "report_to": "none",
    "disable_tqdm": True, "log_level": "error", "log_level_replica": "error"
}


def environment(rank, port):
    return os.environ | {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD),
        "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_together(command, folder, timeout=TIMEOUT):
    """Runs `command QUESTIONS ANSWERS-RANK` in every process; their answers, by rank."""
    port = free_port()
    answers = [pathlib.Path(folder, f"answers-{rank}.json") for rank in range(WORLD)]
    running = [
        subprocess.Popen([*command, pathlib.Path(folder, "questions.json"), answers[rank]],
                         env=environment(rank, port)) for rank in range(WORLD)
    ]
    try:
        codes = [process.wait(timeout) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(codes):
        raise RuntimeError(f"{command[0]} ended with {codes}")
    return [json.loads(file.read_text()) for file in answers]


def worker(questions, answers):
    """One of the Python processes."""
    train, results = python_runner(), []
    for run in json.loads(pathlib.Path(questions).read_text()):
        try:
            results.append(train(run))
        except Exception as error:  # options that do not go together
            results.append({"error": repr(error)})
    pathlib.Path(answers).write_text(json.dumps(results, default=str))


def rows_of(data):
    if "sets" in data:
        return [count for _, each in data["sets"] for count in rows_of(each)]
    return [len(next(iter(data.values())))]


def accelerate_set(rng, run):
    """Adds how batches are shared; what transformers cannot do with two processes is left out."""
    args, config = run["args"], {}
    rebalances = args.get("train_sampling_strategy") == "batch_rebalance"
    streams = run.get("stream", [])
    if not rebalances:
        config["dispatch_batches"] = rng.choice([None, None, True, False])
        if rng.random() < 0.3:
            config["split_batches"] = True
            for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
                args[name] += args[name] % WORLD
    dispatches = config.get("dispatch_batches")
    if streams and dispatches is False:
        run["stream"] = [name for name in streams if name == "train"]  # rows are evaluated twice
    steps = [
        WORLD * args[f"per_device_{name}_batch_size"] for name in ("train", "eval")
    ]
    counts = [
        count for part in ("train", "eval", "test") for count in rows_of(run.get(part, {"": []}))
    ]
    if all(count % step == 0 for count in counts for step in steps) and rng.random() < 0.5:
        config["even_batches"] = False
    # with drop_last, accelerate's dispatcher fails for data that does not fill one step
    will_dispatch = dispatches or (dispatches is None and streams)
    if will_dispatch and any(count < max(steps) for count in counts):
        args["dataloader_drop_last"] = False
    args["accelerator_config"] = config
    # Python gives batched metrics the inputs of process 0 only; docs/differences.md
    if args.get("batch_eval_metrics") and "inputs" in args["include_for_metrics"]:
        args["include_for_metrics"].remove("inputs")
    # a pass of a stream that ends inside a window leaks its gradients in Python, not here
    if "train" in run.get("stream", []):
        args["gradient_accumulation_steps"] = 1
    return run


def shared_set(rng, index):
    """Every way to share batches: dispatched or not, split or not, rows or streams. No number of
    rows is a multiple of a step.
    """
    dispatch, split, streams = [None, True, False][index % 3], index // 3 % 2 == 1, index >= 6
    run = {
        "model": "classifier", "parameters": class_parameters(rng), "train": class_data(rng, 27),
        "eval": class_data(rng, 11), "test": class_data(rng, 7), "metrics": "whole", "args": {
            "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "max_steps": 11,
            "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 4, "save_strategy": "no",
            "learning_rate": 0.03, "seed": rng.randrange(1000), "dataloader_drop_last":
                index in (2, 5, 9), "eval_accumulation_steps": [None, 2][index % 2],
            "accelerator_config": {"dispatch_batches": dispatch, "split_batches": split}
        }, "calls": [{"do": "train"}, {"do": "evaluate", "prefix": "eval", "data": "test"},
                     {"do": "predict", "prefix": "test"}]
    }
    if streams:  # without dispatching, Python counts the rows of a stream twice
        run["stream"] = ["train"] if dispatch is False else ["train", "eval", "test"]
    return run


def draw_sets(rng, draw):
    runs = [draw(rng, index) for index in range(SETS)]
    if draw is not shared_set:
        runs = [accelerate_set(rng, run) for run in runs]
    for run in runs:
        # A second train() wraps the model in Python: its evaluations say how long that took.
        # An evaluate() before train() makes accelerate forget to exchange gradients;
        # docs/differences.md
        calls = run.get("calls", [])
        while calls and calls[0]["do"] != "train":
            calls.pop(0)
            for call in calls:
                if "of" in call:
                    call["of"] = max(call["of"] - 1, 0)
        for call in [call for call in calls if call["do"] == "train"][1:]:
            call |= {"do": "evaluate", "prefix": "again"} if "eval" in run else {"do": "save_state"}
        run["args"] |= COMMON
    return runs


def with_folder(run, folder):
    return run | {"args": run["args"] | {"output_dir": folder}}


def option_sets(rng, draw, folder):
    runs, name, wrong, bit_equal, compared = draw_sets(rng, draw), draw.__name__, 0, 0, 0
    all_theirs = ask(
        [sys.executable, __file__, "--worker"],
        [with_folder(run, f"{folder}/theirs-{name}-{i}") for i, run in enumerate(runs)], folder)
    for i, run in enumerate(runs):
        # An error ends a group of ours: each run has processes of its own.
        ours = [
            answers[0]
            for answers in ask([TOOL], [with_folder(run, f"{folder}/ours-{name}-{i}")], folder)
        ]
        theirs = [answers[i] for answers in all_theirs]
        if any("error" in each for each in ours + theirs):
            problems = [] if all("error" in each for each in ours + theirs) else [
                f"here: {ours[0].get('error')}", f"in Python: {theirs[0].get('error')}"
            ]
        else:
            problems = compare(ours[0], theirs[0], f"{folder}/ours-{name}-{i}",
                               f"{folder}/theirs-{name}-{i}")
            if ours[0]["parameters"] != ours[1]["parameters"]:
                problems.append("the processes have different parameters")
            for first, second in zip(ours[0]["calls"], ours[1]["calls"]):
                if first.get("predictions") != second.get("predictions"):
                    problems.append("the processes have different predictions")
            compared += 1
            bit_equal += not problems and all(
                is_bit_equal(ours[0][what], theirs[0][what])
                for what in ("log_history", "calls", "parameters"))
        if problems:
            wrong += 1
            print(
                f"{name} {i}:",
                json.dumps({
                    key: value
                    for key, value in run.items()
                    if key not in ("train", "eval", "test", "parameters")
                }))
            print("  " + "\n  ".join(problems[:8]))
    print(f"{SETS} of {name} in {WORLD} processes, {wrong} differ; {bit_equal} of {compared} that "
          f"train are equal to the last bit")
    return wrong


def moves(rng, folder):
    """A checkpoint of two processes goes on in Python, and one of Python's here. Dropout needs the
    random state of every process.
    """
    wrong = 0
    for window in (1, 2):
        run = {
            "model": "classifier", "dropout": 0.3, "train": class_data(rng, 44),
            "parameters": class_parameters(rng), "args": {
                "per_device_train_batch_size": 4, "gradient_accumulation_steps": window,
                "max_steps": 9, "logging_steps": 1, "save_steps": 4, "learning_rate": 0.03,
                "seed": rng.randrange(1000)
            } | COMMON
        }
        commands = {"here": [TOOL], "Python": [sys.executable, __file__, "--worker"]}
        whole = {
            side: ask(command, [with_folder(run, f"{folder}/{side}-{window}")], folder)
            for side, command in commands.items()
        }
        for first, second in (("here", "Python"), ("Python", "here")):
            resumed = run | {
                "calls": [{"do": "train", "resume": f"{folder}/{first}-{window}/checkpoint-4"}]
            }
            found = ask(commands[second], [with_folder(resumed, f"{folder}/{second}-on-{window}")],
                        folder)
            problems = [] if "error" not in found[0][0] else [found[0][0]["error"]]
            for rank in range(WORLD):
                problems = problems or parameter_differences(found[rank][0], whole[first][rank][0])
            problems = problems or compare_logs(found[0][0]["log_history"][:9],
                                                whole[first][0][0]["log_history"][:9])
            if problems:
                wrong += 1
                print(f"from {first} to {second}, windows of {window}:\n  " +
                      "\n  ".join(problems[:8]))
    print(f"checkpoints of {WORLD} processes moved both ways, {wrong} of 4 went on differently")
    return wrong


def own_options(rng, folder):
    """Options that change no number."""
    run = {
        "model": "classifier", "train": class_data(rng, 27), "parameters": class_parameters(rng),
        "args": {
            "per_device_train_batch_size": 4, "max_steps": 9, "logging_steps": 1,
            "save_strategy": "no", "learning_rate": 0.1, "optim": "sgd",
            "seed": rng.randrange(1000), "output_dir": f"{folder}/own"
        } | COMMON
    }
    kinds = {
        "plain": (run, {}), "static graph":
            (run | {"args": run["args"] | {"ddp_static_graph": True}}, {"ddp_static_graph": True})
    }
    all_theirs = ask([sys.executable, __file__, "--worker"],
                     [theirs for theirs, _ in kinds.values()], folder)
    wrong = 0
    for i, (name, (_, args)) in enumerate(kinds.items()):
        ours = ask([TOOL], [run | {"args": run["args"] | args}], folder)
        problems = [
            each[number]["error"] for each, number in ((ours[0], 0), (all_theirs[0], i))
            if "error" in each[number]
        ]
        for rank in range(WORLD):
            problems = problems or parameter_differences(ours[rank][0], all_theirs[rank][i])
        problems = problems or compare_logs(ours[0][0]["log_history"],
                                            all_theirs[0][i]["log_history"])
        if problems:
            wrong += 1
            print(f"{name}:\n  " + "\n  ".join(problems[:8]))
    print(f"{len(kinds)} runs with options of ours, {wrong} differ")
    return wrong


def parameter_differences(ours, theirs):
    return [
        f"parameter {name} differs" for name, values in theirs["parameters"].items()
        if max(abs(a - b) for a, b in zip(ours["parameters"][name], values)) > 1e-5
    ]


def ask(command, runs, folder):
    pathlib.Path(folder, "questions.json").write_text(json.dumps(runs))
    return run_together(command, folder)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return worker(*sys.argv[2:])
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        print("skipped: the Python peer is not there:", error)
        return 77
    if not TOOL.exists():
        print(f"skipped: {TOOL} is not built")
        return 77
    seed = os.environ.get("PROCESSES_CASES_SEED", "1")
    if seed == "random":
        seed = str(random.SystemRandom().randrange(10**6))
    print("seed", seed)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        wrong = own_options(random.Random(seed), folder)
        wrong += moves(rng, folder)
        wrong += option_sets(random.Random(seed), shared_set, folder)
        wrong += option_sets(rng, option_set, folder)
        wrong += option_sets(rng, wide_set, folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
