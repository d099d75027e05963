"""Cases for the data part: what the peer (torch, accelerate, transformers, trl, datasets) answers
to them.

make_fixtures.py writes a fixed selection to cases.json for the unit tests;
tests/differential/data_order_test.py and data_collator_test.py make new ones and run both sides.
"""

import random

import torch
from collator_cases import collate_case, expected_collate

# ---- orders ------------------------------------------------------------------


def expected_order(case):
    """The index batches of one process: accelerate's own samplers around torch's, as Trainer sets
    them up.
    """
    from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler
    from torch.utils.data import BatchSampler, SequentialSampler

    rows = list(range(case["rows"]))
    if case["sampler"] == "random":
        sampler = SeedableRandomSampler(rows, data_seed=case["seed"])
        sampler.generator = torch.Generator()
        sampler.set_epoch(case["epoch"])
    else:
        sampler = SequentialSampler(rows)
    batches = BatchSampler(sampler, case["batch_size"], case["drop_last"])
    if case["world"] > 1:
        batches = BatchSamplerShard(batches, case["world"], case["rank"],
                                    split_batches=case["split_batches"],
                                    even_batches=case["even_batches"])
    return {"batches": [list(batch) for batch in batches]}


def order_case(rng):
    world = rng.choice([1, 1, 2, 3, 4])
    batch = rng.choice([1, 2, 3, 5, 8]) * (world if rng.random() < 0.5 else 1)
    sampler = rng.choice(["random", "random", "sequential"])
    return {
        "kind": "order",
        "sampler": sampler,
        "rows": rng.choice([0] * (sampler == "sequential") + [1, 2, 5, 7, 16, 66, 100, 257, 1000]),
        "batch_size": batch,
        "seed": rng.choice([0, 1, 42, 2**31 - 1, rng.randrange(2**32)]),
        "epoch": rng.randrange(5),
        "rank": rng.randrange(world),
        "world": world,
        "drop_last": rng.random() < 0.3,
        "even_batches": rng.random() < 0.7,
        "split_batches": batch % world == 0 and rng.random() < 0.3,
    }


def expected_grouped(case):
    from transformers.trainer_pt_utils import (
        DistributedLengthGroupedSampler, get_length_grouped_indices
    )

    if case["world"] == 1:
        generator = torch.Generator().manual_seed(case["seed"] + case["epoch"])
        return {
            "order": get_length_grouped_indices(case["lengths"], case["batch_size"],
                                                generator=generator)
        }
    sampler = DistributedLengthGroupedSampler(
        case["batch_size"],
        lengths=case["lengths"],
        num_replicas=case["world"],
        rank=case["rank"],
        seed=case["seed"],
        drop_last=case["drop_last"],
    )
    sampler.set_epoch(case["epoch"])
    return {"order": list(sampler)}


def grouped_case(rng):
    world = rng.choice([1, 1, 2, 3])
    return {
        "kind": "grouped",
        "lengths": [rng.randrange(1, 60) for _ in range(rng.choice([4, 30, 100, 500]))],
        "batch_size": rng.choice([1, 2, 4, 8]),
        "seed": rng.randrange(1000),
        "epoch": rng.randrange(3),
        "world": world,
        "rank": rng.randrange(world),
        "drop_last": rng.random() < 0.5,
    }


# With 4 processes and 3 accumulation steps the batches of these depend on the order in which Python
# goes through a set.
REBALANCE_SET_ORDER = [
    [
        195, 240, 209, 117, 144, 217, 316, 18, 269, 11, 123, 803, 47, 14, 9, 258, 16, 194, 16, 107,
        117, 106, 5, 70
    ],
    [
        1, 5, 1000, 2, 1000, 10, 1, 10, 1000, 3000, 1, 1, 10, 1, 3000, 10, 2, 5, 1000, 10, 10, 1, 2,
        1000, 5, 1000, 10, 10, 5, 3000, 10, 1000, 5, 1000, 10, 1
    ],
]


