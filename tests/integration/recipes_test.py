"""recipes_test.py GRADUS [RECIPE...]: runs the recipes of recipes/ as they stand and checks what
each says that it reaches.

Without names only question-answering runs, the shortest, and two steps of each recipe of speech and
natural questions; GRADUS_RECIPES=all runs every one. Speech needs espeak-ng. Uses only the standard
library.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
RECIPES = Path(__file__).resolve().parents[2] / "recipes"
MOST_SECONDS = 180
MOST_SPEECH_SECONDS = 480
# recipe, files, the metric of the test rows, what it must be at least
ALL = {
    "translation": (["translation.yaml"], "predict_bleu", 90),
    "summarization": (["summarization.yaml"], "predict_rougeL", 90),
    "question-answering": (["question-answering.yaml"], "test_f1", 95),
    "distillation": (["teacher.yaml", "distillation.yaml"], "agreement", 0.95)
}
# Those of recipes/chat, in this order: the metric of the evaluation, and what it must be at least.
CHAT = {
    "base": None, "sft": None, "sft-lora": None, "reward": ("eval_accuracy", 0.95),
    "dpo": ("eval_rewards/accuracies", 0.95), "kto": ("eval_rewards/margins", 1),
    "rloo": ("eval_rewards/regex/mean", 0.9)
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


def check_chat():
    """All recipes of the toy chat; the adapter's loss is that of full training within 5 %."""
    good, slowest, losses = True, 0, {}
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd = Path(folder)
        run([sys.executable, str(RECIPES / "chat/make.py"), "data"], cwd)
        for name, wanted in CHAT.items():
            begin = time.monotonic()
            words = [GRADUS, "train", str(RECIPES / f"chat/{name}.yaml"), "--disable_tqdm",
                     "--report_to", "none", "--json"]
            metrics = json.loads(run(words, cwd))["metrics"]["eval"]
            losses[name] = metrics["eval_loss"]
            slowest = max(slowest, time.monotonic() - begin)
            if wanted:
                good = good and metrics[wanted[0]] >= wanted[1]
                print(f"chat, {name}: {wanted[0]} {metrics[wanted[0]]:.4g}, at least {wanted[1]}")
    print(f"chat, sft: loss {losses['sft']:.4g}, with an adapter {losses['sft-lora']:.4g}; "
          f"the slowest took {slowest:.0f} s")
    return good and losses["sft-lora"] <= 1.05 * losses["sft"], slowest


def check_addition():
    """GRPO: exact matches before and after."""
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd, begin = Path(folder), time.monotonic()
        os.environ["GRADUS"] = GRADUS
        run(["sh", str(RECIPES / "grpo_addition/run.sh"), "."], cwd)
        seconds = time.monotonic() - begin
        entries = json.loads((cwd / "adder/trainer_state.json").read_text())["log_history"]
        name = "eval_rewards/exact_match/mean"
        values = [entry[name] for entry in entries if name in entry]
    print(f"grpo_addition: exact match {values[0]:.4g} before and {values[-1]:.4g} after, "
          f"in {seconds:.0f} s")
    return values[0] < 0.2 and values[-1] > 0.8, seconds


def trained(cwd, recipe, *words):
    """The metrics of a recipe's evaluation."""
    words = [GRADUS, "train", str(RECIPES / recipe), *words, "--disable_tqdm", "--json"]
    return json.loads(run(words, cwd))["metrics"]["eval"]


def has_speech():
    if shutil.which("espeak-ng") is None:
        print("speech: skipped, espeak-ng is absent")
        return False
    return True


def check_speech():
    """wav2vec 2.0: the word error rate of spoken digits."""
    if not has_speech():
        return True, 0
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd = Path(folder)
        run([sys.executable, str(RECIPES / "speech/make.py"), "digits"], cwd)
        begin = time.monotonic()
        value = trained(cwd, "speech/digits.yaml")["eval_wer"]
        seconds = time.monotonic() - begin
    print(f"speech: word error rate {value:.4g}, in {seconds:.0f} s")
    return value <= 0.05 and seconds < MOST_SPEECH_SECONDS, seconds


