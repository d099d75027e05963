"""make_text_fixtures.py EVALUATE: text_metrics.json, the scores of rouge_score 0.1.2, sacrebleu
2.6.0 and evaluate's squad and squad_v2 for random and for awkward texts, and NLTK 3.10.4's stems
and sentences.

EVALUATE is a checkout of github.com/huggingface/evaluate, whose metrics/ are no package.
"""

import importlib.util
import json
import pathlib
import random
import sys

import numpy
import sacrebleu
from nltk.stem.porter import PorterStemmer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
from rouge_score import rouge_scorer, scoring

HERE = pathlib.Path(__file__).parent
rng = random.Random(17)

WORDS = """the The a A an An THE cat dogs running runs ran quickly nationalization relational sky
skies dying news flies died agreed hopping falling hissing filing conflated troubled sized happy
enjoy say conditional valency digitizer radically differently analogously vietnamization operator
feudalism decisiveness hopefulness formality sensitivity sensibility apology geologically café
naïve Ωmega STRASSE Straße ΣΊΣΥΦΟΣ İstanbul K 数学 математика
١٢٣ 12 3.5 1,000 -7 e.g. i.e. U.S. Mr. Dr. J. 10. etc. No. well-known mid-Atlantic co-op. O'Neil
don't it's "quoted" (see) [ref] a.m. p.m. A. x² ½ h_a the_a éa aé nö""".split()
JOINS = [" "] * 12 + ["  ", "\n", "\t", "\u00a0", "\u2003", "\x1c", "\u200b"]
ENDS = [
    ".", ".", ".", "?", "!", "...", ". . .", "?!", '."', ".)", " .", ",", ";", "--", "-", ".\u201d",
    ".'", ".]  ", "&amp;", "&quot;", "-\n", "<skipped>", "/", ".5", "5-", ",\u00e9", ". --", ".\n\n"
]


def text(most=24):
    if rng.random() < 0.04:
        return rng.choice(["", " ", "\n", ".", "...", "?!", "\u00a0", "é", "a", "The"])
    out = ""
    for _ in range(rng.randrange(1, most)):
        out += rng.choice(WORDS)
        if rng.random() < 0.3:
            out += rng.choice(ENDS)
        out += rng.choice(JOINS)
    return out


def near(original):
    """A text that has much in common with the original one."""
    words = original.split(" ")
    for _ in range(rng.randrange(0, 6)):
        at = rng.randrange(len(words))
        words[at] = rng.choice(WORDS + [""])
    return " ".join(words)


def triple(score):
    return [float(score.precision), float(score.recall), float(score.fmeasure)]


TYPES = ["rouge1", "rouge2", "rougeL", "rougeLsum"]


def rouge_cases():
    rows = []
    for _ in range(150):
        reference = text()
        prediction = near(reference) if rng.random() < 0.8 else text()
        row = {"reference": reference, "prediction": prediction}
        for stem in (False, True):
            scores = rouge_scorer.RougeScorer(TYPES, use_stemmer=stem).score(reference, prediction)
            row["stems" if stem else "words"] = {key: triple(scores[key]) for key in TYPES}
        rows.append(row)
    return rows


def rouge_of_all(rows, seed):
    """evaluate's rouge, twice in a row with numpy's global generator."""
    numpy.random.seed(seed)
    scorer, results = rouge_scorer.RougeScorer(TYPES, use_stemmer=True), []
    for _ in range(2):
        aggregator = scoring.BootstrapAggregator()
        for row in rows:
            aggregator.add_scores(scorer.score(row["reference"], row["prediction"]))
        results.append(
            {key: float(value.mid.fmeasure) for key, value in aggregator.aggregate().items()})
    return {"rows": len(rows), "seed": seed, "results": results}


def bleu_case(rows, references):
    predictions = [near(text()) for _ in range(rows)]
    known = [[near(prediction) if rng.random() < 0.8 else text()
              for _ in range(references)]
             for prediction in predictions]
    score = sacrebleu.corpus_bleu(predictions, [list(column) for column in zip(*known)])
    return {
        "references": known, "predictions": predictions, "score": score.score,
        "precisions": list(score.precisions), "bp": score.bp, "counts": list(score.counts),
        "totals": list(score.totals), "sys_len": score.sys_len, "ref_len": score.ref_len
    }


