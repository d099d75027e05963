#!/usr/bin/env python3
"""Settings of config.json, forms of files and inputs beyond the usual ones, in gradus and
transformers side by side.

    python variants_test.py [MODELS_TOOL]

For each setting: outputs, loss and every gradient of a model made by transformers, and the folder
saved here loaded there. Then weights in other forms, folders without generation_config.json,
prompts padded in odd ways, and configs that must be refused. Exits 77 with a reason where the peer
is absent.
"""
import json
import os
import subprocess
import tempfile

from models_test import (
    AUTO, BERT, GPT2, LLAMA, PAD, TOOL, VOCAB, build, compare_outputs, default_batches, prompts_of,
    torch, transformers
)
from safetensors.torch import load_file, save_file
from seq2seq_test import T5, batches_of

LONG = dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3],
            long_factor=[2.0, 3.0, 4.0, 5.0], original_max_position_embeddings=10)
ROPES = [
    dict(rope_type="linear", factor=2.5),
    dict(rope_type="dynamic", factor=2.0),
    dict(rope_type="yarn", factor=4.0, beta_fast=8, beta_slow=2, truncate=False),
    dict(rope_type="yarn", factor=4.0, mscale=0.7, mscale_all_dim=1.1,
         original_max_position_embeddings=16), LONG, {**LONG, "factor": 3.0, "rope_theta": 500.0},
    dict(rope_type="proportional", partial_rotary_factor=0.5, factor=2.0),
    dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
]
QWEN2 = {**LLAMA, "model_type": "qwen2"}
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 3}


def old_spelling(rope):
    def change(config):
        del config["rope_parameters"]
        config["rope_scaling"] = {
            "type" if key == "rope_type" else key: value for key, value in rope.items()
        }
        config["rope_theta"] = 700.0

    return change


def without(*keys, **new):
    def change(config):
        for key in keys:
            config.pop(key, None)
        config.update(new)

    return change


def variants():
    """(label, config, task, change of the written config.json)"""
    for rope in ROPES:
        yield f"rope {rope}", {
            **LLAMA, "rope_parameters": dict(rope),
            "max_position_embeddings": 9 if rope["rope_type"] == "dynamic" else 64
        }, "causal_lm", None
        yield f"rope, old spelling {rope}", LLAMA, "causal_lm", old_spelling(rope)
    for family in (MISTRAL, QWEN2):  # each family has its own length where config.json names none
        yield f"default length {family['model_type']}", family, "causal_lm", without(
            "max_position_embeddings",
            rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e4))
    yield "mistral layer_types", {
        **MISTRAL, "layer_types": ["sliding_attention", "full_attention"]
    }, "causal_lm", None
    yield "qwen2 layer_types", {
        **QWEN2, "use_sliding_window": True, "sliding_window": 3,
        "layer_types": ["sliding_attention", "full_attention"]
    }, "causal_lm", None
    yield "llama biases", {
        **LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 6, "num_key_value_heads": 1
    }, "causal_lm", None
    for name in ("laplace", "sqrtsoftplus", "quick_gelu", "gelu_10"):
        yield f"gpt2 {name}", {**GPT2, "activation_function": name}, "causal_lm", None
    yield "gpt2 scales", {
        **GPT2, "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True,
        "reorder_and_upcast_attn": True, "n_inner": 40, "tie_word_embeddings": False
    }, "causal_lm", None
    for config in (GPT2, LLAMA, BERT):
        yield f"{config['model_type']} spans", config, "question_answering", None
    for tied in (True, False):
        yield f"t5 {tied}", {
            **T5, "d_kv": 5, "tie_word_embeddings": tied, "feed_forward_proj": "gated-silu",
            "relative_attention_num_buckets": 7
        }, "seq2seq_lm", None
    for kind in ("regression", "multi_label_classification", None):
        yield f"t5 {kind}", {**T5, "problem_type": kind,
                             "num_labels": 3}, "sequence_classification", None
        yield f"bert {kind}", {**BERT, "problem_type": kind,
                               "num_labels": 3}, "sequence_classification", None


def with_labels(batch, task):
    rows = len(batch["input_ids"])
    if task == "question_answering":
        return {**batch, "start_positions": [1, 40, 2][:rows], "end_positions": [3, 4, 5][:rows]}
    if task == "sequence_classification":
        return {**batch, "labels": [[0.25, -1.5, 2.0], [0.5, 1.0, -0.5], [0.125, 0.0, 1.0]][:rows]}
    return {
        **batch, "labels": [[-100 if id == PAD else id
                             for id in row]
                            for row in batch.get("decoder_input_ids", batch["input_ids"])]
    }


