#!/usr/bin/env python3
"""BigBird on natural questions with the functional trainer, beside the same run in flax and optax.

    python natural_questions_test.py [GRADUS]

The model, the loss, the optimizer and the loop are those of transformers' Flax example;
transformers 5 has no Flax classes any more, so the model is put together here from Flax's layers,
with block-sparse attention as a bias on full attention: log(n) for a block that is seen n times.
Which blocks those are, transformers' PyTorch class says. 30 losses of training and evaluation are
compared, and checkpoints are exchanged both ways. Exits 77 with a reason where flax, optax or jax
is absent.
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
    import flax.linen as nn
    import flax.serialization as fs
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax.training.train_state import TrainState
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release"))
GRADUS = sys.argv[1] if len(sys.argv) > 1 else BUILD / "bin/gradus"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="gradus_nq_"))
STEPS, EPOCHS, BATCH, TRAIN, VALIDATION, LENGTH = 30, 3, 4, 43, 9, 96
WARMUP, LR, INIT_LR, DECAY = 5, 2e-3, 1e-4, 0.05
VOCABULARY, PAD, SEPARATOR = 60, 0, 3
CONFIG = dict(model_type="big_bird", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
              num_attention_heads=4, intermediate_size=64, max_position_embeddings=LENGTH,
              type_vocab_size=2, block_size=8, num_random_blocks=2, attention_type="block_sparse",
              hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD,
              bos_token_id=1, eos_token_id=2, sep_token_id=SEPARATOR, hidden_act="gelu_new")
WORST = {}


def block_bias(layer, training):
    """(heads, tokens, tokens): the logarithm of how often a query sees a key."""
    size, heads, blocks = CONFIG["block_size"], CONFIG["num_attention_heads"], LENGTH // 8
    sparse = BigBirdBlockSparseAttention(BigBirdConfig(**CONFIG), seed=layer)
    sparse.train(training)
    np.random.seed(layer)
    lengths, counts = sparse._get_rand_attn_plan(LENGTH, size, CONFIG["num_random_blocks"])
    drawn = sparse._bigbird_block_rand_mask_with_head(from_seq_length=LENGTH, to_seq_length=LENGTH,
                                                      from_block_size=size, to_block_size=size,
                                                      num_heads=heads, plan_from_length=lengths,
                                                      plan_num_rand_blocks=counts)
    seen = np.zeros((heads, blocks, blocks))
    seen[:, 0] = seen[:, -1] = 1
    for head in range(heads):
        for block in range(1, blocks - 1):
            seen[head, block, list({0, block - 1, block, block + 1, blocks - 1})] = 1
            for chosen in np.asarray(drawn[head])[block - 1]:
                seen[head, block, chosen] += 1
    with np.errstate(divide="ignore"):
        bias = np.maximum(np.log(seen), -1e9)
    return bias.repeat(size, 1).repeat(size, 2).astype(np.float32)


def dense(params, x):
    return nn.Dense(params["kernel"].shape[1]).apply({"params": params}, x)


def norm(params, x):
    return nn.LayerNorm(epsilon=1e-12).apply({"params": params}, x)


def embed(params, ids):
    return nn.Embed(*params["embedding"].shape).apply({"params": params}, ids)


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def attention(params, x, mask, bias):
    heads = CONFIG["num_attention_heads"]
    split = lambda y: y.reshape(*y.shape[:2], heads, -1)
    query, key, value = (split(dense(params[name], x)) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(query.shape[-1])
    scores = scores + bias + (1 - mask[:, None, None, :]) * -1e9
    context = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
    return context.reshape(x.shape) * mask[:, :, None]


def model(params, input_ids, attention_mask, bias):
    mask = attention_mask.astype(jnp.float32)
    ends = jnp.argmax(input_ids == SEPARATOR, axis=-1)[:, None] + 1
    question = jnp.arange(LENGTH)[None] < ends
    table = params["bert"]["embeddings"]
    x = embed(table["word_embeddings"], input_ids)
    x = x + embed(table["token_type_embeddings"], (~question).astype(jnp.int32))
    x = x + embed(table["position_embeddings"], jnp.arange(LENGTH)[None])
    x = norm(table["LayerNorm"], x)
    for i, layer in sorted(params["bert"]["encoder"]["layer"].items()):
        found = attention(layer["attention"]["self"], x, mask, bias[int(i)])
        out = layer["attention"]["output"]
        x = norm(out["LayerNorm"], dense(out["dense"], found) + x)
        inner = gelu(dense(layer["intermediate"]["dense"], x))
        x = norm(layer["output"]["LayerNorm"], dense(layer["output"]["dense"], inner) + x)
    pooled = jnp.tanh(dense(params["bert"]["pooler"], x[:, 0]))
    head = params["qa_classifier"]
    y = dense(head["output"]["dense"], gelu(dense(head["intermediate"]["dense"], x)))
    logits = dense(head["qa_outputs"], norm(head["output"]["LayerNorm"], y + x))
    logits = logits - (question.at[:, 0].set(False))[:, :, None] * 1e6
    return logits[..., 0], logits[..., 1], dense(params["cls"], pooled)


def entropy(logits, labels):
    """The mean over all rows; a label outside the scores adds nothing."""
    wanted = (labels[:, None] == jnp.arange(logits.shape[-1])[None]).astype(jnp.float32)
    return -(wanted * jax.nn.log_softmax(logits)).sum(-1).mean()


def loss_of(params, batch, bias):
    start, end, kind = model(params, batch["input_ids"], batch["attention_mask"], bias)
    return (entropy(start, batch["start_token"]) + entropy(end, batch["end_token"]) +
            entropy(kind, batch["category"])) / 3


def initial():
    rng = np.random.default_rng(0)
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    array = lambda *shape: rng.normal(0, 0.08, shape).astype(np.float32)
    linear = lambda a, b: {"kernel": array(a, b), "bias": array(b)}
    scale = lambda: {"scale": 1 + array(width), "bias": array(width)}
    mlp = lambda: {
        "intermediate": {"dense": linear(width, inner)},
        "output": {"dense": linear(inner, width), "LayerNorm": scale()}
    }
    attention_part = lambda: {
        "self": {name: linear(width, width) for name in ("query", "key", "value")},
        "output": {"dense": linear(width, width), "LayerNorm": scale()}
    }
    layers = {
        str(i): {"attention": attention_part(), **mlp()} for i in range(CONFIG["num_hidden_layers"])
    }
    return {
        "bert": {
            "embeddings": {
                "word_embeddings": {"embedding": array(VOCABULARY, width)},
                "position_embeddings": {"embedding": array(LENGTH, width)},
                "token_type_embeddings": {"embedding": array(2, width)}, "LayerNorm": scale()
            }, "encoder": {"layer": layers}, "pooler": linear(width, width)
        }, "qa_classifier": {**mlp(), "qa_outputs": linear(width, 2)}, "cls": linear(width, 5)
    }


def rows(count, seed):
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        length, question = int(rng.integers(30, LENGTH + 1)), int(rng.integers(3, 8))
        ids = rng.integers(5, VOCABULARY, length)
        ids[0], ids[question], ids[-1] = 1, SEPARATOR, SEPARATOR
        start = int(rng.integers(question + 1, length - 2))
        kind = int(rng.integers(0, 5))
        has_span = kind in (1, 2)
        made.append({
            "input_ids": ids.tolist(), "start_token": start if has_span else -100,
            "end_token": start + 1 if has_span else -100, "category": kind
        })
    return made


def collated(batch):
    ids = [one + [PAD] * (LENGTH - len(one)) for one in batch["input_ids"]]
    mask = [[1] * len(one) + [0] * (LENGTH - len(one)) for one in batch["input_ids"]]
    result = {name: jnp.array(batch[name]) for name in ("start_token", "end_token", "category")}
    return {"input_ids": jnp.array(ids), "attention_mask": jnp.array(mask), **result}


def schedule():
    return optax.join_schedules([
        optax.linear_schedule(INIT_LR, LR, WARMUP),
        optax.linear_schedule(LR, 1e-7, STEPS - WARMUP)
    ], [WARMUP])


def new_state(params):
    decays = lambda path: path[-1] != "bias" and path[-2:] != ("LayerNorm", "scale")
    mask = lambda tree: jax.tree_util.tree_map_with_path(
        lambda path, _: decays(tuple(key.key for key in path)), tree)
    tx = optax.adamw(schedule(), weight_decay=DECAY, mask=mask)
    return TrainState.create(apply_fn=model, params=jax.tree.map(jnp.asarray, params), tx=tx)


TRAIN_BIAS, EVAL_BIAS = (np.stack(
    [block_bias(i, training)
     for i in range(CONFIG["num_hidden_layers"])])
                         for training in (True, False))


@jax.jit
def step(state, batch):
    loss, grads = jax.value_and_grad(loss_of)(state.params, batch, TRAIN_BIAS)
    return state.apply_gradients(grads=grads), loss


evaluated = jax.jit(lambda params, batch: loss_of(params, batch, EVAL_BIAS))


def flax_run(state, train, validation):
    """From the state on: the states, the losses, the logs, as the example has them."""
    batches = [collated(validation[i * BATCH:(i + 1) * BATCH]) for i in range(VALIDATION // BATCH)]
    states, losses, logs = [], [], []
    per_epoch = TRAIN // BATCH
    for epoch in range(EPOCHS):
        order, running = train.shuffle(seed=epoch), 0.0
        for i in range(per_epoch):
            if epoch * per_epoch + i >= STEPS:
                break
            state, loss = step(state, collated(order[i * BATCH:(i + 1) * BATCH]))
            running += float(loss)
            states.append(state)
            losses.append(float(loss))
            eval_loss = np.mean([float(evaluated(state.params, batch)) for batch in batches])
            logs.append({
                "tr_loss": running / (i + 1), "eval_loss": float(eval_loss),
                "lr": float(schedule()(int(state.step) - 1))
            })
    return states, losses, logs


def gradus(output, *words, processes=1):
    launch = ["launch", "--nproc", processes] if processes > 1 else []
    words = [
        str(GRADUS), *launch, "train", "--task", "natural-questions", "--train_file",
        FOLDER / "train.jsonl", "--validation_file", FOLDER / "validation.jsonl",
        "--tokenizer_name", FOLDER / "start", "--block_size", 8, "--num_random_blocks", 2,
        "--max_length", LENGTH, "--doc_stride", 48, "--per_device_train_batch_size",
        BATCH // processes, "--num_train_epochs", EPOCHS, "--max_steps", STEPS, "--learning_rate",
        LR, "--init_lr", INIT_LR, "--warmup_steps", WARMUP, "--weight_decay", DECAY,
        "--logging_steps", 1, "--save_steps", 5, "--save_dir", "run", "--use_cpu", "--report_to",
        "none", "--disable_tqdm", "--output_dir", output, *words
    ]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((output / "trainer_state.json").read_text())["log_history"]


def compare(history, losses, logs, first=0):
    """Every loss of training and evaluation, and the learning rate."""
    assert [entry["step"] for entry in history] == list(range(first + 1, STEPS + 1)), history
    per_epoch = TRAIN // BATCH
    for entry in history:
        i = entry["step"] - 1
        for name, wanted in logs[i].items():
            difference = abs(entry[name] - wanted)
            WORST[name] = max(WORST.get(name, 0), difference)
            assert difference <= 1e-4, (i, name, entry[name], wanted)
        place = i % per_epoch
        if i > first and place > 0:  # the loss of this step alone, of two running means
            alone = entry["tr_loss"] * (place + 1) - history[i - first - 1]["tr_loss"] * place
            WORST["loss"] = max(WORST.get("loss", 0), abs(alone - losses[i]))
            assert abs(alone - losses[i]) <= 1e-4, (i, alone, losses[i])


def is_unseen(path):
    """Whether a parameter moves all scores of a softmax alike. Its gradient is zero but for
    rounding, which Adam magnifies to whole steps.
    """
    return path[-2:] in (["key", "bias"], ["qa_outputs", "bias"]) or (
        path[0] == "qa_classifier" and path[-2:] == ["LayerNorm", "bias"])


def close(ours, theirs, what, limit=1e-4):
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs),
                            strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, (what, path)
        if what == "parameters" and is_unseen([key.key for key in path]):
            continue
        difference = float(np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0))
        WORST[what] = max(WORST.get(what, 0), difference)
        assert difference <= limit, (what, path, difference)


def write_tokenizer(folder):
    special = ["[PAD]", "[CLS]", "[UNK]", "[SEP]", "[MASK]"]
    words = {
        **{token: i for i, token in enumerate(special)},
        **{f"w{i}": i for i in range(5, VOCABULARY)}
    }
    folder.mkdir()
    (folder / "tokenizer.json").write_text(
        json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
        }))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]",
            "unk_token": "[UNK]", "sep_token": "[SEP]", "cls_token": "[CLS]"
        }))


def main():
    start = FOLDER / "start"
    write_tokenizer(start)
    (start / "config.json").write_text(json.dumps(CONFIG))
    (start / "flax_model.msgpack").write_bytes(fs.to_bytes(initial()))
    sets = {"train": rows(TRAIN, 1), "validation": rows(VALIDATION, 2)}
    for name, made in sets.items():
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    train, validation = (datasets.Dataset.from_list(made) for made in sets.values())
    states, losses, logs = flax_run(new_state(initial()), train, validation)
    assert np.mean(losses[-10:]) < np.mean(losses[:10]), losses

    compare(gradus(FOLDER / "ours", "--model_name_or_path", start), losses, logs)

    # Flax takes over our checkpoint: the same structure, the same numbers.
    ours = FOLDER / "ours/run-e1-s5"
    assert json.loads((ours / "training_state.json").read_text())["step"] == 15
    params = fs.from_bytes(states[14].params, (ours / "flax_model.msgpack").read_bytes())
    opt_state = fs.from_bytes(states[14].opt_state, (ours / "opt_state.msgpack").read_bytes())
    close(params, states[14].params, "parameters")
    close(opt_state, states[14].opt_state, "optimizer state")

    # We go on from a checkpoint that Flax wrote.
    theirs = FOLDER / "theirs"
    theirs.mkdir()
    shutil.copy(start / "config.json", theirs)
    (theirs / "flax_model.msgpack").write_bytes(fs.to_bytes(states[14].params))
    (theirs / "opt_state.msgpack").write_bytes(fs.to_bytes(states[14].opt_state))
    (theirs / "training_state.json").write_text(json.dumps({"step": 15}))
    history = gradus(FOLDER / "resumed", "--model_name_or_path", start, "--resume_from_checkpoint",
                     theirs)
    # The running loss of Flax is not in its checkpoint: the epoch's mean begins anew in the next.
    compare([entry for entry in history if entry["step"] > 20], losses, logs, first=20)

    # Two processes share the rows of each batch, as two devices do under pmap.
    compare(gradus(FOLDER / "two", "--model_name_or_path", start, processes=2), losses, logs)
    print("natural_questions_test: 30 steps beside flax and optax, largest differences " +
          ", ".join(f"{name} {value:.1e}" for name, value in WORST.items()) +
          "; checkpoints exchanged both ways, two processes: OK")


try:
    main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
