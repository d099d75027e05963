"""The SFTTrainer beside trl's: the same folder, rows and arguments, 20 steps with AdamW.

Each form of data, packing strategy and loss. Compared: every gradient of the first step, every
logged loss, gradient norm, rate, entropy, token accuracy and number of tokens of training and
evaluation (1e-5 relative, 1e-4 after the first ten steps), and the number of trainable parameters.
Without the peer: exit code 77.
"""
import random
import sys

from trl_runs import LLAMA, chosen, compare, sentence
from preference_test import make_job, trained_by_trl

GPT2 = dict(model_type="gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0)
# label, model, form of the rows, arguments, fields of LoraConfig
CASES = [
    ("text", LLAMA, "text", {}, None),
    ("text, GPT-2, one batch a step", GPT2, "text", dict(gradient_accumulation_steps=1), None),
    ("text in another column, no checkpointing", LLAMA, "story",
     dict(dataset_text_field="story", gradient_checkpointing=False), None),
    ("text, short, end kept", LLAMA, "text", dict(max_length=9, truncation_mode="keep_end"), None),
    ("prompt and completion", LLAMA, "pair", {}, None),
    ("prompt and completion, short", LLAMA, "pair", dict(max_length=8), None),
    ("prompt and completion, loss of both", LLAMA, "pair", dict(completion_only_loss=False), None),
    ("messages", LLAMA, "messages", {}, None),
    ("messages, assistant only", LLAMA, "messages", dict(assistant_only_loss=True), None),
    ("messages with tools", LLAMA, "tools", dict(max_length=100), None),
    ("text, another end token", LLAMA, "text", dict(eos_token="<|user|>"), None),
    ("conversations with from and value", LLAMA, "from_value", {}, None),
    ("prompt and completion as messages", LLAMA, "chat_pair", {}, None),
    ("the same, assistant only", LLAMA, "chat_pair", dict(assistant_only_loss=True), None),
    ("token ids", LLAMA, "ids", {}, None),
    ("token ids with labels", LLAMA, "labels", {}, None),
    ("packed, bfd", LLAMA, "text", dict(packing=True), None),
    ("packed, bfd_split, completions", LLAMA, "pair",
     dict(packing=True, packing_strategy="bfd_split", max_length=12), None),
    ("packed, wrapped", LLAMA, "text", dict(packing=True, packing_strategy="wrapped"), None),
    ("packed, evaluation not, GPT-2", GPT2, "text", dict(packing=True, eval_packing=False), None),
    ("no padding", LLAMA, "messages", dict(padding_free=True, max_length=None), None),
    ("dft", LLAMA, "pair", dict(loss_type="dft"), None),
    ("label smoothing", LLAMA, "text", dict(label_smoothing_factor=0.1), None),
    ("label smoothing, packed, wrapped", LLAMA, "labels",
     dict(label_smoothing_factor=0.1, packing=True, packing_strategy="wrapped"), None),
    ("shuffled, rounded up", LLAMA, "text", dict(shuffle_dataset=True, pad_to_multiple_of=8), None),
    ("shuffled, packed", LLAMA, "text", dict(shuffle_dataset=True, packing=True), None),
    ("LoRA", LLAMA, "messages", {}, dict(r=4, target_modules=["q_proj", "v_proj"])),
    ("LoRA, packed, dropout", LLAMA, "pair", dict(packing=True),
     dict(target_modules="all-linear", lora_dropout=0.1)),
]


def make_cases(place):
    rng = random.Random(2)
    return [(label, make_job(number, ("sft", model, form, changes, dict(lora=lora) if lora else {}),
                             place, rng))
            for number, (label, model, form, changes, lora) in enumerate(chosen(CASES))]


if __name__ == "__main__":
    sys.exit(compare("preference_tool", make_cases, trained_by_trl))
