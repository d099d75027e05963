"""The SFTTrainer beside trl's: the same folder, rows and arguments, 20 steps with AdamW.

Each form of data, packing strategy and loss. Compared: every logged loss, gradient norm, rate,
entropy, token accuracy and number of tokens of training and evaluation (1e-5 relative, 1e-4 after
the first ten steps), and the number of trainable parameters. Without the peer: exit code 77.
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
    import peft
    import tokenizers
    import torch
    import transformers
    import trl
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/sft_tool"
WORDS = ("the cat sat on a mat and saw one red bird that sang all day long under some old tree "
         "while rain fell").split()
TEMPLATE = ("{% for message in messages %}<|{{ message['role'] }}|>"
            "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<eos>"
            "{% endgeneration %}{% else %}{{ message['content'] }}<eos>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
LLAMA = dict(model_type="llama", hidden_size=32, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
GPT2 = dict(model_type="gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0)
ARGS = dict(max_steps=20, per_device_train_batch_size=4, per_device_eval_batch_size=4,
            gradient_accumulation_steps=2, learning_rate=2e-3, warmup_steps=4, logging_steps=2,
            eval_strategy="steps", eval_steps=10, save_strategy="no", seed=5, report_to="none",
            use_cpu=True, disable_tqdm=True, bf16=False, max_length=32)
# label, model, form of the rows, arguments, fields of LoraConfig
CASES = [
    ("text", LLAMA, "text", {}, None),
    ("text, GPT-2, one batch a step", GPT2, "text", dict(gradient_accumulation_steps=1), None),
    ("text in another column, no checkpointing", LLAMA, "story",
     dict(dataset_text_field="story", gradient_checkpointing=False), None),
    ("text, short, end kept", LLAMA, "text", dict(max_length=9, truncation_mode="keep_end"), None),
    ("prompt and completion", LLAMA, "pair", {}, None),
    ("prompt and completion, short", LLAMA, "pair", dict(max_length=8), None),
    ("prompt and completion, loss of both", LLAMA, "pair", dict(completion_only_loss=False), None),
    ("messages", LLAMA, "messages", {}, None),
    ("messages, assistant only", LLAMA, "messages", dict(assistant_only_loss=True), None),
    ("conversations with from and value", LLAMA, "from_value", {}, None),
    ("prompt and completion as messages", LLAMA, "chat_pair", {}, None),
    ("the same, assistant only", LLAMA, "chat_pair", dict(assistant_only_loss=True), None),
    ("token ids", LLAMA, "ids", {}, None),
    ("token ids with labels", LLAMA, "labels", {}, None),
    ("packed, bfd", LLAMA, "text", dict(packing=True), None),
    ("packed, bfd_split, completions", LLAMA, "pair",
     dict(packing=True, packing_strategy="bfd_split", max_length=12), None),
    ("packed, wrapped", LLAMA, "text", dict(packing=True, packing_strategy="wrapped"), None),
    ("packed, evaluation not, GPT-2", GPT2, "text", dict(packing=True, eval_packing=False), None),
    ("no padding", LLAMA, "messages", dict(padding_free=True, max_length=None), None),
    ("dft", LLAMA, "pair", dict(loss_type="dft"), None),
    ("label smoothing", LLAMA, "text", dict(label_smoothing_factor=0.1), None),
    ("shuffled, rounded up", LLAMA, "text", dict(shuffle_dataset=True, pad_to_multiple_of=8), None),
    ("shuffled, packed", LLAMA, "text", dict(shuffle_dataset=True, packing=True), None),
    ("LoRA", LLAMA, "messages", {}, dict(r=4, target_modules=["q_proj", "v_proj"])),
    ("LoRA, packed, dropout", LLAMA, "pair", dict(packing=True),
     dict(target_modules="all-linear", lora_dropout=0.1)),
]


def sentence(rng, least=3, most=12):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(least, most)))


def make_row(rng, form, tokenizer):
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
    if form == "from_value":
        return {"conversations": [{"from": m["role"], "value": m["content"]} for m in chat]}
    if form == "chat_pair":
        return {"prompt": chat[:1], "completion": chat[1:]}
    ids = tokenizer(user + " " + reply)["input_ids"]
    if form == "ids":
        return {"input_ids": ids}
    return {"input_ids": ids, "labels": [-100] * 3 + ids[3:]}


def make_tokenizer(folder, vocab_size=320):
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trained.train_from_iterator(
        [" ".join(WORDS)] * 3,
        tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=["<pad>", "<eos>", "<|user|>", "<|assistant|>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<eos>",
                                                     pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def trained_by_trl(job, place):
    rows = {name: [json.loads(line) for line in pathlib.Path(job[name]).read_text().splitlines()]
            for name in ("train", "eval")}
    trainer = trl.SFTTrainer(
        transformers.AutoModelForCausalLM.from_pretrained(job["folder"]),
        trl.SFTConfig(**{**job["args"], "output_dir": str(place / "trl")}),
        train_dataset=datasets.Dataset.from_list(rows["train"]),
        eval_dataset=datasets.Dataset.from_list(rows["eval"]),
        processing_class=transformers.AutoTokenizer.from_pretrained(job["folder"]),
        peft_config=peft.LoraConfig(**job["lora"]) if "lora" in job else None)
    trainer.train()
    return {
        "log_history": trainer.state.log_history,
        "trainable": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    }


def failures_of(label, mine, theirs):
    failures = []
    if mine["trainable"] != theirs["trainable"]:
        failures.append(f"{label}: {mine['trainable']} trainable, trl {theirs['trainable']}")
    ours, others = mine["log_history"], theirs["log_history"]
    if len(ours) != len(others):
        failures.append(f"{label}: {len(ours)} log entries, trl {len(others)}")
    for entry, other in zip(ours, others):
        for name, value in other.items():
            if name.endswith(("_runtime", "_per_second", "total_flos")):
                continue
            if name not in entry:
                failures.append(f"{label}, step {other['step']}: no {name}")
                continue
            near = (1e-5 if other["step"] <= 10 else 1e-4) * max(1.0, abs(value))
            if not abs(entry[name] - value) <= near:
                failures.append(
                    f"{label}, step {other['step']}, {name}: {entry[name]}, trl {value}")
    return failures


def main():
    chosen = [case for case in CASES if not sys.argv[1:] or sys.argv[1] in case[0]]
    rng = random.Random(2)
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        jobs = []
        for number, (_, config, form, changes, lora) in enumerate(chosen):
            folder = place / f"model{number}"
            tokenizer = make_tokenizer(folder)
            torch.manual_seed(number)
            config = transformers.AutoConfig.for_model(
                **config, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id, bos_token_id=None)
            transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            job = dict(folder=str(folder), args={**ARGS, **changes})
            for split, count in (("train", 60), ("eval", 10)):
                job[split] = str(place / f"{split}{number}.jsonl")
                pathlib.Path(job[split]).write_text("".join(
                    json.dumps(make_row(rng, form, tokenizer)) + "\n" for _ in range(count)))
            job["args"]["output_dir"] = str(place / f"run{number}")
            if lora is not None:
                job["lora"] = lora
            jobs.append(job)
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
