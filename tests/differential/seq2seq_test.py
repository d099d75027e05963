#!/usr/bin/env python3
"""Encoder-decoder models of gradus and transformers, side by side: folders both ways, text token by
token.

    python seq2seq_test.py [MODELS_TOOL]

Exits 77 with a reason where the peer is absent.
"""
import itertools
import os
import random
import tempfile

from models_test import (
    AUTO, ask, build, check_folders, check_generation as check_causal_generation, compare_outputs,
    compare_text, prompts_of, torch, transformers
)

VOCAB, PAD, EOS, START = 64, 1, 3, 2
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=12, pad_token_id=PAD,
          eos_token_id=EOS, decoder_start_token_id=START)
BART = dict(model_type="bart", vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_ffn_dim=48, decoder_ffn_dim=40, encoder_attention_heads=4,
            decoder_attention_heads=2, max_position_embeddings=64, pad_token_id=PAD, bos_token_id=0,
            eos_token_id=EOS, decoder_start_token_id=START, forced_eos_token_id=EOS)
CONFIGS = {
    "t5": T5, "t5-gated": {
        **T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
        "num_decoder_layers": 1
    }, "mt5": {**T5, "model_type": "mt5"}, "bart": BART, "bart-untied": {
        **BART, "tie_word_embeddings": False, "activation_function": "relu"
    }, "mbart": {
        **BART, "model_type": "mbart", "scale_embedding": True, "forced_bos_token_id": 20
    }
}
T5_HEADS = ("seq2seq_lm", "base", "text_encoding", "sequence_classification",
            "token_classification", "question_answering")
BART_HEADS = ("seq2seq_lm", "base", "causal_lm", "masked_lm", "sequence_classification",
              "question_answering")
AUTO |= {
    "seq2seq_lm": transformers.AutoModelForSeq2SeqLM,
    "text_encoding": transformers.AutoModelForTextEncoding
}


def batches_of(task):
    rng = random.Random(5)
    rows = [[rng.randrange(4, VOCAB) for _ in range(10)] + [EOS] for _ in range(3)]
    rows[1][6:] = [EOS] + [PAD] * 4
    mask = [[1] * 11, [1] * 7 + [0] * 4, [1] * 11]
    batches = [{"input_ids": rows[:1]}, {"input_ids": rows, "attention_mask": mask}]
    if task in ("seq2seq_lm", "base"):
        for batch in batches:
            batch["decoder_input_ids"] = [
                [START] + [rng.randrange(4, VOCAB) for _ in range(6)] for _ in batch["input_ids"]
            ]
    return batches


def own_head(model):
    """A head that is not the table, as in v1.1."""
    if "lm_head.weight" not in model.all_tied_weights_keys:
        return
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.3)
    model._tied_weights_keys = {
        key: value for key, value in model._tied_weights_keys.items() if "lm_head" not in key
    }
    model.all_tied_weights_keys.pop("lm_head.weight")


def check_fresh(label, config, folder):
    batches = batches_of("seq2seq_lm")
    reply = ask(config=config, task="seq2seq_lm", forward=batches, save=folder)
    back, info = AUTO["seq2seq_lm"].from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    compare_outputs(back.eval(), reply, batches, "seq2seq_lm", f"{label}: fresh")
    there = AUTO["seq2seq_lm"].from_config(transformers.AutoConfig.for_model(**config)).state_dict()
    # The same distributions: deviations within five standard errors.
    for key, value in back.state_dict().items():
        if value.numel() >= 1000:
            ratio = value.std().item() / there[key].std().item()
            assert abs(ratio - 1) < 5 / value.numel()**0.5, (key, ratio)


