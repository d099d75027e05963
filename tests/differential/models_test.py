#!/usr/bin/env python3
"""Folders and text of gradus and transformers, side by side.

    python models_test.py [MODELS_TOOL]

For each architecture and head: a folder of transformers loads in gradus with the same outputs, what
gradus saves loads in transformers with no missing or unexpected key and the same outputs. For each
generative one: greedy search and beam search give the same tokens for 50 prompts, alone and in
left-padded batches. Exits 77 with a reason where the peer is absent.
"""
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from transformers import AutoConfig
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

BUILD = os.environ.get(
    "GRADUS_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
TOOL = sys.argv[1] if len(sys.argv) > 1 else os.path.join(BUILD, "bin/models_tool")
AUTO = {
    "causal_lm": transformers.AutoModelForCausalLM, "masked_lm": transformers.AutoModelForMaskedLM,
    "sequence_classification": transformers.AutoModelForSequenceClassification,
    "token_classification": transformers.AutoModelForTokenClassification,
    "question_answering": transformers.AutoModelForQuestionAnswering, "base": transformers.AutoModel
}
VOCAB, PAD, EOS = 64, 1, 3
GPT2 = dict(model_type="gpt2", vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4,
            bos_token_id=2, eos_token_id=EOS, pad_token_id=PAD)
LLAMA = dict(model_type="llama", vocab_size=VOCAB, hidden_size=32, intermediate_size=48,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, bos_token_id=2, eos_token_id=EOS, pad_token_id=PAD)
BERT = dict(model_type="bert", vocab_size=VOCAB, hidden_size=32, intermediate_size=48,
            num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            pad_token_id=PAD)
HEADS = ("sequence_classification", "token_classification", "question_answering", "base")
CONFIGS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "llama3": {
        **LLAMA, "rope_parameters": dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=16,
                                         rope_theta=500000.0)
    },
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 6},
    "qwen2": {
        **LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5,
        "max_window_layers": 1, "tie_word_embeddings": True
    },
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 16},
    "bert": BERT,
    "bert untied": {**BERT, "tie_word_embeddings": False, "hidden_act": "gelu_new"},
    "roberta": {
        **BERT, "model_type": "roberta", "bos_token_id": 2, "eos_token_id": EOS,
        "layer_norm_eps": 1e-5
    },
    "distilbert": dict(model_type="distilbert", vocab_size=VOCAB, dim=32, hidden_dim=48, n_layers=2,
                       n_heads=4, max_position_embeddings=64, pad_token_id=PAD),
    "bigbird": {**BERT, "model_type": "big_bird"},
    "bigbird sparse": {
        **BERT, "model_type": "big_bird", "block_size": 1, "num_random_blocks": 1, "sep_token_id": 5
    },
}


def language_task(config):
    encoders = ("bert", "roberta", "distilbert", "big_bird")
    return "masked_lm" if config["model_type"] in encoders else "causal_lm"


