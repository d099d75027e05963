"""LoRA beside peft: the same base folder, config, seed, rows and arguments.

Compared for each case: the adapter right after its creation (bit for bit, so the same random
numbers were drawn), trainable parameter counts, adapter_config.json, logits, loss and every
gradient (1e-5), 20 logged steps with AdamW (1e-5 relative), the trained adapter (1e-5), logits with
the adapter disabled, merged, unmerged, scaled, beside a second adapter and unloaded. Then folders
move both ways: each side loads the adapter that the other has trained, and resumes from the other's
checkpoint in the middle of the run. Some cases need GRADUS_FULL_MATRIX=1. Without the peer: exit
code 77.
"""
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import peft
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/lora_tool"
VOCAB, TOKENS, PAD, SEED = 64, 10, 0, 7
LLAMA = dict(model_type="llama", vocab_size=VOCAB, hidden_size=32, intermediate_size=64,
             num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=PAD)
QWEN2 = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True}
GPT2 = dict(model_type="gpt2", vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=PAD)
BERT = dict(model_type="bert", vocab_size=VOCAB, hidden_size=32, intermediate_size=64,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=20,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD)
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
          dropout_rate=0.0, pad_token_id=PAD, decoder_start_token_id=PAD)
ROBERTA = {**BERT, "model_type": "roberta", "pad_token_id": 1}
DISTILBERT = dict(model_type="distilbert", vocab_size=VOCAB, dim=32, hidden_dim=64, n_layers=2,
                  n_heads=4, max_position_embeddings=20, dropout=0.0, attention_dropout=0.0,
                  qa_dropout=0.0, seq_classif_dropout=0.0, pad_token_id=PAD)
BART = dict(model_type="bart", vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
            decoder_ffn_dim=48, max_position_embeddings=24, dropout=0.0, attention_dropout=0.0,
            activation_dropout=0.0, scale_embedding=True)
AUTO = {
    "causal": transformers.AutoModelForCausalLM,
    "classification": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
    "question": transformers.AutoModelForQuestionAnswering,
    "masked": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM
}
ARGS = dict(max_steps=20, per_device_train_batch_size=4, gradient_accumulation_steps=2,
            learning_rate=5e-3, weight_decay=0.01, warmup_steps=4, logging_steps=1,
            save_strategy="steps", save_steps=10, seed=3, report_to="none", use_cpu=True,
            disable_tqdm=True)
