#!/usr/bin/env python3
"""Flax files in both directions, and a functional run beside the same run in JAX, optax and flax.

    python functional_test.py [FUNCTIONAL_TOOL]

Exits 77 with a reason where flax, optax or jax is absent.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
try:
    import datasets
    import flax.serialization as fs
    import jax
    import jax.numpy as jnp
    import ml_dtypes  # noqa: F401  (names of its dtypes)
    import numpy as np
    import optax
    from flax.training.train_state import TrainState
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release"))
TOOL = sys.argv[1] if len(sys.argv) > 1 else BUILD / "bin/functional_tool"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gradus_functional_"))
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"
]
STEPS, WARMUP, BATCH, ROWS = 60, 10, 8, 100
WORST = {}


def tool(*words, fails=False):
    done = subprocess.run([str(TOOL), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == (1 if fails else 0), (words, done.returncode, done.stderr)
    return done.stderr


def same(a, b, where=""):
    """Equal in type, dtype, shape and every bit."""
    assert type(a) is type(b), (where, type(a), type(b))
    if isinstance(a, dict):
        assert sorted(a) == sorted(b), (where, list(a), list(b))  # JAX sorts the keys
        for key in a:
            same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, (np.ndarray, np.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), where
    else:
        assert a == b, (where, a, b)


def random_array(rng, dtype, shape):
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    raw = rng.integers(0, 256,
                       int(np.prod(shape)) * dtype.itemsize, dtype=np.uint8)  # any bits, NaNs too
    return raw.view(dtype).reshape(shape)


def forty_arrays():
    """20 dtypes twice, three levels deep, one array above the chunk size, scalars and plain values
    beside them.
    """
    rng = np.random.default_rng(11)
    tree = {"model": {}, "extra": {}}
    for i, name in enumerate(DTYPES):
        tree["model"][f"layer_{i}"] = {
            "dense": {"kernel": random_array(rng, name, (3, 4 + i))},
            "bias": random_array(rng, name, [(5,), (), (0, 3), (1, 2, 2)][i % 4])
        }
    tree["model"]["layer_10"]["dense"]["kernel"] = random_array(rng, "float32", (64, 33))
    tree["extra"] = {
        "scalar": np.float32(0.1), "half": np.dtype("bfloat16").type(1.5), "complex": 2 - 1j,
        "none": None, "float": 1 / 3, "int": -7, "text": "ä", "flags": [True, False]
    }
    return tree


def files():
    for chunk in (1 << 30, 4096, 7):
        tree = forty_arrays()
        fs.MAX_CHUNK_SIZE = chunk
        (FOLDER / "flax.msgpack").write_bytes(fs.msgpack_serialize(tree))
        tool("copy", FOLDER / "flax.msgpack", FOLDER / "ours.msgpack", chunk)
        ours = (FOLDER / "ours.msgpack").read_bytes()
        assert ours == (FOLDER / "flax.msgpack").read_bytes(), chunk
        same(fs.msgpack_restore(ours), forty_arrays())
    tool("copy", FOLDER / "flax.msgpack", FOLDER / "ours.msgpack",
         1 << 30)  # read in pieces, written whole
    same(fs.msgpack_restore((FOLDER / "ours.msgpack").read_bytes()), forty_arrays())
    fs.MAX_CHUNK_SIZE = 1 << 30
    (FOLDER / "cut.msgpack").write_bytes(ours[:-100])
    assert "[G-FLAX-" in tool("copy", FOLDER / "cut.msgpack", FOLDER / "x", 1 << 30, fails=True)
    print(
        "files: 40 arrays of 20 dtypes, chunks of 2^30, 4096 and 7 bytes: equal byte for byte both "
        "ways")


def apply(params, x):
    hidden = x @ params["fc1"]["weight"].T + params["fc1"]["bias"]
    mean = hidden.mean(-1, keepdims=True)
    variance = ((hidden - mean)**2).mean(-1, keepdims=True)
    hidden = (hidden - mean) / jnp.sqrt(variance +
                                        1e-5) * params["norm"]["weight"] + params["norm"]["bias"]
    return jnp.tanh(hidden) @ params["fc2"]["weight"].T + params["fc2"]["bias"]


def initial():
    rng = np.random.default_rng(5)
    array = lambda *shape: rng.normal(0, 0.4, shape).astype(np.float32)  # noqa: E731
    return {
        "fc1": {"weight": array(16, 6),
                "bias": array(16)}, "norm": {"weight": 1 + array(16), "bias": array(16)},
        "fc2": {"weight": array(2, 16), "bias": array(2)}
    }


def data():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    return x, np.stack([x.sum(1), np.sin(x[:, 0])], 1).astype(np.float32)


def new_state():
    schedule = optax.join_schedules([
        optax.linear_schedule(1e-3, 0.02, WARMUP),
        optax.linear_schedule(0.02, 1e-7, STEPS - WARMUP)
    ], [WARMUP])
    mask = lambda params: {
        layer: {name: name != "bias" and layer != "norm" for name in entries}
        for layer, entries in params.items()
    }  # noqa: E731
    tx = optax.chain(optax.clip_by_global_norm(0.5),
                     optax.adamw(schedule, weight_decay=0.05, mask=mask))
    return TrainState.create(apply_fn=apply, params=jax.tree.map(jnp.asarray, initial()), tx=tx)


@jax.jit
def step(state, x, y):
    loss, grads = jax.value_and_grad(lambda params: ((state.apply_fn(params, x) - y)**2).mean())(
        state.params)
    return state.apply_gradients(grads=grads), loss


def flax_run():
    """The state and the loss after every step; rows in the order of the reference:
    Dataset.shuffle(seed=epoch).
    """
    x, y = data()
    state, states, losses = new_state(), [], []
    rows = datasets.Dataset.from_dict({"row": list(range(ROWS))})
    for epoch in range(5):
        order = rows.shuffle(seed=epoch)["row"]
        for i in range(ROWS // BATCH):
            batch = np.array(order[i * BATCH:(i + 1) * BATCH])
            state, loss = step(state, x[batch], y[batch])
            states.append(state)
            losses.append(float(loss))
    return states, losses


def close(ours, theirs, what):
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs),
                            strict=True):
        difference = float(
            np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0))
        WORST[what] = max(WORST.get(what, 0), difference)
        assert difference <= 1e-5, (what, path, difference)


def compare_trace(states, losses, first=0):
    trace = fs.msgpack_restore((FOLDER / "trace.msgpack").read_bytes())
    assert list(trace) == [str(i) for i in range(first, STEPS)], list(trace)
    for i in range(first, STEPS):
        close(trace[str(i)]["loss"], losses[i], "loss")
        close(trace[str(i)]["params"], {k: dict(v) for k, v in states[i].params.items()},
              "parameters")


def run():
    states, losses = flax_run()
    x, y = data()
    (FOLDER / "init.msgpack").write_bytes(fs.to_bytes(initial()))
    (FOLDER / "data.msgpack").write_bytes(fs.msgpack_serialize({"x": x, "y": y}))
    tool("run", FOLDER)
    compare_trace(states, losses)
    assert losses[-1] < losses[0] / 2, (losses[0], losses[-1])

    # Flax takes over our checkpoint: the same structure, the same numbers.
    last = FOLDER / "last"
    params = fs.from_bytes(states[-1].params, (last / "flax_model.msgpack").read_bytes())
    opt_state = fs.from_bytes(states[-1].opt_state, (last / "opt_state.msgpack").read_bytes())
    close(params, states[-1].params, "restored parameters")
    close(opt_state, states[-1].opt_state, "restored optimizer state")
    for ours, theirs in zip(jax.tree.leaves(opt_state), jax.tree.leaves(states[-1].opt_state),
                            strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert json.loads((last / "training_state.json").read_text())["step"] == STEPS

    # Stopped and restored: every byte.
    whole = {
        name: (last / name).read_bytes()
        for name in ("flax_model.msgpack", "opt_state.msgpack", "training_state.json")
    }
    for stop in (17, 24, 59):
        tool("run", FOLDER, stop)
        shutil.rmtree(FOLDER / "half", ignore_errors=True)
        (FOLDER / "last").rename(FOLDER / "half")
        tool("resume", FOLDER, "half")
        for name, content in whole.items():
            assert (last / name).read_bytes() == content, (stop, name)

    # We take over a checkpoint that Flax wrote in the middle.
    theirs = FOLDER / "theirs"
    theirs.mkdir()
    (theirs / "flax_model.msgpack").write_bytes(fs.to_bytes(states[29].params))
    (theirs / "opt_state.msgpack").write_bytes(fs.to_bytes(states[29].opt_state))
    (theirs / "training_state.json").write_text(json.dumps({"step": 30}))
    tool("resume", FOLDER, "theirs")
    compare_trace(states, losses, first=30)
    print("run: 60 steps against flax + optax, largest differences " +
          ", ".join(f"{k} {v:.1e}" for k, v in WORST.items()) + "; stopped and restored: bit-equal")


try:
    files()
    run()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
print("functional_test: OK")
