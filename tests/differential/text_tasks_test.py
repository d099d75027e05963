"""Summarization, translation and question answering (pointed at and written) of the program beside
transformers' Trainer classes: the same folder, files and flags, chosen at random.

The Python side follows run_summarization, run_translation, run_qa and run_seq2seq_qa with their
trainers and utils_qa. ROUGE and BLEU come from rouge_score and sacrebleu, the scores of answers
from the definition of SQuAD. Models are tiny, random and without dropout. Compared: every entry of
log_history (losses 1e-5 relative, scores of texts and answers exactly), the metrics and keys of the
result files, generated and predicted texts, and the files of answers (logits and probabilities
1e-5).

text_tasks_test.py [SETS [TASK...]]: so many sets of flags per task, 3 by default.
Without the peer: exit code 77.
"""

import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from scripts_test import (COMMON, GRADUS, LORA, SMALL, compare_dicts, is_speed, make_model,
                          run_gradus, sentence)

try:
    import datasets
    import nltk
    import numpy
    import sacrebleu
    import torch
    import transformers
    from adapter_runs import with_adapter
    from question_runs import (arguments, finish, first_rows, question_answering,
                               seq2seq_question_answering)
    from rouge_score import rouge_scorer, scoring
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
except ImportError as error:
    print("skipped: the Python peer is not there:", error)
    sys.exit(77)

STEPS = 30
EXACT = ("rouge1", "rouge2", "rougeL", "rougeLsum", "bleu", "gen_len", "exact_match", "f1", "exact",
         "total", "best_exact", "best_f1")

# ---- models and data -----------------------------------------------------------


def pieces_of(lines, special):
    # Not trained: training depends on the order of threads, and the runs on its result.
    words = sorted({"▁" + word for line in lines for word in line.split()})[:60]
    letters = sorted({letter for line in lines for letter in line} - {" "}) + ["▁"]
    return [(token, 0.0) for token in special[:-1]] + [(special[-1], -20.0)] + [
        (word, -4.0 - 0.01 * i) for i, word in enumerate(words)
    ] + [(letter, -8.0 - 0.01 * i) for i, letter in enumerate(letters)]


def save_random(config, folder):
    torch.manual_seed(2)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    with torch.no_grad():  # larger than its own, so that the generated texts are not all alike
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)


def make_bart(folder, lines, model_type):
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = transformers.MBartTokenizer(vocab=pieces_of(lines, special), src_lang="de_DE",
                                            model_max_length=64)
    start = 2 if model_type == "bart" else tokenizer.convert_tokens_to_ids("ro_RO")
    if model_type == "bart":
        tokenizer = wrapped_unigram(pieces_of(lines, special), 3, "<s> $A </s>",
                                    "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)],
                                    bos_token="<s>")
    tokenizer.save_pretrained(folder)
    save_random(
        transformers.AutoConfig.for_model(
            model_type, vocab_size=len(tokenizer), d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_ffn_dim=48, decoder_ffn_dim=48, encoder_attention_heads=4,
            decoder_attention_heads=4, max_position_embeddings=64, dropout=0.0,
            decoder_start_token_id=start), folder)


def wrapped_unigram(pieces, unknown, single, pair, special, **more):
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single, pair, special)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>",
                                                eos_token="</s>", unk_token="<unk>",
                                                model_max_length=64, **more)


def make_t5(folder, lines, model_type):
    wrapped = wrapped_unigram(pieces_of(lines, ["<pad>", "</s>", "<unk>"]), 2, "$A </s>",
                              "$A </s> $B </s>", [("</s>", 1)])
    wrapped.save_pretrained(folder)
    save_random(
        transformers.AutoConfig.for_model(model_type, vocab_size=len(wrapped), d_model=32, d_kv=8,
                                          d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4,
                                          dropout_rate=0.0, decoder_start_token_id=0,
                                          pad_token_id=0, eos_token_id=1,
                                          relative_attention_num_buckets=8), folder)


def story(rng):
    """A text of some sentences, with abbreviations."""
    return " ".join(
        sentence(rng).capitalize() + rng.choice([".", ".", "!", "?", " etc.", ' in no. 5."'])
        for _ in range(rng.randrange(1, 4)))


