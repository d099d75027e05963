"""RewardTrainer, DPOTrainer and KTOTrainer beside trl's: the same folders, rows and arguments.

Compared over 20 steps with AdamW: every gradient of the first step, every logged loss, gradient
norm, rate and metric of training and evaluation (1e-5 relative, 1e-4 after the first ten steps),
and the number of trainable parameters. A few cases by default; GRADUS_FULL_MATRIX=1, or a part of a
label as argument, runs the others. Without the peer: exit code 77.
"""
import random
import sys

from trl_runs import (ARGS, FULL, WORDS, answer_of, chosen, compare, given_to_trl, make_model,
                      make_tokenizer, peft, sentence, torch, transformers, trl, write_rows)

LLAMA = dict(model_type="llama", hidden_size=16, intermediate_size=32, num_hidden_layers=2,
             num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128)
GPT2 = dict(model_type="gpt2", n_embd=16, n_layer=2, n_head=2, n_positions=128)  # has dropout
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
MORE = [
    ("reward, texts", ("reward", LLAMA, "pair", {}, {})),
    # The bias of the last norm shifts all rewards alike, so its gradient is rounding alone, of
    # which AdamW would make steps.
    ("reward, texts without prompt, GPT-2",
     ("reward", GPT2, "joined", dict(optim="sgd", learning_rate=0.05), {})),
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
    ("dpo, reference with tied weights follows",
     ("dpo", GPT2, "pair", dict(sync_ref_model=True, ref_model_sync_steps=3,
                                ref_model_mixup_alpha=0.7, disable_dropout=True), {})),
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
TRAINERS = {"sft": (trl.SFTTrainer, trl.SFTConfig),
            "reward": (trl.RewardTrainer, trl.RewardConfig),
            "dpo": (trl.DPOTrainer, trl.DPOConfig), "kto": (trl.KTOTrainer, trl.KTOConfig)}


def text_row(rng, form, tokenizer):
    user, reply = sentence(rng), sentence(rng)
    chat = [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    if form in ("text", "story"):
        return {form: sentence(rng, 3, 30)}
    if form == "pair":
        return {"prompt": user + " ", "completion": reply}
    if form == "messages":
        more = [{"role": "user", "content": sentence(rng)},
                {"role": "assistant", "content": sentence(rng)}]
        return {"messages": chat + (more if rng.random() < 0.5 else [])}
    if form == "tools":  # in an order that is not the alphabet's
        return {"messages": chat, "tools": [{"type": "function", "name": rng.choice(WORDS)}]}
    if form == "from_value":
        return {"conversations": [{"from": m["role"], "value": m["content"]} for m in chat]}
    if form == "chat_pair":
        return {"prompt": chat[:1], "completion": chat[1:]}
    ids = tokenizer(user + " " + reply)["input_ids"]
    if form == "ids":
        return {"input_ids": ids}
    return {"input_ids": ids, "labels": [-100] * 3 + ids[3:]}


def preference_row(rng, form, tokenizer):
    prompt, chosen, rejected = (sentence(rng) for _ in range(3))
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


def load(job, folder):
    if job["trainer"] == "reward":
        return transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def trained_by_trl(job):
    trainer_class, config_class = TRAINERS[job["trainer"]]
    given, gradients = given_to_trl(job)
    if "ref" in job:
        given["ref_model"] = load(job, job["ref"])
    model = load(job, job["folder"])
    if "adapter" in job:
        model = peft.PeftModel.from_pretrained(model, job["adapter"], is_trainable=True)
    return answer_of(trainer_class(model, args=config_class(**job["args"]), **given), gradients,
                     job.get("resume"))


def make_job(number, case, place, rng, rows=(60, 10)):
    trainer, config, form, changes, extras = case
    folder = place / f"model{number}"
    tokenizer = make_tokenizer(folder)
    kind = transformers.AutoModelForCausalLM
    if trainer == "reward":
        kind, config = transformers.AutoModelForSequenceClassification, dict(config, num_labels=1)
    model = make_model(folder, config, tokenizer, number, kind)
    job = dict(trainer=trainer, folder=str(folder), args={**ARGS, **changes})
    make = text_row if trainer == "sft" else preference_row
    for split, count in zip(("train", "eval"), rows):
        job[split] = write_rows(place / f"{split}{number}.jsonl",
                                [make(rng, form, tokenizer) for _ in range(count)])
    job |= {name: extras[name] for name in ("lora", "zero_stage") if name in extras}
    if "ref" in extras:
        job["ref"] = str(place / f"ref{number}")
        make_model(job["ref"], config, tokenizer, 1000 + number)
    if "adapter" in extras:
        job["adapter"] = str(place / f"adapter{number}")
        torch.manual_seed(7)
        adapted = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **LORA))
        adapted.save_pretrained(job["adapter"])
    return job


def make_cases(place):
    rng = random.Random(2)
    return [(label, make_job(number, case, place, rng))
            for number, (label, case) in enumerate(chosen(SHORT + (MORE if FULL else [])))]


if __name__ == "__main__":
    sys.exit(compare("preference_tool", make_cases, trained_by_trl))