# label, model, task, fields of LoraConfig, arguments
CASES = [
    ("default targets", LLAMA, "causal", dict(task_type="CAUSAL_LM"), {}),
    ("names, alpha, dropout", LLAMA, "causal",
     dict(r=4, lora_alpha=16, lora_dropout=0.1, target_modules=["q_proj", "v_proj"]), {}),
    ("all-linear, rank-stabilised, gradient checkpointing", LLAMA, "causal",
     dict(r=4, target_modules="all-linear", use_rslora=True), dict(gradient_checkpointing=True)),
    ("expression, exclusion, gaussian", LLAMA, "causal",
     dict(target_modules=r".*\.(mlp\.down_proj|self_attn\.[qk]_proj)", init_lora_weights="gaussian",
          exclude_modules=["layers.1.self_attn.q_proj"]), {}),
    ("DoRA", LLAMA, "causal", dict(target_modules=["q_proj", "down_proj"], use_dora=True), {}),
    ("DoRA, dropout, bias", QWEN2, "causal",
     dict(target_modules=["q_proj", "v_proj"], use_dora=True, lora_dropout=0.1,
          bias="lora_only"), {}),
    ("patterns, blocks, no zero start", LLAMA, "causal",
     dict(target_modules=["q_proj", "o_proj", "up_proj"], layers_to_transform=[0, 2],
          layers_pattern="layers",
          rank_pattern={"q_proj": 3, "layers.2.mlp.up_proj": 6}, alpha_pattern={"o_proj": 32},
          init_lora_weights=False), {}),
    ("biases, saved head, tied weights", QWEN2, "causal",
     dict(target_modules=["k_proj"], bias="all", modules_to_save=["lm_head", "norm"]), {}),
    ("PiSSA", LLAMA, "causal", dict(r=4, init_lora_weights="pissa"), {}),
    ("adapter with bias", QWEN2, "causal", dict(target_modules=["q_proj"], lora_bias=True), {}),
    ("GPT-2, saved norm", GPT2, "causal", dict(r=4, modules_to_save=["ln_f"]), {}),
    ("GPT-2, all-linear, DoRA", GPT2, "causal", dict(target_modules="all-linear",
                                                     use_dora=True), {}),
    ("BERT classifier", BERT, "classification",
     dict(task_type="SEQ_CLS", target_modules="all-linear"), {}),
    ("BERT classifier, outputs, dropout, biases", BERT, "classification",
     dict(task_type="SEQ_CLS", target_modules=["query", "value", "output.dense"], lora_dropout=0.1,
          bias="lora_only"), {}),
    ("T5", T5, "seq2seq", dict(task_type="SEQ_2_SEQ_LM"), {}),
    ("T5, all-linear, dropout", T5, "seq2seq",
     dict(target_modules="all-linear", lora_dropout=0.1), {}),
    ("embeddings, tied weights, DoRA, dropout", QWEN2, "causal",
     dict(target_modules=["embed_tokens", "v_proj"], use_dora=True, lora_dropout=0.1,
          init_lora_weights="gaussian"), {}),
    ("tables of GPT-2, no zero start", GPT2, "causal",
     dict(target_modules=["wte", "wpe", "c_attn"], init_lora_weights=False), {}),
    ("tables of BERT", BERT, "masked",
     dict(target_modules=["word_embeddings", "position_embeddings", "token_type_embeddings"]), {}),
    ("adapted head", LLAMA, "causal", dict(target_modules=["lm_head", "q_proj"]), {}),
    ("BERT tokens", BERT, "tokens", dict(task_type="TOKEN_CLS"), {}),
]
# With GRADUS_FULL_MATRIX=1 only.
MORE = [
    ("embeddings", LLAMA, "causal",
     dict(r=4, target_modules=["embed_tokens", "q_proj"], use_rslora=True), {}),
    ("embeddings by an expression, patterns", LLAMA, "causal",
     dict(target_modules=r".*(embed_tokens|k_proj)", rank_pattern={"embed_tokens": 3},
          alpha_pattern={"embed_tokens": 5}), {}),
    ("tables of T5", T5, "seq2seq",
     dict(target_modules=["embed_tokens", "relative_attention_bias", "wo"]), {}),
    ("tables of BART", BART, "seq2seq", dict(target_modules=["embed_tokens", "fc1"],
                                             use_dora=True), {}),
    ("BART", BART, "seq2seq", {}, {}),
    ("BART, all-linear, dropout", BART, "seq2seq",
     dict(target_modules="all-linear", lora_dropout=0.1), {}),
    ("Llama classifier", LLAMA, "classification", dict(task_type="SEQ_CLS"), {}),
    ("RoBERTa classifier", ROBERTA, "classification", dict(task_type="SEQ_CLS"), {}),
    ("DistilBERT classifier", DISTILBERT, "classification",
     dict(task_type="SEQ_CLS", target_modules=["q_lin", "v_lin"]), {}),
    # Not Adam: the head's bias has no gradient but noise, which Adam makes large.
    ("RoBERTa question", ROBERTA, "question", dict(task_type="QUESTION_ANS"),
     dict(optim="sgd", learning_rate=0.1)),
    ("BERT masked", BERT, "masked", {}, {}),
]
if os.environ.get("GRADUS_FULL_MATRIX") == "1":
    CASES += MORE


