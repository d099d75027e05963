#!/usr/bin/env python3
"""Writes the files that tests/unit/formats reads: small ones, made by Python's own torch,
safetensors and Trainer code.

    python make_fixtures.py [folder]

The versions that made the committed files are in fixtures/versions.json.
"""

import json
import os
import random
import sys
from collections import OrderedDict

import numpy as np
import safetensors
import safetensors.torch
import torch

SEED = 20261115


def every_dtype():
    """One tensor per dtype; the names sort against the order of the dtypes."""
    tensors = {}
    for dtype in [
            torch.uint64,
            torch.int64,
            torch.float64,
            torch.complex64,
            torch.float32,
            torch.uint32,
            torch.int32,
            torch.bfloat16,
            torch.float16,
            torch.uint16,
            torch.int16,
            torch.float8_e8m0fnu,
            torch.float8_e4m3fnuz,
            torch.float8_e5m2fnuz,
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            torch.int8,
            torch.uint8,
            torch.bool,
    ]:
        name = str(dtype).removeprefix("torch.")
        if dtype.is_floating_point:
            values = torch.tensor([0.0, 1.0, 2.0])
        else:
            values = torch.tensor([0, 1, 1])
        tensors[name[::-1]] = values.to(dtype)
    return tensors


def safetensors_files(folder):
    generator = torch.Generator().manual_seed(SEED)
    tensors = {
        "b.weight": torch.randn(4, 3, generator=generator),
        "a.weight": torch.randn(2, 3, 5, generator=generator).to(torch.float16),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4),
        "ids": torch.arange(7),
        'q"u\\o\té': torch.ones(1),
        **every_dtype(),
    }
    safetensors.torch.save_file(tensors, os.path.join(folder, "dtypes.safetensors"),
                                metadata={"format": "pt"})
    safetensors.torch.save_file({"w": torch.arange(6.0).reshape(2, 3)},
                                os.path.join(folder, "no_metadata.safetensors"))


def optimizer_files(folder):
    """What a Trainer's AdamW, its schedule and the scaler save."""
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    decay = [p for n, p in model.named_parameters() if "weight" in n and not n.startswith("1")]
    rest = [p for n, p in model.named_parameters() if not ("weight" in n and not n.startswith("1"))]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=5e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 10))
    for _ in range(3):
        model(torch.randn(5, 3)).pow(2).mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))
    torch.save(schedule.state_dict(), os.path.join(folder, "scheduler.pt"))
    torch.save(
        {
            "scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
            "_growth_tracker": 3
        }, os.path.join(folder, "scaler.pt"))
    state = model.state_dict()
    state["tied"] = state["0.weight"]
    state["transposed"] = state["0.weight"].t()
    state["row"] = state["0.weight"][1]
    state["bf16"] = torch.arange(4, dtype=torch.bfloat16)
    state["fp8"] = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    state["expanded"] = torch.tensor([7.0]).expand(2, 3)
    state["parameter"] = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    torch.save(state, os.path.join(folder, "pytorch_model.bin"))
    return model, optimizer


def plain_file(folder):
    torch.save(
        {
            "none": None,
            "true": True,
            "false": False,
            "zero": 0,
            "byte": 255,
            "short": 65535,
            "int": 65536,
            "negative": -1,
            "min32": -(2**31),
            "long": 2**40,
            "negative_long": -(2**40),
            "max": 2**63 - 1,
            "min": -(2**63),
            "float": 0.1,
            "inf": float("inf"),
            "text": "é\n'\"",
            "bytes": bytes(range(256)),
            "list": [1, [2, ()]],
            "tuple": (1, 2.5, "x", None),
            "size": torch.Size([2, 3]),
            "dtype": torch.float32,
            "device": torch.device("cuda", 1),
            "set": {5},
            3: "int key",
            "ordered": OrderedDict(b=1, a=2),
            "array": np.arange(6, dtype=np.int64).reshape(2, 3),
            "number": np.float64(0.25),
            "long_list": list(range(3000)),
        },
        os.path.join(folder, "plain.pt"),
    )


def rng_files(folder):
    random.seed(42)
    np.random.seed(42)
    torch.manual_seed(42)
    state = {
        "python": random.getstate(), "numpy": np.random.get_state(),
        "cpu": torch.random.get_rng_state()
    }
    torch.save(state, os.path.join(folder, "rng_state.pth"))
    seeds = {}
    for seed in [0, 1, 42, 2**32 - 1, 2**33 + 5]:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        seeds[str(seed)] = {
            "python": random.getstate()[1], "numpy": np.random.get_state()[1].tolist()
        }
    summary = {
        seed: {
            name: [words[0], words[1], words[622], words[623],
                   sum(words[:624])] for name, words in both.items()
        } for seed, both in seeds.items()
    }
    with open(os.path.join(folder, "mersenne_seeds.json"), "w") as file:
        json.dump(summary, file, indent=1)


class Evil:
    def __reduce__(self):
        return (os.system, ("echo executed > /dev/null",))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "fixtures")
    os.makedirs(folder, exist_ok=True)
    safetensors_files(folder)
    optimizer_files(folder)
    plain_file(folder)
    rng_files(folder)
    torch.save({"weights": Evil()}, os.path.join(folder, "imports_os_system.pt"))
    table = torch.arange(6.0).view(2, 3)
    old = {
        "table": table, "turned": table.t(), "row": table[1],
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "ids": torch.arange(3),
        "none": torch.zeros(0), "step": 7
    }
    torch.save(old, os.path.join(folder, "legacy.pt"), _use_new_zipfile_serialization=False)
    versions = {
        "torch": torch.__version__, "safetensors": safetensors.__version__, "numpy": np.__version__,
        "seed": SEED
    }
    with open(os.path.join(folder, "versions.json"), "w") as file:
        json.dump(versions, file, indent=1)


if __name__ == "__main__":
    main()