def check_extra_keys(folder):
    """A folder of the language model in the other classes: what they pass over, what they miss."""
    model = build(T5, "seq2seq_lm", 3)
    model.save_pretrained(folder)
    weights = os.path.join(folder, "model.safetensors")
    from safetensors.torch import load_file, save_file
    tensors = load_file(weights)
    tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(
        8, 4)  # of old files
    save_file(tensors, weights, {"format": "pt"})
    _, info = AUTO["seq2seq_lm"].from_pretrained(folder, output_loading_info=True)
    assert not info["unexpected_keys"]
    reply = ask(folder=folder, task="seq2seq_lm",
                forward=batches_of("seq2seq_lm"))  # no load report
    compare_outputs(model, reply, batches_of("seq2seq_lm"), "seq2seq_lm", "extra key")
    _, info = AUTO["text_encoding"].from_pretrained(folder, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    encoder = AUTO["text_encoding"].from_pretrained(folder).eval()
    reply = ask(folder=folder, task="text_encoding", forward=batches_of("text_encoding"))
    compare_outputs(encoder, reply, batches_of("text_encoding"), "base",
                    "encoder of a language model")


def check_bart_keys(folder):
    """A folder of the body under a head, with what old files hold and without the bias."""
    from safetensors.torch import load_file, save_file
    body = build(BART, "base", 3)
    body.save_pretrained(folder)
    weights = os.path.join(folder, "model.safetensors")
    save_file({**load_file(weights), "encoder.version": torch.ones(1)}, weights, {"format": "pt"})
    model, info = AUTO["seq2seq_lm"].from_pretrained(folder, output_loading_info=True)
    assert not info["unexpected_keys"] and not info["missing_keys"], info
    reply = ask(folder=folder, task="seq2seq_lm", forward=batches_of("seq2seq_lm"))
    compare_outputs(model.eval(), reply, batches_of("seq2seq_lm"), "seq2seq_lm", "body of BART")


GREEDY = [
    dict(max_new_tokens=12),
    dict(max_new_tokens=12, repetition_penalty=1.7),
    dict(max_new_tokens=12, no_repeat_ngram_size=2, min_new_tokens=5),
    dict(max_length=15, bad_words_ids=[[7], [8, 9]], suppress_tokens=[12, 13]),
    dict(max_new_tokens=6, use_cache=False),
    dict(max_new_tokens=9, forced_bos_token_id=20, forced_eos_token_id=EOS),
    dict(max_new_tokens=9, encoder_repetition_penalty=2.5),
    dict(max_new_tokens=9, encoder_no_repeat_ngram_size=1),
    dict(max_length=14, min_length=9, begin_suppress_tokens=[11, 5, 30]),
    dict(max_new_tokens=14, exponential_decay_length_penalty=[3, 1.4]),
    dict(max_new_tokens=9, sequence_bias=[[[14], 4.0], [[14, 15], 9.0]])
]
BEAMS = [
    dict(max_new_tokens=10, num_beams=3),
    dict(max_new_tokens=10, num_beams=4, length_penalty=2.0, early_stopping=True,
         num_return_sequences=3),
    dict(max_new_tokens=10, num_beams=2, length_penalty=0.3, early_stopping="never"),
    dict(max_new_tokens=10, num_beams=3, eos_token_id=[3, 10, 20, 30], no_repeat_ngram_size=3,
         num_return_sequences=2),
    dict(max_new_tokens=10, num_beams=3, length_penalty=-1.0, min_new_tokens=4,
         repetition_penalty=1.3),
    dict(max_new_tokens=8, num_beams=2, use_cache=False),
    dict(max_length=9, num_beams=4, forced_bos_token_id=17, encoder_no_repeat_ngram_size=2)
]


def generation_jobs(count):
    prompts = [prompt + [EOS] for prompt in prompts_of(count)]
    for prompt, options in zip(prompts, itertools.cycle(GREEDY)):
        yield {"inputs": {"input_ids": [prompt]}, "options": options}
    for prompt, options in zip(prompts, itertools.cycle(BEAMS)):
        yield {"inputs": {"input_ids": [prompt]}, "options": options}
    for start, options, left in zip(range(0, count, 5), itertools.cycle(GREEDY[:3] + BEAMS),
                                    itertools.cycle((False, True))):
        rows = prompts[start:start + 5]
        width = max(map(len, rows))
        fill = [[PAD] * (width - len(row)) for row in rows]
        inputs = {"input_ids": [pad + row if left else row + pad for pad, row in zip(fill, rows)]}
        if start % 10:  # else inferred from the pad token
            inputs["attention_mask"] = [
                [int(id != PAD) for id in row] for row in inputs["input_ids"]
            ]
        yield {"inputs": inputs, "options": options}
    begun = {"input_ids": [prompts[0]],
             "decoder_input_ids": [[9, 10]]}  # the start token is put in front
    yield {"inputs": begun, "options": dict(max_new_tokens=6)}
    yield {
        "inputs": {**begun, "decoder_input_ids": [[START, 9, 10]]},
        "options": dict(max_new_tokens=6, num_beams=2)
    }
    padded = {
        "input_ids": [prompts[0], prompts[0]],
        "decoder_input_ids": [[START, PAD, 8], [START, 9, 10]],
        "decoder_attention_mask": [[1, 0, 1], [1, 1, 1]]
    }
    yield {"inputs": padded, "options": dict(max_new_tokens=6)}


def check_generation(label, config, folder, seeds, count):
    for seed in seeds:
        model = build(config, "seq2seq_lm", seed)
        own_head(model)
        with torch.no_grad():  # make the end token likely enough to appear
            head = model.lm_head.weight
            head[EOS] = head.mean(0) + 0.3 * torch.randn_like(head[EOS])
        compare_text(label, model, "seq2seq_lm", folder, [
            {**job, "options": {"do_sample": False, **job["options"]}}
            for job in generation_jobs(count)
        ])


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for label, config in CONFIGS.items():
        is_bart = "bart" in label
        for task in BART_HEADS if is_bart else T5_HEADS:
            with tempfile.TemporaryDirectory() as folder:
                check_folders(label, config, task, folder, batches_of(task),
                              *[own_head] if task == "seq2seq_lm" and label == "t5-gated" else [])
        with tempfile.TemporaryDirectory() as folder:
            check_fresh(label, config, folder)
        # What shares its decoder with another kind is checked with fewer prompts.
        seeds, count = ((1, 2), 50) if label in ("t5", "t5-gated") else ((1,), 25)
        with tempfile.TemporaryDirectory() as folder:
            check_generation(label, config, folder, seeds, count)
        if label == "bart":
            with tempfile.TemporaryDirectory() as folder:
                check_causal_generation(label, config, folder, seeds=(1,), count=25)
        print(f"{label}: folders and text equal")
    with tempfile.TemporaryDirectory() as folder:
        check_extra_keys(folder)
    with tempfile.TemporaryDirectory() as folder:
        check_bart_keys(folder)


if __name__ == "__main__":
    main()
