#!/usr/bin/env python3
"""Files that gradus writes, opened by Python's torch, safetensors and transformers, and the other
way round.

    python formats_test.py FORMATS_TOOL [--huge]

Exits 77 with a reason where torch, safetensors or transformers is absent.
"""

import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import safetensors.torch
    import torch
    from huggingface_hub import split_torch_state_dict_into_shards
    from transformers.trainer_pt_utils import safe_globals
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BUILT = os.path.join(os.path.dirname(__file__), "../../build/release/bin/formats_tool")
TOOL = sys.argv[1] if len(sys.argv) > 1 else BUILT
FOLDER = tempfile.mkdtemp(prefix="gradus_formats_")
GENERATOR = torch.Generator().manual_seed(3)


def path(name):
    return os.path.join(FOLDER, name)


def content(name):
    with open(path(name), "rb") as file:
        return file.read()


def tool(*words, fails=False):
    done = subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == (1 if fails else 0), (words, done.returncode, done.stderr)
    return done.stderr


def same(a, b, where=""):
    """Equal in type, order and every byte."""
    types = {type(a), type(b)}
    assert len(types) == 1 or types <= {dict, collections.OrderedDict}, (where, types)
    if isinstance(a, torch.Tensor):
        form = lambda tensor: (tensor.dtype, tensor.shape, tensor.stride())
        octets = lambda tensor: tensor.contiguous().view(-1).view(torch.uint8)
        assert form(a) == form(b), (where, form(a), form(b))
        assert octets(a).equal(octets(b)), where
    elif isinstance(a, dict):
        assert list(a) == list(b), (where, list(a), list(b))
        for key in a:
            same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]")
    else:
        assert a == b or a != a and b != b, (where, a, b)


def random_tensor(dtype=None):
    dtype = dtype or random.choice([
        torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32,
        torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.int8,
        torch.complex64
    ])
    shape = [
        random.randint(0 if random.random() < 0.1 else 1, 5) for _ in range(random.randint(0, 4))
    ]
    tensor = torch.randn(shape, generator=GENERATOR).mul(3).to(dtype)
    return tensor.transpose(0, -1) if len(shape) > 1 and random.random() < 0.3 else tensor


def random_tree(depth=0):
    pick = random.random()
    if depth < 4 and pick < 0.25:
        return {
            random.choice([f"k{i}", i]): random_tree(depth + 1) for i in range(random.randint(0, 6))
        }
    if depth < 4 and pick < 0.45:
        items = [random_tree(depth + 1) for _ in range(random.randint(0, 5))]
        return items if random.random() < 0.5 else tuple(items)
    return random.choice([
        random_tensor,
        lambda: None,
        lambda: random.random() < 0.5,
        lambda: random.randint(-300, 300),
        lambda: random.randint(-(2**63), 2**63 - 1),
        lambda: random.choice([0.1, -0.0, 1e300, float("inf"),
                               float("nan")]),
        lambda: "".join(chr(random.randint(1, 0x2FFF)) for _ in range(random.randint(0, 90))),
    ])()


def torch_files():
    for i in range(40):
        tree = {"tree": random_tree(), "list": [random_tree() for _ in range(3)]}
        torch.save(tree, path("in.pt"))
        tool("copy", path("in.pt"), path("out.pt"))
        same(tree, torch.load(path("out.pt"), weights_only=True), f"tree {i}")
        same(tree, torch.load(path("out.pt"), weights_only=True, mmap=True), f"mapped tree {i}")
    base = torch.randn(100, generator=GENERATOR)
    torch.save({"a": base, "b": base, "row": base[10:20], "bytes": bytes(range(256))},
               path("in.pt"))
    tool("copy", path("in.pt"), path("out.pt"))
    back = torch.load(path("out.pt"), weights_only=True)
    a, b, row = (back[name].data_ptr() for name in ("a", "b", "row"))
    assert a == b == row - 40 and back["bytes"] == bytes(range(256))
    assert subprocess.run([sys.executable, "-m", "zipfile", "-t",
                           path("out.pt")], capture_output=True,
                          text=True).stdout.strip().endswith("Done testing")


