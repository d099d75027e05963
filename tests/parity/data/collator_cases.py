"""The cases of data_cases.py for collators, and what those of transformers and trl answer."""

import numpy as np
import torch


def tensor_json(value):
    if not isinstance(value, torch.Tensor):
        value = torch.tensor(value)
    data = value.tolist()
    flat = np.array(data).reshape(-1).tolist() if value.numel() else []
    return {
        "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "data": flat
    }


def batch_json(batch):
    return {name: tensor_json(value) for name, value in batch.items() if value is not None}


SPECIAL = {
    "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
    "mask_token": "[MASK]"
}
VOCABULARY = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"] + [f"word{i}" for i in range(45)]


def make_tokenizer(case):
    """Pad token 3, mask token 4, 50 ids; the C++ side has the same in
    tests/unit/data/case_runner.cpp.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner,
                                        padding_side=case["tokenizer"]["padding_side"], **SPECIAL)
    tokenizer._pad_token_type_id = case["tokenizer"]["pad_token_type_id"]
    return tokenizer


def row_value(value):
    return torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"])) if isinstance(
        value, dict) else value


def make_collator(case):
    import transformers
    from trl.trainer import dpo_trainer, kto_trainer, reward_trainer, sft_trainer

    name, options = case["collator"], dict(case["options"])
    if "padding" in options:
        options["padding"] = {"longest": True, "max_length": "max_length",
                              "do_not_pad": False}[options["padding"]]
    if name == "default":
        return transformers.default_data_collator
    trl = {
        "Sft": sft_trainer.DataCollatorForLanguageModeling,
        "Preference": dpo_trainer.DataCollatorForPreference,
        "Reward": reward_trainer.DataCollatorForPreference,
        "UnpairedPreference": kto_trainer.DataCollatorForUnpairedPreference,
    }
    if name in trl:
        return trl[name](**options)
    if name == "WithFlattening":
        return transformers.DataCollatorWithFlattening(**options)
    seed = options.get("seed")
    if name == "ForPermutationLanguageModeling":
        options.pop("seed")
        torch.manual_seed(seed)
    kind = getattr(transformers, "DataCollator" + name)
    return kind(make_tokenizer(case), **options)


def expected_collate(case):
    rows = [{name: row_value(value) for name, value in row.items()} for row in case["rows"]]
    try:
        batch = make_collator(case)(rows)
    except (ValueError, TypeError, KeyError, RuntimeError):
        return {"error": True}
    return {"batch": batch_json(batch)}


def token_rows(rng, count=None, even=False, equal=False):
    lengths = [rng.randrange(1, 9) for _ in range(count or rng.randrange(1, 6))]
    if equal or even:
        lengths = [8] * len(lengths)
    return [[
        rng.choice([1, 2]) if rng.random() < 0.1 else rng.randrange(5, 50) for _ in range(length)
    ] for length in lengths]


def padded_options(rng):
    options = {}
    if rng.random() < 0.3:
        options["pad_to_multiple_of"] = rng.choice([4, 8])
    if rng.random() < 0.3:
        options |= {"padding": "max_length", "max_length": rng.choice([6, 10, 12])}
    elif rng.random() < 0.15:
        options["padding"] = "do_not_pad"
    return options


def with_extras(rng, ids):
    rows = []
    masks, types, specials, labels = (rng.random() < p for p in (0.4, 0.4, 0.3, 0.5))
    for row in ids:
        entry = {"input_ids": row}
        if masks:
            entry["attention_mask"] = [1] * len(row)
        if types:
            entry["token_type_ids"] = [0] * len(row)
        if specials:
            entry["special_tokens_mask"] = [int(i < 5) for i in row]
        if labels:
            entry["label"] = rng.randrange(4)
        rows.append(entry)
    return rows


def collate_case(rng, collator=None):
    names = [
        "default", "WithPadding", "ForTokenClassification", "ForMultipleChoice", "ForSeq2Seq",
        "ForLanguageModeling", "ForPermutationLanguageModeling", "WithFlattening", "Sft",
        "Preference", "Reward", "UnpairedPreference"
    ]
    name = collator or rng.choice(names)
    case = {
        "kind": "collate",
        "collator": name,
        "tokenizer": {
            "padding_side": rng.choice(["right", "left"]), "pad_token_type_id": rng.choice([0, 1])
        },
        "options": {},
    }
    case["rows"] = COLLATOR_ROWS[name](rng, case)
    return case


def default_rows(rng, case):
    count = rng.randrange(1, 5)
    label = rng.choice(
        [lambda: rng.randrange(5), lambda: rng.random(), lambda: rng.random() < 0.5, lambda: None])
    width = rng.randrange(1, 5)
    rows = []
    for i in range(count):
        row = {"label": label()} if rng.random() < 2 else {}
        row |= {
            "input_ids": [rng.randrange(50) for _ in range(width)],
            "weights": [rng.random() for _ in range(2)],
            "flag": rng.random() < 0.5,
            "number": rng.choice([1, 2.5]) if i else 1,
            "name": "text",
            "nothing": None,
            "square": [[1, 2], [3, 4]],
            "t": {"tensor": [rng.randrange(9), 2], "dtype": "int32"},
        }
        rows.append(row)
    if rng.random() < 0.3:
        for row in rows:
            row["label_ids"] = [1, 2, 3] if rng.random() < 2 else None
            del row["label"]
    return rows


def with_padding_rows(rng, case):
    case["options"] = padded_options(rng)
    rows = with_extras(rng, token_rows(rng, equal=rng.random() < 0.3))
    if rng.random() < 0.3:
        for row in rows:
            row["input_ids"] = {"tensor": row["input_ids"], "dtype": "int64"}
            for name in ("attention_mask", "token_type_ids", "special_tokens_mask"):
                if name in row:
                    row[name] = {"tensor": row[name], "dtype": "int64"}
    return rows


def token_classification_rows(rng, case):
    case["options"] = padded_options(rng) | ({"label_pad_token_id": -1}
                                             if rng.random() < 0.3 else {})
    name = rng.choice(["label", "labels", "none"])
    rows = [{"input_ids": ids, name: [i % 5 for i in ids]} for ids in token_rows(rng)]
    if name == "none":
        for row in rows:
            del row["none"]
    return rows


def multiple_choice_rows(rng, case):
    case["options"] = {"pad_to_multiple_of": 8} if rng.random() < 0.3 else {}
    choices = rng.randrange(1, 4)
    rows = []
    for _ in range(rng.randrange(1, 4)):
        ids = token_rows(rng, choices)
        rows.append({
            "input_ids": ids, "token_type_ids": [[0] * len(i) for i in ids],
            "label": rng.randrange(choices)
        })
    return rows


def seq2seq_rows(rng, case):
    case["options"] = padded_options(rng)
    rows = with_extras(rng, token_rows(rng, equal=rng.random() < 0.3))
    kind = rng.choice(["lists", "lists", "none", "null"])
    for row in rows:
        row.pop("label", None)
        if kind == "lists":
            row["labels"] = token_rows(rng, 1)[0]
        elif kind == "null":
            row["labels"] = None
    return rows


def language_modeling_rows(rng, case):
    case["options"] = {"mlm": rng.random() < 0.7, "seed": rng.randrange(1, 1000)}
    if rng.random() < 0.3:
        case["options"]["pad_to_multiple_of"] = 8
    if case["options"]["mlm"] and rng.random() < 0.5:
        case["options"] |= rng.choice([
            {"mlm_probability": 0.5},
            {"mask_replace_prob": 1.0, "random_replace_prob": 0.0},
            {"mask_replace_prob": 0.0, "random_replace_prob": 1.0},
            {"mask_replace_prob": 0.5, "random_replace_prob": 0.4},
        ])
    whole = case["options"]["mlm"] and rng.random() < 0.3
    rows = with_extras(rng, token_rows(rng, equal=whole))
    for row in rows:
        row.pop("label", None)
        if whole:
            end, offsets = 0, []
            for _ in row["input_ids"]:
                start = end + (rng.random() < 0.5)
                end = start + rng.randrange(1, 4)
                offsets.append([start, end])
            row["offset_mapping"] = offsets
    if whole:
        case["options"] |= {"whole_word_mask": True, "mlm_probability": 0.4}
    return rows


def permutation_rows(rng, case):
    case["options"] = {"seed": rng.randrange(1000)}
    if rng.random() < 0.3:
        case["options"] |= {"max_span_length": 3, "plm_probability": 0.4}
    return [{"input_ids": ids} for ids in token_rows(rng, even=rng.random() < 0.85)]


def flattening_rows(rng, case):
    case["options"] = {
        "return_position_ids": rng.random() < 0.8,
        "separator_id": rng.choice([-100, 7]),
        "return_flash_attn_kwargs": rng.random() < 0.5,
        "return_seq_idx": rng.random() < 0.5,
        "position_ids_start": rng.choice([0, 2]),
    }
    rows = [{"input_ids": ids} for ids in token_rows(rng)]
    if rng.random() < 0.5:
        for row in rows:
            row["labels"] = [i + 1 for i in row["input_ids"]]
    return rows


def sft_rows(rng, case):
    case["options"] = {"pad_token_id": 3, "padding_free": rng.random() < 0.6}
    if rng.random() < 0.3:
        case["options"]["pad_to_multiple_of"] = 4
    if not case["options"]["padding_free"]:
        case["options"]["return_position_ids"] = rng.random() < 0.5
    rows = [{"input_ids": ids} for ids in token_rows(rng)]
    packed = rng.random() < 0.5
    labels = rng.random() < 0.5
    for row in rows:
        length = len(row["input_ids"])
        if labels:
            row["labels"] = [-100 if rng.random() < 0.3 else i for i in row["input_ids"]]
        if packed:
            cut = rng.randrange(length)
            row["seq_lengths"] = [cut, length - cut] if cut else [length]
    return rows


def preference_rows(rng, case):
    case["options"] = {"pad_token_id": 3}
    if rng.random() < 0.5:
        case["options"] |= {
            "max_length": rng.choice([4, 8]),
            "truncation_mode": rng.choice(["keep_start", "keep_end"])
        }
    if rng.random() < 0.3:
        case["options"]["pad_to_multiple_of"] = 4
    logps = rng.random() < 0.5
    rows = []
    for _ in range(rng.randrange(1, 4)):
        prompt, chosen, rejected = token_rows(rng, 3)
        row = {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
        rows.append(row |
                    ({"ref_chosen_logps": -1.5, "ref_rejected_logps": -2.25} if logps else {}))
    return rows


def reward_rows(rng, case):
    case["options"] = {"pad_token_id": 3
                      } | ({"pad_to_multiple_of": 4} if rng.random() < 0.3 else {})
    margin = rng.random() < 0.5
    rows = []
    for _ in range(rng.randrange(1, 4)):
        chosen, rejected = token_rows(rng, 2)
        rows.append({"chosen_ids": chosen, "rejected_ids": rejected} |
                    ({"margin": rng.choice([1, 0.5])} if margin else {}))
    return rows


def unpaired_rows(rng, case):
    case["options"] = {"pad_token_id": 3} | ({"max_length": 6} if rng.random() < 0.5 else {})
    more = rng.random() < 0.5
    rows = []
    for _ in range(rng.randrange(1, 4)):
        prompt, answer, other = token_rows(rng, 3)
        row = {"prompt_ids": prompt, "completion_ids": answer, "label": rng.random() < 0.5}
        rows.append(row | (
            {"KL_completion_ids": other, "ref_logps": -0.5, "ref_KL_logps": -0.75} if more else {}))
    return rows


COLLATOR_ROWS = {
    "default": default_rows,
    "WithPadding": with_padding_rows,
    "ForTokenClassification": token_classification_rows,
    "ForMultipleChoice": multiple_choice_rows,
    "ForSeq2Seq": seq2seq_rows,
    "ForLanguageModeling": language_modeling_rows,
    "ForPermutationLanguageModeling": permutation_rows,
    "WithFlattening": flattening_rows,
    "Sft": sft_rows,
    "Preference": preference_rows,
    "Reward": reward_rows,
    "UnpairedPreference": unpaired_rows,
}
