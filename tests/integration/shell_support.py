"""shell_support.py GRADUS: completion in bash, zsh and fish, and the man page, made by the program.

What bash, zsh, fish or groff would say is asked of them where they are installed; bash always is.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GRADUS = str(Path(sys.argv[1]).resolve())
failures = []
skipped = []


def check(name, holds, detail=""):
    if not holds:
        failures.append(f"{name}: {detail}")


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **options)


def completion(shell):
    done = run(GRADUS, "completion", shell)
    check(f"{shell} script", done.returncode == 0 and done.stdout, done.stderr)
    return done.stdout


def bash_completes(line):
    """What bash offers for the last word of the line, as its own completion calls the function."""
    script = r"""
      source <("$0" completion bash)
      line=$1 words=()
      # as readline does: words, and = apart
      while IFS= read -r word; do words+=("$word"); done < <(
        sed 's/=/\n=\n/g; s/ /\n/g' <<<"$line" | sed '/^$/d')
      [[ $line == *[\ =] ]] && words+=("")
      COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1)) COMP_LINE=$line
      _gradus
      printf '%s\n' "${COMPREPLY[@]}"
    """
    done = run("bash", "-c", script, GRADUS, line)
    check(f"bash: {line}", done.returncode == 0 and not done.stderr, done.stderr)
    return done.stdout.split()


def test_bash():
    expected = [
        ("gradus tra", ["train"]),
        ("gradus train --learning_r", ["--learning_rate"]),
        ("gradus train --learning-r", ["--learning_rate"]),
        ("gradus eval --metric_for_b", ["--metric_for_best_model"]),
        ("gradus train --early_stopping_p", ["--early_stopping_patience"]),
        ("gradus train --no_remove_u", ["--no_remove_unused_columns"]),
        ("gradus train --task causal-lm --block_s", ["--block_size"]),
        ("gradus train --task=causal-lm --block_s", ["--block_size"]),
        ("gradus train --block_s", ["--block_size"]),
        ("gradus train --task text-classification --block_s", []),
        ("gradus train --lr_scheduler_type cosine_with_r", ["cosine_with_restarts"]),
        ("gradus train --lr_scheduler_type=cosine_with_r", ["cosine_with_restarts"]),
        ("gradus train --task text-c", ["text-classification"]),
        ("gradus generate --max_new", ["--max_new_tokens"]),
        ("gradus generate --learning_r", []),
        ("gradus tokenize --text_c", ["--text_column"]),
        ("gradus data ", ["show"]),
        ("gradus data show --tokenizer_n", ["--tokenizer_name"]),
        ("gradus completion z", ["zsh"]),
        ("gradus verify --js", ["--json"]),
    ]
    for line, words in expected:
        found = bash_completes(line)
        check(f"bash: {line}", found == words, f"{found}, expected {words}")
    found = set(bash_completes("gradus train --"))
    options = json.loads(run(GRADUS, "options", "--json").stdout)
    missing = {"--" + option["name"] for option in options} - found
    check("bash: every option", not missing, f"{sorted(missing)} are not offered")


def test_zsh(folder):
    if not shutil.which("zsh"):
        skipped.append("zsh")
        return
    script = folder / "_gradus"
    script.write_text(completion("zsh"))
    done = run("zsh", "-n", str(script))
    check("zsh: syntax", done.returncode == 0 and not done.stderr, done.stderr)
    # Every specification is one that _arguments understands.
    listed = run(
        "zsh", "-f", "-c", "fpath=($1 $fpath); autoload -Uz compinit; compinit -D -u; "
        "zmodload zsh/zpty; zpty z zsh -f -i; zpty -w z \"fpath=($1 $fpath); PS1='> '; "
        "autoload -Uz compinit; compinit -D -u; stty cols 200\"; "
        "zpty -w z $'gradus train --learning_r\\t\\C-a#done'; sleep 2; zpty -r z out '*done*'; "
        "print -r -- $out", "zsh", str(folder))
    check("zsh: --learning_r", "--learning_rate" in listed.stdout, listed.stdout + listed.stderr)


def test_fish(folder):
    if not shutil.which("fish"):
        skipped.append("fish")
        return
    script = folder / "gradus.fish"
    script.write_text(completion("fish"))
    own = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    for line, words in (("gradus train --learning_r", ["--learning_rate"]),
                        ("gradus train --task causal-lm --block_s", ["--block_size"]),
                        ("gradus train --task text-classification --block_s", []),
                        ("gradus train --lr_scheduler_type cosine_with_r",
                         ["cosine_with_restarts"]), ("gradus gen", ["generate"])):
        done = run("fish", "--no-config", "-c", f"source {script}; complete -C {line!r}",
                   env=dict(os.environ, **own))
        found = [row.split("\t")[0] for row in done.stdout.splitlines()]
        check(f"fish: {line}", found == words and not done.stderr, f"{found} {done.stderr}")


def test_man():
    done = run(GRADUS, "man")
    check("man", done.returncode == 0, done.stderr)
    check("man", done.stdout.startswith(".\\\""), done.stdout[:200])
    names = set(re.findall(r"^\.BI? \\-\\-(\w+)", done.stdout, re.M))
    options = json.loads(run(GRADUS, "options", "--json").stdout)
    missing = {option["name"] for option in options} - names
    check("man: every option", not missing, f"{sorted(missing)} are not there")
    check("man: options of tasks", "block_size" in names, sorted(names))
    if not shutil.which("groff"):
        skipped.append("groff")
        return
    shown = run("groff", "-ww", "-man", "-Tutf8", "-Kutf8", input=done.stdout)
    check("groff", shown.returncode == 0 and not shown.stderr, shown.stderr[:2000])
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", shown.stdout)
    for part in ("--learning_rate float", "gradus train", "OPTIONS OF THE TASK causal-lm"):
        check("groff", part in text, f"{part!r} is not in the page")


def test_words():
    version = run(GRADUS, "--version").stdout
    check("-V", run(GRADUS, "-V").stdout == version and version.startswith("gradus "), version)
    for words in (["completion"], ["completion", "tcsh"], ["completion", "bash", "zsh"],
                  ["man", "x"]):
        done = run(GRADUS, *words)
        check(str(words), done.returncode == 2 and "G-CLI-4" in done.stderr, done.stderr)
    for words in (["completion", "--help"], ["man", "--help"]):
        done = run(GRADUS, *words)
        check(str(words), done.returncode == 0 and "usage: " in done.stdout, done.stderr)


def test_early_stopping():
    base = [GRADUS, "train", "--task", "image-classification", "--output_dir", "/nowhere"]
    for words, text in (
        (["--early_stopping_patience", "2"],
         "--early_stopping_patience needs --metric_for_best_model, which is not set"),
        (["--early_stopping_patience", "2", "--metric_for_best_model", "loss"],
         "--early_stopping_patience needs evaluations, but --eval_strategy is no"),
        (["--early_stopping_threshold", "0.1"],
         "--early_stopping_threshold needs --early_stopping_patience, which is not set"),
        (["--early_stopping_patience", "0"], "early_stopping_patience"),
    ):
        done = run(*base, *words)
        check(str(words), done.returncode == 2 and text in done.stderr, done.stderr)


def test_early_stopping_stops(folder):
    """No evaluation is better than another by 100, so the third ends the run."""
    rows = 16
    (folder / "images").write_bytes(
        struct.pack(">4I", 0x803, rows, 28, 28) + bytes(i * 7 % 256 for i in range(rows * 784)))
    (folder / "labels").write_bytes(
        struct.pack(">2I", 0x801, rows) + bytes(i % 10 for i in range(rows)))
    words = [GRADUS, "train", "--task", "image-classification", "--disable_tqdm"]
    for part in ("train", "validation"):
        words += [f"--{part}_images", "images", f"--{part}_labels", "labels"]
    words += [
        "--max_steps", "40", "--eval_strategy", "steps", "--eval_steps", "2",
        "--metric_for_best_model", "loss", "--early_stopping_patience", "2",
        "--early_stopping_threshold", "100", "--output_dir", "run", "--json"
    ]
    done = run(*words, cwd=folder)
    check("early stopping", done.returncode == 0, done.stderr)
    if done.returncode == 0:
        step = json.loads(done.stdout)["global_step"]
        check("early stopping", step == 6, f"stopped at step {step}, expected 6")


def main():
    with tempfile.TemporaryDirectory() as folder:
        test_bash()
        test_zsh(Path(folder))
        test_fish(Path(folder))
        test_early_stopping_stops(Path(folder))
    test_man()
    test_words()
    test_early_stopping()
    print("\n".join(failures) or "completion and man page hold")
    if skipped:
        print(f"not installed, so not asked: {', '.join(skipped)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