def expected_rebalance(case):
    from transformers.trainer_pt_utils import BatchRebalanceSampler

    sampler = BatchRebalanceSampler(
        case["lengths"],
        case["effective_batch_size"],
        case["world"],
        case["grad_accum"],
        shuffle=case["shuffle"],
        seed=case["seed"],
        rank=case["rank"],
        drop_last=case["drop_last"],
    )
    sampler.set_epoch(case["epoch"])
    return {"batches": list(sampler)}


def rebalance_case(rng):
    """Lengths of several kinds: few different ones, all different, and some that are far longer
    than the rest.
    """
    world, steps = rng.choice([1, 1, 2, 3, 4, 6, 8]), rng.randrange(1, 7)
    length = rng.choice([
        lambda: rng.randrange(1, 5), lambda: rng.randrange(1, 3000),
        lambda: int(rng.lognormvariate(4, 1.5)) + 1
    ])
    return {
        "kind": "rebalance",
        "lengths": [length() for _ in range(rng.choice([1, 30, 100, 300]))],
        "effective_batch_size": world * steps * rng.randrange(1, 6) + rng.choice([0, 0, 1, 3]),
        "grad_accum": steps,
        "shuffle": rng.random() < 0.9,
        "seed": rng.choice([42, rng.randrange(1000)]),
        "epoch": rng.randrange(3),
        "world": world,
        "rank": rng.randrange(world),
        "drop_last": rng.random() < 0.3,
    }


def expected_repeat(case):
    from trl.trainer.utils import RepeatSampler

    sampler = RepeatSampler(range(case["rows"]), case["mini_repeat_count"], case["batch_size"],
                            case["repeat_count"], case["shuffle"], case["seed"])
    for _ in range(case["epoch"]):
        list(sampler)
    return {"order": list(sampler)}


def repeat_case(rng):
    return {
        "kind": "repeat",
        "rows": rng.choice([3, 7, 20, 101]),
        "mini_repeat_count": rng.randrange(1, 4),
        "batch_size": rng.randrange(1, 5),
        "repeat_count": rng.randrange(1, 4),
        "shuffle": rng.random() < 0.8,
        "seed": rng.randrange(1000),
        "epoch": rng.randrange(3),
    }


def expected_shard(case):
    from transformers.trainer_pt_utils import ShardSampler

    sampler = ShardSampler(list(range(case["rows"])), case["batch_size"], case["drop_last"],
                           num_processes=case["world"], process_index=case["rank"])
    return {"order": list(sampler)}


def shard_case(rng):
    world = rng.choice([1, 2, 3])
    return {
        "kind": "shard",
        "rows": rng.randrange(1, 60),
        "batch_size": rng.randrange(1, 6),
        "world": world,
        "rank": rng.randrange(world),
        "drop_last": rng.random() < 0.5,
    }


def expected_iterable_shard(case):
    from transformers.trainer_pt_utils import IterableDatasetShard

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(case["rows"]))

    shard = IterableDatasetShard(Rows(), case["batch_size"], case["drop_last"], case["world"],
                                 case["rank"])
    order = list(shard)
    return {
        "order": order, "batches": [
            order[i:i + case["batch_size"]] for i in range(0, len(order), case["batch_size"])
        ]
    }


def iterable_shard_case(rng):
    world = rng.choice([2, 3, 4])
    return {
        "kind": "iterable_shard",
        "rows": rng.randrange(1, 60),
        "batch_size": rng.randrange(1, 6),
        "world": world,
        "rank": rng.randrange(world),
        "drop_last": rng.random() < 0.5,
    }


# ---- mixing ------------------------------------------------------------------