def summary_row(rng):
    text = story(rng)
    row = {"article": text, "highlights": " ".join(text.split()[:rng.randrange(2, 9)])}
    if rng.random() < 0.05:
        row[rng.choice(list(row))] = rng.choice(["", None])
    return row


def translation_row(rng):
    words = sentence(rng).split()
    return {"translation": {"en": " ".join(words), "ro": " ".join(reversed(words))}}


def question_row(rng, number, negatives):
    words = (sentence(rng) + " Éva " + sentence(rng) + " " + sentence(rng)).split()
    begin = rng.randrange(len(words))
    answer = " ".join(words[begin:begin + rng.randrange(1, 4)])
    context = " ".join(words)
    start = len(" ".join(words[:begin])) + (begin > 0)
    row = {
        "id": f"q{number}", "context": context,
        "question": rng.choice(["", "  "]) + "what is " + rng.choice(words) + "?",
        "answers": {"text": [answer], "answer_start": [start]}
    }
    if negatives and rng.random() < 0.4:
        row["answers"] = {"text": [], "answer_start": []}
    elif rng.random() < 0.3:
        row["answers"]["text"].append("the " + answer.upper() + ".")
        row["answers"]["answer_start"].append(0)
    return row


def write_json(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_punkt(folder):
    """NLTK's data for sentences, of our own making."""
    place = folder / "tokenizers" / "punkt_tab" / "english"
    place.mkdir(parents=True)
    for name, content in {
            "abbrev_types.txt": "etc\nno\ndr", "collocations.tab": "no\t##number##",
            "sent_starters.txt": "the\nanna", "ortho_context.tab": "the\t34\ncat\t36\nin\t96"
    }.items():
        (place / name).write_text(content)
    os.environ["NLTK_DATA"] = str(folder)
    nltk.data.path.insert(0, str(folder))


# ---- text to text ----------------------------------------------------------------


def text_to_text(task, flags):
    args = arguments(flags, transformers.Seq2SeqTrainingArguments)
    transformers.set_seed(args.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(flags["model_name_or_path"])
    model = with_adapter(
        transformers.AutoModelForSeq2SeqLM.from_pretrained(flags["model_name_or_path"]), flags)
    if isinstance(tokenizer, transformers.MBartTokenizer):
        tokenizer.src_lang = flags.get("lang") or flags["source_lang"]
        tokenizer.tgt_lang = flags.get("lang") or flags["target_lang"]
    padding = "max_length" if flags.get("pad_to_max_length") else False
    ignore = flags.get("ignore_pad_token_for_loss", True)
    target_length = flags.get("max_target_length", 128)
    eval_length = flags.get("val_max_target_length", target_length)
    beams = flags.get("num_beams", 1)

    def pair(row):
        if task == "translation":
            return row["translation"]["en"], row["translation"]["ro"]
        return row["article"], row["highlights"]

    def prepare(name, limit, length):
        made = []
        for line in first_rows(open(flags[name]).readlines(), flags.get(limit)):
            source, target = pair(json.loads(line))
            if task == "summarization" and not (source and target):
                continue
            row = dict(
                tokenizer(
                    flags.get("source_prefix", "") + source, padding=padding,
                    max_length=flags.get("max_source_length", 1024), truncation=True))
            labels = tokenizer(text_target=target, max_length=length, padding=padding,
                               truncation=True)["input_ids"]
            if padding and ignore:
                labels = [-100 if label == tokenizer.pad_token_id else label for label in labels]
            made.append(row | {"labels": labels})
        return datasets.Dataset.from_list(made)

    train = prepare("train_file", "max_train_samples", target_length)
    evaluation = prepare("validation_file", "max_eval_samples", eval_length)
    test = prepare("test_file", "max_predict_samples", eval_length)
    collator = transformers.DataCollatorForSeq2Seq(
        tokenizer, model=model, label_pad_token_id=-100 if ignore else tokenizer.pad_token_id)
    if task == "translation" and padding:
        collator = transformers.default_data_collator

    def decoded(ids, **more):
        ids = numpy.where(ids != -100, ids, tokenizer.pad_token_id)
        return [
            text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True, **more)
        ]

    def scores(prediction):
        ids = prediction.predictions
        ids = ids[0] if isinstance(ids, tuple) else ids
        found, right = decoded(ids), decoded(prediction.label_ids)
        ids = numpy.where(ids != -100, ids, tokenizer.pad_token_id)
        length = numpy.mean([numpy.count_nonzero(row != tokenizer.pad_token_id) for row in ids])
        if task == "translation":
            bleu = sacrebleu.corpus_bleu(found, [right]).score
            return {"bleu": round(bleu, 4), "gen_len": round(length, 4)}
        lines = lambda texts: ["\n".join(nltk.sent_tokenize(text)) for text in texts]
        scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"],
                                          use_stemmer=True)
        aggregator = scoring.BootstrapAggregator()
        for a, b in zip(lines(right), lines(found)):
            aggregator.add_scores(scorer.score(a, b))
        return {
            key: round(value.mid.fmeasure * 100, 4) for key, value in aggregator.aggregate().items()
        } | {"gen_len": length}

    final = {}
    if task == "summarization":
        args.generation_max_length = args.generation_max_length or eval_length
        args.generation_num_beams = beams
    else:
        final = {"max_length": args.generation_max_length or eval_length, "num_beams": beams}
    trainer = transformers.Seq2SeqTrainer(
        model, args, train_dataset=train, eval_dataset=evaluation, processing_class=tokenizer,
        data_collator=collator, compute_metrics=scores if args.predict_with_generate else None)
    trainer.remove_callback(transformers.PrinterCallback)
    finish(trainer, train, evaluation, lambda: trainer.evaluate(metric_key_prefix="eval", **final))
    output = trainer.predict(test, metric_key_prefix="predict", **final)
    output.metrics["predict_samples"] = len(test)
    trainer.save_metrics("predict", output.metrics)
    if args.predict_with_generate and trainer.is_world_process_zero():
        pathlib.Path(args.output_dir, "generated_predictions.txt").write_text("\n".join(
            decoded(output.predictions, clean_up_tokenization_spaces=True)))


