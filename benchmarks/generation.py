"""An evaluation that generates, and a training step, of a T5 with 10 M parameters on the CPU.

200 rows of up to 64 tokens in batches of 16, 4 beams, at most 48 tokens. `python generation.py
BUILD` prints the rows alone.
"""

import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from benchmark_row import Skip, at_most
from train_step import has_peer, run

HERE = Path(__file__).resolve().parent
ROUNDS = 3


def make_folder(folder):
    import torch
    import transformers
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=8000, d_model=256, d_kv=64, d_ff=1024, num_layers=4,
                                   num_heads=4, dropout_rate=0.1, pad_token_id=0, eos_token_id=1,
                                   decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", file=sys.stderr)
    model.save_pretrained(folder)


def make_rows(file):
    rng, rows = random.Random(1), []
    for _ in range(200):
        length, target = rng.randrange(16, 65), rng.randrange(8, 49)
        rows.append({
            "input_ids": [rng.randrange(2, 8000) for _ in range(length)] + [0] * (64 - length),
            "attention_mask": [1] * length + [0] * (64 - length),
            "labels": [rng.randrange(2, 8000) for _ in range(target)] + [-100] * (48 - target)
        })
    file.write_text(json.dumps(rows))


def main(build):
    if not has_peer():
        raise Skip("the Python peer is absent: make peer")
    program, peer = build / "bin" / "bench_generation", HERE / "generation_peer.py"
    with tempfile.TemporaryDirectory() as temporary:
        folder, file = Path(temporary, "model"), Path(temporary, "rows.json")
        make_folder(folder)
        make_rows(file)
        ours, theirs = {"evaluate": [], "train": []}, {"evaluate": [], "train": []}
        for _ in range(ROUNDS):  # interleaved: whatever else the machine does hits both
            for mode in ours:
                theirs[mode].append(run([sys.executable, peer, mode, folder, file]))
                ours[mode].append(run([program, mode, folder, file]))
    sums = {answer["sum"] for answer in ours["evaluate"] + theirs["evaluate"]}
    assert len(sums) == 1, f"different ids were generated: {sums}"
    middle = lambda answers, name: statistics.median(answer[name] for answer in answers)
    return [
        at_most(0.5, quantity="an evaluation that generates, T5 of 10 M parameters, 4 beams",
                gradus=middle(ours["evaluate"], "seconds"),
                other=middle(theirs["evaluate"], "seconds"), unit="s"),
        at_most(0.85, quantity="a training step of it, 16 rows of 64 and 48 tokens",
                gradus=middle(ours["train"], "milliseconds"),
                other=middle(theirs["train"], "milliseconds"), unit="ms")
    ]


if __name__ == "__main__":
    for row in main(Path(sys.argv[1])):
        print(row)
