"""T5 through both trainers: the same folder, rows and flags, no dropout; as encoder_training_test.py.

50 steps with accumulation, warm-up, clipping and evaluation, one run with label smoothing, one with gradient checkpointing. Without the peer: exit code 77.
"""
import json
import os
import pathlib
import random
import subprocess
import tempfile

from encoder_training_test import ARGS, AUTO, PAD, TOKENS, TOOL, VOCAB, compare, python_logs, torch, transformers

AUTO["seq2seq_lm"] = transformers.AutoModelForSeq2SeqLM
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=12,
          dropout_rate=0.0, pad_token_id=PAD, eos_token_id=3, decoder_start_token_id=PAD)
GATED = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "initializer_factor": 0.3}
RUNS = [("t5", T5, {}), ("t5, smoothed labels", T5, {"label_smoothing_factor": 0.1}), ("t5 gated, checkpointed", GATED, {"gradient_checkpointing": True, "gradient_accumulation_steps": 1})]


def make_rows(rng, count, with_decoder):
    rows = []
    for _ in range(count):
        length, answer = rng.randrange(5, TOKENS + 1), rng.randrange(2, 7)
        ids = [rng.randrange(4, VOCAB) for _ in range(length)]
        labels = ids[:answer][::-1] + [3]
        labels += [-100] * (8 - len(labels))
        row = {"input_ids": ids + [PAD] * (TOKENS - length), "attention_mask": [1] * length + [0] * (TOKENS - length), "labels": labels}
        if with_decoder:
            row["decoder_input_ids"] = [PAD] + [max(label, PAD) for label in labels[:-1]]
        rows.append(row)
    return rows


def main():
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    rng = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number, (_, config, changes) in enumerate(RUNS):
            torch.manual_seed(number)
            place = os.path.join(folder, str(number))
            AUTO["seq2seq_lm"].from_config(transformers.AutoConfig.for_model(**config)).save_pretrained(place)
            smoothed = "label_smoothing_factor" in changes
            jobs.append({"folder": place, "task": "seq2seq_lm", "train": make_rows(rng, 90, smoothed), "eval": make_rows(rng, 20, smoothed), "args": {**ARGS, **changes, "output_dir": place + "/out"}})
        questions, answers = pathlib.Path(folder, "jobs.json"), pathlib.Path(folder, "answers.json")
        questions.write_text(json.dumps(jobs))
        subprocess.run([TOOL, questions, answers], check=True)
        for (label, _, _), job, answer in zip(RUNS, jobs, json.loads(answers.read_text()), strict=True):
            assert answer["global_step"] == 50
            worst = compare(answer["log_history"], python_logs(job), label)
            losses = [entry["loss"] for entry in answer["log_history"] if "loss" in entry]
            print(f"{label}: 50 steps equal (largest relative difference {worst:.1e}), loss {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
