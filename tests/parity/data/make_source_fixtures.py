#!/usr/bin/env python3
"""Data files of every form and what `datasets` makes of them.

    make_source_fixtures.py [FOLDER]

writes sources/ beside this script (or FOLDER): the files and expected.json, which lists for each
case the files, the options and the rows. tests/unit/sources/parity_test.cpp reads them;
tests/differential/data_sources.py makes others with random content. Needs pyarrow, pandas, numpy
and datasets.
"""
import datetime
import decimal
import gzip
import json
import os
import pathlib
import random
import shutil
import struct
import sys
import tempfile

os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

datasets.disable_progress_bars()
WORDS = [
    "tree", "ünïcödé", "日本語", "a b", "", "emoji 🙂", "quote \" here", "comma, here",
    "back\\slash", "tab\there", "NaNny"
]


def columns(rng, rows):
    """A table with every type the readers know."""
    text = [None if rng.random() < 0.15 else rng.choice(WORDS) for _ in range(rows)]
    ints = lambda low, high: [rng.randint(low, high) for _ in range(rows)]
    lists = lambda make: [[make() for _ in range(rng.randint(0, 5))] for _ in range(rows)]
    return pa.table({
        "id": pa.array(range(rows), pa.int64()),
        "small": pa.array(ints(-100, 100), pa.int8()),
        "unsigned": pa.array(ints(0, 2**32 - 1), pa.uint32()),
        "score": pa.array([None if rng.random() < 0.1 else rng.uniform(-2, 2) for _ in range(rows)],
                          pa.float64()),
        "float32": pa.array([rng.uniform(-2, 2) for _ in range(rows)], pa.float32()),
        "half": pa.array(np.array([rng.uniform(-2, 2) for _ in range(rows)], np.float16)),
        "text": pa.array(text, pa.string()),
        "large_text": pa.array(text, pa.large_string()),
        "flag": pa.array([rng.random() < 0.5 for _ in range(rows)], pa.bool_()),
        "input_ids": pa.array(lists(lambda: rng.randint(0, 50000)), pa.list_(pa.int32())),
        "large_ids": pa.array(lists(lambda: rng.randint(0, 50000)), pa.large_list(pa.int64())),
        "gaps": pa.array(lists(lambda: None if rng.random() < 0.2 else rng.randint(0, 9)),
                         pa.list_(pa.int64())),
        "weights": pa.array(lists(lambda: rng.uniform(0, 1)), pa.list_(pa.float32())),
        "words": pa.array(lists(lambda: rng.choice(WORDS)), pa.list_(pa.string())),
        "mask": pa.array(lists(lambda: rng.random() < 0.5), pa.list_(pa.bool_())),
        "pair": pa.array([[1.5, i] for i in range(rows)], pa.list_(pa.float64(), 2)),
        "nested": pa.array(lists(lambda: [rng.randint(0, 9) for _ in range(rng.randint(0, 3))]),
                           pa.list_(pa.list_(pa.int64()))),
        "messages": pa.array(
            lists(
                lambda: {"role": rng.choice(["user", "assistant"]), "content": rng.choice(WORDS)}),
            pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        "answers": pa.array(
            [{"text": [rng.choice(WORDS)], "answer_start": [i]} for i in range(rows)],
            pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])),
        "nothing": pa.nulls(rows),
        "when": pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5, i % 1000000) for i in range(rows)],
                         pa.timestamp("us")),
        "price": pa.array([decimal.Decimal(rng.randint(-9999, 9999)) / 100 for _ in range(rows)],
                          pa.decimal128(10, 2)),
        "kind": pa.array([rng.choice(["x", "y"]) for _ in range(rows)]).dictionary_encode(),
        "blob": pa.array([b"\x01abc" for _ in range(rows)], pa.binary()),
    })


def plain(value):
    """A cell as our Value has it."""
    if isinstance(value, list) and value and all(isinstance(v, bool) for v in value):
        return [int(v) for v in value]
    return nested(value)


def nested(value):
    if isinstance(value, list):
        return [nested(v) for v in value]
    if isinstance(value, dict):
        return {k: nested(v) for k, v in value.items()}
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return value.decode()
    return value


def rows_of(dataset):
    return [{name: plain(cell) for name, cell in row.items()} for row in dataset]


