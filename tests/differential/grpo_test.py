"""GRPO, RLOO and on-policy distillation beside trl: the same folder, rows and arguments.

Two kinds of runs. With given completions: each loss type, scaling of rewards, importance level,
with and without divergence, several iterations; compared are every gradient of the first step and
every logged metric (1e-5 relative in the first six steps, 1e-4 after). And whole runs that sample:
gradus draws the same random numbers as torch, so that the completions are those of trl; compared is
every logged metric (1e-5 in the first ten steps, 1e-4 after).

By default a selection runs; GRADUS_FULL_MATRIX=1 runs all. Without the peer: exit code 77.
"""
import json
import pathlib
import random
import sys
import warnings

from trl_runs import (FULL, LLAMA, answer_of, chosen, compare, given_to_trl, make_model,
                      make_tokenizer, sentence, transformers, trl, write_rows)

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
                num_generations_eval=2, per_device_eval_batch_size=6, beta=0.05), {})
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


def trained_by_trl(job):
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    given, gradients = given_to_trl(job)
    given["model"] = transformers.AutoModelForCausalLM.from_pretrained(job["folder"])
    args = job["args"]
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
    return answer_of(trainer, gradients)


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
        kind, more = transformers.AutoModelForCausalLM, {}
        if folder == "judge":
            kind, more = transformers.AutoModelForSequenceClassification, dict(num_labels=1)
        make_model(place / folder, SMALL | more, tokenizer, number, kind)
    rows = {}
    for split, count in (("train", 12), ("eval", 4)):
        rows[split] = [dict(prompt=f"{i} " + sentence(rng), level=rng.choice([None, 0, 1, 2]))
                       for i in range(count)]
        write_rows(place / f"{split}.jsonl", rows[split])
        write_rows(place / f"{split}_chat.jsonl",
                   [dict(prompt=[dict(role="user", content=row["prompt"])]) for row in rows[split]])
    (place / "given.json").write_text(json.dumps(
        made_completions(rng, tokenizer, rows["train"] + rows["eval"])))


def make_job(case, place):
    label, trainer, is_given, changes, more = case
    form = "_chat" if more.get("chat") else ""
    job = dict(trainer=trainer, folder=str(place / "model"),
               exact_steps=10 if "samples" in label else 6,
               args={**(ARGS if trainer == "distillation" else GROUPS), **changes},
               train=str(place / f"train{form}.jsonl"), eval=str(place / f"eval{form}.jsonl"),
               **more)
    if is_given:
        job["given"] = str(place / "given.json")
    if more.get("judge"):
        job["judge"] = str(place / "judge")
    if trainer == "distillation":
        job["teacher"] = str(place / "teacher")
    return label, job


def make_cases(place, cases=cases):
    make_place(place, random.Random(4))
    return [make_job(case, place) for case in chosen(cases())]


if __name__ == "__main__":
    # Steps between two generations log the rewards of the completions they train on.
    sys.exit(compare("grpo_tool", make_cases, trained_by_trl, more="reward"))