def optimizers():
    """A state dict that went through gradus continues training bit by bit."""
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    def steps(model, optimizer, count):
        for i in range(count):
            optimizer.zero_grad()
            model(torch.full((3, 4), float(i))).pow(2).mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    model, optimizer = make()
    steps(model, optimizer, 5)
    torch.save(optimizer.state_dict(), path("optimizer.pt"))
    torch.save(model.state_dict(), path("pytorch_model.bin"))
    expected = steps(model, optimizer, 5)
    tool("copy", path("optimizer.pt"), path("optimizer2.pt"))
    tool("copy", path("pytorch_model.bin"), path("pytorch_model2.bin"))
    model, optimizer = make()
    model.load_state_dict(torch.load(path("pytorch_model2.bin"), weights_only=True))
    optimizer.load_state_dict(torch.load(path("optimizer2.pt"), weights_only=True))
    assert steps(model, optimizer, 5).equal(expected)


def rng_states():
    def restore(file):  # as Trainer._load_rng_state
        with safe_globals():
            state = torch.load(file, weights_only=True)
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.random.set_rng_state(state["cpu"])

    def draw():
        return random.random(), random.gauss(
            0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item()

    random.seed(5), np.random.seed(6), torch.manual_seed(7)
    draw()
    state = {
        "python": random.getstate(), "numpy": np.random.get_state(),
        "cpu": torch.random.get_rng_state()
    }
    torch.save(state, path("rng.pth"))
    expected = draw()
    tool("rng", path("rng.pth"), path("rng2.pth"))
    restore(path("rng2.pth"))
    assert draw() == expected
    for seed in [0, 42, 2**31, 2**32 - 1]:
        tool("seed", seed, path("rng3.pth"))
        restore(path("rng3.pth"))
        ours = draw()
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        assert draw() == ours, seed


def safetensors_files():
    for i in range(40):
        tensors = {
            f"{random.choice('abé')}{k}": random_tensor().contiguous()
            for k in range(random.randint(0, 20))
        }
        safetensors.torch.save_file(tensors, path("in.safetensors"), metadata={"format": "pt"})
        tool("copy", path("in.safetensors"), path("out.safetensors"))
        assert content("in.safetensors") == content("out.safetensors"), i


def shards():
    for i in range(20):
        tensors = {
            f"layer.{k:02d}": torch.randn(random.randint(1, 400), generator=GENERATOR)
            for k in range(random.randint(1, 15))
        }
        size = random.choice([400, 1000, 1600, 5000])
        safetensors.torch.save_file(tensors, path("all.safetensors"), metadata={"format": "pt"})
        folder = path(f"shards{i}")
        os.makedirs(folder)
        tool("shard", path("all.safetensors"), folder, size)
        split = split_torch_state_dict_into_shards(tensors,
                                                   filename_pattern="model{suffix}.safetensors",
                                                   max_shard_size=size)
        found = {
            name: list(safetensors.torch.load_file(os.path.join(folder, name)))
            for name in os.listdir(folder)
            if name.endswith(".safetensors")
        }
        assert {name: sorted(keys) for name, keys in found.items()
               } == {name: sorted(keys) for name, keys in split.filename_to_tensors.items()}, i
        if split.is_sharded:
            index = json.load(open(os.path.join(folder, "model.safetensors.index.json")))
            assert index["weight_map"] == split.tensor_to_filename and index["metadata"][
                "total_size"] == split.metadata["total_size"]
        tool("join", folder, path("joined.safetensors"))
        assert content("joined.safetensors") == content("all.safetensors")


class Evil:
    def __reduce__(self):
        return (os.system, (f"touch {path('executed')}",))


def hostile():
    torch.save({"x": Evil()}, path("evil.pt"))
    message = tool("copy", path("evil.pt"), path("out.pt"), fails=True)
    assert "posix.system" in message and "G-PT-2" in message and not os.path.exists(
        path("executed")), message
    torch.save(torch.nn.Linear(1, 1), path("module.pt"))
    assert "torch.nn.modules.linear.Linear" in tool("copy", path("module.pt"), path("out.pt"),
                                                    fails=True)


def huge():
    tool("huge", path("huge.pt"))
    back = torch.load(path("huge.pt"), weights_only=True, mmap=True)
    assert back["huge"].shape == (
        2**32 + 5,) and back["huge"][-1] == 0 and back["after"].tolist() == [1, 1, 1]
    tool("copy", path("huge.pt"), path("huge2.pt"))
    assert torch.load(path("huge2.pt"), weights_only=True, mmap=True)["after"].tolist() == [1, 1, 1]


def main():
    random.seed(11)
    tests = [torch_files, optimizers, safetensors_files, shards, hostile, rng_states
            ] + ([huge] if "--huge" in sys.argv else [])
    for test in tests:
        test()
        print(f"{test.__name__}: ok")


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
