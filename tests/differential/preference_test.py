"""RewardTrainer, DPOTrainer and KTOTrainer beside trl's: the same folders, rows and arguments.

Compared over 20 steps with AdamW: every gradient of the first step, every logged loss, gradient
norm, rate and metric of training and evaluation (1e-5 relative, 1e-4 after the first ten steps),
and the number of trainable parameters. A few cases by default; GRADUS_FULL=1, or a part of a label
as argument, runs the others. Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import datasets
    import numpy
    import peft
    import torch
    import transformers
    import trl
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sft_test  # the tokenizer, the sentences

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/preference_tool"
LLAMA = dict(model_type="llama", hidden_size=16, intermediate_size=32, num_hidden_layers=2,
             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128)
GPT2 = dict(model_type="gpt2", n_embd=16, n_layer=2, n_head=2, n_positions=128)  # has dropout
ARGS = dict(max_steps=20, per_device_train_batch_size=4, per_device_eval_batch_size=4,
            gradient_accumulation_steps=2, learning_rate=2e-3, warmup_steps=4, logging_steps=2,
            eval_strategy="steps", eval_steps=10, save_strategy="no", seed=5, report_to="none",
            use_cpu=True, disable_tqdm=True, bf16=False, max_length=32)
LORA = dict(r=4, target_modules=["q_proj", "v_proj"])


def dpo(**changes):
    return "dpo", LLAMA, "pair", changes, {}


LOSSES = ("hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot",
          "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm")
# What every run compares: label, (trainer, model, form of the rows, arguments, extras).
SHORT = [
    ("reward, messages, margin, centred",
     ("reward", LLAMA, "chat_margin", dict(center_rewards_coefficient=0.01), {})),
    ("dpo, sigmoid", dpo()),
    ("dpo, three losses, weighted, LD alpha",
     dpo(loss_type=["robust", "sft", "ipo"], loss_weights=[0.8, 1.0, 0.2], label_smoothing=0.1,
         ld_alpha=0.5)),
    ("dpo, LoRA, messages, WPO",
     ("dpo", LLAMA, "chat_pair", dict(use_weighting=True), dict(lora=LORA))),
    ("dpo, precomputed, js_divergence, GPT-2",
     ("dpo", GPT2, "pair", dict(precompute_ref_log_probs=True,
                                f_divergence_type="js_divergence"), {})),
    ("kto", ("kto", LLAMA, "labelled", {}, {})),
]
FULL = [
    ("reward, texts", ("reward", LLAMA, "pair", {}, {})),
    ("reward, texts without prompt, GPT-2", ("reward", GPT2, "joined", {}, {})),
    ("reward, short, rounded up", ("reward", LLAMA, "pair", dict(max_length=14,
                                                                 pad_to_multiple_of=8), {})),
    ("reward, token ids", ("reward", LLAMA, "ids", {}, {})),
    ("reward, LoRA, head saved",
     ("reward", LLAMA, "pair", {}, dict(lora=dict(**LORA, modules_to_save=["score"])))),
    ("reward, one batch a step", ("reward", LLAMA, "pair", dict(gradient_accumulation_steps=1,
                                                                gradient_checkpointing=False), {})),
    ("dpo, prompt inside", ("dpo", LLAMA, "joined", {}, {})),
    ("dpo, prompt inside, messages", ("dpo", LLAMA, "chat_joined", {}, {})),
    ("dpo, short, end kept", dpo(max_length=9, truncation_mode="keep_end")),
    ("dpo, short", dpo(max_length=9)),
    ("dpo, another reference", ("dpo", LLAMA, "pair", {}, dict(ref=True))),
    ("dpo, reference follows", dpo(sync_ref_model=True, ref_model_sync_steps=3)),
    ("dpo, an adapter goes on", ("dpo", LLAMA, "pair", {}, dict(adapter=True))),
    ("dpo, LoRA, precomputed",
     ("dpo", LLAMA, "pair", dict(precompute_ref_log_probs=True, precompute_ref_batch_size=7),
      dict(lora=dict(**LORA, lora_dropout=0.1)))),
    ("dpo, reference precomputed, LD alpha",
     ("dpo", LLAMA, "pair", dict(precompute_ref_log_probs=True, ld_alpha=0.3), dict(ref=True))),
    ("dpo, beta, one batch a step", dpo(beta=0.5, gradient_accumulation_steps=1)),
    *[(f"dpo, {loss}", dpo(loss_type=[loss], label_smoothing=0.1)) for loss in LOSSES],
    *[(f"dpo, {kind}", dpo(f_divergence_type=kind))
      for kind in ("forward_kl", "js_divergence", "alpha_divergence")],
    ("dpo, alpha_divergence of 1", dpo(f_divergence_type="alpha_divergence",
                                       f_alpha_divergence_coef=1.0)),
    ("dpo, WPO, robust", dpo(use_weighting=True, loss_type=["robust"], label_smoothing=0.1)),
    ("kto, apo_zero_unpaired", ("kto", LLAMA, "labelled", dict(loss_type="apo_zero_unpaired"), {})),
    ("kto, weights, messages",
     ("kto", LLAMA, "chat_labelled", dict(desirable_weight=1.5, undesirable_weight=0.5), {})),
    ("kto, pairs", ("kto", LLAMA, "pair", {}, {})),
    ("kto, LoRA", ("kto", LLAMA, "labelled", {}, dict(lora=LORA))),
    ("kto, precomputed, GPT-2",
     ("kto", GPT2, "labelled", dict(precompute_ref_log_probs=True), {})),
    ("kto, another reference, follows",
     ("kto", LLAMA, "labelled", dict(sync_ref_model=True, ref_model_sync_steps=3), dict(ref=True))),
]
TRAINERS = {"reward": (trl.RewardTrainer, trl.RewardConfig),
            "dpo": (trl.DPOTrainer, trl.DPOConfig), "kto": (trl.KTOTrainer, trl.KTOConfig)}


def make_row(rng, form, tokenizer):
    prompt, chosen, rejected = (sft_test.sentence(rng) for _ in range(3))
    user = [{"role": "user", "content": prompt}]
    good, bad = ([{"role": "assistant", "content": text}] for text in (chosen, rejected))
    label = rng.random() < 0.6
    return {
        "pair": {"prompt": prompt + " ", "chosen": chosen, "rejected": rejected},
        "joined": {"chosen": f"{prompt} {chosen}", "rejected": f"{prompt} {rejected} yes"},
        "ids": {"chosen_ids": tokenizer(chosen)["input_ids"],
                "rejected_ids": tokenizer(rejected)["input_ids"]},
        "chat_pair": {"prompt": user, "chosen": good, "rejected": bad},
        "chat_joined": {"chosen": user + good, "rejected": user + bad},
        "chat_margin": {"chosen": user + good, "rejected": user + bad, "margin": rng.random()},
        "labelled": {"prompt": prompt + " ", "completion": chosen, "label": label},
        "chat_labelled": {"prompt": user, "completion": good, "label": label},
    }[form]


class FirstGradients(transformers.TrainerCallback):

    def __init__(self):
        self.found = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self.found is None:
            self.found = {self.plain(name): parameter.grad.flatten().clone()
                          for name, parameter in model.named_parameters()
                          if parameter.grad is not None}

    @staticmethod
    def plain(name):
        for part in ("module.", "base_model.model.", "modules_to_save.default."):
            name = name.replace(part, "")
        return name


def load(job, folder):
    if job["trainer"] == "reward":
        return transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def trained_by_trl(job, place):
    rows = {name: [json.loads(line) for line in pathlib.Path(job[name]).read_text().splitlines()]
            for name in ("train", "eval")}
    trainer_class, config_class = TRAINERS[job["trainer"]]
    gradients = FirstGradients()
    more = {"ref_model": load(job, job["ref"])} if "ref" in job else {}
    model = load(job, job["folder"])
    if "adapter" in job:
        model = peft.PeftModel.from_pretrained(model, job["adapter"], is_trainable=True)
    trainer = trainer_class(
        model, args=config_class(**{**job["args"], "output_dir": str(place / "trl")}),
        train_dataset=datasets.Dataset.from_list(rows["train"]),
        eval_dataset=datasets.Dataset.from_list(rows["eval"]),
        processing_class=transformers.AutoTokenizer.from_pretrained(job["folder"]),
        callbacks=[gradients],
        peft_config=peft.LoraConfig(**job["lora"]) if "lora" in job else None, **more)
    trainable = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    trainer.train()
    return {"log_history": trainer.state.log_history, "gradients": gradients.found,
            "trainable": trainable}


def failures_of(label, mine, theirs):
    failures = []
    for name, gradient in theirs["gradients"].items():
        ours = mine["gradients"].get(name.replace(".base_layer", ""))
        if ours is None:
            failures.append(f"{label}: no gradient of {name}")
            continue
        gap = (torch.from_numpy(numpy.array(ours, dtype=numpy.float32)) - gradient).abs().max()
        if not gap <= 1e-5 * max(1.0, gradient.abs().max()):
            failures.append(f"{label}: the gradient of {name} differs by {gap}")
    more = set(mine["gradients"]) - {name.replace(".base_layer", "") for name in
                                     theirs["gradients"]}
    if more:
        failures.append(f"{label}: gradients that trl lacks: {sorted(more)[:3]}")
    return failures + sft_test.failures_of(label, mine, theirs)


def make_job(number, case, place, rng, rows=(60, 10)):
    trainer, config, form, changes, extras = case
    folder = place / f"model{number}"
    tokenizer = sft_test.make_tokenizer(folder)

    def make_model(where, seed):
        torch.manual_seed(seed)
        made = transformers.AutoConfig.for_model(
            **config, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
            **({"num_labels": 1} if trainer == "reward" else {}))
        kind = (transformers.AutoModelForSequenceClassification
                if trainer == "reward" else transformers.AutoModelForCausalLM)
        model = kind.from_config(made)
        model.save_pretrained(where)
        return model

    model = make_model(folder, number)
    job = dict(trainer=trainer, folder=str(folder), args={**ARGS, **changes})
    make = sft_test.make_row if trainer == "sft" else make_row
    for split, count in zip(("train", "eval"), rows):
        job[split] = str(place / f"{split}{number}.jsonl")
        pathlib.Path(job[split]).write_text("".join(
            json.dumps(make(rng, form, tokenizer)) + "\n" for _ in range(count)))
    job["args"]["output_dir"] = str(place / f"run{number}")
    if "lora" in extras:
        job["lora"] = extras["lora"]
    if "ref" in extras:
        job["ref"] = str(place / f"ref{number}")
        make_model(job["ref"], 1000 + number)
    if "adapter" in extras:
        job["adapter"] = str(place / f"adapter{number}")
        torch.manual_seed(7)
        adapted = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **LORA))
        adapted.save_pretrained(job["adapter"])
    return job


def main():
    cases = SHORT + (FULL if sys.argv[1:] or os.environ.get("GRADUS_FULL") else [])
    chosen = [case for case in cases if not sys.argv[1:] or sys.argv[1] in case[0]]
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        jobs = [make_job(number, case, place, rng) for number, (_, case) in enumerate(chosen)]
        (place / "jobs.json").write_text(json.dumps(jobs))
        subprocess.run([str(TOOL), str(place / "jobs.json"), str(place / "answers.json")],
                       check=True, env=dict(os.environ, XDG_CACHE_HOME=str(place / "cache")))
        answers = json.loads((place / "answers.json").read_text())
        failures = []
        for (label, _), job, answer in zip(chosen, jobs, answers):
            found = failures_of(label, answer, trained_by_trl(job, place))
            print(f"{label}: {'failed' if found else 'equal'}")
            failures += found
    print("\n".join(failures[:60]))
    print(f"{len(chosen)} runs, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