# ---- comparing ----------------------------------------------------------------------


def is_score(key):
    return key.removeprefix("eval_").removeprefix("predict_").removeprefix("test_").removeprefix(
        "HasAns_").removeprefix("NoAns_") in EXACT


def compare_entries(what, ours, theirs, problems):
    compare_dicts(what, ours, theirs, problems)
    for key in filter(is_score, ours.keys() & theirs.keys()):
        if ours[key] != theirs[key]:
            problems.append(f"{what}: {key} is {ours[key]!r}, Python's {theirs[key]!r}")


def compare_candidates(what, ours, theirs, problems):
    """Two lists of n best answers are equal in texts and order, nearly in logits and probabilities.

    Answers whose scores are equal up to float32's rounding have no order that another processor
    keeps, and one of them may be cut off, so such a pair is compared by score and probability.
    """
    for a, b in zip(ours, theirs):
        if list(a) != list(b) or abs(a["probability"] - b["probability"]) > 1e-5:
            problems.append(f"{what}: {a}, Python's {b}")
        elif a["text"] != b["text"] or any(
                abs(a[part] - b[part]) > 1e-5 for part in ("start_logit", "end_logit")):
            scores = [one["start_logit"] + one["end_logit"] for one in (a, b)]
            if abs(scores[0] - scores[1]) > 2 * float(numpy.spacing(numpy.float32(scores[1]))):
                problems.append(f"{what}: {a}, Python's {b}")


def compare_answers(name, ours, theirs, problems):
    if list(ours) != list(theirs):
        problems.append(f"{name}: other questions")
        return
    for key in ours:
        mine, other = ours[key], theirs[key]
        if isinstance(mine, list):
            if len(mine) != len(other):
                problems.append(f"{name}: {key} has {len(mine)} answers, Python's {len(other)}")
            compare_candidates(f"{name} {key}", mine, other, problems)
        elif isinstance(mine, str) and mine != other:
            problems.append(f"{name}: {key} is {mine!r}, Python's {other!r}")
        elif isinstance(mine, float) and abs(mine - other) > 1e-5:
            problems.append(f"{name}: {key} is {mine!r}, Python's {other!r}")


