"""The Python side of question answering for text_tasks_test.py: run_qa with trainer_qa and
utils_qa, and what the runs of all text tasks share.
"""

import collections
import json
import math
import pathlib
import re
import string
import time

import datasets
import numpy
import transformers
from adapter_runs import with_adapter
from transformers.trainer_utils import speed_metrics


def arguments(flags, kind):
    names = set(kind.__dataclass_fields__)
    return kind(**{key: value for key, value in flags.items() if key in names} | {"do_train": True})


def first_rows(rows, most):
    return rows if most is None else rows[:most]


def finish(trainer, train, evaluation, evaluate):
    metrics = trainer.train().metrics
    trainer.save_model()
    metrics["train_samples"] = len(train)
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    metrics = evaluate()
    metrics["eval_samples"] = len(evaluation)
    trainer.save_metrics("eval", metrics)


def normalized(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(right, found, negatives):
    a, b = normalized(right).split(), normalized(found).split()
    if negatives and not (a and b):
        return float(a == b)
    same = sum((collections.Counter(a) & collections.Counter(b)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(b), same / len(a)
    return 2 * precision * recall / (precision + recall)


def answer_scores(examples, answers, negatives):
    rows = []
    for example in examples:
        texts = example["answers"]["text"]
        right = [text for text in texts if normalized(text)] if negatives else texts
        found = answers[example["id"]]
        rows.append((max(float(normalized(text) == normalized(found)) for text in right or [""]),
                     max(f1(text, found, negatives) for text in right or [""]), bool(texts), found))
    mean = lambda some, place: 100.0 * sum(row[place] for row in some) / len(some)
    if not negatives:
        return {"exact_match": mean(rows, 0), "f1": mean(rows, 1)}
    scores = {}
    for prefix, some in (("", rows), ("HasAns_", [row for row in rows if row[2]]),
                         ("NoAns_", [row for row in rows if not row[2]])):
        if some:
            scores |= {
                f"{prefix}exact": mean(some, 0), f"{prefix}f1": mean(some, 1),
                f"{prefix}total": len(some)
            }
    for name, place in (("exact", 0), ("f1", 1)):
        current = best = sum(not row[2] for row in rows)
        for row in rows:
            current += row[place] if row[2] else -1 if row[3] else 0
            best = max(best, current)
        scores |= {f"best_{name}": 100.0 * best / len(rows), f"best_{name}_thresh": 0.0}
    return scores


def find_answers(examples, features, predictions, flags, prefix):
    """utils_qa's post-processing, with the files it writes."""
    negatives, most = flags.get("version_2_with_negative"), flags.get("n_best_size", 20)
    chosen, nbest, odds = {}, {}, {}
    for example in examples:
        found, null = [], None
        for number, feature in enumerate(features):
            if feature["example_id"] != example["id"]:
                continue
            starts, ends = predictions[0][number], predictions[1][number]
            if null is None or null["score"] > starts[0] + ends[0]:
                null = {
                    "offsets": (0, 0), "score": starts[0] + ends[0], "start_logit": starts[0],
                    "end_logit": ends[0]
                }
            places = feature["offset_mapping"]
            top = lambda logits: numpy.argsort(logits)[-1:-most - 1:-1].tolist()
            for start in top(starts):
                for end in top(ends):
                    if max(start, end) >= len(places) or not places[start] or not places[end]:
                        continue
                    if not 0 <= end - start < flags.get("max_answer_length", 30):
                        continue
                    found.append({
                        "offsets": (places[start][0], places[end][1]),
                        "score": starts[start] + ends[end], "start_logit": starts[start],
                        "end_logit": ends[end]
                    })
        if negatives:
            found.append(null)
        best = sorted(found, key=lambda one: one["score"], reverse=True)[:most]
        if negatives and not any(one["offsets"] == (0, 0) for one in best):
            best.append(null)
        for one in best:
            begin, end = one.pop("offsets")
            one["text"] = example["context"][begin:end]
        if not best or (len(best) == 1 and best[0]["text"] == ""):
            best.insert(0, {"text": "empty", "start_logit": 0.0, "end_logit": 0.0, "score": 0.0})
        scores = numpy.array([one["score"] for one in best])
        null_score = null["score"] if null else None
        scores = numpy.exp(scores - scores.max())
        for one, share in zip(best, scores / scores.sum()):
            one.pop("score", None)
            one["probability"] = share
        if not negatives:
            chosen[example["id"]] = best[0]["text"]
        else:
            first = next(one for one in best if one["text"])
            odds[example["id"]] = float(null_score - first["start_logit"] - first["end_logit"])
            chosen[example["id"]] = "" if odds[example["id"]] > flags.get(
                "null_score_diff_threshold", 0.0) else first["text"]
        nbest[example["id"]] = [{
            key: value if isinstance(value, str) else float(value) for key, value in one.items()
        } for one in best]
    folder = pathlib.Path(flags["output_dir"])
    for name, content in (("predictions", chosen), ("nbest_predictions", nbest), ("null_odds",
                                                                                  odds)):
        if content:
            (folder / f"{prefix}_{name}.json").write_text(json.dumps(content, indent=4) + "\n")
    return chosen


class Answers:
    """What trainer_qa and trainer_seq2seq_qa add to a trainer: scores of answers."""
    def __init__(self, *args, examples, score, **more):
        super().__init__(*args, **more)
        self.examples, self.score = examples, score

    def scored(self, loader, what, prefix, examples, dataset, stage):
        begin = time.time()
        output = self.evaluation_loop(loader, what, metric_key_prefix=prefix)
        steps = math.ceil(output.num_samples / self.args.eval_batch_size)
        output.metrics.update(speed_metrics(prefix, begin, output.num_samples, steps))
        scores = self.score(examples, dataset, output.predictions, stage)
        return {f"{prefix}_{key}": value for key, value in scores.items()} | output.metrics

    def evaluate(self, *_, **__):
        metrics = self.scored(self.get_eval_dataloader(), "Evaluation", "eval", self.examples,
                              self.eval_dataset, "eval")
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control,
                                                         metrics)
        return metrics


class AnswerTrainer(Answers, transformers.Trainer):
    """trainer_qa's QuestionAnsweringTrainer."""


class WrittenAnswerTrainer(Answers, transformers.Seq2SeqTrainer):
    """trainer_seq2seq_qa's QuestionAnsweringSeq2SeqTrainer."""
    def evaluate(self, *args, **generation):
        generation = {
            key: generation.get(key) or default
            for key, default in (("max_length", self.args.generation_max_length),
                                 ("num_beams", self.args.generation_num_beams))
        }
        self._gen_kwargs = {key: value for key, value in generation.items() if value is not None}
        return super().evaluate(*args)


def run_stages(kind, model, args, tokenizer, collator, prepare, score, **generation):
    """Trains, evaluates with these options of generation and predicts without any."""
    rows = lambda made: datasets.Dataset.from_list(made)
    train = prepare("train_file", "max_train_samples")[1]
    examples, evaluation = prepare("validation_file", "max_eval_samples")
    questions, test = prepare("test_file", "max_predict_samples")
    trainer = kind(model, args, train_dataset=rows(train), eval_dataset=rows(evaluation),
                   processing_class=tokenizer, examples=examples, score=score,
                   data_collator=collator)
    trainer.remove_callback(transformers.PrinterCallback)
    finish(trainer, train, evaluation, lambda: trainer.evaluate(**generation))
    trainer._gen_kwargs, test = {}, rows(test)
    metrics = trainer.scored(trainer.get_test_dataloader(test), "Prediction", "test", questions,
                             test, "predict")
    metrics["predict_samples"] = len(test)
    trainer.save_metrics("predict", metrics)


def start(flags, kind, auto):
    """Arguments, tokenizer and model of a run."""
    args = arguments(flags, kind)
    transformers.set_seed(args.seed)
    folder = flags["model_name_or_path"]
    model = with_adapter(auto.from_pretrained(folder), flags)
    return args, transformers.AutoTokenizer.from_pretrained(folder), model


def question_answering(_, flags):
    args, tokenizer, model = start(flags, transformers.TrainingArguments,
                                   transformers.AutoModelForQuestionAnswering)
    padding = flags.get("pad_to_max_length", True)

    def prepare(name, limit):
        examples = first_rows(json.load(open(flags[name]))["data"], flags.get(limit))
        made = []
        for example in examples:
            encoded = tokenizer(example["question"].lstrip(), example["context"],
                                truncation="only_second",
                                max_length=min(flags["max_seq_length"], tokenizer.model_max_length),
                                stride=flags.get("doc_stride", 128), return_overflowing_tokens=True,
                                return_offsets_mapping=True,
                                padding="max_length" if padding else False)
            for i in range(len(encoded["input_ids"])):
                row = {
                    key: encoded[key][i]
                    for key in ("input_ids", "token_type_ids", "attention_mask")
                    if key in encoded
                }
                offsets, parts = encoded["offset_mapping"][i], encoded.sequence_ids(i)
                if name == "train_file":
                    row["start_positions"], row["end_positions"] = label(
                        example["answers"], row["input_ids"], offsets, parts)
                else:
                    row["example_id"] = example["id"]
                    row["offset_mapping"] = [
                        list(offset) if part == 1 else None for offset, part in zip(offsets, parts)
                    ]
                made.append(row)
        return examples, first_rows(made, flags.get(limit))

    def label(answers, ids, offsets, parts):
        none = ids.index(tokenizer.cls_token_id)
        if not answers["answer_start"]:
            return none, none
        begin = answers["answer_start"][0]
        end = begin + len(answers["text"][0])
        inside = [i for i, part in enumerate(parts) if part == 1]
        first, last = inside[0], inside[-1]
        if not (offsets[first][0] <= begin and offsets[last][1] >= end):
            return none, none
        while first < len(offsets) and offsets[first][0] <= begin:
            first += 1
        while offsets[last][1] >= end:
            last -= 1
        return first - 1, last + 1

    def score(examples, features, predictions, stage):
        found = find_answers(examples, features, predictions, flags, stage)
        return answer_scores(examples, found, flags.get("version_2_with_negative"))

    collator = transformers.default_data_collator if padding else (
        transformers.DataCollatorWithPadding(tokenizer))
    run_stages(AnswerTrainer, model, args, tokenizer, collator, prepare, score)


def seq2seq_question_answering(_, flags):
    args, tokenizer, model = start(flags, transformers.Seq2SeqTrainingArguments,
                                   transformers.AutoModelForSeq2SeqLM)
    padding = "max_length" if flags.get("pad_to_max_length", True) else False
    ignore = flags.get("ignore_pad_token_for_loss", True)

    def prepare(name, limit):
        examples = first_rows(json.load(open(flags[name]))["data"], flags.get(limit))
        made = []
        for example in examples:
            texts = example["answers"]["text"]
            encoded = tokenizer(
                f"question: {example['question'].lstrip()} context: {example['context'].lstrip()}",
                max_length=min(flags["max_seq_length"],
                               tokenizer.model_max_length), padding=padding, truncation=True,
                **({} if name == "train_file" else {"return_overflowing_tokens": True}))
            labels = tokenizer(text_target=texts[0] if texts else "", padding=padding,
                               max_length=flags.get("max_answer_length",
                                                    30), truncation=True)["input_ids"]
            if padding and ignore:
                labels = [-100 if label == tokenizer.pad_token_id else label for label in labels]
            if name == "train_file":
                made.append({key: encoded[key] for key in ("input_ids", "attention_mask")} |
                            {"labels": labels})
                continue
            for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"]):
                made.append({
                    "input_ids": ids, "attention_mask": mask, "labels": labels,
                    "example_id": example["id"]
                })
        return examples, first_rows(made, flags.get(limit))

    def score(examples, features, predictions, _):
        if not args.predict_with_generate:
            return {}
        ids = predictions[0] if isinstance(predictions, tuple) else predictions
        texts = tokenizer.batch_decode(numpy.where(ids != -100, ids, tokenizer.pad_token_id),
                                       skip_special_tokens=True)
        found = {feature["example_id"]: text for feature, text in zip(features, texts)}
        return answer_scores(examples, found, flags.get("version_2_with_negative"))

    collator = transformers.DataCollatorForSeq2Seq(
        tokenizer, model=model, label_pad_token_id=-100 if ignore else tokenizer.pad_token_id)
    length = args.generation_max_length or flags.get("val_max_answer_length",
                                                     flags.get("max_answer_length", 30))
    run_stages(WrittenAnswerTrainer, model, args, tokenizer, collator, prepare, score,
               max_length=length, num_beams=flags.get("num_beams"))
