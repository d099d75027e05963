#!/usr/bin/env python3
"""Makes histograms.json: what torch's SummaryWriter makes of some tensors.

    python make_histograms.py > histograms.json

tests/unit/train/histogram_test.cpp compares. Run with the peer's Python.
"""

import json

import numpy
import torch
from torch.utils.tensorboard.summary import make_histogram

bins, value = [], 1e-12
while value < 1e20:
    bins.append(value)
    value *= 1.1
limits = [-limit for limit in reversed(bins)] + [0] + bins

CASES = [
    [0.0],
    [1.0, 2.0, -3.0, 0.5, 0.5],
    [1e-13, -1e-13, 0.0, 5e-12],
    [float(x) for x in numpy.random.RandomState(3).randn(40).round(6)],
    [1e10, -2e15, 3.0],
]

results = []
for values in CASES:
    proto = make_histogram(numpy.array(values), limits)
    results.append({
        "values": values, "min": proto.min, "max": proto.max, "sum": proto.sum,
        "sum_squares": proto.sum_squares, "first_limit": proto.bucket_limit[0],
        "last_limit": proto.bucket_limit[-1], "buckets": len(proto.bucket),
        "counts": {str(i): count
                   for i, count in enumerate(proto.bucket) if count}
    })
print(json.dumps({"torch": torch.__version__, "numpy": numpy.__version__, "cases": results}))
