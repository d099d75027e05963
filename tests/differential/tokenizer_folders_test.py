#!/usr/bin/env python3
"""Model folders of many kinds loaded by AutoTokenizer and by gradus: old and new files, classes
that build their pipeline from the configuration, classes that do not fit the model, special tokens
named in every place there is.

Usage: tokenizer_folders_test.py [build folder]   (default: build/release) Exit: 0 equal, 1
different, 77 when transformers is not installed.
"""
import json
import pathlib
import shutil
import sys
import tempfile

import tokenizer_test as common
from sample_text import TEXTS
from transformers import AutoTokenizer

ADDED = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
# name: (fixture, tokenizer_config.json or None, model type, further files)
FOLDERS = {
    "bert, cased": ("wordpiece", {"tokenizer_class": "BertTokenizer",
                                  "do_lower_case": False}, "bert", {}),
    "bert, empty configuration": ("wordpiece", {}, "bert", {}),
    "bert, fast class":
        ("wordpiece",
         {"tokenizer_class": "BertTokenizerFast", "strip_accents": False,
          "model_max_length": 128}, "bert", {}),
    "distilbert": ("wordpiece", {"tokenizer_class": "DistilBertTokenizer"}, "distilbert", {}),
    "gpt2 with a prefix space":
        ("bpe",
         {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True,
          "model_max_length": 1024}, "gpt2", {}),
    "gpt2, no configuration": ("bpe", None, "gpt2", {}),
    "gpt_neox": ("bpe", {"tokenizer_class": "GPTNeoXTokenizer"}, "gpt_neox", {}),
    "roberta": ("bpe", {"tokenizer_class": "RobertaTokenizer"}, "roberta", {}),
    "llama's class on byte-level BPE": ("bpe", {"tokenizer_class": "LlamaTokenizer"}, "llama", {}),
    "another class than the model's":
        ("bpe", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<pad>"}, "mistral", {}),
    "t5": ("unigram", {
        "tokenizer_class": "T5TokenizerFast", "extra_ids": 0,
        "additional_special_tokens": ["<extra_id_0>"]
    }, "t5", {}),
    "old files": ("wordpiece", {"tokenizer_class": "PreTrainedTokenizerFast"}, "bert", {
        "special_tokens_map.json": {
            "unk_token": "[UNK]", "pad_token": {"content": "[PAD]", **ADDED},
            "additional_special_tokens": ["[A]", "[B]"]
        }, "added_tokens.json": {"hello there": 601}
    }),
    "added_tokens_decoder": ("unigram", {
        "tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {
            "700": {"content": "<new>", **ADDED, "lstrip": True, "special": True}
        }, "image_token": "<img>", "pad_token": "<pad>",
        "extra_special_tokens": {"audio_token": "<aud>"}
    }, "unknown", {}),
    "no configuration": ("unigram", None, "llama", {}),
}


def make(folder, fixture, configuration, model_type, files):
    shutil.copytree(common.FIXTURES / fixture, folder)
    if configuration is None:
        (folder / "tokenizer_config.json").unlink()
    else:
        files = {**files, "tokenizer_config.json": configuration}
    for name, content in {**files, "config.json": {"model_type": model_type}}.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def main():
    common.transformers.logging.set_verbosity_error()
    texts = TEXTS + list(common.random_strings(100)) + ["[A] hello there [B] <new> <img><aud> x"]
    with tempfile.TemporaryDirectory() as temporary:
        for number, (name, parts) in enumerate(FOLDERS.items()):
            folder = make(pathlib.Path(temporary) / str(number), *parts)
            tokenizer = AutoTokenizer.from_pretrained(folder)
            common.compare_encodings(name, folder, tokenizer, texts)
            common.compare_cases(name, folder, tokenizer)
    print(f"{len(common.failures)} differences" if common.failures else "all equal")
    return 1 if common.failures else 0


if __name__ == "__main__":
    sys.exit(main())
