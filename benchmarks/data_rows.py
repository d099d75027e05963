"""Random access to rows of a mapped data set against `datasets`, and the memory of streaming a
large file.

GRADUS_BENCH_STREAM_GB (default 5) is the size of the streamed JSONL file.
"""

import json
import os
import random
import subprocess
import tempfile
import time

from benchmark_row import Row, Skip, at_most

ROWS = 200_000
READS = 20_000


def make_table(datasets, folder):
    rng = random.Random(0)
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    rows = {
        "text": [" ".join(rng.choices(words, k=20)) for _ in range(ROWS)],
        "label": [rng.randint(0, 1) for _ in range(ROWS)],
        "input_ids": [rng.choices(range(50_000), k=rng.randint(20, 120)) for _ in range(ROWS)],
    }
    features = datasets.Features({
        "text": datasets.Value("string"), "label": datasets.Value("int64"),
        "input_ids": datasets.Sequence(datasets.Value("int32"))
    })
    table = datasets.Dataset.from_dict(rows, features=features)
    table.save_to_disk(os.path.join(folder, "saved"))
    table.to_parquet(os.path.join(folder, "rows.parquet"))
    table.to_json(os.path.join(folder, "rows.jsonl"))
    return datasets.load_from_disk(os.path.join(folder, "saved"))


def python_microseconds(table):
    rng = random.Random(1)
    order = [rng.randrange(ROWS) for _ in range(READS)]
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        for i in order:
            table[i]
        best = min(best, time.perf_counter() - started)
    return best / READS * 1e6


def write_large_file(path, gigabytes):
    block = "".join(
        json.dumps({
            "id": i, "text": "a line of text that is worth about a hundred bytes " *
                             8, "ids": list(range(40))
        }) + "\n" for i in range(2000)).encode()
    with open(path, "wb") as out:
        for _ in range(int(gigabytes * 1e9) // len(block) + 1):
            out.write(block)


def main(build):
    try:
        import datasets
    except ImportError as error:
        raise Skip(f"{error}; run it with the peer's Python (make peer)")
    tool = build / "bin" / "bench_data_rows"
    if not tool.exists():
        raise Skip(f"{tool} is not built (-DGRADUS_BENCHMARKS=ON)")
    ours = lambda *words: json.loads(
        subprocess.run([tool, *map(str, words)], check=True, capture_output=True, text=True).stdout)
    datasets.disable_progress_bars()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        theirs = python_microseconds(make_table(datasets, folder))
        for name, path in [("mapped Arrow", "saved"), ("Parquet", "rows.parquet"),
                           ("JSON Lines", "rows.jsonl")]:
            figure = ours("random", os.path.join(folder, path), READS * 5)["microseconds_per_row"]
            # The bound of the project is for mapped rows: at least 20 times as fast.
            make = (lambda **row: at_most(1 / 20, **row)) if path == "saved" else Row
            rows.append(
                make(quantity=f"random row, {name}", gradus=figure, other=theirs, unit="µs",
                     other_name="datasets, mapped Arrow"))
        # All pages are mapped before; the first pass checks each batch, the second does not.
        figures = ours("checked", os.path.join(folder, "saved"))
        rows.append(
            at_most(1.05, quantity="reading all rows of a mapped Arrow file, batches checked",
                    gradus=figures["checked_seconds"] * 1e3, other=figures["again_seconds"] * 1e3,
                    unit="ms", other_name="without the check"))
        gigabytes = float(os.environ.get("GRADUS_BENCH_STREAM_GB", "5"))
        large = os.path.join(folder, "large.jsonl")
        write_large_file(large, gigabytes)
        figures = ours("stream", large)
        rows.append(
            at_most(1, quantity=f"peak memory, streaming {gigabytes:g} GB",
                    gradus=figures["peak_resident_mib"], other=300.0, unit="MiB",
                    other_name="the bound"))
        rows.append(
            Row(quantity="streaming JSON Lines", gradus=gigabytes * 1e3 / figures["seconds"],
                other=float("nan"), unit="MB/s"))
        resumed = ours("resume", large, 500_000)["seconds"]
        rows.append(
            Row(quantity="going on after 500,000 streamed rows", gradus=resumed * 1e3,
                other=float("nan"), unit="ms"))
    return rows
