"""options.py GRADUS: what `gradus options` and `--help` say about the options of tasks.

Uses only the standard library.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())


def run(*words, code=0):
    done = subprocess.run([GRADUS, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


def names(*words):
    return [option["name"] for option in json.loads(run("options", "--json", *words))]


def main():
    common = names()
    assert common[0] == "output_dir" and "learning_rate" in common and "block_size" not in common
    tasks = [
        "causal-lm", "masked-lm", "text-classification", "token-classification",
        "question-answering", "seq2seq-question-answering", "summarization", "translation"
    ]
    own = {"causal-lm": "block_size", "masked-lm": "mlm_probability", "summarization": "num_beams"}
    for task in tasks:
        every = names("--task", task)
        assert len(every) == len(set(every)), task
        trainer = [
            "sortish_sampler", "predict_with_generate", "generation_max_length",
            "generation_num_beams", "generation_config"
        ]
        writes_text = task in ("seq2seq-question-answering", "summarization", "translation")
        assert [name for name in every if name in common] == common, task
        assert [name for name in every if name in trainer] == trainer * writes_text, task
        assert {"model_name_or_path", "train_file"} <= set(every), task
        assert own.get(task, "model_name_or_path") in every, task
        assert every == names(f"--task={task}"), task
        help_text = run("train", "--task", task, "--help")
        text = run("options", "--task", task)
        for name in every:
            assert f"--{name} " in help_text and f"--{name} " in text, (task, name)
        helped = set(re.findall(r"^ *--(\w+)", help_text, re.M))
        assert helped == set(every), (task, sorted(helped ^ set(every)))
        assert "early_stopping_patience" in every, task

    option = {o["name"]: o for o in json.loads(run("options", "--json"))}
    assert "muon" in option["optim"]["choices"]
    assert "cosine" in option["lr_scheduler_type"]["choices"]
    assert option["report_to"]["choices"] == [
        "all", "none", "jsonl", "tensorboard", "csv", "mlflow", "openmetrics", "trackio", "wandb"
    ]
    page = run("options", "--markdown")
    assert "# Options of Seq2SeqTrainer" in page and "| `predict_with_generate` |" in page
    assert "| `block_size` |" in run("options", "--markdown", "--task", "causal-lm")

    assert "there is no task 'causal'" in run("options", "--task", "causal", code=2)
    assert "no task was given" in run("options", "--task", code=2)
    assert "does not take '--jason'" in run("options", "--jason", code=2)
    told = run("train", "--task", "image-classification", "--train_images", "none", "--output_dir",
               "none", "--optim_target_modules", "q", code=2)
    assert "optim_target_modules has no effect: only the GaLore and APOLLO" in told, told
    print("options: all as expected")


main()
