"""grpo_test.py GRADUS TINY_MODELS: the tasks grpo and rloo from files to result files: whole,
resumed in the middle of a generation batch (also in two processes), with rewards of a model and of
another process, and with bad input.
Uses only the standard library.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GRADUS, TINY_MODELS = (str(Path(word).resolve()) for word in sys.argv[1:3])
SHORT = [
    "--model_name_or_path", "llama", "--train_file", "prompts.jsonl", "--max_steps", "6",
    "--per_device_train_batch_size", "4", "--num_generations", "2", "--max_completion_length", "6",
    "--learning_rate", "1e-3", "--disable_tqdm", "--use_cpu", "--report_to", "none",
    "--logging_steps", "1", "--bf16", "false"
]
EXACT = ["--reward_funcs", "exact_match:wanted", "length:4"]
# A reward process: {} is what it does with a question and the number of its completions.
PROCESS = """import json, os, sys, time
for line in sys.stdin:
    question = json.loads(line)
    count = len(question["completions"])
    {}
"""
ANSWER = ('print(json.dumps({"rewards": [len(c) / 10 for c in question["completions"]]}),'
          ' flush=True)')
failures = []


def fail(name, problem, stderr=""):
    failures.append(name)
    print(f"FAILED {name}: {problem}\n{stderr[-2500:]}")


def gradus(cwd, task, *words, processes=1):
    command = [GRADUS, "train", "--task", task, *SHORT, *map(str, words)]
    env = dict(os.environ, XDG_CACHE_HOME=str(cwd / "cache"))
    if processes > 1:
        command = [GRADUS, "launch", "--nproc", str(processes), "--", *command]
        env |= dict(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=env)


def run(name, cwd, task, *words, **options):
    done = gradus(cwd, task, *words, **options)
    if done.returncode != 0:
        fail(name, f"exit code {done.returncode}", done.stderr)
    return done


def refused(name, cwd, identifier, text, *words, task="grpo", processes=1):
    done = gradus(cwd, task, "--output_dir", "bad", *words, processes=processes)
    if done.returncode == 0 or identifier not in done.stderr or text not in done.stderr:
        fail(name, f"expected {identifier} with {text!r}", done.stderr)


def history(folder):
    """The log without what depends on the clock."""
    entries = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [{key: value for key, value in entry.items()
             if not key.endswith(("_runtime", "_per_second", "step_time"))} for entry in entries]


def process(cwd, name, action):
    (cwd / name).write_text(PROCESS.format(action))
    return ["--reward_command", f"{sys.executable} {name}"]


def resumed(cwd, task, *words, processes=1):
    """A run that goes on in the middle of a generation batch is bit-equal to one that was whole."""
    words = [*words, "--num_generations", "4", "--steps_per_generation", "4", "--num_iterations",
             "2", "--save_steps", "3", "--per_device_train_batch_size", str(4 // processes),
             "--logging_steps", "2", "--log_completions"]
    name = f"{task}{processes}"
    run(f"{name}, whole", cwd, task, *words, "--output_dir", f"{name}_whole", processes=processes)
    run(f"{name}, resumed", cwd, task, *words, "--output_dir", f"{name}_on",
        "--resume_from_checkpoint", f"{name}_whole/checkpoint-3", processes=processes)
    if failures:
        return
    if history(cwd / f"{name}_on")[:-1] != history(cwd / f"{name}_whole")[:-1]:
        fail(f"{name}, resumed", "the log differs from that of the whole run")
    for file in ("model.safetensors", "completions/completions_00006.parquet"):
        on, whole = ((cwd / f"{name}_{run}" / file).read_bytes() for run in ("on", "whole"))
        if on != whole:
            fail(f"{name}, resumed", f"{file} differs from that of the whole run")
    if processes > 1:
        done = run(f"{name}, one process", cwd, task, *words, "--output_dir", f"{name}_one",
                   "--per_device_train_batch_size", "4", "--resume_from_checkpoint",
                   f"{name}_whole/checkpoint-3")
        if "new completions are made" not in done.stderr:
            fail(f"{name}, one process", "it was not said that completions are new", done.stderr)


def reward_model(cwd):
    """A model that the task reward has trained gives rewards, by its own tokenizer."""
    rows = [{"chosen": "Anna may sleep", "rejected": "Nobody sleeps"}] * 8
    (cwd / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run([
        GRADUS, "train", "--task", "reward", "--model_name_or_path", "llama", "--train_file",
        "pairs.jsonl", "--max_steps", "1", "--output_dir", "judge", "--use_cpu", "--disable_tqdm",
        "--report_to", "none", "--bf16", "false"
    ], cwd=cwd, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return fail("reward model", "the task reward failed", done.stderr)
    for task in ("grpo", "rloo"):
        run(f"{task}, reward model", cwd, task, "--reward_model_name_or_path", "judge/",
            "--reward_funcs", "length:4", "--reward_weights", "2", "1", "--output_dir",
            f"judged_{task}")
        if failures:
            return
        first = history(cwd / f"judged_{task}")[0]
        if not all(f"rewards/{name}/mean" in first for name in ("judge", "length")):
            fail(f"{task}, reward model", "the rewards are not in the log")
    refused("no reward model", cwd, "G-", "nowhere", "--reward_model_name_or_path", "nowhere")


def rewards_of_a_process(cwd):
    run("process", cwd, "grpo", *process(cwd, "good.py", ANSWER), "--output_dir", "process")
    once = (f"if not os.path.exists('died'): open('died', 'w').close(); os._exit(3)\n    {ANSWER}")
    done = run("process that dies once", cwd, "grpo", *process(cwd, "once.py", once),
               "--output_dir", "once")
    if "started again: it ended with exit code 3" not in done.stderr:
        fail("process that dies once", "the restart was not said", done.stderr)
    if not failures and history(cwd / "once")[:-1] != history(cwd / "process")[:-1]:
        fail("process that dies once", "other rewards")
    late = ("asked = len(os.listdir('asked')) if os.path.isdir('asked') else 0\n"
            "    os.makedirs(f'asked/{asked}')\n"
            f"    if asked >= 3: sys.exit(5)\n    {ANSWER}")
    refused("process that dies later", cwd, "G-RWD-2", "exit code 5", *process(
        cwd, "late.py", late), "--save_steps", "1", "--output_dir", "late")
    run("nothing is lost", cwd, "grpo", *process(cwd, "good.py", ANSWER), "--output_dir", "late",
        "--save_steps", "1", "--resume_from_checkpoint", "late/checkpoint-3")
    if not failures and history(cwd / "late")[:-1] != history(cwd / "process")[:-1]:
        fail("nothing is lost", "the resumed run differs from one whose process did not die")
    said = "print('cannot do it', file=sys.stderr, flush=True); sys.exit(4)"
    refused("process that dies", cwd, "G-RWD-2", "exit code 4", *process(cwd, "dies.py", said))
    refused("process of one of two", cwd, "G-RWD-2", "exit code 4", *process(
        cwd, "one.py", f"if os.environ['RANK'] == '1': sys.exit(4)\n    {ANSWER}"),
        "--per_device_train_batch_size", "2", processes=2)
    refused("what it says", cwd, "G-RWD-2", "cannot do it", *process(cwd, "dies.py", said))
    refused("process that hangs", cwd, "G-RWD-2", "did not answer within 0.5 s",
            *process(cwd, "hangs.py", "time.sleep(60)"), "--reward_timeout", "0.5")
    refused("garbage", cwd, "G-RWD-2", "not JSON: hello", *process(
        cwd, "garbage.py", "print('hello', flush=True)"))
    refused("NaN", cwd, "G-RWD-2", "NaN", *process(
        cwd, "nan.py", "print('{\"rewards\": [' + ', '.join(['NaN'] * count) + ']}', flush=True)"))
    refused("too few", cwd, "G-RWD-2", "gave 1 rewards for 4", *process(
        cwd, "few.py", "print('{\"rewards\": [1]}', flush=True)"))
    refused("no such command", cwd, "G-RWD-2", "exit code 127", "--reward_command", "no_such_tool")


def spikes(cwd):
    """A step whose loss jumps is named, also where a pass has more rows than there are prompts."""
    for action in ("none", "rollback"):
        done = run(f"spikes, {action}", cwd, "grpo", *process(cwd, "good.py", ANSWER),
                   "--max_steps", "40", "--spike_threshold", "0.001", "--spike_action", action,
                   "--output_dir", f"spikes_{action}")
        if done.returncode == 0 and " of pass " not in done.stderr:
            fail(f"spikes, {action}", "no step was named", done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        subprocess.run([TINY_MODELS, folder], check=True)
        rows = [{"prompt": f"{who} {does}", "wanted": "sleep", "number": len(does)}
                for who in ("Anna", "Nobody", "The river") for does in ("may", "does not have to")]
        (cwd / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (cwd / "long.jsonl").write_text(json.dumps({"prompt": "Anna may sleep " * 2000}) + "\n" +
                                        json.dumps({"prompt": "Anna"}) + "\n")
        resumed(cwd, "grpo", *EXACT, "--beta", "0.1")
        resumed(cwd, "rloo", *EXACT)
        resumed(cwd, "grpo", *EXACT, "--beta", "0.1", "--use_adaptive_entropy", processes=2)
        resumed(cwd, "rloo", *EXACT, processes=2)
        spikes(cwd)
        reward_model(cwd)
        done = run("completions", cwd, "grpo", *EXACT, "--log_completions", "--output_dir", "table",
                   "--validation_file", "prompts.jsonl", "--eval_strategy", "steps", "--eval_steps",
                   "6", "--per_device_eval_batch_size", "4", "--use_peft", "--lora_r", "2",
                   "--metric_for_best_model", "eval_reward", "--beta", "0.1")
        if not failures:
            for column in ("Prompt", "Completion", "exact_match", "Advantage"):
                if column not in done.stdout + done.stderr:
                    fail("completions", f"the table has no {column}", done.stdout)
            table = cwd / "table/completions/completions_00006.parquet"
            if not table.read_bytes().startswith(b"PAR1"):
                fail("completions", "no Parquet file")
            entries = history(cwd / "table")
            for key in ("reward", "reward_std", "frac_reward_zero_std", "rewards/length/mean", "kl",
                        "completions/mean_length", "num_tokens", "entropy", "clip_ratio/low_min",
                        "eval_reward", "eval_completions/clipped_ratio"):
                if not any(key in entry for entry in entries):
                    fail("completions", f"{key} is not in the log")
        rewards_of_a_process(cwd)
        refused("no reward", cwd, "G-TRL-1", "--reward_command")
        refused("unknown reward", cwd, "G-RWD-3", "exact_match", "--reward_funcs", "exact_mach")
        refused("bad expression", cwd, "G-RWD-3", "regular expression", "--reward_funcs", "regex:(")
        refused("no such column", cwd, "G-RWD-1", "wanted", "--reward_funcs", "exact_match:wantd")
        refused("groups", cwd, "G-TRL-1", "num_generations (3)", *EXACT, "--num_generations", "3")
        refused("one completion", cwd, "G-TRL-1", "2 or more", *EXACT, "--num_generations", "1")
        refused("too few rows", cwd, "G-TRL-1", "6 rows", *EXACT, "--steps_per_generation", "8")
        refused("weights", cwd, "G-TRL-1", "reward_weights", *EXACT, "--reward_weights", "1")
        refused("vLLM", cwd, "G-TRL-1", "use_vllm", *EXACT, "--use_vllm")
        mixed = [{"prompt": "Anna"}, {"prompt": [{"role": "user", "content": "Anna"}]}]
        (cwd / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mixed))
        (cwd / "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        (cwd / "llama/chat_template.jinja").write_text((cwd / "template.jinja").read_text())
        refused("texts and messages", cwd, "G-TRL-2", "a list of messages", "--train_file",
                "mixed.jsonl", "--reward_funcs", "length:4", "--num_generations", "2")
        refused("two answers", cwd, "G-RWD-2", "more than one line for one question",
                *process(cwd, "twice.py", f"{ANSWER}\n    {ANSWER}"))
        refused("long prompt", cwd, "G-TRL-2", "room for", "--train_file", "long.jsonl",
                "--reward_funcs", "length:4")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
