"""The Python side of loader.py: loader_peer.py padding | stream, with the tokenizer of
tests/parity.
"""

import json
import random
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator, skip_first_batches
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "parity" / "text"


def tokenised_rows():
    rng = random.Random(0)
    rows = []
    for _ in range(200_000):
        ids = [rng.randrange(1, 100) for _ in range(rng.randrange(16, 129))]
        rows.append({"attention_mask": [1] * len(ids), "input_ids": ids})
    return rows


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def main():
    folder = next(f for f in sorted(FIXTURES.rglob("tokenizer.json")))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder), pad_token="[PAD]")
    collate, rows = DataCollatorWithPadding(tokenizer), tokenised_rows()
    if sys.argv[1] == "padding":
        batches = iter(
            torch.utils.data.DataLoader(rows, batch_size=32, shuffle=True, collate_fn=collate,
                                        num_workers=2))
        for _ in range(50):
            next(batches)
        start = time.perf_counter()
        for _ in range(800):
            next(batches)
        print(json.dumps({"value": 800 / (time.perf_counter() - start)}))
    else:
        loader = Accelerator(cpu=True).prepare(
            torch.utils.data.DataLoader(Stream(rows), batch_size=32, collate_fn=collate))
        start = time.perf_counter()
        next(iter(skip_first_batches(loader, 5000)))
        print(json.dumps({"value": time.perf_counter() - start}))


main()