def from_a_tenth(cwd, *words):
    """Word error rates with a tenth of the texts: from fresh weights and from out/pretrained."""
    tuned = ["--model_name_or_path", "out/pretrained"]
    return [trained(cwd, "speech/tenth.yaml", *words, *more)["eval_wer"] for more in ([], tuned)]


def check_pretraining():
    """wav2vec 2.0: the contrastive loss before and after, and what pre-training is worth."""
    if not has_speech():
        return True, 0
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd, begin = Path(folder), time.monotonic()
        run([sys.executable, str(RECIPES / "speech/make.py"), "digits", "2400"], cwd)
        after = trained(cwd, "speech/pretrain.yaml")["eval_contrastive_loss"]
        state = json.loads((cwd / "out/pretrained/trainer_state.json").read_text())
        before = state["log_history"][0]["eval_contrastive_loss"]
        scratch, tuned = from_a_tenth(cwd)
        seconds = time.monotonic() - begin
    print(f"pretraining: contrastive loss {before:.4g} before and {after:.4g} after; word error "
          f"rate {scratch:.4g} from fresh weights and {tuned:.4g} with pre-training, "
          f"in {seconds:.0f} s")
    return after <= before / 2 and tuned < scratch, seconds


def check_questions():
    """BigBird: the share of questions about a part of the text whose span is right, to a word."""
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd, begin = Path(folder), time.monotonic()
        run([sys.executable, str(RECIPES / "natural_questions/make.py"), "nq"], cwd)
        match = trained(cwd, "natural_questions/bigbird.yaml")["eval_exact_match"]
        seconds = time.monotonic() - begin
        rows = json.loads((cwd / "out/questions/eval_predictions.json").read_text())
    # The last target is the shortest: the words asked for, or the news where all of it is asked.
    spans = [row for row in rows if row["targets"] not in (["yes"], ["no"])]
    value = sum(row["output"] == row["targets"][-1] for row in spans) / len(spans)
    print(f"natural_questions: span accuracy {value:.4g}, at least 0.9, exact match {match:.4g} "
          f"of 100, in {seconds:.0f} s")
    return value >= 0.9, seconds


def check_two_steps():
    """Two steps of each of the longer recipes, on few rows."""
    words = ["--max_steps", "2"]
    with tempfile.TemporaryDirectory(prefix="gradus_recipe_") as folder:
        cwd, begin = Path(folder), time.monotonic()
        run([sys.executable, str(RECIPES / "natural_questions/make.py"), "nq", "40"], cwd)
        trained(cwd, "natural_questions/bigbird.yaml", *words, "--per_device_train_batch_size", "4")
        if has_speech():
            run([sys.executable, str(RECIPES / "speech/make.py"), "digits", "40"], cwd)
            trained(cwd, "speech/digits.yaml", *words)
            trained(cwd, "speech/pretrain.yaml", *words)
            from_a_tenth(cwd, *words)
        return True, time.monotonic() - begin


def main():
    everything = os.environ.get("GRADUS_RECIPES") == "all"
    special = {
        "chat": check_chat, "grpo_addition": check_addition, "speech": check_speech,
        "pretraining": check_pretraining, "natural_questions": check_questions,
        "two steps": check_two_steps
    }
    short = ["question-answering", "two steps"]
    whole = [*ALL, *(name for name in special if name not in short)]
    names = sys.argv[2:] or (whole if everything else short)
    results = [special[name]() if name in special else check(name) for name in names]
    slow = [name for name, (_, seconds) in zip(names, results) if seconds > MOST_SECONDS]
    if slow:
        print(f"took more than {MOST_SECONDS} s: {', '.join(slow)}")
    return 0 if all(good for good, _ in results) else 1


sys.exit(main())
