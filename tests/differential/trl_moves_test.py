"""Runs that move from trl (with peft) to gradus and back in the middle.

trl trains 18 steps. gradus goes on from trl's checkpoint after 6 of them, and trl from the one that
gradus writes after 12. Every logged value is compared with that of the run that never moved (1e-5
relative), but for trl's num_tokens, which begins anew with a resume. Dropout is on, so the random
numbers move, too. Two cases by default, GRADUS_FULL_MATRIX=1 for all. Without the peer: exit code
77.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from preference_test import GPT2, LLAMA, LORA, make_job, trained_by_trl
from trl_runs import BIN, FULL, chosen, log_failures, transformers

ARGS = dict(max_steps=18, logging_steps=1, save_strategy="steps", save_steps=6, eval_steps=6)
DROPPED = dict(LORA, lora_dropout=0.1)
# label, case as in preference_test.py
CASES = [
    ("sft, LoRA, packed", ("sft", LLAMA, "messages", dict(packing=True), dict(lora=DROPPED))),
    ("dpo, LoRA", ("dpo", LLAMA, "pair", {}, dict(lora=DROPPED))),
]
MORE = [
    ("sft, DoRA, embeddings, biases",
     ("sft", dict(LLAMA, attention_bias=True), "pair", {},
      dict(lora=dict(r=4, target_modules=["embed_tokens", "q_proj"], use_dora=True, bias="all")))),
    ("sft, all weights", ("sft", GPT2, "text", {}, {})),
    ("reward, LoRA, head saved",
     ("reward", LLAMA, "pair", {}, dict(lora=dict(**DROPPED, modules_to_save=["score"])))),
    ("dpo, an adapter goes on", ("dpo", LLAMA, "chat_pair", {}, dict(adapter=True))),
    ("kto, LoRA", ("kto", LLAMA, "labelled", {}, dict(lora=DROPPED))),
]


def later(answer, step):
    """What was logged after a step, without the sums at the end, which are of the whole run."""
    return [{name: value for name, value in entry.items()
             if not name.endswith("num_tokens")}
            for entry in answer["log_history"]
            if entry["step"] > step and "train_loss" not in entry]


def trained_by_gradus(job, place):
    (place / "jobs.json").write_text(json.dumps([job]))
    subprocess.run([BIN / "preference_tool", place / "jobs.json", place / "answers.json"],
                   check=True)
    return json.loads((place / "answers.json").read_text())[0]


def moved(job, place):
    """The answers of the run that never moved, of gradus from step 6 on, of trl from 12 on."""
    at = lambda name: job | {"args": job["args"] | {"output_dir": str(place / name)}}
    whole = trained_by_trl(at("whole"))
    there = trained_by_gradus(at("there") | {"resume": str(place / "whole/checkpoint-6")}, place)
    back = trained_by_trl(at("back") | {"resume": str(place / "there/checkpoint-12")})
    return whole, there, back


def main():
    transformers.utils.logging.set_verbosity_error()
    failures, rng = [], random.Random(6)
    for number, (label, case) in enumerate(chosen(CASES + (MORE if FULL else []))):
        with tempfile.TemporaryDirectory() as name:
            place = pathlib.Path(name)
            job = make_job(number, (*case[:3], ARGS | case[3], case[4]), place, rng)
            whole, there, back = moved(job, place)
        found = []
        for what, answer, step in (("there", there, 6), ("back", back, 12)):
            found += log_failures(f"{label}, {what}", later(answer, step), later(whole, step),
                                  (1e-5, 1e-5), 18, None)
        print(f"{label}: {'failed' if found else 'equal'}", flush=True)
        failures += found
    print("\n".join(failures[:60]))
    print(f"{len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
