"""Batches per second with dynamic padding, and how fast a loader goes to a place."""

import statistics
import sys
from pathlib import Path

from benchmark_row import Row, at_least, at_most, needs_python, value

HERE = Path(__file__).resolve().parent


def main(build):
    program, peer = build / "bin" / "bench_loader", HERE / "loader_peer.py"
    needs_python("transformers")
    ours, theirs = [], []
    for _ in range(3):  # interleaved
        theirs.append(value(sys.executable, peer, "padding"))
        ours.append(value(program, "padding"))
    place = statistics.median(value(program, "position") for _ in range(5))
    return [
        at_least(10, quantity="batches/s, dynamic padding, 200,000 rows, 2 workers",
                 gradus=statistics.median(ours), other=statistics.median(theirs), unit="1/s"),
        at_most(1 / 100, quantity="iterable data set at batch 5,000",
                gradus=value(program, "stream"),
                other=value(sys.executable, peer, "stream"), unit="s"),
        Row(quantity="map-style data set at batch 1,000,000", gradus=place, other=0.05,
            other_name="the bound", unit="s", bound="<= 0.05 s", holds=place <= 0.05),
    ]
