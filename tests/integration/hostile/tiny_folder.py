"""A folder that gradus generates from: a tiny GPT-2, a tokenizer of words and a chat template.

Uses only the standard library. `write(folder)` makes a good one; a test then damages a part of it.
"""
import json
import random
import struct

WORDS = ["<pad>", "</s>", "<unk>"] + "the a cat dog sat on mat and it was red big .".split()
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
WIDTH = 8
CONFIG = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": len(WORDS),
    "n_positions": 64, "n_embd": WIDTH, "n_layer": 1, "n_head": 2, "bos_token_id": 1,
    "eos_token_id": 1, "pad_token_id": 0
}
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
    "decoder": None, "model": {
        "type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)},
        "unk_token": "<unk>"
    }
}


def shapes():
    found = {"transformer.wte.weight": [len(WORDS), WIDTH], "transformer.wpe.weight": [64, WIDTH]}
    layer = {
        "ln_1.weight": [WIDTH], "ln_1.bias": [WIDTH], "ln_2.weight": [WIDTH], "ln_2.bias": [WIDTH],
        "attn.c_attn.weight": [WIDTH, 3 * WIDTH], "attn.c_attn.bias": [3 * WIDTH],
        "attn.c_proj.weight": [WIDTH, WIDTH], "attn.c_proj.bias": [WIDTH],
        "mlp.c_fc.weight": [WIDTH, 4 * WIDTH], "mlp.c_fc.bias": [4 * WIDTH],
        "mlp.c_proj.weight": [4 * WIDTH, WIDTH], "mlp.c_proj.bias": [WIDTH]
    }
    found.update({f"transformer.h.0.{name}": shape for name, shape in layer.items()})
    found.update({"transformer.ln_f.weight": [WIDTH], "transformer.ln_f.bias": [WIDTH]})
    return found


def safetensors(tensors):
    """The bytes of a file with tensors of these shapes."""
    rng, header, body = random.Random(1), {}, b""
    for name, shape in tensors.items():
        count = 1
        for size in shape:
            count *= size
        header[name] = {
            "dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + 4 * count]
        }
        body += struct.pack(f"<{count}f", *(rng.gauss(0, 0.3) for _ in range(count)))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def write(folder, template=TEMPLATE, tokenizer=None, config=None, **tokenizer_config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    (folder / "model.safetensors").write_bytes(safetensors(shapes()))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer or TOKENIZER))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>",
        "unk_token": "<unk>", **tokenizer_config
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(template)
    return folder


def generate(folder, prompt="the cat", *more):
    """The words of a command that uses all of the folder."""
    return [
        "generate", "--model_name_or_path", folder, "--prompt", prompt, "--chat",
        "--max_new_tokens", 1, "--use_cpu", *more
    ]
