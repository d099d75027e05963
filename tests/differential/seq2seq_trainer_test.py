"""The Seq2SeqTrainer beside transformers': the same folders, rows, arguments and options of
generation.

T5 and GPT-2, tiny and without dropout, are trained for 20 steps, evaluated by generating (while
training, and afterwards with options of the call), and used to predict. Compared: every log entry
and metric (1e-5 relative), the predicted and label tokens with their shapes, the saved
generation_config.json, and that training_args.json has the five options. Without the peer: exit
code 77.
"""
import json
import pathlib
import sys
import tempfile

from encoder_training_test import TOOL as ENCODERS_TOOL, ask, make_jobs, transformers

TOOL = ENCODERS_TOOL.with_name("seq2seq_tool")
VOCAB, TOKENS, PAD, END = 40, 10, 0, 3
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=12, dropout_rate=0.0,
          pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=PAD, initializer_factor=1.0)
GPT2 = dict(model_type="gpt2", vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=PAD, eos_token_id=END,
            bos_token_id=2)
ARGS = dict(max_steps=20, per_device_train_batch_size=4, per_device_eval_batch_size=4,
            learning_rate=1e-3, warmup_steps=10, logging_steps=5, eval_strategy="steps",
            eval_steps=10, save_strategy="no", seed=5, report_to="none", use_cpu=True,
            disable_tqdm=True, predict_with_generate=True)
FILE = {
    "max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.8,
    "early_stopping": True, "no_repeat_ngram_size": 1, "decoder_start_token_id": PAD,
    "eos_token_id": END, "pad_token_id": PAD
}
# label, config, arguments, options of evaluate and of predict, rows
RUNS = [
    ("t5", T5, {}, {"max_length": 7, "num_beams": 3,
                    "no_repeat_ngram_size": 1}, {"max_new_tokens": 5,
                                                 "repetition_penalty": 4.0}, {}),
    ("t5, lengths and beams from the arguments", T5,
     {"generation_max_length": 25, "generation_num_beams": 2, "label_smoothing_factor": 0.1},
     {"no_repeat_ngram_size": 2}, {"num_beams": 1, "no_repeat_ngram_size": 1}, {"decoder": True}),
    ("t5, a generation config of its own", T5, {"generation_config": FILE}, {},
     {"max_new_tokens": 4, "min_new_tokens": 2}, {}),
    ("t5, logits", T5, {"predict_with_generate": False}, {}, {}, {}),
    ("t5, several sets", T5, {"generation_max_length": 6}, {"num_beams": 2}, {}, {"sets": True}),
    ("gpt2", GPT2, {"generation_max_length": 14}, {"repetition_penalty": 1.3},
     {"max_new_tokens": 3}, {}),
]


def make_rows(rng, count, causal, decoder):
    rows = []
    for _ in range(count):
        length = TOKENS if causal else rng.randrange(4, TOKENS + 1)
        ids = [rng.randrange(4, VOCAB) for _ in range(length)]
        labels = list(ids) if causal else ids[:rng.randrange(2, 7)][::-1] + [END]
        labels += [-100] * ((TOKENS if causal else 8) - len(labels))
        row = {
            "input_ids": ids + [PAD] * (TOKENS - length),
            "attention_mask": [1] * length + [0] * (TOKENS - length), "labels": labels
        }
        if decoder:
            row["decoder_input_ids"] = [PAD] + [max(label, PAD) for label in labels[:-1]]
        rows.append(row)
    return rows


def make_job(number, place, rng):
    _, config, changes, evaluate, predict, rows = RUNS[number]
    causal = config is GPT2
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForSeq2SeqLM
    auto.from_config(transformers.AutoConfig.for_model(**config)).save_pretrained(place)
    args = {**ARGS, **changes}
    if "generation_config" in args:
        args["generation_config"] = place + "/own.json"
        pathlib.Path(args["generation_config"]).write_text(json.dumps(changes["generation_config"]))

    def draw(count):
        return make_rows(rng, count, causal, rows.get("decoder", False))

    return {
        "folder": place, "task": "causal_lm" if causal else "seq2seq_lm", "train": draw(50),
        "eval": {"sets": [["b", draw(6)], ["a", draw(9)]]} if rows.get("sets") else draw(11),
        "test": draw(10), "args": args, "evaluate": evaluate, "predict": predict
    }


