"""T5, BART and mBART through both trainers: the same folder, rows and flags, no dropout; as
encoder_training_test.py.

50 steps with accumulation, warm-up, clipping and evaluation, one run with label smoothing, one with
gradient checkpointing. Without the peer: exit code 77.
"""
from encoder_training_test import ARGS, AUTO, PAD, TOKENS, VOCAB, train_both, transformers

AUTO["seq2seq_lm"] = transformers.AutoModelForSeq2SeqLM
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=12, dropout_rate=0.0,
          pad_token_id=PAD, eos_token_id=3, decoder_start_token_id=PAD)
GATED = {
    **T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "initializer_factor": 0.3
}
BART = dict(model_type="bart", vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_ffn_dim=48, decoder_ffn_dim=48, encoder_attention_heads=4,
            decoder_attention_heads=4, max_position_embeddings=64, dropout=0.0, pad_token_id=PAD,
            eos_token_id=3, decoder_start_token_id=3, forced_eos_token_id=3)
RUNS = [("t5", T5, {}), ("t5, smoothed labels", T5, {"label_smoothing_factor": 0.1}),
        ("t5 gated, checkpointed", GATED,
         {"gradient_checkpointing": True, "gradient_accumulation_steps": 1}), ("bart", BART, {}),
        ("mbart, checkpointed", {**BART, "model_type": "mbart", "scale_embedding": True},
         {"gradient_checkpointing": True})]


def make_rows(rng, count, with_decoder):
    rows = []
    for _ in range(count):
        length, answer = rng.randrange(5, TOKENS + 1), rng.randrange(2, 7)
        ids = [rng.randrange(4, VOCAB) for _ in range(length)]
        labels = ids[:answer][::-1] + [3]
        labels += [-100] * (8 - len(labels))
        row = {
            "input_ids": ids + [PAD] * (TOKENS - length),
            "attention_mask": [1] * length + [0] * (TOKENS - length), "labels": labels
        }
        if with_decoder:
            row["decoder_input_ids"] = [PAD] + [max(label, PAD) for label in labels[:-1]]
        rows.append(row)
    return rows


def make_job(number, place, rng):
    _, config, changes = RUNS[number]
    AUTO["seq2seq_lm"].from_config(
        transformers.AutoConfig.for_model(**config)).save_pretrained(place)
    smoothed = "label_smoothing_factor" in changes
    return {
        "folder": place, "task": "seq2seq_lm", "train": make_rows(rng, 90, smoothed),
        "eval": make_rows(rng, 20,
                          smoothed), "args": {**ARGS, **changes, "output_dir": place + "/out"}
    }


if __name__ == "__main__":
    train_both([label for label, _, _ in RUNS], make_job)
