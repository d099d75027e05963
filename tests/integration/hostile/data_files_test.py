"""Hostile data files: data_files_test.py GRADUS.

Damaged Arrow files, files that unpack to very much, files of very many columns, keys, lines and
tensors.
"""
import gzip
import json
import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from hostile import accepts, fail, finish, refuses, run

SEEDS = Path(__file__).resolve().parents[2] / "fuzz" / "seeds"
MANY = 100_000
cases = 0


def show(name, file, text, *flags):
    global cases
    cases += 1
    refuses(name, ["data", "show", file, *flags], text, file.parent)


def shows(name, file, text, *flags):
    global cases
    cases += 1
    out = accepts(name, ["data", "show", file, *flags], file.parent)
    if text not in out:
        sys.exit(f"{name}: expected {text!r} in:\n{out[:2000]}")


def ints(*numbers):
    return struct.pack(f"<{len(numbers)}i", *numbers)


def damaged_arrow(folder):
    """Offsets, views, type ids and runs that point out of the file."""
    view = ints(32) + b"a te" + ints(0)
    for seed, old, new in [
        ("string_view", view + ints(0), view + ints(1 << 30)),
        ("string_view", view, ints(32) + b"a te" + ints(1 << 20)),
        ("binary_view", view, ints(1 << 30) + b"a te" + ints(0)),
        ("list_of_view", view, ints(1 << 30) + b"a te" + ints(0)),
        ("dictionary_of_view", view, ints(1 << 30) + b"a te" + ints(0)),
        ("list_view", ints(0, 2, 0, 4, 1, 0), ints(0, 2, 0, 1 << 28, 1, 0)),
        ("large_list_view", struct.pack("<6q", 2, 2, 5, 1, 0, 1),
         struct.pack("<6q", 2, 2, 5, 1, 0, 1 << 40)),
        ("dense_union", bytes([0, 1, 0, 1, 1, 0]), bytes([0, 1, 0, 7, 1, 0])),
        ("dense_union", ints(0, 0, 1, 1, 2, 2), ints(0, 0, 1, 1, 2, 1 << 28)),
        ("sparse_union", bytes([0, 1, 0, 1, 1, 0]), bytes([0, 1, 0, 255, 1, 0])),
        ("run_end_encoded", ints(2, 3, 6), ints(2, 3, 1)),
    ]:
        content = (SEEDS / "arrow" / f"{seed}.arrow").read_bytes()
        assert old in content, seed
        file = folder / f"{seed}.arrow"
        file.write_bytes(content.replace(old, new))
        show(f"damaged {seed}", file, str(file))


