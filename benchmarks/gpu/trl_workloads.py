"""Models and data of the benchmark beside trl: made anew, the same for both sides."""
import json
import os
import random

from workloads import LLAMA, QWEN

# name: task, config, flags of both sides, most of trl's step time that gradus may take
COMMON = dict(bf16=True, save_strategy="no", report_to="none", seed=42, learning_rate=1e-5,
              warmup_steps=2)
TRL_WORKLOADS = {
    "sft-lora-llama-1b": dict(
        task="sft", config=LLAMA, bound=0.45, lora=dict(r=16, lora_alpha=32), interval=5,
        args=dict(per_device_train_batch_size=4, max_length=2048, packing=True)),
    "dpo-qwen-0.5b": dict(
        task="dpo", config=QWEN, bound=0.5, interval=5,
        args=dict(per_device_train_batch_size=8, max_length=512)),
    "grpo-qwen-0.5b": dict(
        task="grpo", config=QWEN, bound=0.3, interval=1,
        args=dict(per_device_train_batch_size=64, num_generations=8, max_completion_length=256)),
}
# Shapes with which a machine without a card can try the scripts.
TINY = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=512)
SPECIAL = ["<pad>", "<unk>", "<end>"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }}<end>{% endfor %}"


def arguments(work, steps, tiny, iterations=1):
    """The arguments of both sides, by trl's names."""
    args = {**COMMON, **work["args"], "max_steps": steps, "logging_steps": work["interval"]}
    if work["task"] == "grpo" and iterations > 1:
        args["num_iterations"] = iterations
    if tiny:
        args |= dict(bf16=False, use_cpu=True)
        for name, most in (("per_device_train_batch_size", 8), ("max_length", 64),
                           ("max_completion_length", 8)):
            if name in args:
                args[name] = min(args[name], most)
    return args


def make_model(name, work, root, tiny):
    """Fresh weights from one seed with a tokenizer whose words w0, w1, … are one token each."""
    folder = os.path.join(root, name + ("-tiny" if tiny else "-model"))
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        return folder
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    config = AutoConfig.for_model(**{**work["config"], **(TINY if tiny else {})}, pad_token_id=0,
                                  eos_token_id=2, bos_token_id=None)
    torch.manual_seed(0)
    with torch.device("cpu" if tiny else "cuda"):
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    words = SPECIAL + [f"w{i}" for i in range(config.vocab_size - len(SPECIAL))]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>",
                                   unk_token="<unk>", eos_token="<end>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder


def make_rows(name, work, root, steps, tiny):
    """A file of rows with words to learn from: texts, pairs of answers, or prompts."""
    chance = random.Random(0)
    vocabulary = (TINY if tiny else work["config"])["vocab_size"] - len(SPECIAL)
    common = min(2000, vocabulary)

    def words(least, most):
        return " ".join(f"w{chance.randrange(common)}" for _ in range(chance.randint(least, most)))

    def row():
        if work["task"] == "sft":
            return dict(text=words(*((10, 60) if tiny else (200, 1800))))
        if work["task"] == "dpo":
            sizes = (10, 20) if tiny else (150, 380)
            return dict(prompt=words(8, 100), chosen=words(*sizes), rejected=words(*sizes))
        return dict(prompt=words(48, 48))  # Python's padding on the left gave NaN on an H200

    batch = arguments(work, steps, tiny)["per_device_train_batch_size"]
    rows = batch * steps * (3 if work["task"] == "sft" else 1) + 64
    path = os.path.join(root, f"{name}{'-tiny' if tiny else ''}.jsonl")
    with open(path, "w") as file:
        for _ in range(rows):
            file.write(json.dumps(row()) + "\n")
    return path