def compare(ours, theirs):
    problems, read = [], lambda folder, name: json.loads((folder / name).read_text())
    histories = [read(folder, "trainer_state.json")["log_history"] for folder in (ours, theirs)]
    for mine, other in zip(*histories, strict=True):
        compare_entries(f"step {mine['step']}", mine, other, problems)
    losses = [[entry["loss"] for entry in history if "loss" in entry] for history in histories]
    if len(losses[0]) != STEPS:
        problems.append(f"{len(losses[0])} losses, expected {STEPS}")
    written = lambda folder: {
        path.name for path in folder.iterdir() if path.name.endswith(
            ("_results.json", "_predictions.json", "_null_odds.json", "_predictions.txt"))
    }
    if written(ours) != written(theirs):
        problems.append(f"files: {sorted(written(ours))}, Python's {sorted(written(theirs))}")
    for name in sorted(written(ours) & written(theirs)):
        if name.endswith("_results.json"):
            compare_entries(name, read(ours, name), read(theirs, name), problems)
        elif name.endswith(".json"):
            compare_answers(name, read(ours, name), read(theirs, name), problems)
        elif (ours / name).read_text() != (theirs / name).read_text():
            problems.append(f"{name} differs")
    return max(abs(a - b) / abs(b) for a, b in zip(*losses)), problems


# ---- cases ----------------------------------------------------------------------------


def maybe(rng, chance, **flags):
    return flags if rng.random() < chance else {}


def text_flags(rng):
    return {
        "max_source_length": rng.choice([10, 24, 60]),
        "max_target_length": rng.choice([6, 14, 30]),
        "predict_with_generate": rng.random() < 0.85,
        "num_beams": rng.choice([1, 1, 2, 4]),
    } | maybe(rng, 0.5, val_max_target_length=rng.choice([7, 12])) | maybe(
        rng, 0.3,
        pad_to_max_length=True) | maybe(rng, 0.3, ignore_pad_token_for_loss=False) | maybe(
            rng, 0.5, source_prefix="see the: ") | maybe(rng, 0.3, generation_max_length=rng.choice(
                [8, 16])) | maybe(rng, 0.3, generation_num_beams=3) | maybe(
                    rng, 0.3, label_smoothing_factor=0.1) | maybe(
                        rng, 0.3, max_train_samples=61, max_eval_samples=13) | maybe(
                            rng, 0.3, max_predict_samples=5) | maybe(rng, 0.3,
                                                                     gradient_accumulation_steps=1)


def question_flags(rng, negatives):
    return {
        "max_seq_length": rng.choice([24, 32, 64]), "doc_stride": rng.choice([4, 8]),
        "version_2_with_negative": negatives
    } | maybe(rng, 0.5, n_best_size=rng.choice([3, 7])) | maybe(
        rng, 0.5,
        max_answer_length=rng.choice([1, 4])) | maybe(rng, 0.5, pad_to_max_length=False) | maybe(
            rng, 0.4, null_score_diff_threshold=-0.05) | maybe(
                rng, 0 if negatives else 0.4, max_eval_samples=17, max_train_samples=40) | maybe(
                    rng, 0 if negatives else 0.3, max_predict_samples=6)


def answer_flags(rng, negatives):
    return {
        "max_seq_length": rng.choice([24, 40, 64]), "max_answer_length": rng.choice([4, 8]),
        "version_2_with_negative": negatives, "predict_with_generate": rng.random() < 0.85
    } | maybe(rng, 0.5, val_max_answer_length=6) | maybe(rng, 0.5, pad_to_max_length=False) | maybe(
        rng, 0.3, num_beams=2) | maybe(rng, 0.3, generation_num_beams=3) | maybe(
            rng, 0.3, generation_max_length=9) | maybe(rng, 0.3, ignore_pad_token_for_loss=False)


def cases(folder, sets, rng, adapters=False):
    """With `adapters` the first set of each task once more, with an adapter."""
    for task, script, flags, is_first in plain_cases(folder, sets, rng):
        yield task, script, flags
        if adapters and is_first:
            flags = flags | LORA
            if task == "question-answering":  # peft drops token_type_ids
                flags |= {
                    "model_name_or_path": str(folder / "distilbert"),
                    "lora_target_modules": ".*(q_lin|v_lin)"
                }
            yield task, script, flags