def one_long_line(folder):
    """3 GB without a line break: in a .gz of 3 MB and a .zst of 96 KB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 15 + 16)
    head = packer.compress(b"x" * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    more = packer.compress(b"x" * (16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = head + more * 180
    # A frame of blocks that say "128 KiB of this byte".
    frame = b"\x28\xb5\x2f\xfd\x00\x50" + (struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] +
                                           b"x") * (24 << 10)
    for name, content in [("a.txt.gz", packed), ("a.jsonl.gz", packed), ("a.csv.gz", packed),
                          ("a.json.gz", packed), ("a.txt.zst", frame), ("a.jsonl.zst", frame)]:
        file = folder / name
        file.write_bytes(content)
        show(f"3 GB in {name}", file, "--max_expansion")
        if name in ("a.txt.gz", "a.txt.zst"):
            show(f"3 GB in {name}, allowed", file, f"memory ran out while reading {file}",
                 "--max_expansion", "100000")
    plain = folder / "sparse.txt"
    with open(plain, "wb") as out:
        out.truncate(3 << 30)
    show("3 GB of zeros", plain, "--max_row_bytes")


def bombs(folder):
    show("Arrow, compressed", SEEDS / "bombs" / "zeros.arrow", "--max_expansion")
    show("Parquet of one word", SEEDS / "bombs" / "words.parquet", "--max_expansion")
    global cases
    images, labels = folder / "images.gz", folder / "labels"
    labels.write_bytes(b"\0\0\x08\x01\0\0\0\1\0")
    packer = zlib.compressobj(9, zlib.DEFLATED, 15 + 16)
    head = packer.compress(b"no idx" + bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    more = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    images.write_bytes(head + more * 180)
    train = ["train", "--task", "image-classification", "--output_dir", folder / "out",
             "--train_images", images, "--train_labels", labels]
    refuses("3 GB in an idx file of another kind", train, "[G-DATA-22]", folder)
    packer = zlib.compressobj(9, zlib.DEFLATED, 15 + 16)
    head = packer.compress(struct.pack(">4I", 0x803, 1, 28, 28) + bytes(1 << 20))
    images.write_bytes(head + packer.flush(zlib.Z_FULL_FLUSH) + more * 180)
    refuses("3 GB in an idx file of one image", train, "[G-DATA-21]", folder)
    cases += 2


def very_many(folder):
    """Ordinary files, only wide or long: read, and soon."""
    wide = folder / "wide.jsonl"
    wide.write_text((json.dumps({f"key{i}": i for i in range(MANY)}) + "\n") * 2)
    shows("row of many keys", wide, "2 rows", "--rows", "1")
    nan = folder / "nan.jsonl"
    nan.write_text(json.dumps({f"key{i}": float("nan") for i in range(MANY)}) + "\n")
    shows("row of many special numbers", nan, "1 rows")
    nested = folder / "nested.jsonl"
    nested.write_text(json.dumps({"cell": {f"key{i}": i for i in range(MANY)}}) + "\n")
    shows("cell of many keys", nested, "1 rows")
    urls = folder / "urls.jsonl"
    urls.write_text(json.dumps({"url": "https://x.org/cat.jpg", "label": 0.37}) + "\n")
    shows("texts that end as names of images", urls, "1 rows")
    numbers = ",".join(map(str, range(MANY)))
    for name, header in [("same.csv", ",".join(["a"] * MANY)),
                         ("different.csv", ",".join(f"c{i}" for i in range(MANY)))]:
        file = folder / name
        file.write_text(f"{header}\n{numbers}\n")
        shows(f"many columns, {name}", file, "1 rows")
    lines = folder / "lines.txt"
    lines.write_text("\n" * (10 * MANY))
    shows("many empty lines", lines, "1,000,000 rows")
    returns = folder / "returns.txt"
    returns.write_bytes(b"\r" * (10 * MANY))
    shows("many carriage returns", returns, "1,000,000 rows")
    packed = folder / "lines.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\n" * (10 * MANY) + b'{"a": 1}\n'))
    shows("many empty lines of JSON", packed, "1 rows")
    deep = folder / "deep.jsonl"
    deep.write_text('{"a": ' + "[" * MANY + "]" * MANY + "}\n")
    show("many brackets", deep, "nested too deeply")


def many_tensors(folder):
    """A header of many tensors, and an index of as many."""
    global cases
    header = {
        f"layer.{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        for i in range(MANY)
    }
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 1}))
    words = ["generate", "--model_name_or_path", folder, "--prompt", "a"]
    refuses("many tensors", words, "", folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {name: "model-00001-of-00001.safetensors" for name in header}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refuses("index of many tensors", words, "", folder)
    cases += 2


def damaged_cache(folder):
    """A cache of prepared rows with a flipped bit is named and made anew; the model is the same."""
    global cases
    text = folder / "text.txt"
    text.write_text("".join(f"line {i} of a text that is cut into blocks\n" for i in range(2000)))
    tokenizer = Path(__file__).resolve().parents[2] / "parity" / "text" / "fixtures" / "bpe"
    out, cache = folder / "out", folder / "cache"
    words = ["train", "--task", "causal-lm", "--train_file", text, "--tokenizer_name", tokenizer,
             "--model_type", "gpt2", "--config_overrides", "n_embd=16,n_head=2,n_layer=1",
             "--output_dir", out, "--cache_dir", cache, "--max_steps", "5", "--block_size", "16",
             "--save_strategy", "no"]
    models = []
    for at in [None, 0.02, 0.3, 0.6, 0.9]:
        cases += 1
        name = f"cache damaged at {at} of its length"
        if at is not None:
            file = next(cache.glob("*.arrow"))
            content = bytearray(file.read_bytes())
            content[int(len(content) * at)] ^= 0x20
            file.write_bytes(content)
            shutil.rmtree(out)
        done = run(words, folder)
        if done is None or done.returncode != 0:
            return fail(name, "the run failed", done)
        models.append((out / "model.safetensors").read_bytes())
        if models[-1] != models[0]:
            fail(name, "the model differs", done)
        elif at is not None and b"computing again what the cache should hold" not in done.stderr:
            fail(name, "expected a warning", done)


with tempfile.TemporaryDirectory() as place:
    for part in (damaged_arrow, one_long_line, bombs, very_many, many_tensors, damaged_cache):
        folder = Path(place) / part.__name__
        folder.mkdir()
        part(folder)
finish(cases)
