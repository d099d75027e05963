#!/usr/bin/env python3
"""Model folders and checkpoints from strangers: special files, empty indexes, damaged manifests,
huge pickles, names that talk to the terminal, files that are cut while they are read.

    python model_folders_test.py GRADUS
"""
import json
import os
import socket
import struct
import tempfile
import zipfile
from pathlib import Path

import hostile
import tiny_folder

ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eetirw\r"


def replaced(top, name, make, base="config.json"):
    """A good folder whose file `base` is what `make(path)` makes."""
    folder = tiny_folder.write(top / name)
    (folder / base).unlink(missing_ok=True)
    make(folder / base)
    return folder


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        before = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            one.bind(path.name)
        finally:
            os.chdir(before)


def special_files(top):
    kinds = {
        "a FIFO": os.mkfifo,
        "a device": lambda path: os.symlink("/dev/zero", path),
        "a socket": make_socket
    }
    cases = 0
    for kind, make in kinds.items():
        for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                     "chat_template.jinja", "generation_config.json"):
            if file != "config.json" and kind != "a FIFO":
                continue
            folder = replaced(top, f"{kind} {file}", make, file)
            hostile.refuses(f"{kind} as {file}", tiny_folder.generate(folder), kind, top)
            cases += 1
    folder = replaced(top, "bin", os.mkfifo, "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    hostile.refuses("a FIFO as pytorch_model.bin", tiny_folder.generate(folder), "a FIFO", top)
    os.mkfifo(top / "prompts.txt")
    good = tiny_folder.write(top / "good")
    words = tiny_folder.generate(good)
    at = words.index("--prompt")
    words[at:at + 2] = ["--prompt_file", top / "prompts.txt"]
    hostile.refuses("a FIFO of prompts", words, "a FIFO", top)
    os.mkfifo(top / "rows.jsonl")
    hostile.refuses("a FIFO of rows", ["data", "show", top / "rows.jsonl"], "a FIFO", top)
    (top / "options.yaml").symlink_to("/dev/zero")
    hostile.refuses("a device of options", ["train", top / "options.yaml"], "a device", top)
    return cases + 4


def indexes(top):
    def index(name, text):
        folder = tiny_folder.write(top / name)
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
        (folder / "model.safetensors.index.json").write_text(text)
        return folder

    empty = index("empty index", '{"weight_map": {}}')
    hostile.refuses("an empty weight_map", tiny_folder.generate(empty), "weight_map is empty", top)
    outside = index("outside", '{"weight_map": {"a": "../../etc/passwd"}}')
    hostile.refuses("a shard outside", tiny_folder.generate(outside), "same folder", top)
    return 2


def escapes(top):
    folder = tiny_folder.write(top / "escapes")
    tensors = {**tiny_folder.shapes(), ESCAPES: [2]}
    (folder / "model.safetensors").write_bytes(tiny_folder.safetensors(tensors))
    done = hostile.run(tiny_folder.generate(folder), top)
    shown = done.stderr.decode(errors="surrogateescape") if done else ""
    bad = [c for c in "\x1b\x07\x9b\r\u202e" if c in shown]
    if done is None or done.returncode != 0 or bad or "red" not in shown:
        hostile.fail("a tensor's name on the terminal", f"these came through: {bad}", done)
    config = {**tiny_folder.CONFIG, "model_type": ESCAPES}
    folder = tiny_folder.write(top / "type", config=config)
    hostile.refuses("a model type on the terminal", tiny_folder.generate(folder), "\\x1b", top)
    return 2


def manifests(top):
    files = '{"a.txt": {"size": 1, "checksum": "crc32:e8b7be43"}}'
    texts = {
        "a number as format": f'{{"format": 5, "version": 1, "files": {files}}}',
        "no files": '{"format": "gradus-checkpoint", "version": 1, "files": {}}',
        "a list of files": '{"format": "gradus-checkpoint", "version": 1, "files": []}',
        "a text as version": f'{{"format": "gradus-checkpoint", "version": "1", "files": {files}}}',
        "a checksum of words":
            '{"format": "gradus-checkpoint", "version": 1, '
            '"files": {"a.txt": {"size": 1, "checksum": "crc32:words"}}}',
    }
    for name, text in texts.items():
        checkpoint = top / name / "checkpoint-5"
        checkpoint.mkdir(parents=True)
        (checkpoint / "a.txt").write_text("a")
        (checkpoint / "manifest.json").write_text(text)
        done = hostile.run(["verify", checkpoint], top)
        shown = done.stdout.decode() if done else ""
        if done is None or done.returncode != 1 or "is not a manifest" not in shown:
            hostile.fail(name, f"expected `is not a manifest`, received {shown!r}", done)
    run = top / "dangling"
    run.mkdir()
    (run / "checkpoint-7").symlink_to(top / "nowhere")
    hostile.refuses("a dangling checkpoint", ["verify", run], "which does not exist", top)
    (top / "out").symlink_to(top / "nowhere")
    good = tiny_folder.write(top / "writer")
    hostile.refuses("a dangling output folder",
                    tiny_folder.generate(good, "the cat", "--output_dir", top / "out"),
                    "which does not exist", top)
    return len(texts) + 2


def pickles(top):
    """100 MB of pickle each, in a torch file that is read as weights."""
    bodies = {
        "empty lists": b"]" * (100 << 20),
        "None": b"N" * (100 << 20),
        "numbers": b"J\1\2\3\4" * (20 << 20),
        "marks": b"(" * (100 << 20),
        "memos": b"}" + b"".join(b"r" + struct.pack("<I", i) for i in range(20 << 20)),
    }
    for name, body in bodies.items():
        folder = tiny_folder.write(top / name)
        (folder / "model.safetensors").unlink()
        with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02" + body + b".")
            archive.writestr("archive/version", "3\n")
        hostile.refuses(f"a pickle of {name}", tiny_folder.generate(folder), "G-PT-", top)
        (folder / "pytorch_model.bin").unlink()
    return len(bodies)


def adapters(top):
    """Very many patterns and names of layers: read, and soon."""
    base = tiny_folder.write(top / "base")
    layer = "base_model.model.transformer.h.0.attn.c_attn"
    many = {
        "rank_pattern": {f"layer{i}": 2 for i in range(100_000)},
        "alpha_pattern": {f"a.b{i}": 2 for i in range(100_000)},
        "target_modules": ["c_attn", *(f"layer{i}" for i in range(200_000))],
    }
    for name, value in many.items():
        folder = tiny_folder.write(top / f"adapter with {name}")
        (folder / "model.safetensors").unlink()
        (folder / "adapter_config.json").write_text(json.dumps({
            "peft_type": "LORA", "r": 2, "target_modules": ["c_attn"], "fan_in_fan_out": True,
            "base_model_name_or_path": str(base), name: value
        }))
        (folder / "adapter_model.safetensors").write_bytes(tiny_folder.safetensors({
            f"{layer}.lora_A.weight": [2, tiny_folder.WIDTH],
            f"{layer}.lora_B.weight": [3 * tiny_folder.WIDTH, 2]
        }))
        hostile.accepts(f"an adapter of many in {name}", tiny_folder.generate(folder), top)
    return len(many)


def main():
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        parts = (special_files, indexes, escapes, manifests, pickles, adapters)
        cases = sum(part(top) for part in parts)
        hostile.finish(cases)


main()
