"""make_fixtures.py: metrics.json, the scores of scikit-learn, scipy and seqeval 1.2.2 for random
and for awkward inputs.

Needs scikit-learn, scipy and seqeval on the path. NaN and Infinity stand in the file as Python
writes them.
"""

import json
import pathlib
import random
import warnings

import numpy
from scipy import stats
from seqeval.metrics import accuracy_score as tag_accuracy
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities
from sklearn import metrics

warnings.filterwarnings("ignore")
rng = random.Random(5)
AVERAGES = ("micro", "macro", "weighted")


def prf(references, predictions, average):
    return [
        float(x) for x in metrics.precision_recall_fscore_support(
            references, predictions, average=average, zero_division=0)[:3]
    ]


def class_case(references, predictions, binary):
    case = {
        "references": references, "predictions": predictions,
        "accuracy": metrics.accuracy_score(references, predictions),
        "matthews": float(metrics.matthews_corrcoef(references, predictions))
    }
    for average in AVERAGES + (("binary",) if binary else ()):
        case[average] = prf(references, predictions, average)
    return case


def classes(rows, count):
    return [rng.randrange(count) for _ in range(rows)]


def value_case(references, predictions):
    pearson, spearman = (
        float(f(references, predictions)[0]) for f in (stats.pearsonr, stats.spearmanr))
    return {
        "references": references, "predictions": predictions,
        "mse": float(metrics.mean_squared_error(references, predictions))
               if not any(map(numpy.isnan, references + predictions)) else float("nan"),
        "pearson": pearson, "spearman": spearman
    }


def multilabel_case(references, predictions):
    return {"references": references, "predictions": predictions} | {
        average: prf(numpy.array(references), numpy.array(predictions), average)
        for average in AVERAGES
    }


def matrix(rows, columns, share):
    return [[int(rng.random() < share) for _ in range(columns)] for _ in range(rows)]


def tag_case(references, predictions):
    report = classification_report(references, predictions, output_dict=True, zero_division=0)
    overall = report.pop("micro avg")
    report.pop("macro avg"), report.pop("weighted avg")
    numbers = lambda scores: [
        float(scores["precision"]),
        float(scores["recall"]),
        float(scores["f1-score"]),
        int(scores["support"])
    ]
    return {
        "references": references, "predictions": predictions, "overall": numbers(overall)[:3],
        "accuracy": tag_accuracy(references, predictions),
        "types": {name: numbers(scores) for name, scores in report.items()}, "entities":
            [[[name, int(a), int(b)] for name, a, b in get_entities(row)] for row in references]
    }


def tags(rows, names):
    return [[rng.choice(names) for _ in range(n)] for n in rows]


def main():
    cases = {
        "classes": [
            class_case(classes(30, 2), classes(30, 2), True),
            class_case(classes(50, 5), classes(50, 5), False),
            class_case([0] * 6, [0] * 6, True),
            class_case([1] * 6, [1] * 6, True),
            class_case([0, 0, 1, 1], [0] * 4, True),
            class_case([1, 1, 1], [0, 0, 0], True),
            class_case([2, 0, 7, 7], [2, 7, 7, 3], False),
            class_case([3], [3], False)
        ], "values": [
            value_case([rng.gauss(0, 1) for _ in range(40)], [rng.gauss(0, 1) for _ in range(40)]),
            value_case([float(v) for v in classes(40, 4)], [float(v) for v in classes(40, 3)]),
            value_case([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]),
            value_case([1.0, 2.0, 3.0], [5.0, 5.0, 5.0]),
            value_case([1.0, 2.0, float("nan")], [1.0, 2.0, 3.0]),
            value_case([1.0, 1.0, 2.0, 2.0, 3.0], [3.0, 1.0, 2.0, 2.0, 9.0])
        ], "multilabel": [
            multilabel_case(matrix(20, 4, 0.4), matrix(20, 4, 0.4)),
            multilabel_case(matrix(6, 3, 0.0), matrix(6, 3, 0.5)),
            multilabel_case(matrix(6, 3, 0.5), matrix(6, 3, 0.0))
        ]
    }
    kinds = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    cases["tags"] = [
        tag_case(tags([7, 1, 9, 4, 12], kinds), tags([7, 1, 9, 4, 12], kinds)),
        tag_case(tags([20, 20], kinds + ["E-PER", "S-LOC", "B", "I", "B-A-B", "I-A-B"]),
                 tags([20, 20], kinds + ["E-LOC", "S-PER", "B-A-B"])),
        tag_case([["I-PER", "I-LOC", "O", "I-LOC"]], [["B-PER", "B-LOC", "O", "I-LOC"]]),
        tag_case([["O", "O"]], [["B-X", "O"]]),
        tag_case([["B-X", "I-X"]], [["O", "O"]]),
        tag_case([["PER", "PER", "O", "NOUN"], ["B-PER"]], [["PER", "O", "O", "NOUN"], ["I-PER"]])
    ]
    pathlib.Path(__file__).with_name("metrics.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
