#!/usr/bin/env python3
"""Every form of data file with random content: the rows of gradus against those of `datasets`, in
any order and streamed with a save and resume after every fifth row.

    python data_sources_test.py [SEED...]

Exits 77 with a reason where datasets or pyarrow is absent.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity" / "data"))
try:
    import make_source_fixtures as fixtures
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

TOOL = pathlib.Path(os.environ.get(
    "GRADUS_BUILD", HERE.parent.parent / "build" / "release")) / "bin" / "sources_tool"


def same(ours, theirs):
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, dict):
        return set(ours) == set(theirs) and all(same(ours[k], theirs[k]) for k in ours)
    return ours == theirs


def check(case, folder, mode):
    files = [os.path.join(folder, name) for name in case["files"]]
    done = subprocess.run([TOOL, mode, json.dumps(case["options"]), *files], capture_output=True,
                          text=True)
    if done.returncode != 0:
        return [f"{case['name']} ({mode}): exit {done.returncode}: {done.stderr.strip()}"]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    expected = json.loads(json.dumps(case["rows"]))
    problems = [f"{case['name']} ({mode}): {len(rows)} rows, expected {len(expected)}"
               ] if len(rows) != len(expected) else []
    for number, (ours, theirs) in enumerate(zip(rows, expected)):
        for column in theirs:
            if column not in ours or not same(ours[column], theirs[column]):
                problems.append(
                    f"{case['name']} ({mode}), row {number}, {column}: {ours.get(column)!r}, "
                    f"expected {theirs[column]!r}")
    return problems


def check_unsigned(folder):
    """Whole numbers beyond int64 become floats, as those of JSON files do; they must not turn
    negative.
    """
    numbers = [1, 2**63 - 1, 2**63, 2**64 - 1]
    path = os.path.join(folder, "unsigned.parquet")
    fixtures.pq.write_table(
        fixtures.pa.table({"n": fixtures.pa.array(numbers, fixtures.pa.uint64())}), path)
    done = subprocess.run([TOOL, "rows", "{}", path], capture_output=True, text=True)
    rows = [json.loads(line)["n"] for line in done.stdout.splitlines()]
    return [] if rows == [1, 2**63 -
                          1, float(2**63), float(2**64 - 1)] else [f"uint64: {rows} {done.stderr}"]


def main():
    seeds = [int(word) for word in sys.argv[1:]] or [11, 12, 13]
    problems, count = [], 0
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            problems += check_unsigned(folder)
            for case in fixtures.make(folder, seed, rows=40 + seed):
                for mode in ("rows", "stream"):
                    problems += check(case, folder, mode)
                    count += len(case["rows"])
    print("\n".join(problems[:40]))
    print(f"{count} rows compared with seeds {seeds}: {len(problems)} differ")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
