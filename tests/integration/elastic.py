"""elastic.py GRADUS PROCESSES_RUN: --elastic_order, with which steps do not depend on the number of
processes, and --ddp_comm_hook.

The same flags give the same losses with 1, 2, 3, 4 and 8 processes, also when the last batch is
short, when a batch does not divide, and in a run that goes on with another number of processes at
every resume. So it is with a mean over rows (PROCESSES_RUN), with a loss that is divided by the
tokens of a step (causal-lm), with those that take that number and do not use it
(text-classification, summarization), and with masks that a collator draws (masked-lm). With
GRADUS_LONG=1 all numbers of processes are tried with all kinds.
"""

import json
import pathlib
import subprocess
import sys

from processes import GRADUS, LONG, RUN, check, distance, finish, losses, result, run, run_parts

NUMBERS = (2, 3, 4, 8)


def trained(found):
    """Step, loss and gradient norm of every log."""
    return [entry[:3] for entry in losses(found) if entry[1] is not None]


def relative(a, b):
    """The largest distance of two logs, each number measured by its own size where that is over 1:
    masked-lm begins with a loss of 9, where two neighbouring float32 are 9.5e-7 apart.
    """
    return max((distance(x, y) / max(1, abs(x)) for one, other in zip(a, b)
                for x, y in zip(one, other)), default=float("inf"))


def same_losses(folder):
    """45 rows in batches of 8: the last batch of a pass has 5."""
    kinds = {
        "plain": [], "windows": ["--gradient_accumulation_steps", "2", "--max_grad_norm", "0.05"],
        "dropped": ["--dataloader_drop_last"], "sharded": ["--zero_stage", "3"]
    }
    for kind, flags in kinds.items():
        flags = ("--elastic_order", "--save_strategy", "no", "--logging_steps", "1", "--max_steps",
                 "15", *flags)
        one = None
        for processes in (1, *(NUMBERS if LONG else (2, 8) if kind == "plain" else (3,))):
            name, target = f"{kind}, {processes} processes", folder / f"{kind}-{processes}"
            code, output = run(target, processes, *flags, variables={"TRAIN_ROWS": "45"})
            if not check(name, code == 0, code, output[-1500:]):
                break
            found = result(target)
            one = one or found
            check(name, len(trained(one)) == 15, len(trained(one)))
            check(name, distance(trained(one), trained(found)) < 1e-6, "the losses differ by",
                  distance(trained(one), trained(found)))
            for key in one["weights"]:
                far = distance(one["weights"][key], found["weights"][key])
                check(name, far < 1e-5, key, "differs by", far)


def changing_numbers(folder):
    """1, 4, 2, 8 and 3 processes, one after the other, in the middle of passes and of logs."""
    flags = ("--elastic_order", "--save_steps", "4", "--logging_steps", "3", "--lr_scheduler_type",
             "constant", "--gradient_accumulation_steps", "2")
    rows = {"TRAIN_ROWS": "85"}
    code, output = run(folder / "one", 1, *flags, "--max_steps", "20", variables=rows)
    check("one process", code == 0, output[-1500:])
    for number, processes in enumerate((1, 4, 2, 8, 3)):
        code, output = run(folder / "many", processes, *flags, "--max_steps", str(4 * number + 4),
                           variables=rows)
        if not check(f"{processes} processes go on", code == 0, code, output[-1500:]):
            return
    far = distance(trained(result(folder / "one")), trained(result(folder / "many")))
    check("changing numbers", far < 1e-6, "the losses differ by", far)


def program(target, processes, *flags):
    """The log of `gradus train` with these flags."""
    command = [GRADUS, "launch", "--nproc", str(processes)] if processes > 1 else [GRADUS]
    command += [
        "train", "--output_dir", str(target), "--use_cpu", "--elastic_order", "--max_steps", "8",
        "--logging_steps", "1", "--save_strategy", "no", "--per_device_train_batch_size", "8",
        "--learning_rate", "1e-3", "--disable_tqdm", "--report_to", "none", *flags
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    code, output = finish(process)
    if not check(target.name, code == 0, code, output[-1500:]):
        return None
    return json.loads((target / "trainer_state.json").read_text())


def tasks(folder):
    models = folder / "models"
    done = subprocess.run([pathlib.Path(RUN).parent / "tiny_models", models], capture_output=True,
                          text=True, timeout=60)
    if not check("tiny_models", done.returncode == 0, done.stderr):
        return
    sentences = (models / "text.txt").read_text().splitlines()
    rows = [{"sentence": line, "label": i % 3} for i, line in enumerate(sentences[:45])]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [{"text": line, "summary": line[:i % 20 + 5]} for i, line in enumerate(sentences[:45])]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    kinds = {
        "causal-lm": ("gpt2", models / "text.jsonl", "--block_size", "16"),
        "masked-lm": ("bert", models / "text.jsonl", "--line_by_line", "--max_seq_length", "32"),
        "text-classification": ("bert", folder / "rows.jsonl", "--max_seq_length", "32"),
        "summarization": ("t5", folder / "pairs.jsonl", "--max_source_length", "32",
                          "--max_target_length", "16"),
    }
    for task, (model, data, *flags) in kinds.items():
        found = {}
        for processes in (1, *(NUMBERS if LONG else (3,))):
            found[processes] = program(folder / f"{task}-{processes}", processes, "--task", task,
                                       "--model_name_or_path", str(models / model), "--train_file",
                                       str(data), "--gradient_accumulation_steps", "2", *flags)
            if found[processes] is None:
                break
            one, many = trained(found[1]), trained(found[processes])
            far = relative(one, many)
            check(task, len(one) == len(many) == 8 and far < 1e-6, processes,
                  "processes: the losses differ by", far)


def compressed(folder):
    """Gradients that travel in half precision: nearly the same losses, but not the same."""
    found = {}
    for how in ("no", "fp16", "bf16"):
        code, output = run(folder / how, 2, "--ddp_comm_hook", how, "--save_strategy", "no",
                           "--max_steps", "12", "--logging_steps", "1")
        if not check(how, code == 0, code, output[-1500:]):
            return
        found[how] = result(folder / how)
        check(how, result(folder / how, 1)["weights"] == found[how]["weights"],
              "the processes end with different weights")
    for how, bound in (("fp16", 1e-3), ("bf16", 1e-2)):
        far = distance([e[:2] for e in trained(found["no"])], [e[:2] for e in trained(found[how])])
        check(how, 0 < far < bound, "the losses differ by", far)


if __name__ == "__main__":
    sys.exit(run_parts(same_losses, changing_numbers, tasks, compressed))