class Cases:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cases = []

    def path(self, name):
        return str(self.folder / name)

    def write(self, name, text):
        data = text if isinstance(text, bytes) else text.encode()
        (self.folder / name).write_bytes(data)

    def add(self, name, files, dataset, options=None, columns=None):
        rows = rows_of(dataset)
        if columns:
            rows = [{c: row[c] for c in columns} for row in rows]
        self.cases.append({"name": name, "files": files, "options": options or {}, "rows": rows})

    def load(self, kind, files, **options):
        with tempfile.TemporaryDirectory() as cache:
            dataset = datasets.load_dataset(kind, data_files=[self.path(f) for f in files],
                                            split="train", cache_dir=cache, **options)
            return [dict(row) for row in dataset]


def arrow_cases(cases, rng, rows):
    table = columns(rng, rows)
    pq.write_table(table, cases.path("rows.parquet"), row_group_size=max(1, rows // 2))
    for name, make in [("rows_file.arrow", pa.ipc.new_file),
                       ("rows_stream.arrow", pa.ipc.new_stream)]:
        with make(cases.path(name), table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
        cases.add(name, [name], table.to_pylist())
    cases.add("parquet", ["rows.parquet"], table.to_pylist())
    cases.add("parquet columns", ["rows.parquet"], table.to_pylist(), {"columns": ["text", "id"]},
              ["text", "id"])
    other = table.slice(0, 3)
    pq.write_table(other, cases.path("more.parquet"), compression="zstd")
    cases.add("two parquet files", ["rows.parquet", "more.parquet"],
              table.to_pylist() + other.to_pylist())


def saved_cases(cases, rng, rows):
    features = datasets.Features({
        "text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"]),
        "input_ids": datasets.Sequence(datasets.Value("int32")), "any": datasets.Json()
    })
    make = lambda n: datasets.Dataset.from_dict(
        {
            "text": [rng.choice(WORDS)
                     for _ in range(n)], "label": [rng.randint(0, 1) for _ in range(n)],
            "input_ids": [[rng.randint(0, 99)] * rng.randint(0, 4) for _ in range(n)
                         ], "any": [{"a": i} if i % 2 else {"b": [i, None]} for i in range(n)]
        }, features=features)
    one = make(rows)
    one.save_to_disk(cases.path("saved"), num_shards=3)
    cases.add("save_to_disk", ["saved"], datasets.load_from_disk(cases.path("saved")))
    shuffled = one.shuffle(seed=1).select(range(rows // 2))
    shuffled.save_to_disk(cases.path("saved_shuffled"))
    cases.add("save_to_disk of a selection", ["saved_shuffled"],
              datasets.load_from_disk(cases.path("saved_shuffled")))
    both = datasets.DatasetDict({"train": make(5), "test": make(4)})
    both.save_to_disk(cases.path("saved_dict"))
    cases.add("dataset dict", ["saved_dict"],
              datasets.load_from_disk(cases.path("saved_dict"))["test"], {"split": "test"})
    for cache in cases.folder.rglob("cache-*"):
        cache.unlink()


def json_cases(cases, rng, rows):
    objects = [{
        "id": i, "text": rng.choice(WORDS), "score": rng.choice([1, 2.5]) if i else 1,
        "ids": [rng.randint(0, 9)] * (i % 4), "tags": [rng.choice(WORDS)] * (i % 3),
        "floats": [0.5, 1] if i % 2 else [], "flag": i % 2 == 0, "none": None
    } for i in range(rows)]
    for i, item in enumerate(objects):
        if i % 3 == 1:
            del item["flag"]
    lines = "\n".join(json.dumps(o, ensure_ascii=i % 2 == 0) for i, o in enumerate(objects))
    cases.write("rows.jsonl", lines + "\n")
    cases.write("no_end.jsonl", b"\xef\xbb\xbf" + lines.encode())
    cases.write("rows.json", json.dumps(objects, indent=1))
    cases.write("field.json",
                json.dumps({"version": "1", "extra": {"data": [0]}, "data": objects, "z": 1}))
    cases.write("strings.json", json.dumps([rng.choice(WORDS) + "x" for _ in range(rows)]))
    (cases.folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    (cases.folder / "rows.jsonl.zst").write_bytes(
        pa.compress(lines.encode(), codec="zstd", asbytes=True))
    from_lines = cases.load("json", ["rows.jsonl"])
    for name in ["rows.jsonl", "no_end.jsonl", "rows.jsonl.gz", "rows.jsonl.zst"]:
        cases.add(name, [name], from_lines)
    cases.add("rows.json", ["rows.json"], cases.load("json", ["rows.json"]))
    cases.add("field.json", ["field.json"], cases.load("json", ["field.json"], field="data"),
              {"field": "data"})
    cases.add("strings.json", ["strings.json"], cases.load("json", ["strings.json"]))
    cases.add("two jsonl", ["rows.jsonl", "no_end.jsonl"], from_lines + from_lines)


def text_cases(cases, rng, rows):
    breaks = ["\n", "\r\n", "\r", "\n\n", "\n\n\n"]
    text = "".join(rng.choice(WORDS) + rng.choice(breaks) for _ in range(rows * 2)) + "the end"
    cases.write("lines.txt", text)
    cases.write("second.txt", "\n\nx\u2028y\x0bz\n")
    (cases.folder / "lines.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for unit in ["line", "paragraph", "document"]:
        expected = cases.load("text", ["lines.txt", "second.txt"], sample_by=unit)
        cases.add("text " + unit, ["lines.txt", "second.txt"], expected, {"text_unit": unit})
    kept = cases.load("text", ["lines.txt"], keep_linebreaks=True)
    cases.add("text with breaks", ["lines.txt"], kept, {"keep_linebreaks": True})
    cases.add("text gz", ["lines.txt.gz"], kept, {"keep_linebreaks": True})


def csv_cases(cases, rng, rows):
    quote = lambda s: '"' + s.replace('"', '""') + '"' if any(c in s for c in ',"\n') else s
    lines = ["id,name,score,gap,flag,day,multi"]
    for i in range(rows):
        gap = "" if i % 4 == 0 else str(i)
        cells = [
            str(i),
            rng.choice(WORDS[:4] + WORDS[5:8] + ["NA", "null"]),
            "%.3f" % rng.uniform(-1, 1), gap,
            rng.choice(["True", "False"]),
            "2024-01-%02d" % (i % 28 + 1), "one\ntwo, \"three\""
        ]
        lines.append(",".join(quote(c) for c in cells))
        if i % 5 == 0:
            lines.append("")
    lines.append("99,short")
    cases.write("rows.csv", "\n".join(lines) + "\n")
    cases.write("rows.tsv", "a\tb\n1\tx, y\n2\tz\n")
    (cases.folder / "rows.csv.gz").write_bytes(gzip.compress("\r\n".join(lines).encode(), mtime=0))
    cases.add("csv", ["rows.csv"], cases.load("csv", ["rows.csv"]))
    cases.add("csv gz", ["rows.csv.gz"], cases.load("csv", ["rows.csv.gz"]))
    cases.add("tsv", ["rows.tsv"], cases.load("csv", ["rows.tsv"], sep="\t"))


def token_files(cases, rng):
    ids = [rng.randint(0, 50256) for _ in range(2000)]
    cases.write("nanogpt.bin", np.array(ids, np.uint16).tobytes())
    cases.write("wide.bin", np.array([i + 60000 for i in ids], np.uint32).tobytes())
    header = lambda magic, version: struct.pack("<3i", magic, version, len(ids)) + bytes(4 * 253)
    cases.write("llmc.bin", header(20240520, 1) + np.array(ids, np.uint16).tobytes())
    cases.write("llmc_wide.bin",
                header(20240801, 7) + np.array([i + 60000 for i in ids], np.uint32).tobytes())
    cases.write("indexed.bin", np.array(ids, np.uint16).tobytes())
    starts = [0, 10, 10, 700, len(ids)]  # as gradus tokenize writes it: docs/user/data.md
    cases.write("indexed.idx", b"GRADIDX1" + struct.pack("<2I2q5q", 2, 0,
                                                         len(starts) - 1, len(ids), *starts))
    for name, add in [("nanogpt.bin", 0), ("indexed.bin", 0), ("llmc.bin", 0), ("wide.bin", 60000),
                      ("llmc_wide.bin", 60000)]:
        windows = [[i + add for i in ids[at:at + 300]] for at in range(0, 1800, 300)]
        cases.add(name, [name], [{"input_ids": w, "labels": w} for w in windows],
                  {"block_size": 300})


def make(folder, seed, rows=12):
    cases = Cases(folder)
    rng = random.Random(seed)
    arrow_cases(cases, rng, rows)
    saved_cases(cases, rng, rows)
    json_cases(cases, rng, rows)
    text_cases(cases, rng, rows)
    csv_cases(cases, rng, rows)
    token_files(cases, rng)
    return cases.cases


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent /
                          "sources")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cases = make(folder, seed=7)
    about = {
        "made_by": "make_source_fixtures.py", "seed": 7, "datasets": datasets.__version__,
        "pyarrow": pa.__version__
    }
    with open(folder / "expected.json", "w") as out:
        json.dump({"about": about, "cases": cases}, out, indent=0, ensure_ascii=True)


if __name__ == "__main__":
    main()
