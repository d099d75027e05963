"""Clips per second of CPU time from FLAC files to padded batches, in one thread, beside soundfile,
torchaudio's resampling and transformers' feature extractor."""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmark_row import at_least, needs_python, value

HERE = Path(__file__).resolve().parent


def main(build):
    program, peer = build / "bin" / "bench_audio", HERE / "audio_peer.py"
    needs_python("soundfile", "transformers")
    rows = []
    for rate in (16000, 44100):
        with tempfile.TemporaryDirectory() as folder:
            value(sys.executable, peer, "make", folder, rate)
            theirs, ours = [], []
            for _ in range(5):  # interleaved
                theirs.append(value(sys.executable, peer, "read", folder))
                ours.append(value(program, folder))
            rows.append(
                at_least(1.5, quantity=f"FLAC of {rate} Hz, 10 s, to padded batches of 16 kHz",
                         gradus=statistics.median(ours), other=statistics.median(theirs),
                         unit="1/s"))
    return rows