def expected_mixing(case):
    import datasets

    datasets.disable_progress_bars()
    sets = [
        datasets.Dataset.from_dict({"row": [100 * part + i
                                            for i in range(count)]})
        for part, count in enumerate(case["rows"])
    ]
    if case["kind"] == "shuffle":
        return {"order": sets[0].shuffle(seed=case["seed"])["row"][:]}
    if case["kind"] == "split":
        parts = sets[0].train_test_split(test_size=case["test_size"], seed=case["seed"],
                                         shuffle=case["shuffle"])
        return {"train": parts["train"]["row"][:], "test": parts["test"]["row"][:]}
    mixed = datasets.interleave_datasets(sets, probabilities=case["probabilities"] or None,
                                         seed=case["seed"], stopping_strategy=case["stopping"])
    return {"order": mixed["row"][:]}


def shuffle_case(rng):
    return {
        "kind": "shuffle", "rows": [rng.choice([1, 2, 10, 100])],
        "seed": rng.choice([0, 42, 2**33 + 5, rng.randrange(2**32)])
    }


def split_case(rng):
    rows = rng.randrange(2, 100)
    size = rng.choice([0.1, 0.25, 0.5, rng.randrange(1, rows)])
    return {
        "kind": "split", "rows": [rows], "test_size": size, "seed": rng.randrange(2**32),
        "shuffle": rng.random() < 0.8
    }


def interleave_case(rng):
    count = rng.randrange(2, 5)
    weights = [rng.random() + 0.05 for _ in range(count)]
    probabilities = [w / sum(weights) for w in weights] if rng.random() < 0.7 else []
    return {
        "kind": "interleave",
        "rows": [rng.randrange(1, 40) for _ in range(count)],
        "probabilities": probabilities,
        "seed": rng.randrange(1000),
        "stopping": rng.choice(["first_exhausted", "all_exhausted"]),
    }


# ---- packing -----------------------------------------------------------------


def expected_pack(case):
    import datasets
    from trl.data_utils import pack_dataset

    datasets.disable_progress_bars()
    data = datasets.Dataset.from_dict(case["columns"])
    packed = pack_dataset(data, case["seq_length"], case["strategy"])
    return {"columns": {name: packed[name][:] for name in packed.column_names}}


def pack_case(rng, rows=None):
    lengths = [
        rng.choice([0, 1, 2, 3, 5, 8, 13]) for _ in range(rows or rng.choice([1, 4, 10, 60]))
    ]
    if not any(lengths):
        lengths[0] = 3
    ids = [[rng.randrange(5, 1000) for _ in range(length)] for length in lengths]
    return {
        "kind": "pack",
        "seq_length": rng.choice([4, 8, 11]),
        "strategy": rng.choice(["bfd", "bfd_split", "wrapped"]),
        "columns": {
            "input_ids": ids,
            "labels": [[-100 if rng.random() < 0.2 else i for i in row] for row in ids]
        },
    }



MAKERS = {
    "order": order_case,
    "grouped": grouped_case,
    "rebalance": rebalance_case,
    "repeat": repeat_case,
    "shard": shard_case,
    "iterable_shard": iterable_shard_case,
    "shuffle": shuffle_case,
    "split": split_case,
    "interleave": interleave_case,
    "pack": pack_case,
    "collate": collate_case,
}

EXPECTED = {
    "order": expected_order,
    "grouped": expected_grouped,
    "rebalance": expected_rebalance,
    "repeat": expected_repeat,
    "shard": expected_shard,
    "iterable_shard": expected_iterable_shard,
    "shuffle": expected_mixing,
    "split": expected_mixing,
    "interleave": expected_mixing,
    "pack": expected_pack,
    "collate": expected_collate,
}


def answered(case):
    """The case with the peer's answer in it. The rows go through JSON first: collators may change
    what they are given.
    """
    import json

    return case | {"expected": EXPECTED[case["kind"]](json.loads(json.dumps(case)))}


def make(kind, count, seed):
    rng = random.Random(f"{kind}{seed}")
    return [answered(MAKERS[kind](rng)) for _ in range(count)]
