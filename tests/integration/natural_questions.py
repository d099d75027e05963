"""natural_questions.py GRADUS: the task natural-questions of the program on a few made questions.

A small BigBird is trained, interrupted, resumed and evaluated, from both of the folders that a run
leaves. Bad rows and flags are answered with their errors. Uses only the standard library.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from program import GRADUS, run, says

MAKE = Path(__file__).resolve().parents[2] / "recipes/natural_questions/make.py"


def interrupted(folder, output, first, *words):
    """Ctrl-C as soon as the checkpoint `first` is there."""
    with open(folder / "interrupted.log", "w") as log:
        process = subprocess.Popen([GRADUS, *map(str, words), "--output_dir", output], cwd=folder,
                                   stdout=log, stderr=log)
        while not (folder / output / first).exists() and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=200)
    if code != 128 + signal.SIGINT:
        sys.exit(f"Ctrl-C: exit code {code}\n{(folder / 'interrupted.log').read_text()[-2000:]}")


def same_files(folder, names, one, other):
    for name in names:
        if (folder / one / name).read_bytes() != (folder / other / name).read_bytes():
            sys.exit(f"{name} differs in {one} and {other}")


def bad_prepared_rows(folder, train):
    """Rows of the example's own form are read as they are: a wrong one is named."""
    good = dict(input_ids=[2, 5, 3, 6, 7, 3], start_token=3, end_token=3, category=1)
    for column, value, words in (("category", None, "'category' is null"),
                                 ("input_ids", [2, 99999], "token id 99999 is outside")):
        rows = [dict(good) for _ in range(8)]
        rows[2][column] = value
        (folder / "nq/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        says(run(1, folder, *train, "--output_dir", "bad"), "train.jsonl", "row 2", words)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, str(MAKE), "nq", "40"], cwd=folder, check=True)
        data = [
            "--task", "natural-questions", "--train_file", "nq/train.jsonl", "--validation_file",
            "nq/validation.jsonl", "--tokenizer_name", "nq/model", "--max_length", "192",
            "--doc_stride", "96", "--block_size", "16", "--num_random_blocks", "2",
            "--per_device_train_batch_size", "4", "--use_cpu", "--report_to", "jsonl",
            "--disable_tqdm", "--cache_dir", "cache"
        ]
        train = [
            "train", *data, "--config_name", "nq/model", "--do_eval", "--num_train_epochs", "1",
            "--learning_rate", "1e-3", "--warmup_steps", "2", "--logging_steps", "4",
            "--save_steps", "4", "--save_dir", "run"
        ]
        run(0, folder, *train, "--output_dir", "whole")
        results = json.loads((folder / "whole/all_results.json").read_text())
        for key in ("train_loss", "eval_loss", "eval_exact_match", "eval_samples"):
            if key not in results:
                sys.exit(f"all_results.json has no {key}: {results}")
        history = json.loads((folder / "whole/trainer_state.json").read_text())["log_history"]
        if history[0]["step"] != 4 or not {"tr_loss", "eval_loss", "lr"} <= set(history[0]):
            sys.exit(f"the log is {history}")
        answers = json.loads((folder / "whole/eval_predictions.json").read_text())
        if not answers or {"id", "output", "targets", "match"} - set(answers[0]):
            sys.exit(f"eval_predictions.json is {answers[:1]}")

        lines = [json.loads(line) for line in open(folder / "whole/run_log.jsonl")]
        if not any("tr_loss" in json.dumps(line) for line in lines):
            sys.exit(f"run_log.jsonl is {lines}")
        if not (folder / "whole/log.jsonl").exists():
            sys.exit(f"the tracker left {sorted(p.name for p in (folder / 'whole').iterdir())}")

        # A run that goes on from its middle ends as the one that was never stopped.
        files = ["model.safetensors", "final-weights/flax_model.msgpack", "trainer_state.json"]
        text = run(0, folder, *train, "--output_dir", "again", "--resume_from_checkpoint",
                   "whole/run-e0-s4", "--learning_rate", "0.5")
        says(text, "lr is 0.001 as in the checkpoint")
        same_files(folder, files, "whole", "again")

        # So does one that was interrupted; and --overwrite_output_dir begins anew.
        longer = [*train, "--num_train_epochs", "5"]
        run(0, folder, *longer, "--output_dir", "longer")
        interrupted(folder, "again", "run-e0-s4", *longer, "--overwrite_output_dir")
        if (folder / "again/all_results.json").exists():
            sys.exit("the results of the former run are still there")
        run(0, folder, *longer, "--output_dir", "again", "--resume_from_checkpoint", "last")
        same_files(folder, files, "longer", "again")

        # Both folders of the trained model answer alike.
        found = []
        for model in ("whole", "whole/final-weights"):
            run(0, folder, "eval", *data, "--model_name_or_path", model, "--output_dir", "judged")
            found.append(json.loads((folder / "judged/eval_results.json").read_text()))
        for key in ("eval_loss", "eval_exact_match"):
            if not found[0][key] == found[1][key] == results[key]:
                sys.exit(f"{key}: {found[0][key]}, {found[1][key]}, {results[key]}")

        # Settings of the process count here, too.
        text = run(0, folder, "eval", *data, "--model_name_or_path", "whole", "--output_dir",
                   "judged", "--cpu_matmul", "onednn", "--log_level", "info")
        says(text, "multiplied by oneDNN")

        # What is wrong is named.
        says(run(2, folder, *train, "--output_dir", "whole"), "G-TASK-2", "run-e")
        says(run(2, folder, *train, "--output_dir", "bad", "--bf16"), "G-TASK-18", "--bf16")
        says(run(2, folder, *train, "--output_dir", "bad", "--doc_stride", "192"), "--doc_stride")
        says(run(2, folder, *train, "--output_dir", "bad", "--dry_run"), "G-TASK-18", "--dry_run")
        says(run(2, folder, *train, "--output_dir", "bad", "--save_dir", "a/b"), "--save_dir 'a/b'")
        says(run(1, folder, *train, "--output_dir", "bad", "--per_device_train_batch_size", "99"),
             "G-TASK-10", "fewer than one batch of 99")
        rows = (folder / "nq/train.jsonl").read_text().splitlines()
        broken = json.loads(rows[0])
        del broken["annotations"]["long_answer"]
        broken["annotations"].update(yes_no_answer=[-1], short_answers=[])
        (folder / "nq/train.jsonl").write_text("\n".join([json.dumps(broken), *rows[1:]]) + "\n")
        says(run(1, folder, *train, "--output_dir", "bad"), "G-TASK-11", "long_answer",
             f"question {broken['id']}")
        bad_prepared_rows(folder, train)
    print("natural_questions: trained, interrupted, resumed, evaluated; bad input is named")


if __name__ == "__main__":
    main()