def module(evaluate, name):
    spec = importlib.util.spec_from_file_location(name,
                                                  evaluate / "metrics" / name / "compute_score.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def answer_rows(rows, negatives):
    cases = []
    for index in range(rows):
        answers = [text(5) for _ in range(rng.randrange(1, 4))]
        if negatives and rng.random() < 0.4:
            answers = []
        prediction = rng.choice([rng.choice(answers) if answers else "", text(5), ""])
        if answers and rng.random() < 0.5:
            prediction = near(answers[0])
        cases.append({
            "id": str(index), "answers": answers, "prediction": prediction,
            "probability": rng.choice([0.0, 0.25, 0.5, 1.0, 1.5])
        })
    return cases


def squad_case(squad, rows):
    cases = answer_rows(rows, negatives=False)
    dataset = [{
        "paragraphs": [{
            "qas": [{"id": case["id"], "answers": [{"text": each}
                                                   for each in case["answers"]]}
                    for case in cases]
        }]
    }]
    scores = squad.compute_score(dataset, {case["id"]: case["prediction"] for case in cases})
    return {"rows": cases, "scores": scores}


def squad_v2_case(squad, rows, with_probabilities):
    cases = answer_rows(rows, negatives=True)
    if not with_probabilities:
        for case in cases:
            case["probability"] = 0.0
    dataset = [{
        "paragraphs": [{
            "qas": [{"id": case["id"], "answers": {"text": case["answers"]}} for case in cases]
        }]
    }]
    predictions = {case["id"]: case["prediction"] for case in cases}
    missing = {case["id"]: case["probability"] for case in cases}
    has = squad.make_qid_to_has_ans(dataset)
    exact_raw, f1_raw = squad.get_raw_scores(dataset, predictions)
    exact = squad.apply_no_ans_threshold(exact_raw, missing, has, 1.0)
    f1 = squad.apply_no_ans_threshold(f1_raw, missing, has, 1.0)
    scores = squad.make_eval_dict(exact, f1)
    for name, wanted in (("HasAns", True), ("NoAns", False)):
        ids = [key for key, value in has.items() if value == wanted]
        if ids:
            squad.merge_eval(scores, squad.make_eval_dict(exact, f1, qid_list=ids), name)
    squad.find_all_best_thresh(scores, predictions, exact_raw, f1_raw, missing, has)
    return {"rows": cases, "scores": dict(scores)}


def stems():
    roots = """run hop fall fil siz conflat troubl happ enjo relat condit ration valenc
    hesitanc digit conform radic differ vile analog vietnam predic oper feud
    decis hope call form sens triplic formal electr good reviv allow infer air
    gyroscop adjust defens irrit replac depend adopt commun activ angular
    homolog effect bowdler prob rat ceas control roll generou y yy ay sky fl di
    agre ski geo archaeo al all eed fee bl at iz ll ss tt zz nal log""".split()
    ends = """ s es ies ed ied eed ing y ational tional enci anci izer bli abli alli entli eli ousli
    ization ation ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize
    iciti ical ful ness al ance ence er ic able ible ant ement ment ent sion tion ou ism ate iti ous
    ive ize e ll""".split() + [""]
    words = sorted({root + end for root in roots for end in rng.sample(ends, 18)} |
                   {rng.choice(roots) + rng.choice(ends) + rng.choice(ends) for _ in range(400)} |
                   set("sky skies dying lying tying news innings inning outings outing cannings "
                       "canning howe proceed exceed succeed".split()))
    stemmer = PorterStemmer()
    return {word: stemmer.stem(word) for word in words if word}


def sentence_cases():
    known = PunktParameters()
    known.abbrev_types = {"mr", "dr", "e.g", "i.e", "etc", "op", "u.s", "a.m"}
    known.collocations = {("j", "cat"), ("no", "##number##"), ("10", "the")}
    known.sent_starters = {"the", "it's", "well-known"}
    for word, flags in (("the", 2 | 32), ("cat", 32), ("a", 16 | 4), ("an", 64), ("say", 16),
                        ("running", 8 | 64), ("sky", 6)):
        known.ortho_context[word] = flags
    informed, blank = PunktSentenceTokenizer(), PunktSentenceTokenizer()
    informed._params = known
    cases = []
    for _ in range(400):
        one = text(30)
        cases.append([one, blank.tokenize(one), informed.tokenize(one)])
    files = {
        "abbrev_types.txt": "\n".join(sorted(known.abbrev_types)),
        "collocations.tab": "\n".join("\t".join(pair) for pair in sorted(known.collocations)),
        "sent_starters.txt": "\n".join(sorted(known.sent_starters)),
        "ortho_context.tab": "\n".join(f"{a}\t{b}" for a, b in sorted(known.ortho_context.items()))
    }
    return {"files": files, "cases": cases}


def main():
    evaluate = pathlib.Path(sys.argv[1])
    squad, squad_v2 = module(evaluate, "squad"), module(evaluate, "squad_v2")
    rouge = rouge_cases()
    answers = [text(6) for _ in range(200)]
    document = {
        "rouge": rouge, "rouge_of_all": [
            rouge_of_all(rouge[:rows], seed)
            for rows, seed in ((1, 42), (2, 0), (7, 42), (128, 3), (150, 42))
        ], "bleu": [bleu_case(*shape) for shape in ((1, 1), (2, 1), (30, 1), (10, 3), (3, 2))],
        "normalized": [[each, squad.normalize_answer(each)] for each in answers],
        "squad": [squad_case(squad, rows) for rows in (1, 7, 60)], "squad_v2": [
            squad_v2_case(squad_v2, rows, with_probabilities)
            for rows in (1, 7, 60)
            for with_probabilities in (False, True)
        ], "stems": stems(), "sentences": sentence_cases(),
        "rounded": [[value, round(value, 4)]
                    for value in [0.00005, 12.34565, 2.675, 99.99995, 0.0, 33.33333333333333] +
                    [rng.random() * 100 for _ in range(50)]]
    }
    (HERE / "text_metrics.json"
    ).write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
