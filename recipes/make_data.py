#!/usr/bin/env python3
"""make_data.py RECIPE FOLDER: data, tokenizer and configuration of a toy recipe, of the standard
library alone.

Writes FOLDER/train.json, validation.json and test.json, and FOLDER/model with config.json and a
tokenizer: what `--config_name` and `--tokenizer_name` take for a model with fresh weights. The rows
depend on nothing but the recipe.
"""

import json
import random
import sys
from pathlib import Path

NOUNS = "cat dog bird horse fish girl boy king nurse pilot tree house boat car lamp door".split()
ADJECTIVES = "red blue old young small tall quiet happy broken heavy".split()
VERBS = "sees likes finds hears follows paints carries".split()
NAMES = "anna ben carla david eva frank gina hugo iris jonas".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
PLACES = "garden kitchen market forest harbour school".split()

SPANISH = dict(
    zip(NOUNS + ADJECTIVES + VERBS, "gato perro pájaro caballo pez chica chico rey enfermera "
        "piloto árbol casa barco coche lámpara puerta rojo azul viejo joven pequeño alto "
        "tranquilo feliz roto pesado ve quiere encuentra oye sigue pinta lleva".split()))


# ---- rows ----------------------------------------------------------------------------


def thing(rng):
    return rng.choice([[], [rng.choice(ADJECTIVES)]]) + [rng.choice(NOUNS)]


def translated(words):
    """A noun comes before its adjective."""
    words = [SPANISH[word] for word in words]
    return ["el"] + words[::-1]


def translation_row(rng):
    """Other words, some in another order: 'the red cat sees the dog', 'el gato rojo ve el
    perro'.
    """
    first, verb, second = thing(rng), rng.choice(VERBS), thing(rng)
    english = ["the", *first, verb, "the", *second]
    spanish = translated(first) + [SPANISH[verb]] + translated(second)
    return {"translation": {"en": " ".join(english), "es": " ".join(spanish)}}


def clause(rng):
    return f"the {' '.join(thing(rng))} {rng.choice(VERBS)} the {' '.join(thing(rng))}"


def summarization_row(rng):
    """The summary is what comes after 'news :', wherever that is."""
    clauses, place = [clause(rng) for _ in range(4)], rng.randrange(4)
    text = " . ".join("news : " + one if i == place else one for i, one in enumerate(clauses))
    return {"text": text + " .", "summary": clauses[place]}


def question_row(rng, number):
    """Who carries what, where and when, in one of several orders; the question asks for one of
    the four.
    """
    parts = {
        "who": rng.choice(NAMES), "what": " ".join(thing(rng)), "where": rng.choice(PLACES),
        "when": rng.choice(DAYS)
    }
    orders = ("{who} carries the {what} to the {where} on {when} .",
              "on {when} {who} carries the {what} to the {where} .",
              "to the {where} {who} carries the {what} on {when} .",
              "the {what} is what {who} carries to the {where} on {when} .")
    asked, order = rng.choice(sorted(parts)), rng.choice(orders)
    begin = len(order[:order.index("{" + asked + "}")].format(**parts))
    return {
        "id": str(number), "context": order.format(**parts),
        "question": f"{asked} is it ?" if asked != "who" else "who is that ?",
        "answers": {"text": [parts[asked]], "answer_start": [begin]}
    }


def sentiment_row(rng):
    """What is felt about a thing; 'not' turns it round."""
    good = rng.random() < 0.5
    words = "wonderful lovely great fine pleasant" if good else "awful boring terrible poor dull"
    negated = rng.random() < 0.4
    text = f"{rng.choice(NAMES)} says the {' '.join(thing(rng))} in the {rng.choice(PLACES)} is "
    return {
        "sentence": text + ("not " if negated else "") + rng.choice(words.split()),
        "label": "good" if good != negated else "bad"
    }


# ---- models ---------------------------------------------------------------------------


def tokenizer(words, special, single, pair):
    """Whole words, split at spaces."""
    vocabulary = {word: i for i, word in enumerate(special + sorted(words))}
    piece = lambda token, kind: {kind: {"id": token, "type_id": 0}}
    template = lambda text: [
        piece(token[1:], "Sequence") if token.startswith("$") else piece(token, "SpecialToken")
        for token in text.split()
    ]
    used = [token for token in special if token in (single + " " + pair).split()]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [{
            "id": vocabulary[token], "content": token, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True
        } for token in special], "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing", "single": template(single), "pair": template(pair),
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]}
                for token in used
            }
        }, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": special[2]}
    }


def t5(size):
    return {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": size,
        "d_model": 64, "d_kv": 16, "d_ff": 192, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 16, "relative_attention_max_distance": 64,
        "dropout_rate": 0.0, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0
    }


def bert(size, width, layers):
    return {
        "model_type": "bert", "vocab_size": size, "hidden_size": width,
        "intermediate_size": 3 * width, "num_hidden_layers": layers, "num_attention_heads": 4,
        "max_position_embeddings": 64, "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0, "pad_token_id": 0
    }


def write_model(folder, words, kind, **sizes):
    special = ["<pad>", "</s>", "<unk>"] if kind == "t5" else ["[PAD]", "[SEP]", "[UNK]", "[CLS]"]
    single, pair = ("$A </s>", "$A </s> $B </s>") if kind == "t5" else ("[CLS] $A [SEP]",
                                                                       "[CLS] $A [SEP] $B [SEP]")
    names = {"pad_token": special[0], "unk_token": special[2]}
    names |= {"eos_token": "</s>"} if kind == "t5" else {"sep_token": "[SEP]", "cls_token": "[CLS]"}
    config = (t5 if kind == "t5" else bert)(len(special) + len(words), **sizes)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("tokenizer.json", tokenizer(words, special, single, pair)),
                          ("tokenizer_config.json", {
                              "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64,
                              **names
                          }), ("config.json", config)):
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


# ---- recipes ------------------------------------------------------------------------


def words_of(value):
    if isinstance(value, str):
        return set(value.split())
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(words_of, values)) if values else set()


def main(recipe, folder):
    rng = random.Random(1)
    make = {
        "translation": lambda i: translation_row(rng),
        "summarization": lambda i: summarization_row(rng),
        "question-answering": lambda i: question_row(rng, i),
        "distillation": lambda i: sentiment_row(rng)
    }[recipe]
    counts = {"train": 6000, "validation": 200, "test": 200}
    splits = {name: [make(i) for i in range(count)] for name, count in counts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        text = json.dumps({"data": rows}) if recipe == "question-answering" else "".join(
            json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.json").write_text(text)
    words = words_of([rows for rows in splits.values()])
    if recipe == "question-answering":
        write_model(folder / "model", words, "bert", width=64, layers=3)
    elif recipe == "distillation":
        write_model(folder / "teacher", words, "bert", width=128, layers=4)
        write_model(folder / "student", words, "bert", width=48, layers=2)
    else:
        write_model(folder / "model", words, "t5")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.split(":")[0] + ": RECIPE is translation, summarization, "
                 "question-answering or distillation")
    main(sys.argv[1], Path(sys.argv[2]))