def ask(new_values=False, **request):
    done = subprocess.run([TOOL], input=json.dumps(request), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    assert new_values or "LOAD REPORT" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def build(config, task, seed):
    torch.manual_seed(seed)
    extra = {"num_labels": 3} if task in ("sequence_classification", "token_classification") else {}
    model = AUTO[task].from_config(AutoConfig.for_model(**config, **extra)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    return model


def names_of(task):
    return {
        "question_answering": ("start_logits", "end_logits"), "base": ("last_hidden_state",),
        "text_encoding": ("last_hidden_state",)
    }.get(task, ("logits",))


def compare_outputs(model, reply, batches, task, what):
    for inputs, outputs in zip(batches, reply["outputs"], strict=True):
        with torch.no_grad():
            expected = model(**{key: torch.tensor(value) for key, value in inputs.items()})
        for name in names_of(task) + (
            ("pooler_output",) if expected.get("pooler_output") is not None else ()):
            got = torch.tensor(outputs[name]).view_as(expected[name])
            worst = (got - expected[name]).abs().max().item()
            scale = max(1.0, expected[name].abs().max().item())
            assert worst <= 1e-5 * scale, (what, name, worst, scale)


def default_batches():
    rng = random.Random(5)
    rows = [[rng.randrange(4, VOCAB) for _ in range(11)] for _ in range(3)]
    mask = [[1] * 11, [1] * 7 + [0] * 4, [1] * 11]
    rows[1][7:] = [PAD] * 4
    return [{"input_ids": rows[:1]}, {"input_ids": rows, "attention_mask": mask}]


def check_folders(label, config, task, folder, batches=None, change=lambda model: None):
    model, batches = build(config, task, 1), batches or default_batches()
    change(model)
    theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
    model.save_pretrained(theirs)
    reply = ask(folder=theirs, task=task, forward=batches, save=ours, max_shard_size="20KB")
    compare_outputs(model, reply, batches, task, f"{label} {task}: loaded here")
    back, info = AUTO[task].from_pretrained(ours, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], (label, task, key, info[key])
    state = back.state_dict()
    for key, value in model.state_dict().items():
        assert torch.equal(state[key], value), (label, task, key)
    compare_outputs(back.eval(), reply, batches, task, f"{label} {task}: loaded there")
    old, new = (json.load(open(os.path.join(f, "config.json"))) for f in (theirs, ours))
    for key, value in old.items():
        assert new.get(key, "absent") == value, (label, task, key, value, new.get(key))


def check_body_and_heads(label, config, folder):
    """What was saved as a body alone loads under a head, and the other way round."""
    body, head = build(config, "base", 3), build(config, "token_classification", 4)
    batch = [{"input_ids": [[5, 6, 7, 8]]}]
    body.save_pretrained(folder)
    ask(folder=folder, task="token_classification", forward=batch, save=folder + "/head",
        new_values=True)
    back = AUTO["token_classification"].from_pretrained(folder + "/head").base_model.state_dict()
    for key, value in body.state_dict().items():
        assert "pooler" in key or torch.equal(back[key], value), (label, key)
    head.save_pretrained(folder + "/heads")
    compare_outputs(head.base_model,
                    ask(folder=folder + "/heads", task="base", forward=batch, new_values=True),
                    batch, "base", f"{label}: body of a head")


def check_fresh(label, config, folder):
    """A model made here from a config loads there."""
    task = language_task(config)
    reply = ask(config=config, task=task, forward=[{"input_ids": [[5, 6, 7]]}], save=folder)
    back, info = AUTO[task].from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    compare_outputs(back.eval(), reply, [{"input_ids": [[5, 6, 7]]}], task, f"{label}: fresh")


def prompts_of(count):
    rng = random.Random(11)
    return [[rng.randrange(4, VOCAB) for _ in range(rng.randrange(1, 12))] for _ in range(count)]


def generation_jobs(count):
    greedy = [
        dict(max_new_tokens=12, do_sample=False),
        dict(max_new_tokens=12, do_sample=False, repetition_penalty=1.7),
        dict(max_new_tokens=12, do_sample=False, no_repeat_ngram_size=2, min_new_tokens=5),
        dict(max_length=30, do_sample=False, bad_words_ids=[[7], [8, 9]], suppress_tokens=[12, 13]),
        dict(max_new_tokens=6, do_sample=False, use_cache=False)
    ]
    beams = [
        dict(max_new_tokens=10, num_beams=3),
        dict(max_new_tokens=10, num_beams=4, length_penalty=2.0, early_stopping=True,
             num_return_sequences=3),
        dict(max_new_tokens=10, num_beams=2, length_penalty=0.3, early_stopping="never"),
        dict(max_new_tokens=10, num_beams=3, eos_token_id=[3, 10, 20, 30], no_repeat_ngram_size=3,
             num_return_sequences=2),
        dict(max_new_tokens=10, num_beams=3, length_penalty=-1.0, min_new_tokens=4,
             repetition_penalty=1.3)
    ]
    prompts = prompts_of(count)
    for prompt, options in zip(prompts, itertools.cycle(greedy)):
        yield {"inputs": {"input_ids": [prompt]}, "options": options}
    for prompt, options in zip(prompts, itertools.cycle(beams)):
        yield {"inputs": {"input_ids": [prompt]}, "options": {"do_sample": False, **options}}
    for start, options in zip(range(0, count, 5), itertools.cycle(greedy[:3] + beams)):
        rows = prompts[start:start + 5]
        width = max(map(len, rows))
        inputs = {
            "input_ids": [[PAD] * (width - len(row)) + row for row in rows],
            "attention_mask": [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        }
        yield {"inputs": inputs, "options": {"do_sample": False, **options}}
    yield {
        "inputs": {"input_ids": [prompts[0]]},
        "options": dict(num_beams=3, max_new_tokens=8, pad_token_id=0, do_sample=False)
    }


def compare_text(label, model, task, folder, jobs):
    model.save_pretrained(folder)
    reply = ask(folder=folder, task=task, generate=jobs)
    ended = 0
    for job, got in zip(jobs, reply["generated"], strict=True):
        inputs = {key: torch.tensor(value) for key, value in job["inputs"].items()}
        with torch.no_grad():
            expected = model.generate(**inputs, **job["options"]).tolist()
        assert got == expected, (label, job, got, expected)
        ended += any(EOS in row for row in expected)
    print(f"  {label}: {len(jobs)} generations equal, the end token came in {ended}")


def check_generation(label, config, folder, seeds=(1, 2), count=50):
    for seed in seeds:
        model = build(config, "causal_lm", seed)
        with torch.no_grad():  # make the end token likely enough to appear
            head = model.get_output_embeddings().weight
            head[EOS] = head.mean(0) + 0.6 * torch.randn_like(head[EOS])
        compare_text(label, model, "causal_lm", folder, list(generation_jobs(count)))


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for label, config in CONFIGS.items():
        for task in (language_task(config), *HEADS):
            with tempfile.TemporaryDirectory() as folder:
                check_folders(label, config, task, folder)
        with tempfile.TemporaryDirectory() as folder:
            check_fresh(label, config, folder)
        with tempfile.TemporaryDirectory() as folder:
            check_body_and_heads(label, config, folder)
        if language_task(config) == "masked_lm":
            print(f"{label}: folders equal")
            continue
        with tempfile.TemporaryDirectory() as folder:
            check_generation(label, config, folder)
        print(f"{label}: folders and text equal")


if __name__ == "__main__":
    main()