def ask_all(requests):
    done = subprocess.run([TOOL], input=json.dumps(requests), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def edit(folder, change, file="config.json"):
    path = os.path.join(folder, file)
    config = json.load(open(path))
    change(config)
    json.dump(config, open(path, "w"))


def compare_training(model, job, loss, file, what):
    model.zero_grad()
    extra = {"num_items_in_batch": job["num_items_in_batch"]} if "num_items_in_batch" in job else {}
    expected = model(**{key: torch.tensor(value) for key, value in job["inputs"].items()},
                     **extra).loss
    largest = 1e-6 * max(1.0, abs(expected.item()))
    assert abs(loss - expected.item()) <= largest, (what, loss, expected)
    expected.backward()
    gradients = load_file(file)
    for name, parameter in model.named_parameters():
        if parameter.grad is None or name not in gradients:
            given = parameter.grad if parameter.grad is not None else gradients.get(name)
            assert given is None or not given.any(), (what, name)
            continue
        scale = max(0.05,
                    parameter.grad.abs().max().item())  # of the key biases it is 0 but for rounding
        assert (gradients[name] - parameter.grad).abs().max().item() <= 1e-4 * scale, (what, name)


def check_settings(root):
    cases = list(variants())
    requests, models = [], []
    for place, (label, config, task, change) in enumerate(cases):
        folder = os.path.join(root, str(place))
        torch.manual_seed(place)
        model = AUTO[task].from_config(transformers.AutoConfig.for_model(**config))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() > 1 else 0.05))
        model.save_pretrained(folder)
        if change:
            edit(folder, change)
        models.append(AUTO[task].from_pretrained(folder).eval())
        batches = batches_of(task) if config["model_type"] == "t5" else default_batches()
        train = [{"inputs": with_labels(batch, task), "file": f"{folder}/{i}.st"}
                 for i, batch in enumerate(batches)]
        train.append({**train[1], "num_items_in_batch": 29, "file": f"{folder}/items.st"})
        requests.append(
            dict(folder=folder, task=task, forward=batches, train=train, save=folder + "/ours"))
    replies = ask_all(requests)
    for case, model, request, reply in zip(cases, models, requests, replies, strict=True):
        label, config, task, _ = case
        assert "error" not in reply, (label, reply)
        compare_outputs(model, reply, request["forward"], task, label)
        for job, loss in zip(request["train"], reply["losses"], strict=True):
            compare_training(model, job, loss, job["file"], label)
        back, info = AUTO[task].from_pretrained(request["save"], output_loading_info=True)
        wrong = [info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")]
        assert not any(wrong), (label, info)
        compare_outputs(back.eval(), reply, request["forward"], task, f"{label}: loaded there")
        there = back.config.problem_type
        assert there == model.config.problem_type, (label, there)
    print(f"{len(cases)} settings: outputs, losses, gradients and folders equal")


def check_files(root):
    def rewritten(change):
        def write(folder):
            path = os.path.join(folder, "model.safetensors")
            save_file(change(load_file(path)), path, {"format": "pt"})

        return write

    def legacy(folder):
        path = os.path.join(folder, "model.safetensors")
        torch.save(load_file(path), os.path.join(folder, "pytorch_model.bin"),
                   _use_new_zipfile_serialization=False)
        os.remove(path)

    mixed = rewritten(
        lambda tensors: {
            name: tensor.bfloat16() if place % 2 == 0 else tensor
            for place, (name, tensor) in enumerate(sorted(tensors.items()))
        })
    no_dtype = without("dtype")
    cases = [
        (config, task, write, change)
        for config, task in ((GPT2, "causal_lm"), (BERT, "masked_lm"), (LLAMA, "causal_lm"))
        for write, change in ((legacy, None), (mixed, no_dtype), (
            rewritten(lambda tensors: {name: tensor.half() for name, tensor in tensors.items()}),
            without("dtype", torch_dtype="float16")))
    ]
    requests, models = [], []
    for place, (config, task, write, change) in enumerate(cases):
        folder = os.path.join(root, f"files{place}")
        build(config, task, 3).save_pretrained(folder)
        write(folder)
        if change:
            edit(folder, change)
        models.append(AUTO[task].from_pretrained(folder))
        requests.append(dict(folder=folder, task=task, save=folder + "/ours"))
    for model, request, reply in zip(models, requests, ask_all(requests), strict=True):
        assert "error" not in reply, reply
        back = AUTO[request["task"]].from_pretrained(request["save"])
        assert back.dtype == model.dtype, (request, back.dtype, model.dtype)
        state = back.state_dict()
        for name, value in model.state_dict().items():
            assert torch.equal(state[name], value), (request, name)
    print(f"{len(cases)} forms of weights equal")


def odd_prompts():
    rows = [prompt for prompt in prompts_of(20) if len(prompt) > 3][:3]
    width = max(map(len, rows)) + 1
    fill = [[PAD] * (width - len(row)) for row in rows]
    right = {
        "input_ids": [row + pad for row, pad in zip(rows, fill)],
        "attention_mask": [[1] * len(row) + [0] * len(pad) for row, pad in zip(rows, fill)]
    }
    left = {"input_ids": [pad + row for row, pad in zip(rows, fill)]}
    yield right
    yield {
        **left, "attention_mask":
            [[0] * len(pad) + [1, 0] + [1] * (len(row) - 2) for row, pad in zip(rows, fill)]
    }
    yield {**left, "position_ids": [list(range(5, 5 + width))] * 3}


def check_text(root):
    def conf(**new):
        def write(folder):
            os.remove(os.path.join(folder, "generation_config.json"))
            edit(folder, without("eos_token_id" if "eos_token_id" not in new else "", **new))

        return write

    settings = [
        None,
        conf(),
        conf(max_length=25, num_beams=2, no_repeat_ngram_size=2, early_stopping=True,
             eos_token_id=3),
        conf(forced_eos_token_id=9, max_length=22)
    ]
    cases = [(config, task, write)
             for config, task in ((GPT2, "causal_lm"), (LLAMA, "causal_lm"), (MISTRAL, "causal_lm"),
                                  (T5, "seq2seq_lm"))
             for write in settings]
    requests, models = [], []
    for place, (config, task, write) in enumerate(cases):
        folder = os.path.join(root, f"text{place}")
        build(config, task, 4).save_pretrained(folder)
        if write:
            write(folder)
        models.append(AUTO[task].from_pretrained(folder).eval())
        inputs = [{"input_ids": [[9, 8, 7, 6]]}] if write else list(
            odd_prompts())[:1 if task == "seq2seq_lm" else None]
        if config is GPT2 and not write:
            inputs.append({"input_ids": [[9, 8, 7]], "token_type_ids": [[4, 5, 6]]})
        requests.append(
            dict(
                folder=folder, task=task,
                generate=[{"inputs": one, "options": options}
                          for one in inputs
                          for options in ({"max_new_tokens": 9},
                                          {"max_new_tokens": 6, "num_beams": 3}, {})]))
    count = 0
    for model, request, reply in zip(models, requests, ask_all(requests), strict=True):
        assert "error" not in reply, reply
        for job, got in zip(request["generate"], reply["generated"], strict=True):
            expected = model.generate(
                **{key: torch.tensor(value) for key, value in job["inputs"].items()},
                **job["options"]).tolist()
            assert got == expected, (request["folder"], job, got, expected)
            count += 1
    print(f"{count} generations equal")


def check_refused():
    cases = {
        "rope_type": {**LLAMA, "rope_parameters": dict(rope_type="nonsense")},
        "short_factor": {**LLAMA, "rope_parameters": {**LONG, "short_factor": [1.0]}},
        "one set of numbers":
            {**QWEN2, "rope_parameters": {"full_attention": dict(rope_type="linear", factor=2.0)}
            }, "layer_types": {**QWEN2, "layer_types": ["chunked_attention", "full_attention"]},
        "sliding_window": {**QWEN2, "layer_types": ["sliding_attention", "full_attention"]
                          }, "quantization_config":
                              {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}},
        "per_layer_config": {**LLAMA, "per_layer_config": {"0": {"num_key_value_heads": 1}}
                            }, "activation": {**GPT2, "activation_function": "prelu"},
        "add_cross_attention": {**GPT2, "add_cross_attention": True}
    }
    for part, reply in zip(
            cases, ask_all([dict(config=config, task="causal_lm") for config in cases.values()]),
            strict=True):
        assert reply.get("error") == "G-MODEL-5" and part in reply["text"], (part, reply)
    print(f"{len(cases)} configs refused")


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    assert VOCAB == 64
    with tempfile.TemporaryDirectory() as root:
        check_settings(root)
        check_files(root)
        check_text(root)
    check_refused()


if __name__ == "__main__":
    main()
