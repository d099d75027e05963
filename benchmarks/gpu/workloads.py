"""The models and data of the GPU benchmark: made anew, the same for both sides.

With GRADUS_BENCH_TINY=1 they are small, and the scripts run on a CPU: a try without a card.
"""
import json
import os
import random

import numpy as np

from model_configs import BERT, GPT2, LLAMA, MISTRAL, QWEN, QWEN3, SMALL_LLAMA, TINY

IS_TINY = os.environ.get("GRADUS_BENCH_TINY") == "1"
PRECISION = ["--use_cpu"] if IS_TINY else ["--bf16"]  # flags of gradus

# name: config, rows of a batch, tokens of a row, bounds on (ms, GB); None: no bound
WORKLOADS = {
    "gpt2-124m": dict(config=GPT2, batch=16, tokens=1024, bounds=(27.5, 6.5)),
    "gpt2-124m-dropout": dict(
        config=dict(GPT2, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1), batch=16, tokens=1024,
        bounds=(29.5, None)),
    "gpt2-350m": dict(config=dict(GPT2, n_embd=1024, n_layer=24, n_head=16), batch=8, tokens=1024,
                      bounds=(37, None)),
    "small-gpt": dict(config=dict(GPT2, n_embd=256, n_layer=4, n_head=4, n_positions=128), batch=8,
                      tokens=128, bounds=(0.9, None)),
    "bert-base": dict(config=BERT, batch=32, tokens=128, bounds=(6.5, None)),
    "llama-1b": dict(config=LLAMA, batch=4, tokens=2048, bounds=(102, 20)),
    "small-llama": dict(config=SMALL_LLAMA, batch=32, tokens=256, bounds=(2.4, None)),
    "qwen3-0.6b": dict(config=QWEN3, batch=4, tokens=4096, bounds=(135, None)),
    "mistral-1.6b": dict(config=MISTRAL, batch=2, tokens=4096, bounds=(150, None)),
    "qwen-0.5b": dict(config=QWEN, batch=16, tokens=1024, bounds=(86, 15)),
}


def shrink(work):
    """A workload that a CPU can try."""
    config = {key: TINY.get(key, value) for key, value in work["config"].items()}
    return dict(work, config=config, batch=2, tokens=32)


if IS_TINY:
    WORKLOADS = {name: shrink(work) for name, work in WORKLOADS.items()}


def model_folder(name, work, root):
    """Fresh weights from one seed, written by transformers: both sides start from the same
    numbers.
    """
    folder = os.path.join(root, name + ("-tiny" if IS_TINY else "-model"))
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        import torch
        from transformers import (
            AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification
        )

        config = AutoConfig.for_model(**work["config"])
        torch.manual_seed(0)
        kind = AutoModelForSequenceClassification if name == "bert-base" else AutoModelForCausalLM
        with torch.device("cpu" if IS_TINY else "cuda"):
            model = kind.from_config(config)
        model.save_pretrained(folder)
        if name == "bert-base":
            word_tokenizer(folder)
    return folder


def word_tokenizer(folder):
    """A WordPiece tokenizer whose words are w0, w1, …: one token each."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(30517)]
    tokenizer = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]",
                            cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
                            model_max_length=512).save_pretrained(folder)


def data_file(name, work, root, steps):
    """Token blocks with something to learn, or labelled texts of 30 to 126 words."""
    rows = work["batch"] * steps
    if name == "bert-base":
        path = os.path.join(root, "bert.jsonl")
        chance = random.Random(0)
        with open(path, "w") as file:
            for _ in range(rows):
                label = chance.randrange(2)
                words = [
                    f"w{chance.randrange(5000) + 5000 * label * (chance.random() < 0.3)}"
                    for _ in range(chance.randint(30, 126))
                ]
                file.write(json.dumps({"sentence": " ".join(words), "label": label}) + "\n")
        return path
    path = os.path.join(root, name + ".bin")
    vocabulary = work["config"]["vocab_size"]
    chance = np.random.default_rng(0)
    count = rows * work["tokens"]
    ids = np.minimum(chance.zipf(1.3, count), vocabulary) - 1
    follow = chance.random(count) < 0.5  # every second token follows from the one before
    ids[1:][follow[1:]] = (ids[:-1][follow[1:]] * 7 + 3) % vocabulary
    ids.astype(np.uint32 if vocabulary > 65535 else np.uint16).tofile(path)
    return path


def parameters(folder):
    from safetensors import safe_open

    with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
        return sum(int(np.prod(file.get_slice(key).get_shape())) for key in file.keys())
