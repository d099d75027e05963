"""Translation and question answering (pointed at and written) in two processes beside transformers'
in two: the runs of text_tasks_test.py, compared as there. Both sides use Gloo on 127.0.0.1.

text_processes_test.py [SETS]: so many sets of flags per task, 1 by default. Without the peer: exit
code 77.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from text_tasks_test import (COMMON, GRADUS, STEPS, be_quiet, cases, compare, question_answering,
                             seq2seq_question_answering, text_to_text, write_punkt)

from processes_test import TIMEOUT, WORLD, environment, free_port
from scripts_test import gradus_command

SCRIPTS = {
    "translation": text_to_text, "question-answering": question_answering,
    "seq2seq-question-answering": seq2seq_question_answering
}


def run_together(words, cache):
    """One process for each rank; all must succeed."""
    port = free_port()
    running = [
        subprocess.Popen(words, env=environment(rank, port) | {"XDG_CACHE_HOME": str(cache)},
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]
    try:
        said = [process.communicate(timeout=TIMEOUT)[1] for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(process.returncode for process in running):
        raise RuntimeError(f"{words[:4]}: " + "\n".join(text[-2000:] for text in said))


def main():
    if not GRADUS.exists():
        print(f"skipped: {GRADUS} is not built")
        return 77
    be_quiet()
    sets, wrong = int(sys.argv[1]) if len(sys.argv) > 1 else 1, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_punkt(folder / "nltk_data")
        for number, (task, _, flags) in enumerate(cases(folder, sets, random.Random(29))):
            if task not in SCRIPTS:
                continue
            ours, theirs = folder / f"ours-{number}", folder / f"theirs-{number}"
            flags = COMMON | {"max_steps": STEPS, "eval_steps": 15, "do_predict": True} | flags
            flags |= {"ddp_backend": "gloo", "ddp_timeout": 60}
            # transformers' Seq2SeqTrainer scores rows that fill up a step twice:
            # docs/differences.md
            if task == "translation":
                flags |= {
                    "per_device_eval_batch_size": 2, "max_eval_samples": 28,
                    "max_predict_samples": 8
                }
            run_together(gradus_command(task, flags | {"output_dir": str(ours)}), folder / "cache")
            question = folder / "question.json"
            question.write_text(json.dumps([task, flags | {"output_dir": str(theirs)}]))
            run_together([sys.executable, __file__, "--worker", str(question)], folder / "cache")
            worst, problems = compare(ours, theirs)
            print(f"{task} {number}: worst relative difference of {STEPS} losses {worst:.3g}")
            if problems:
                wrong += 1
                print("  " + "\n  ".join(problems[:12]))
                print("  with", {key: value for key, value in flags.items() if key not in COMMON})
    print(f"{wrong} cases differ")
    return 1 if wrong else 0


def worker(question):
    """One of the Python processes."""
    be_quiet()
    task, flags = json.loads(pathlib.Path(question).read_text())
    SCRIPTS[task](task, flags)
    return 0


if __name__ == "__main__":
    sys.exit(worker(sys.argv[2]) if sys.argv[1:2] == ["--worker"] else main())