def first(value):
    return value[0] if isinstance(value, tuple) else value


def summary(p):
    tokens = first(p.predictions).astype("float64")
    return {
        "rows": tokens.shape[0], "width": tokens.shape[1], "square": float((tokens**2).mean()),
        "label_width": p.label_ids.shape[1]
    }


def python_answer(job, output):
    eval_sets = dict(job["eval"]["sets"]) if "sets" in job["eval"] else job["eval"]
    auto = transformers.AutoModelForCausalLM if job[
        "task"] == "causal_lm" else transformers.AutoModelForSeq2SeqLM
    trainer = transformers.Seq2SeqTrainer(
        auto.from_pretrained(job["folder"]),
        transformers.Seq2SeqTrainingArguments(**job["args"] | {"output_dir": output}),
        train_dataset=job["train"], eval_dataset=eval_sets,
        data_collator=transformers.default_data_collator, compute_metrics=summary)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    if "sets" in job["eval"]:  # Python forgets the options of the call for named sets
        metrics = {}
        for name, rows in eval_sets.items():
            metrics |= trainer.evaluate(rows, metric_key_prefix="check_" + name, **job["evaluate"])
    else:
        metrics = trainer.evaluate(metric_key_prefix="check", **job["evaluate"])
    found = trainer.predict(job["test"], **job["predict"])
    trainer.save_model()
    return {
        "log_history": trainer.state.log_history, "evaluate": metrics, "metrics": found.metrics,
        "predictions": {
            "shape": list(first(found.predictions).shape),
            "values": first(found.predictions).astype("float64").flatten().tolist()
        }, "labels": {
            "shape": list(found.label_ids.shape),
            "values": found.label_ids.astype("float64").flatten().tolist()
        }
    }


def compare(what, ours, theirs):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), (what, sorted(ours), sorted(theirs))
        for key in theirs:
            if not key.endswith(("_runtime", "_per_second", "total_flos", "_preparation_time")):
                compare(f"{what}.{key}", ours[key], theirs[key])
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), (what, len(ours), len(theirs))
        for i, pair in enumerate(zip(ours, theirs)):
            compare(f"{what}[{i}]", *pair)
    else:
        size = 1 if ".values[" in what else 1e-3  # a logit is a sum of terms of size 1
        assert abs(ours - theirs) <= 1e-5 * max(abs(theirs), size), (what, ours, theirs)


def main():
    with tempfile.TemporaryDirectory() as folder:
        jobs = make_jobs(len(RUNS), make_job, folder, seed=8)
        answers = ask(
            TOOL,
            [job | {"args": job["args"] | {"output_dir": job["folder"] + "/ours"}} for job in jobs],
            folder)
        for (label, *_), job, ours in zip(RUNS, jobs, answers, strict=True):
            theirs = python_answer(job, job["folder"] + "/theirs")
            compare(label, ours, theirs)
            saved = [
                json.loads(pathlib.Path(job["folder"], side, "generation_config.json").read_text())
                for side in ("ours", "theirs")
            ]
            for each in saved:
                each.pop("transformers_version", None)
            assert saved[0] == saved[1], (label, *saved)
            written = json.loads(pathlib.Path(job["folder"], "ours/training_args.json").read_text())
            assert written["predict_with_generate"] == job["args"][
                "predict_with_generate"] and written["max_steps"] == 20, label
            values, shape = ours["predictions"]["values"], ours["predictions"]["shape"]
            print(f"{label}: equal; predictions of shape {shape} with {len(set(values))} different "
                  f"values")
    return 0


if __name__ == "__main__":
    sys.exit(main())
