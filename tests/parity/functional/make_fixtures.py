#!/usr/bin/env python3
"""Writes the Flax files that tests/unit/formats and the fuzzer read.

    OMP_NUM_THREADS=1 python make_fixtures.py

Made with flax 0.12, jax 0.10 and optax 0.2.8 (any version writes the same bytes).
"""

import os

import flax.serialization
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax

FOLDER = os.path.dirname(os.path.abspath(__file__))
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"
]


def write(name, data):
    with open(os.path.join(FOLDER, name), "wb") as file:
        file.write(data)


def tree():
    values = np.array([[0, 1, 1], [1, 0, 1]], np.float32)
    params = {
        "kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "bias": np.array([1.5, -2, 3], ml_dtypes.bfloat16)
    }
    return {
        "params": {"dense": params, "empty": np.zeros((0, 4), np.float32), "scalar": np.array(2.5)},
        "dtypes": {
            name: (values + 1 if name == "float8_e8m0fnu" else values).astype(np.dtype(name))
            for name in DTYPES
        },
        "numpy": {
            "float32": np.float32(0.1), "int64": np.int64(-5),
            "bfloat16": np.dtype("bfloat16").type(3)
        },
        "plain": {
            "none": None, "yes": True, "no": False, "text": "ü" * 20, "bytes": b"\x00\xff",
            "complex": 1 - 2.5j, "float": 0.1, "list": [1, "a", [2.0]], "ints": [
                0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1, -1,
                -32, -33, -128, -129, -32768, -32769, -2**31, -2**31 - 1, -2**63
            ]
        },
    }


write("tree.msgpack", flax.serialization.msgpack_serialize(tree()))
tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(optax.linear_schedule(0, 1, 4), weight_decay=0.1,
                mask=lambda params: {"fc": {"weight": True, "bias": False}}))
weights = {"fc": {"weight": jnp.arange(6, dtype=jnp.float32).reshape(2, 3), "bias": jnp.ones(2)}}
write("opt_state.msgpack", flax.serialization.to_bytes(tx.init(weights)))
flax.serialization.MAX_CHUNK_SIZE = 64
write(
    "chunked.msgpack",
    flax.serialization.msgpack_serialize(
        {"a": {"big": np.arange(100, dtype=np.int32).reshape(4, 25)}, "small": np.arange(3)}))
