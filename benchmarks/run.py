"""Runs the benchmarks of this folder one after the other and prints one table.

    python benchmarks/run.py [--build build/release] [--results FILE.json] [NAME...]

A benchmark is a file NAME.py here with

    def main(build):                 # build: the pathlib.Path of the build folder
        return [Row(...), ...]       # from benchmark_row import Row

It measures gradus and what it is compared with in the same run, and raises `Skip("reason")` where
something it needs is absent (the Python peer: `make peer`). NAME_peer.py is the Python side that
NAME.py runs. The exit status is 1 if a row misses its bound or a benchmark fails.
"""

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from benchmark_row import Row, Skip  # noqa: E402


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def machine():
    model = next((line.split(":", 1)[1].strip()
                  for line in open("/proc/cpuinfo")
                  if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def run_one(path, build):
    module = load(path)
    if not hasattr(module, "main"):
        return None
    started = time.monotonic()
    try:
        rows = module.main(build)
        note = f"{time.monotonic() - started:.0f} s"
    except Skip as skip:
        rows, note = [], f"skipped: {skip}"
    except Exception:
        traceback.print_exc()
        rows, note = [
            Row(quantity="(failed)", gradus=float("nan"), other=float("nan"), unit="",
                bound="no failure", holds=False)
        ], "failed"
    print(f"{path.stem}: {note}", flush=True)
    return rows


def print_table(results):
    header = ("benchmark", "quantity", "gradus", "compared with", "ratio", "bound", "")
    lines = [header]
    for name, rows in results.items():
        for row in rows:
            verdict = "" if row.holds is None else "holds" if row.holds else "MISSED"
            lines.append((name, row.quantity, f"{row.gradus:.4g} {row.unit}",
                          f"{row.other:.4g} {row.unit} {row.other_name}".rstrip(),
                          f"{row.ratio:.3g}", row.bound, verdict))
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=HERE.parent / "build/release")
    parser.add_argument("--results", type=Path,
                        help="write the rows to this JSON file, with date and hardware")
    parser.add_argument("names", nargs="*", help="only these benchmarks")
    options = parser.parse_args()

    known = {
        path.stem: path
        for path in sorted(HERE.glob("*.py"))
        if path.name not in ("run.py", "benchmark_row.py") and not path.stem.endswith("_peer")
    }
    unknown = [name for name in options.names if name not in known]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")

    print(machine(), flush=True)
    results = {}
    for name, path in known.items():
        if not options.names or name in options.names:
            rows = run_one(path, options.build.resolve())
            if rows is not None:
                results[name] = rows
    print_table(results)
    if options.results:
        document = {
            "date": time.strftime("%Y-%m-%d"), "machine": machine(),
            "results": {name: [asdict(row) for row in rows] for name, rows in results.items()}
        }
        options.results.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if any(row.holds is False for rows in results.values() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
