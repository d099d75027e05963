#!/usr/bin/env python3
"""Tokenizer files whose pipelines explode, lie about sizes or never end.

    python tokenizers_test.py GRADUS
"""
import base64
import copy
import json
import os
import struct
import tempfile
from pathlib import Path

import hostile
import tiny_folder

LONG = "the cat sat " * 400


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def charsmap(trie, normalized=b""):
    data = struct.pack("<I", len(trie)) + trie + normalized
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def lying_charsmap(size):
    data = struct.pack("<I", size) + b"\0" * 64
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def nested(depth):
    steps = {"type": "Lowercase"}
    for _ in range(depth):
        steps = sequence(steps)
    return steps


def tokenizer(**parts):
    return {**copy.deepcopy(tiny_folder.TOKENIZER), **parts}


DOUBLING = sequence(*[replace({"String": "a"}, "aaaaaaaa")] * 16)
# name, parts of tokenizer.json, what the message must say
CASES = [
    ("replace that multiplies", {"normalizer": DOUBLING}, "limit of "),
    ("replace by a megabyte", {
        "normalizer": sequence(*[replace({"Regex": "."}, "y" * 1000)] * 4)
    }, "limit of "),
    ("prepend a lot", {
        "normalizer": sequence(*[{"type": "Prepend", "prepend": "x" * 100000}] * 8,
                               *[replace({"String": "x"}, "y" * 100000)] * 2)
    }, "limit of "),
    ("a regex of exponential cost", {
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": "(?=(t|h|e|\\s|[a-z])*(t|h|[a-z])*(e|[a-z])*!)x"},
            "behavior": "Isolated", "invert": False
        }
    }, None),
    ("a charsmap that lies", {"normalizer": lying_charsmap(0xfffffff0)}, None),
    ("a charsmap of two gigabytes", {"normalizer": lying_charsmap(0x7ffffff0)}, None),
    ("a charsmap out of bounds", {"normalizer": charsmap(b"\xff" * 64, b"\0" * 8)}, None),
    ("a deep pipeline", {"normalizer": nested(400)}, ""),
    ("huge padding", {
        "padding": {
            "strategy": {"Fixed": 9999999999999}, "direction": "Right",
            "pad_to_multiple_of": 1 << 62, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"
        }
    }, None),
    ("huge truncation", {
        "truncation": {
            "direction": "Right", "max_length": 1 << 62, "strategy": "LongestFirst",
            "stride": 1 << 61
        }
    }, None),
    ("a control character in a name", {
        "model": {**tiny_folder.TOKENIZER["model"], "type": "\x1b]0;owned\x07\x9b31m"}
    }, ""),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for number, (title, parts, text) in enumerate(CASES):
            folder = tiny_folder.write(top / str(number), tokenizer=tokenizer(**parts))
            words = tiny_folder.generate(folder, LONG[:200])
            if text is None:  # fine either way, as long as it ends by itself and in time
                done = hostile.run(words, top)
                if done is None or done.returncode not in (0, 1, 2):
                    hostile.fail(title, "neither a text nor an error", done)
            else:
                hostile.refuses(title, words, text, top)
        folder = tiny_folder.write(top / "sentinels", tokenizer_class="T5Tokenizer",
                                   extra_ids=1 << 60)
        hostile.refuses("absurd sentinels", tiny_folder.generate(folder), "extra_ids", top)
        folder = tiny_folder.write(top / "decoder", added_tokens_decoder={"one": {"content": "x"}})
        hostile.refuses("a word for a number", tiny_folder.generate(folder),
                        "added_tokens_decoder", top)
        folder = tiny_folder.write(top / "fifo")
        (folder / "tokenizer.json").unlink()
        os.mkfifo(folder / "tokenizer.json")
        hostile.refuses("a FIFO", tiny_folder.generate(folder), "a FIFO", top)
        hostile.finish(len(CASES) + 3)


main()