def make_rows(rng, task, count):
    rows = []
    for _ in range(count):
        ids = [rng.randrange(2, VOCAB) for _ in range(TOKENS)]
        if task == "question":
            start = rng.randrange(TOKENS)
            rows.append({"input_ids": ids, "start_positions": start,
                         "end_positions": rng.randrange(start, TOKENS)})
            continue
        labels = {"classification": ids[0] % 2, "tokens": [each % 2 for each in ids],
                  "seq2seq": ids[::-1]}.get(task, ids)
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def columns_of(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def logits_of(model, batch):
    model.eval()
    with torch.no_grad():
        output = model(**batch)
        return output.start_logits.clone() if "start_logits" in output else output.logits.clone()


def trained_by_peft(job, resume=None, load=None):
    """What lora_tool does, with peft and transformers."""
    out = pathlib.Path(job["out"])
    base = AUTO[job["task"]].from_pretrained(job["folder"])
    batch = {name: torch.tensor(rows) for name, rows in job["batch"].items()}
    torch.manual_seed(job["seed"])
    if load is not None:
        model = peft.PeftModel.from_pretrained(base, load, is_trainable=True)
    else:
        model = peft.get_peft_model(base, peft.LoraConfig(**copy.deepcopy(job["lora"])))
    trainable, total = model.get_nb_trainable_parameters()
    text = (f"trainable params: {trainable:,d} || all params: {total:,d} || "
            f"trainable%: {100 * trainable / total:.4f}")
    model.save_pretrained(out / "start")
    values = {"logits": logits_of(model, batch)}
    loss = model(**batch).loss
    loss.backward()
    values["loss"] = loss.detach()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            name = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
            values["grad." + name.replace(".modules_to_save.default", "")] = parameter.grad.clone()
    model.zero_grad()
    args = transformers.TrainingArguments(output_dir=str(out / "run"), **job["args"])
    trainer = transformers.Trainer(model, args, train_dataset=job["rows"],
                                   data_collator=transformers.default_data_collator)
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(str(out / "final"))
    values["trained"] = logits_of(model, batch)
    with model.disable_adapter():
        values["disabled"] = logits_of(model, batch)
    model.merge_adapter()
    values["merged"] = logits_of(model, batch)
    model.unmerge_adapter()
    values["unmerged"] = logits_of(model, batch)
    layers = [one for one in model.modules() if isinstance(one, peft.tuners.lora.LoraLayer)]
    for scale, name in ((0.5, "scaled"), (1, "scaled back")):
        for layer in layers:
            layer.set_scale("default", scale)
        values[name] = logits_of(model, batch)
    if "other" in job:
        torch.manual_seed(job["seed"] + 1)
        model.add_adapter("other", peft.LoraConfig(**copy.deepcopy(job["other"])))
        values["beside another"] = logits_of(model, batch)
        model.set_adapter("other")
        values["other"] = logits_of(model, batch)
        model.set_adapter("default")
    values["unloaded"] = logits_of(model.merge_and_unload(), batch)
    return {"text": text, "log_history": trainer.state.log_history, "values": values}


def asked(jobs, place):
    (place / "jobs.json").write_text(json.dumps(jobs))
    subprocess.run([str(TOOL), str(place / "jobs.json"), str(place / "answers.json")], check=True)
    answers = json.loads((place / "answers.json").read_text())
    for job, answer in zip(jobs, answers):
        answer["values"] = load_file(job["out"] + "/values.safetensors")
    return answers


class Comparison:
    def __init__(self):
        self.failures, self.worst = [], 0.0

    def equal(self, what, mine, theirs):
        if mine != theirs:
            self.failures.append(f"{what}: gradus {mine}, peft {theirs}")

    def tensors(self, what, mine, theirs, tolerance):
        self.equal(what + ", names", sorted(mine), sorted(theirs))
        for name in set(mine) & set(theirs):
            far = (mine[name] - theirs[name]).abs().max().item()
            self.worst = max(self.worst, far)
            if not far <= tolerance * max(1.0, theirs[name].abs().max().item()):
                self.failures.append(f"{what}, {name}: differs by {far}")

    def logs(self, what, mine, theirs, first=0):
        mine, theirs = ([entry for entry in log if "loss" in entry and entry["step"] > first]
                        for log in (mine, theirs))
        self.equal(what + ", entries", len(mine), len(theirs))
        for ours, other in zip(mine, theirs):
            for name in ("loss", "grad_norm", "learning_rate", "step"):
                far = abs(ours[name] - other[name])
                if not far <= 1e-5 * max(1.0, abs(other[name])):
                    self.failures.append(
                        f"{what}, step {other['step']}, {name}: {ours[name]} {other[name]}")

    def configs(self, what, mine, theirs):
        mine, theirs = (json.loads((folder / "adapter_config.json").read_text())
                        for folder in (mine, theirs))
        for config in (mine, theirs):  # a set in peft
            if isinstance(config["target_modules"], list):
                config["target_modules"].sort()
        self.equal(what + ", adapter_config.json", mine,
                   {**theirs, "base_model_name_or_path": mine["base_model_name_or_path"]})


def main():
    rng = random.Random(1)
    compared = Comparison()
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        jobs, peft_jobs = [], []
        for number, (label, config, task, lora, changes) in enumerate(CASES):
            folder = place / f"base{number}"
            torch.manual_seed(number)
            base = AUTO[task].from_config(transformers.AutoConfig.for_model(**config))
            for parameter in base.parameters():  # biases that are not zero
                parameter.data.add_(0.02 * torch.randn_like(parameter))
            base.save_pretrained(folder)
            rows = make_rows(rng, task, 24)
            job = dict(folder=str(folder), task=task, lora=lora, seed=SEED, rows=rows,
                       batch=columns_of(rows[:4]), args={**ARGS, **changes})
            if "bias" not in lora and "PiSSA" not in label:  # peft wants a single one
                job["other"] = {**lora, "r": 3, "lora_alpha": 7, "init_lora_weights": False}
            jobs.append({**job, "out": str(place / f"gradus{number}")})
            peft_jobs.append({**job, "out": str(place / f"peft{number}")})
        theirs = [trained_by_peft(job) for job in peft_jobs]
        mine = asked(jobs, place)
        for (label, *_), job, peft_job, ours, other in zip(CASES, jobs, peft_jobs, mine, theirs):
            ours_at, other_at = pathlib.Path(job["out"]), pathlib.Path(peft_job["out"])
            compared.equal(label + ", counts", ours["text"], other["text"])
            compared.configs(label, ours_at / "start", other_at / "start")
            weights = "adapter_model.safetensors"
            compared.tensors(label + ", start", load_file(ours_at / "start" / weights),
                             load_file(other_at / "start" / weights),
                             1e-6 if "PiSSA" in label or "DoRA" in label else 0.0)
            compared.tensors(label, ours["values"], other["values"], 1e-5)
            compared.logs(label, ours["log_history"], other["log_history"])
            compared.tensors(label + ", trained", load_file(ours_at / "final" / weights),
                             load_file(other_at / "final" / weights), 1e-5)
            files = sorted(path.name for path in (ours_at / "run/checkpoint-10").iterdir())
            if weights not in files or "model.safetensors" in files:
                compared.failures.append(f"{label}: checkpoint holds {files}")

        # Each side goes on where the other was after 10 steps, and starts from what it has trained.
        moved = [number for number, case in enumerate(CASES) if "PiSSA" not in case[0]]
        resumed = asked([{**jobs[n], "out": jobs[n]["out"] + "r", "resume":
                          peft_jobs[n]["out"] + "/run/checkpoint-10"} for n in moved], place)
        loaded = asked([{**jobs[n], "out": jobs[n]["out"] + "l", "load":
                         peft_jobs[n]["out"] + "/final"} for n in moved], place)
        for n, again, fresh in zip(moved, resumed, loaded):
            label = CASES[n][0]
            compared.logs(label + ", peft's checkpoint", again["log_history"],
                          theirs[n]["log_history"], 10)
            compared.tensors(label + ", peft's adapter", {"logits": fresh["values"]["logits"]},
                             {"logits": theirs[n]["values"]["trained"]}, 1e-5)
            back = trained_by_peft({**peft_jobs[n], "out": peft_jobs[n]["out"] + "r"},
                                   resume=jobs[n]["out"] + "/run/checkpoint-10")
            compared.logs(label + ", our checkpoint in peft", mine[n]["log_history"],
                          back["log_history"], 10)
            base = AUTO[jobs[n]["task"]].from_pretrained(jobs[n]["folder"])
            model = peft.PeftModel.from_pretrained(base, jobs[n]["out"] + "/final")
            batch = {key: torch.tensor(rows) for key, rows in jobs[n]["batch"].items()}
            compared.tensors(label + ", our adapter in peft",
                             {"logits": mine[n]["values"]["trained"]},
                             {"logits": logits_of(model, batch)}, 1e-5)
    print("\n".join(compared.failures[:40]))
    print(f"{len(CASES)} cases, largest difference {compared.worst:.2e}, "
          f"{len(compared.failures)} failures")
    return 1 if compared.failures else 0


if __name__ == "__main__":
    sys.exit(main())
