"""Images per second of CPU time from a folder of JPEG files to batches, in one thread, beside
torchvision on Pillow images."""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmark_row import at_least, needs_python, value

HERE = Path(__file__).resolve().parent


def main(build):
    program, peer = build / "bin" / "bench_images", HERE / "images_peer.py"
    needs_python("torchvision")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        value(sys.executable, peer, "make", folder)
        for mode, words in (("train", "random parts, mirrored"), ("eval", "whole images")):
            theirs, exact, scaled = [], [], []
            for _ in range(3):  # interleaved
                theirs.append(value(sys.executable, peer, mode, folder))
                exact.append(value(program, folder, "exact", mode))
                scaled.append(value(program, folder, "scaled", mode))
            for bound, ours, name in ((1.3, exact, "equal pixels"), (2.5, scaled, "scaled")):
                rows.append(
                    at_least(bound, quantity=f"JPEG 1024 x 768 to 224 x 224, {words}, {name}",
                             gradus=statistics.median(ours), other=statistics.median(theirs),
                             unit="1/s"))
    return rows
