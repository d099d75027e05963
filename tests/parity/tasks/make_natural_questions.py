"""make_natural_questions.py EXAMPLE OUT: numbers of the Flax example on natural questions.

EXAMPLE is a copy of transformers' examples/research_projects/jax-projects/big_bird (v4.46.3), whose
functions are called here; nothing of it is kept in this repository. OUT is natural_questions.json:
questions, the rows that the example makes of them, and what its evaluation says. Needs transformers
and jax (`make peer`).
"""
import json
import os
import pathlib
import random
import sys
import types

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax.numpy as jnp
import numpy as np
import transformers

EXAMPLE, OUT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
TOKENIZER = pathlib.Path(__file__).resolve().parents[1] / "text/fixtures/wordpiece"
MAX_LENGTH, STRIDE, SEED = 40, 24, 42
WORDS = ("the a training model learns to walk run quickly slowly unbelievable walking token "
         "tokens data rows it's state-of-the-art 3.5 1998 paris über naïve").split()


def load_example():
    """The two files; what they import only to run is replaced by empty modules."""
    for name, members in (("bigbird_flax", ["FlaxBigBirdForNaturalQuestions"]), ("jsonlines", [])):
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, None)
        sys.modules[name] = module
    if not hasattr(transformers, "BigBirdTokenizerFast"):
        transformers.BigBirdTokenizerFast = None
    sys.path.insert(0, str(EXAMPLE))
    import evaluate
    import prepare_natural_questions
    return prepare_natural_questions, evaluate


def spans(rng, count, length):
    """Short answers of one annotator."""
    starts = sorted(rng.sample(range(length - 4), count))
    return [(start, start + rng.randint(1, 3)) for start in starts]


def question(rng, number):
    length = rng.choice([8, 12, 16, 60])
    tokens = [rng.choice(WORDS) for _ in range(length)]
    is_html = [rng.random() < 0.15 for _ in range(length)]
    tokens = ["<P>" if html else token for token, html in zip(tokens, is_html)]
    annotations = {"yes_no_answer": [], "short_answers": [], "long_answer": []}
    for _ in range(rng.choice([1, 1, 3])):
        yes_no = rng.choices([-1, 0, 1], [12, 1, 1])[0]
        count = rng.choices([0, 1, 2], [3, 5, 1])[0]
        found = spans(rng, count, length)
        long = (-1, -1)
        if found or rng.random() < 0.6:
            begin = rng.randrange(length // 2)
            long = (begin, min(length, begin + rng.randint(3, 9)))
        text = lambda a, b: " ".join(t for t, h in zip(tokens[a:b], is_html[a:b]) if not h)
        annotations["yes_no_answer"].append(yes_no)
        annotations["short_answers"].append({
            "start_token": [a for a, _ in found], "end_token": [b for _, b in found],
            "start_byte": [0] * count, "end_byte": [0] * count, "text": [text(*s) for s in found]
        })
        annotations["long_answer"].append({
            "start_token": long[0], "end_token": long[1], "start_byte": 0, "end_byte": 0,
            "candidate_index": 0
        })
    return {
        "id": str(number), "question": {"text": " ".join(rng.choices(WORDS, k=rng.randint(2, 5)))},
        "document": {"tokens": {"token": tokens, "is_html": is_html}}, "annotations": annotations
    }


def answer_in_document(row):
    """Whether no answer is cut by HTML in a way that leaves it without words."""
    is_html = row["document"]["tokens"]["is_html"]
    for one in row["annotations"]["short_answers"]:
        for a, b in zip(one["start_token"], one["end_token"]):
            if all(is_html[a:b]) or is_html[b - 1] or is_html[a]:
                return False
    return all(one["start_token"] == -1 or not is_html[one["end_token"] - 1]
               for one in row["annotations"]["long_answer"])


class Writer:
    def __init__(self, rows):
        self.write = rows.append

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def matched(example, targets, answer):
    """The example's rule for two texts, by its own functions."""
    known = {"".join(a.split()) for a in example.expand_to_aliases(targets, make_sub_answers=True)}
    given = {"".join(a.split()) for a in example.expand_to_aliases([answer])}
    return bool(known & {text for text in given if text not in ["``", "''", "`", "'"]})


def main():
    prepare, evaluate = load_example()
    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    rng = random.Random(4)
    questions = []
    while len(questions) < 60:
        row = question(rng, len(questions))
        if answer_in_document(row):
            questions.append(row)
    prepared = [
        prepare.prepare_inputs(json.loads(json.dumps(row)), tokenizer, doc_stride=STRIDE,
                               max_length=MAX_LENGTH) for row in questions
    ]
    rows = []
    prepare.jsonlines.open = lambda *_: Writer(rows)
    prepare.tqdm = lambda data, **_: data
    np.random.seed(SEED)
    prepare.save_to_disk(prepared, "unused")
    formatted = []
    for row in questions:
        made = evaluate.format_dataset(json.loads(json.dumps(row)))
        targets = made["long"] + sorted(made["short"])
        if made["category"] in ["yes", "no", "null"]:
            targets = [made["category"]]
        formatted.append(
            {"context": made["context"], "category": made["category"], "targets": targets})
    scores = []
    numpy_rng = np.random.default_rng(3)
    for i in range(30):
        starts, ends = (
            numpy_rng.normal(size=20).round(1 if i % 2 else 6).astype(np.float32) for _ in range(2))
        most = [1, 3, 38][i % 3]
        start, end = evaluate.get_best_valid_start_end_idx(jnp.asarray(starts), jnp.asarray(ends),
                                                           top_k=8, max_size=most)
        scores.append({
            "starts": starts.tolist(), "ends": ends.tolist(), "most": most,
            "span": [int(start), int(end)]
        })
    pairs = [(["The Beatles"], "beatles"), (["The Beatles"], "the"), (["a b c"], "b c"),
             (["a b c"], "b"), (["U.S. Army"], "us army"), (["New-York_City"], "new york"),
             (["‘Über’ alles"], "über"), (["''"], "''"), (["'"], "'"), (["x"], " X. "),
             (["one", "two three"], "three"), (["one"], ""), (["."], ","), ([], "a"),
             (["a  b"], "a"), (["1,000 km"], "1000")]
    cases = [{"targets": targets, "answer": answer, "match": matched(evaluate, targets, answer)}
             for targets, answer in pairs]
    OUT.write_text(
        json.dumps(
            {
                "made_by":
                    "make_natural_questions.py, transformers' example of v4.46.3, tokenizer of "
                    f"transformers {transformers.__version__}", "max_length": MAX_LENGTH,
                "doc_stride": STRIDE, "seed": SEED, "questions": questions, "rows": rows,
                "formatted": formatted, "scores": scores, "matches": cases
            }, ensure_ascii=False, separators=(",", ":")) + "\n")
    kinds = [row["category"] for row in rows]
    print(f"{len(rows)} rows, of each category {[kinds.count(i) for i in range(5)]}; matches "
          f"{sum(case['match'] for case in cases)} of {len(cases)}")


if __name__ == "__main__":
    main()