def plain_cases(folder, sets, rng):
    lines = [story(rng) for _ in range(300)]
    for kind in ("t5", "mt5"):
        make_t5(folder / kind, lines, kind)
    for kind in ("bart", "mbart"):
        make_bart(folder / kind, lines, kind)
    heads = transformers.AutoModelForQuestionAnswering
    pieces = [line + " éva what is?" for line in lines]
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for config in ({"model_type": "bert"} | SMALL, {"model_type": "roberta"} | SMALL | no_dropout |
                   {"max_position_embeddings": 70, "type_vocab_size": 2}, {
                       "model_type": "distilbert", "dim": 32, "hidden_dim": 48, "n_layers": 2,
                       "n_heads": 4, "max_position_embeddings": 64, "dropout": 0.0,
                       "qa_dropout": 0.0, "attention_dropout": 0.0
                   }, {
                       "model_type": "bart", "d_model": 32, "encoder_layers": 1,
                       "decoder_layers": 1, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
                       "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                       "max_position_embeddings": 64, "dropout": 0.0, "pad_token_id": 0,
                       "decoder_start_token_id": 2
                   }):
        name = config["model_type"] if config["model_type"] != "bart" else "bart qa"
        make_model(folder / name, heads, config, "bert", pieces)
    for task, row in (("summarization", summary_row), ("translation", translation_row)):
        files = {
            f"{part}_file":
                write_json(folder / f"{task}-{part}.json", [row(rng) for _ in range(count)])
            for part, count in (("train", 120), ("validation", 30), ("test", 9))
        }
        if task == "translation":
            files |= {"source_lang": "en_XX", "target_lang": "ro_RO"}
        kinds = {"summarization": ("t5", "mt5", "bart"), "translation": ("t5", "bart", "mbart")}
        for number in range(sets):
            flags = files | text_flags(rng) | {
                "model_name_or_path": str(folder / kinds[task][number % 3])
            }
            if task == "translation" and "pad_to_max_length" in flags:
                flags.pop("label_smoothing_factor", None)  # the script fails
            yield task, text_to_text, flags, number == 0
    for number in range(2 * sets):
        negatives, files = number % 2 == 1, {}
        for part, count in (("train", 60), ("validation", 24), ("test", 9)):
            path = folder / f"questions-{number}-{part}.json"
            rows = [question_row(rng, i, negatives) for i in range(count)]
            path.write_text(json.dumps({"data": rows}))
            files[f"{part}_file"] = str(path)
        if number < sets:
            yield "question-answering", question_answering, files | question_flags(
                rng, negatives) | {
                    # Not Adam: the heads' bias has no gradient but noise, which Adam makes large.
                    "model_name_or_path":
                        str(folder / ("bert", "distilbert", "bart qa")[number % 3]),
                    "optim": "sgd",
                    "learning_rate": 0.3
                }, number == 0
        else:
            yield "seq2seq-question-answering", seq2seq_question_answering, files | answer_flags(
                rng, negatives) | {
                    "model_name_or_path": str(folder / ("t5", "bart")[number % 2])
                }, number == sets


def be_quiet():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()


def main():
    if not GRADUS.exists():
        print(f"skipped: {GRADUS} is not built")
        return 77
    be_quiet()
    sets, only = int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:]
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_punkt(folder / "nltk_data")
        for number, (task, script, flags) in enumerate(
                cases(folder, sets, random.Random(23), adapters=True)):
            if only and task not in only:
                continue
            ours, theirs = folder / f"ours-{number}", folder / f"theirs-{number}"
            flags = COMMON | {"max_steps": STEPS, "eval_steps": 15, "do_predict": True} | flags
            run_gradus(task, flags | {"output_dir": str(ours)}, folder / "cache")
            script(task, flags | {"output_dir": str(theirs)})
            worst, problems = compare(ours, theirs)
            print(f"{task} {number}: worst relative difference of {STEPS} losses {worst:.3g}",
                  flush=True)
            if problems:
                wrong += 1
                print("  " + "\n  ".join(problems[:12]))
                print("  with", {key: value for key, value in flags.items() if key not in COMMON})
    print(f"{wrong} cases differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
