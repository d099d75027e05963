"""Makes processors.safetensors beside this script: scores before and after transformers' logits
processors and warpers.

Each case has ids, scores and expected; options and lengths are in the metadata. Run with the peer's
Python.
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

VOCAB, PROMPT = 12, 3
INF = float("inf")


def tied(scores):
    return (scores * 2).round() / 2


def with_holes(scores):
    scores = scores.clone()
    scores[:, [1, 5, 6]] = -INF
    return scores


SAMPLING = [
    dict(temperature=0.3),
    dict(temperature=2.5),
    dict(top_k=1),
    dict(top_k=5),
    dict(top_k=1000),
    dict(top_p=0.0),
    dict(top_p=0.1),
    dict(top_p=0.5),
    dict(top_p=0.9),
    dict(top_p=0.999999),
    dict(top_p=1.0),
    dict(min_p=0.0),
    dict(min_p=0.05),
    dict(min_p=0.5),
    dict(min_p=1.0),
    dict(typical_p=0.2),
    dict(typical_p=0.9),
    dict(epsilon_cutoff=0.05),
    dict(epsilon_cutoff=0.9),
    dict(eta_cutoff=0.1),
    dict(eta_cutoff=0.9),
    dict(top_h=0.3),
    dict(top_h=1.0),
    dict(temperature=0.7, top_k=6, top_p=0.8, min_p=0.1),
    dict(temperature=1.3, top_k=4, renormalize_logits=True),
    dict(top_h=0.5, top_k=4, typical_p=0.6)
]
PENALTIES = [
    dict(repetition_penalty=1.8),
    dict(repetition_penalty=0.5),
    dict(no_repeat_ngram_size=1),
    dict(no_repeat_ngram_size=2),
    dict(no_repeat_ngram_size=3),
    dict(no_repeat_ngram_size=9),
    dict(encoder_repetition_penalty=2.0),
    dict(encoder_repetition_penalty=0.5),
    dict(encoder_no_repeat_ngram_size=1),
    dict(encoder_no_repeat_ngram_size=2),
    dict(bad_words_ids=[[4], [5, 6], [3]]),
    dict(min_length=8),
    dict(min_new_tokens=2),
    dict(min_new_tokens=4, min_length=2),
    dict(min_new_tokens=1, min_length=20),
    dict(forced_eos_token_id=3),
    dict(forced_eos_token_id=[3, 9]),
    dict(suppress_tokens=[0, 11]),
    dict(begin_suppress_tokens=[2, 4]),
    dict(sequence_bias=[[[4], 2.5], [[5, 6], -3.0], [[4], 1.5]]),
    dict(exponential_decay_length_penalty=[1, 1.5]),
    dict(remove_invalid_values=True),
    dict(repetition_penalty=1.3, no_repeat_ngram_size=2, min_new_tokens=9, suppress_tokens=[7]),
    dict(eos_token_id=[3, 4, 5], min_new_tokens=9)
]


def cases():
    for options in SAMPLING:
        yield {**options, "do_sample": True,
               **({} if "top_k" in options else {"top_k": 0})}, lambda s: s, 6
        yield {
            **options, "do_sample": True, "num_beams": 3, "eos_token_id": [3, 7],
            **({} if "top_k" in options else {"top_k": 0})
        }, tied, 6
        yield {**options, "do_sample": True,
               **({} if "top_k" in options else {"top_k": 0})}, with_holes, 6
    for options in PENALTIES:
        for length in (PROMPT, 6, 9):
            yield {**options, "do_sample": False
                  }, with_holes if "remove_invalid_values" in options else lambda s: s, length
    for length in (1, 2):  # of an encoder-decoder model
        yield dict(forced_bos_token_id=5, do_sample=False), lambda s: s, length


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    generator = torch.Generator().manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=VOCAB, n_embd=4, n_head=1, n_layer=1, eos_token_id=3,
                                pad_token_id=1))
    tensors, infos = {}, []
    for number, (options, change, length) in enumerate(cases()):
        scores = change(torch.randn(4, VOCAB, generator=generator) * 2)
        ids = torch.randint(3, 8, (4, length), generator=generator)
        prompt = min(PROMPT, length)
        config, _ = model._prepare_generation_config(None, **options)
        model._prepare_special_tokens(config, True)
        config.max_length = 10
        if config.min_new_tokens is not None:
            config.min_length = config.min_new_tokens + prompt
        processors = model._get_logits_processor(
            config, input_ids_seq_length=prompt,
            encoder_input_ids=ids[::2, :prompt] if "num_beams" not in options else ids[:, :prompt],
            device="cpu")
        tensors |= {
            f"{number}/ids": ids, f"{number}/scores": scores,
            f"{number}/expected": processors(ids, scores.clone()).contiguous()
        }
        infos.append({
            "options": {"eos_token_id": 3, "pad_token_id": 1, **options}, "prompt_length": prompt,
            "max_length": 10, "encoder_rows": 2 if "num_beams" not in options else 4
        })
    file = pathlib.Path(__file__).parent / "processors.safetensors"
    save_file(
        tensors, file, {
            "cases": json.dumps(infos), "transformers": transformers.__version__,
            "torch": torch.__version__, "seed": "0"
        })
    print(len(infos), "cases,", file.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
