"""recipes_test.py GRADUS [RECIPE...]: runs the recipes of recipes/ as they stand and checks what
each says that it reaches.

Without names only question-answering runs, the shortest; GRADUS_RECIPES=all runs every one. Uses
only the standard library.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
RECIPES = Path(__file__).resolve().parents[2] / "recipes"
MOST_SECONDS = 180
# recipe, files, the metric of the test rows, what it must be at least
ALL = {
    "translation": (["translation.yaml"], "predict_bleu", 90),
    "summarization": (["summarization.yaml"], "predict_rougeL", 90),
    "question-answering": (["question-answering.yaml"], "test_f1", 95),
    "distillation": (["teacher.yaml", "distillation.yaml"], "agreement", 0.95)
}


def run(words, cwd):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=900,
                          env=dict(os.environ, XDG_CACHE_HOME=str(cwd / "cache")))
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def labels(folder):
    """The class of each test row."""
    lines = (folder / "predict_results.txt").read_text().splitlines()[1:]
    return [line.split("\t")[1] for line in lines]


def parameters(folder):
    """How many numbers the weights hold."""
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    total = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            count = 1
            for size in tensor["shape"]:
                count *= size
            total += count
    return total


def reached(name, metric, cwd, metrics):
    if name != "distillation":
        return metrics["predict"][metric]
    teacher, student = cwd / "out/teacher", cwd / "out/student"
    share = parameters(student) / parameters(teacher)
    assert share <= 0.1, f"the student has {share:.3f} of the teacher's size"
    pairs = list(zip(labels(teacher), labels(student), strict=True))
    return sum(a == b for a, b in pairs) / len(pairs)


def check(name):
    files, metric, least = ALL[name]
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd, metrics, begin = Path(folder), {}, time.monotonic()
        run([sys.executable, str(RECIPES / "make_data.py"), name, "data"], cwd)
        for file in files:
            words = [GRADUS, "train", str(RECIPES / file), "--disable_tqdm", "--json"]
            metrics = json.loads(run(words, cwd))["metrics"]
        seconds, value = time.monotonic() - begin, reached(name, metric, cwd, metrics)
    print(f"{name}: {metric} {value:.4g}, at least {least}, in {seconds:.0f} s")
    return value >= least, seconds


def main():
    everything = os.environ.get("GRADUS_RECIPES") == "all"
    names = sys.argv[2:] or (list(ALL) if everything else ["question-answering"])
    results = [check(name) for name in names]
    slow = [name for name, (_, seconds) in zip(names, results) if seconds > MOST_SECONDS]
    if slow:
        print(f"took more than {MOST_SECONDS} s: {', '.join(slow)}")
    return 0 if all(good for good, _ in results) else 1


sys.exit(main())
