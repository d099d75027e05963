"""make.py FOLDER [ROWS]: made natural questions for BigBird, of the standard library alone.

Writes FOLDER/train.jsonl and FOLDER/validation.jsonl with the columns of the natural_questions data
set, and FOLDER/model with config.json and a tokenizer. A document is a page of small talk with HTML
in it and one piece of news: who carries what, where and when. The question asks for one of the four
(a short answer), for the whole piece (a long answer), or whether a certain person is the carrier
(yes or no). Some questions have no answer.
"""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from make_data import DAYS, NAMES, PLACES, clause, thing, tokenizer  # noqa: E402

SPECIAL = ["[PAD]", "[CLS]", "[UNK]", "[SEP]", "[MASK]"]
CONFIG = {
    "model_type": "big_bird", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 192, "block_size": 16,
    "num_random_blocks": 2, "attention_type": "block_sparse", "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "pad_token_id": 0, "bos_token_id": 1, "sep_token_id": 3,
    "eos_token_id": 3
}
ORDERS = ("{who} carries the {what} to the {where} on {when}",
          "on {when} {who} carries the {what} to the {where}",
          "to the {where} {who} carries the {what} on {when}")
QUESTIONS = {
    "who": "who is that ?", "what": "what is it ?", "where": "where is it ?",
    "when": "when is it ?", "all": "what is the news ?", "nothing": "why is it ?"
}


def page(rng):
    """Tokens of a document, which of them are HTML, and where the parts of the news are."""
    tokens, is_html, places = [], [], {}

    def add(words, html=False):
        begin = len(tokens)
        tokens.extend(words)
        is_html.extend([html] * len(words))
        return begin, len(tokens)

    parts = {
        "who": [rng.choice(NAMES)], "what": thing(rng), "where": [rng.choice(PLACES)],
        "when": [rng.choice(DAYS)]
    }
    count = rng.randint(6, 18)
    here = rng.randrange(count)
    add(["<P>"], html=True)
    for i in range(count):
        if i == here:
            begin, _ = add(["news", ":"])
            for word in rng.choice(ORDERS).split():
                key = word.strip("{}")
                if key == word:
                    add([word])
                else:
                    places[key] = add(parts[key])
            places["all"] = (begin, len(tokens))
        else:
            add(clause(rng).split())
        add(["."])
        if rng.random() < 0.3:
            add(["</P>", "<P>"], html=True)
    return tokens, is_html, places, parts


def row(rng, number):
    tokens, is_html, places, parts = page(rng)
    kind = rng.choices(["short", "long", "yes", "no", "none"], [70, 10, 8, 8, 4])[0]
    asked = rng.choice(["who", "what", "where", "when"])
    short = {"start_token": [], "end_token": [], "start_byte": [], "end_byte": [], "text": []}
    long = {
        "start_token": -1, "end_token": -1, "start_byte": -1, "end_byte": -1, "candidate_index": -1
    }
    question, answer = QUESTIONS[asked], -1
    if kind in ("short", "long"):
        long["start_token"], long["end_token"] = places["all"]
    if kind == "short":
        begin, end = places[asked]
        short.update(start_token=[begin], end_token=[end], text=[" ".join(tokens[begin:end])])
    elif kind == "long":
        question = QUESTIONS["all"]
    elif kind == "none":
        question = QUESTIONS["nothing"]
    else:
        others = [name for name in NAMES if name != parts["who"][0]]
        question = f"is it {parts['who'][0] if kind == 'yes' else rng.choice(others)} ?"
        answer = 1 if kind == "yes" else 0
    return {
        "id": str(number), "question": {"text": question},
        "document": {"title": f"page {number}", "tokens": {"token": tokens, "is_html": is_html}},
        "annotations": {
            "id": ["0"], "yes_no_answer": [answer], "short_answers": [short], "long_answer": [long]
        }
    }


def main():
    root, rng = pathlib.Path(sys.argv[1]), random.Random(0)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 12000
    (root / "model").mkdir(parents=True, exist_ok=True)
    words = set(QUESTIONS["all"].split())
    for split, rows in (("train", count), ("validation", max(count // 15, 8))):
        with open(root / f"{split}.jsonl", "w") as file:
            for i in range(rows):
                made = row(rng, i)
                words.update(made["question"]["text"].split())
                words.update(made["document"]["tokens"]["token"])
                file.write(json.dumps(made) + "\n")
    words = {word for word in words if not word.startswith("<")}
    made = tokenizer(words, SPECIAL, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")
    (root / "model/tokenizer.json").write_text(json.dumps(made))
    (root / "model/tokenizer_config.json").write_text(
        json.dumps({
            "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]",
            "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]"
        }))
    config = dict(CONFIG, vocab_size=len(made["model"]["vocab"]))
    (root / "model/config.json").write_text(json.dumps(config, indent=2))


if __name__ == "__main__":
    main()
