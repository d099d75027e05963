"""Makes fixtures/nf4.json: weights in 4 bits by bitsandbytes on the CPU.

  python tests/parity/models/make_nf4_fixture.py    # needs bitsandbytes beside torch

The weights are drawn from torch's generator with the seed in the file, so that a C++ test draws the
same. Bytes are hexadecimal; floats are those of their bits. Rows are multiples of a block:
bitsandbytes' CPU kernel makes other matrices dense with the wrong scales.
"""
import json
import os

import bitsandbytes
import bitsandbytes.functional as functional
import torch

SEED, SHAPE, BLOCK = 5, (130, 128), 64


def as_hex(tensor):
    return tensor.contiguous().view(torch.uint8).reshape(-1).numpy().tobytes().hex()


def main():
    cases = []
    for dtype in ("float32", "bfloat16"):
        for nested in (False, True):
            torch.manual_seed(SEED)
            weight = torch.randn(*SHAPE)
            weight[3] = 0  # two blocks without a largest magnitude
            weight = weight.to(getattr(torch, dtype))
            packed, state = functional.quantize_4bit(weight, blocksize=BLOCK,
                                                     compress_statistics=nested, quant_type="nf4")
            case = {
                "dtype": dtype, "nested": nested, "packed": as_hex(packed),
                "absmax": as_hex(state.state2.absmax if nested else state.absmax),
                "dense": as_hex(functional.dequantize_4bit(packed, state)[:8])
            }
            if nested:
                case["codes"] = as_hex(state.absmax)
                case["offset"] = as_hex(state.offset.reshape(1))
            cases.append(case)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures", "nf4.json")
    with open(path, "w") as file:
        json.dump(
            {
                "seed": SEED, "shape": SHAPE, "torch": torch.__version__,
                "bitsandbytes": bitsandbytes.__version__, "cases": cases
            }, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
