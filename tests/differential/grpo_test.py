"""GRPO, RLOO and on-policy distillation beside trl: the same folder, rows and arguments.

Two kinds of runs. With given completions: each loss type, scaling of rewards, importance level,
with and without divergence, several iterations; compared are every gradient of the first step and
every logged metric (1e-5 relative in the first six steps, 1e-4 after). And whole runs that sample:
gradus draws the same random numbers as torch, so that the completions are those of trl; compared is
every logged metric (1e-5 in the first ten steps, 1e-4 after).

By default a selection runs; GRADUS_FULL_MATRIX=1 runs all. Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

try:
    import datasets
    import peft
    import torch
    import transformers
    import trl
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from sft_test import LLAMA, make_tokenizer, sentence

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/grpo_tool"
FULL = os.environ.get("GRADUS_FULL_MATRIX") == "1"
ARGS = dict(max_steps=6, per_device_train_batch_size=4, per_device_eval_batch_size=4,
            learning_rate=5e-3, warmup_steps=1, logging_steps=1, save_strategy="no", seed=5,
            report_to="none", use_cpu=True, disable_tqdm=True, bf16=False,
            max_completion_length=8)
GROUPS = dict(ARGS, num_generations=4)
# Weights so large that entropies differ by more than rounding: some cases choose tokens by them.
SMALL = dict(LLAMA, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
             initializer_range=0.3)
WIDE = dict(epsilon=0.01, epsilon_high=0.02)  # so that something is clipped
TWICE = dict(num_iterations=2, steps_per_generation=2, **WIDE)
# In 20 steps the ratio of one token comes to lie on 1.02 exactly: another bound.
LONG = dict(TWICE, epsilon_high=0.021, max_steps=20)
LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")


def cases():
    """label, trainer, whether completions are given, arguments, further members of the job"""
    for loss in LOSSES:
        level = "sequence" if loss == "luspo" else "token"
        yield (f"{loss}", "grpo", True,
               dict(loss_type=loss, beta=0.1, importance_sampling_level=level, **TWICE), {})
    yield ("sequence level, no divergence", "grpo", True,
           dict(loss_type="grpo", importance_sampling_level="sequence", **TWICE), {})
    yield ("two rewards, one does not apply to all", "grpo", True,
           dict(reward_weights=[1.0, 0.5], gradient_accumulation_steps=2), dict(rewards=2))
    yield ("normalize then sum", "grpo", True,
           dict(multi_objective_aggregation="normalize_then_sum"), dict(rewards=2))
    yield "batch scaling", "grpo", True, dict(scale_rewards="batch", beta=0.04), {}
    yield "no scaling, delta", "grpo", True, dict(scale_rewards="none", delta=1.005, **TWICE), {}
    yield ("entropy bonus, half of the tokens", "grpo", True,
           dict(entropy_coef=0.1, top_entropy_quantile=0.5, loss_type="grpo",
                gradient_accumulation_steps=2), {})
    yield ("adaptive entropy", "grpo", True,
           dict(use_adaptive_entropy=True, entropy_target=5.76, entropy_coef=0.01,
                gradient_accumulation_steps=2), {})
    yield ("truncated masked, off-policy masked", "grpo", True,
           dict(mask_truncated_completions=True, off_policy_mask_threshold=0.001, **TWICE), {})
    yield ("plain divergence", "grpo", True,
           dict(beta=0.2, use_bias_correction_kl=False, loss_type="bnpo"), {})
    yield "padded to 8, temperature", "grpo", True, dict(pad_to_multiple_of=8, temperature=0.7), {}
    yield ("rloo", "rloo", True, dict(num_iterations=2, **WIDE), {})
    yield ("rloo, clipped rewards", "rloo", True,
           dict(beta=0.0, reward_clip_range=[0.2, 0.8], normalize_advantages=True,
                gradient_accumulation_steps=2), dict(rewards=2))
    yield ("grpo samples and evaluates", "grpo", False,
           dict(max_steps=20, steps_per_generation=2, eval_strategy="steps", eval_steps=10,
                num_generations_eval=2, beta=0.05), {})
    yield ("rloo samples", "rloo", False, dict(max_steps=8, num_generations=2, top_k=50), {})
    yield ("distillation samples", "distillation", False,
           dict(beta=0.5, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4), {})
    yield "distillation, forward", "distillation", False, dict(beta=0.0, temperature=0.8), {}
    yield "distillation, reverse", "distillation", False, dict(beta=1.0), {}
    yield ("reward model", "grpo", True, dict(reward_weights=[2.0, 1.0]), dict(judge=True))
    yield ("reward model, conversations", "rloo", False, dict(chat_template_kwargs=dict(x=1)),
           dict(judge=True, chat=True))
    yield ("adapter", "grpo", False, dict(beta=0.1, gradient_accumulation_steps=2),
           dict(lora=dict(r=4, target_modules=["q_proj", "v_proj"])))
    if not FULL:
        return
    for loss in LOSSES:
        for level in ("token", "sequence"):
            for scale in ("group", "batch", "none"):
                for beta in (0.0, 0.1):
                    yield (f"{loss}, {level}, {scale}, beta {beta}", "grpo", True,
                           dict(loss_type=loss, importance_sampling_level=level,
                                scale_rewards=scale, beta=beta, **LONG), {})
    for beta in (0.0, 0.1):
        for normalize in (False, True):
            yield (f"rloo, beta {beta}, normalized {normalize}", "rloo", True,
                   dict(beta=beta, normalize_advantages=normalize, **LONG),
                   dict(rewards=2))
    for beta in (0.0, 0.3, 1.0):
        yield (f"distillation, {beta}, 20 steps", "distillation", False,
               dict(beta=beta, max_steps=20), {})


def sum_of_tokens(completion_ids, **_):
    return [sum(ids) % 11 / 10 for ids in completion_ids]


def level(completion_ids, level, log_metric, **_):
    log_metric("longest", max(len(ids) for ids in completion_ids))
    return [None if each is None else each + len(ids) for each, ids in zip(level, completion_ids)]


class FirstGradients(transformers.TrainerCallback):

    def __init__(self):
        self.gradients = {}

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        if state.global_step == 0:
            self.gradients = {name: p.grad.flatten().tolist()
                              for name, p in model.named_parameters() if p.grad is not None}


def trained_by_trl(job, place):
    rows = {name: datasets.Dataset.from_list(
        [json.loads(line) for line in pathlib.Path(job[name]).read_text().splitlines()])
        for name in ("train", "eval")}
    first = FirstGradients()
    given = dict(
        model=transformers.AutoModelForCausalLM.from_pretrained(job["folder"]),
        train_dataset=rows["train"], eval_dataset=rows["eval"], callbacks=[first],
        processing_class=transformers.AutoTokenizer.from_pretrained(job["folder"]),
        peft_config=peft.LoraConfig(**job["lora"]) if "lora" in job else None)
    args = {**job["args"], "output_dir": str(place / "trl")}
    if job["trainer"] == "distillation":
        trainer = trl.DistillationTrainer(args=trl.DistillationConfig(**args),
                                          teacher_model=transformers.AutoModelForCausalLM.
                                          from_pretrained(job["teacher"]), **given)
    else:
        kind = dict(grpo=(trl.GRPOTrainer, trl.GRPOConfig),
                    rloo=(trl.RLOOTrainer, trl.RLOOConfig))[job["trainer"]]
        functions = [sum_of_tokens, level][:job.get("rewards", 1)]
        if "judge" in job:
            functions = [job["judge"], *functions]
        trainer = kind[0](reward_funcs=functions, args=kind[1](**args), **given)
    if "given" in job:
        table = json.loads(pathlib.Path(job["given"]).read_text())
        first_place = trainer.accelerator.process_index * job.get("places", 0)

        def generate(prompts):
            seen = {}
            prompt_ids, completion_ids = [], []
            for prompt in prompts:
                place = seen[prompt] = seen.get(prompt, first_place - 1) + 1
                lists = table[prompt]["completion_ids"]
                prompt_ids.append(table[prompt]["prompt_ids"])
                completion_ids.append(lists[place % len(lists)])
            return prompt_ids, completion_ids

        trainer._tokenize_prompts = lambda prompts: (generate(prompts)[0], None, {})
        # The completions of the prompts whose tokens were asked for last.
        tokenize = trainer._tokenize_prompts
        last = {}

        def remember(prompts):
            last["ids"] = generate(prompts)[1]
            return tokenize(prompts)

        trainer._tokenize_prompts = remember
        trainer._generate_single_turn = ((lambda *_: (last["ids"], None))
                                         if job["trainer"] == "grpo" else lambda *_: last["ids"])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return {
        "log_history": trainer.state.log_history,
        "trainable": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        "gradients": first.gradients
    }


def near(value, other, bound):
    return abs(value - other) <= bound * max(1.0, abs(other))


def failures_of(label, mine, theirs, bound=1e-5):
    failures = []
    if mine["trainable"] != theirs["trainable"]:
        failures.append(f"{label}: {mine['trainable']} trainable, trl {theirs['trainable']}")
    if "adapter" not in label:
        if set(mine["gradients"]) != set(theirs["gradients"]):
            failures.append(f"{label}: gradients of other parameters")
        for name, values in theirs["gradients"].items():
            ours = mine["gradients"].get(name, [])
            worst = max((abs(a - b) for a, b in zip(ours, values)), default=0)
            if len(ours) != len(values) or worst > bound:
                failures.append(f"{label}: the gradient of {name} differs by {worst}")
    ours, others = mine["log_history"], theirs["log_history"]
    exact_steps = 10 if "samples" in label else 6
    if len(ours) != len(others):
        failures.append(f"{label}: {len(ours)} log entries, trl {len(others)}")
    for entry, other in zip(ours, others):
        # Steps between two generations log the rewards of the completions they train on.
        missing = {name for name in set(entry) - set(other) if not name.startswith("reward")}
        if missing:
            failures.append(f"{label}, step {other['step']}: trl has no {missing}")
        for name, value in other.items():
            if name.endswith(("_runtime", "_per_second", "total_flos", "step_time")):
                continue
            if value is None:
                if name in entry:
                    failures.append(f"{label}, step {other['step']}: {name} is there")
                continue
            if name not in entry:
                failures.append(f"{label}, step {other['step']}: no {name}")
            elif not near(entry[name], value, bound if other["step"] <= exact_steps else 1e-4):
                failures.append(
                    f"{label}, step {other['step']}, {name}: {entry[name]}, trl {value}")
    return failures


def made_completions(rng, tokenizer, rows):
    """Completions of every length, with and without end, four for each prompt."""
    table = {}
    for row in rows:
        lists = []
        for _ in range(4):
            ids = [rng.randrange(4, len(tokenizer)) for _ in range(rng.randrange(1, 8))]
            lists.append(ids + [tokenizer.eos_token_id] if rng.random() < 0.7 else ids)
        table[row["prompt"]] = dict(prompt_ids=tokenizer(row["prompt"])["input_ids"],
                                    completion_ids=lists)
    return table


def make_place(place, rng):
    """Models, rows and completions for all jobs, in the folder `place`."""
    tokenizer = make_tokenizer(place / "model")
    for number, folder in enumerate(("model", "teacher", "judge")):
        if number:
            make_tokenizer(place / folder, vocab_size=290 if folder == "judge" else 320)
        torch.manual_seed(number)
        more = dict(num_labels=1) if folder == "judge" else {}
        config = transformers.AutoConfig.for_model(
            **SMALL, **more, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id, bos_token_id=None)
        kind = (transformers.AutoModelForSequenceClassification
                if folder == "judge" else transformers.AutoModelForCausalLM)
        kind.from_config(config).save_pretrained(place / folder)
    rows = {}
    for split, count in (("train", 12), ("eval", 4)):
        rows[split] = [dict(prompt=f"{i} " + sentence(rng), level=rng.choice([None, 0, 1, 2]))
                       for i in range(count)]
        write_rows(place / f"{split}.jsonl", rows[split])
        write_rows(place / f"{split}_chat.jsonl",
                   [dict(prompt=[dict(role="user", content=row["prompt"])]) for row in rows[split]])
    (place / "given.json").write_text(json.dumps(
        made_completions(rng, tokenizer, rows["train"] + rows["eval"])))


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_job(number, case, place):
    _, trainer, is_given, changes, more = case
    form = "_chat" if more.get("chat") else ""
    args = {**(ARGS if trainer == "distillation" else GROUPS), **changes,
            "output_dir": str(place / f"run{number}")}
    job = dict(trainer=trainer, folder=str(place / "model"), args=args,
               train=str(place / f"train{form}.jsonl"), eval=str(place / f"eval{form}.jsonl"),
               **more)
    if is_given:
        job["given"] = str(place / "given.json")
    if more.get("judge"):
        job["judge"] = str(place / "judge")
    if trainer == "distillation":
        job["teacher"] = str(place / "teacher")
    return job


def main():
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    chosen = [case for case in cases() if not sys.argv[1:] or sys.argv[1] in case[0]]
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        make_place(place, random.Random(4))
        jobs = [make_job(number, case, place) for number, case in enumerate(chosen)]
        (place / "jobs.json").write_text(json.dumps(jobs))
        subprocess.run([str(TOOL), str(place / "jobs.json"), str(place / "answers.json")],
                       check=True)
        answers = json.loads((place / "answers.json").read_text())
        failures = []
        for (label, *_), job, answer in zip(chosen, jobs, answers):
            found = failures_of(label, answer, trained_by_trl(job, place))
            print(f"{label}: {'failed' if found else 'equal'}")
            failures += found
    print("\n".join(failures[:60]))
    print(f"{len(chosen)} runs, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
