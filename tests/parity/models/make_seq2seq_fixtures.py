"""Makes the fixtures of encoder-decoder models, as make_fixtures.py does for the others.

Run with the peer's Python: `python make_seq2seq_fixtures.py [NAME...]`.
"""
import json
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    AutoConfig, AutoModelForCausalLM, AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification, AutoModelForTokenClassification
)

from make_fixtures import OUT, PAD, VOCAB, randomise, record, text

EOS, START = 3, 2
TASKS = {
    "seq2seq_lm": AutoModelForSeq2SeqLM,
    "sequence_classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
    "question_answering": AutoModelForQuestionAnswering,
    "causal_lm": AutoModelForCausalLM
}
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=2,
          relative_attention_num_buckets=8, relative_attention_max_distance=7, dropout_rate=0.0,
          pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=START)
BART = dict(model_type="bart", vocab_size=VOCAB, d_model=16, encoder_layers=2, decoder_layers=1,
            encoder_ffn_dim=24, decoder_ffn_dim=20, encoder_attention_heads=2,
            decoder_attention_heads=4, max_position_embeddings=14, dropout=0.0, pad_token_id=PAD,
            bos_token_id=0, eos_token_id=EOS, decoder_start_token_id=START, forced_eos_token_id=EOS)
MBART = {**BART, "model_type": "mbart", "scale_embedding": True, "activation_function": "relu"}
FAMILY = {
    "bart": BART,
    # nothing is tied: four tables
    "bart_untied": {**BART, "tie_word_embeddings": False},
    "mbart": {**MBART, "decoder_start_token_id": None},
    "t5": T5,
    # as v1.1 and Flan: gated, a head of its own, the decoder's output as it is; and stacks of
    # different depth
    "mt5": {**T5, "model_type": "mt5"},
    "t5_gated": {
        **T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
        "num_decoder_layers": 1, "relative_attention_max_distance": 20
    },
}


HEADS = {"seq2seq_lm": FAMILY, "token_classification": ("t5",), "causal_lm": ("bart", "mbart")}


def sources(tokens=9):
    """Inputs of the encoder, each row with one end token."""
    def rows(count, lengths, left=False):
        ids = torch.full((count, tokens), PAD)
        for row, length in enumerate(lengths):
            part = slice(tokens - length, tokens) if left else slice(0, length)
            ids[row, part] = torch.cat([text(1, length - 1)[0], torch.tensor([EOS])])
        return {"input_ids": ids, "attention_mask": ids.ne(PAD).long()}

    plain = rows(2, (tokens, tokens))
    del plain["attention_mask"]
    return {
        "plain": plain, "padded": rows(3, (tokens, 5, 7)),
        "left_padded": rows(2, (tokens, 4), left=True)
    }


def inputs_of(task):
    cases = {name: (case, None) for name, case in sources().items()}
    for name, (case, _) in cases.items():
        rows, tokens = case["input_ids"].shape
        if task == "causal_lm":
            case["labels"] = torch.where(case["input_ids"] == PAD, -100, case["input_ids"])
        elif task == "seq2seq_lm":
            case["labels"] = text(rows, 12)
            if name != "plain":
                case["labels"][1, 6:] = -100
        elif task == "token_classification":
            case["labels"] = torch.randint(0, 3, (rows, tokens))
            case["labels"][:, 0] = -100
        elif task == "sequence_classification":
            case["labels"] = torch.randint(0, 3, (rows,))
        else:
            case["start_positions"] = torch.randint(0, 4, (rows,))
            case["end_positions"] = torch.randint(4, tokens, (rows,))
    if task in ("seq2seq_lm", "causal_lm"):
        cases["items"] = (cases["padded"][0], torch.tensor(37))
    if task == "seq2seq_lm":
        own = {**sources()["padded"], "decoder_input_ids": text(3, 6), "labels": text(3, 6)}
        own["decoder_attention_mask"] = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 6])
        cases["decoder"] = (own, None)
    return cases


def make(name, config, task, gradients):
    torch.manual_seed(0)
    model = TASKS[task].from_config(AutoConfig.for_model(**config)).float().train()
    is_bart = "bart" in config["model_type"]
    own_head = config.get("tie_word_embeddings") is False and task == "seq2seq_lm"
    if own_head and not is_bart:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    randomise(model)
    if "final_logits_bias" in dict(model.named_buffers()):
        model.final_logits_bias.normal_()
    tensors = record(model, inputs_of(task), gradients)
    tied = ("embed_tokens.weight",) if own_head else ("embed_tokens.weight", "lm_head.weight")
    if is_bart:
        tied = () if own_head else tuple(model.all_tied_weights_keys)
    tensors.update({
        f"weights/{key}": value.clone()
        for key, value in model.state_dict().items()
        if not key.endswith(tied)
    })
    saved = model.config.to_dict()
    saved["architectures"] = [type(model).__name__]
    # as in the files of those models, which are older than scale_decoder_outputs
    if "tie_word_embeddings" in config and not is_bart:
        saved["tie_word_embeddings"] = config["tie_word_embeddings"]
        del saved["scale_decoder_outputs"]
    metadata = {
        "config": json.dumps(saved), "task": task, "transformers": transformers.__version__,
        "torch": torch.__version__, "seed": "0"
    }
    save_file(tensors, OUT / f"{name}.safetensors", metadata)
    size = (OUT / f"{name}.safetensors").stat().st_size
    assert size <= 200_000, (name, size)
    print(f"{name}: {size} bytes")


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    for family, config in FAMILY.items():
        for task in TASKS:
            name = f"{family}_{task}"
            if family not in HEADS.get(task, ("t5", "bart", "mbart")):
                continue
            if not wanted or name in wanted:
                labels = {"num_labels": 3} if task in ("sequence_classification",
                                                       "token_classification") else {}
                make(name, {**config, **labels}, task,
                     ("plain", "padded") if task.endswith("_lm") else ("padded",))


if __name__ == "__main__":
    main()
