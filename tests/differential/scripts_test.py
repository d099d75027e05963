"""The tasks of the program beside HF's example scripts: the same folder, files and flags for
`gradus train` and for transformers' Trainer.

The Python side follows the rules of the scripts (run_clm, run_mlm, run_glue / run_classification,
run_ner). Models are tiny, random and without dropout. Compared: every entry of log_history (losses
1e-5 relative, learning rates 1e-9), the metrics and keys of the result files, the files of
predictions, the label names in config.json, and the saved folder's outputs in transformers. The
masks of masked language modelling are fixed by the data file (columns input_ids and labels).
Without the peer: exit code 77.
"""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRADUS = pathlib.Path(os.environ.get("GRADUS_BUILD", ROOT / "build/release")) / "bin/gradus"
try:
    import datasets
    import numpy
    import torch
    import transformers
    from tokenizers import (
        Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    )
    from adapter_runs import compare_merged, with_adapter
except ImportError as error:
    print("skipped: the Python peer is not there:", error)
    sys.exit(77)

STEPS = 50
COMMON = {
    "max_steps": STEPS, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 8,
    "learning_rate": 5e-4, "warmup_steps": 8, "max_grad_norm": 0.5, "weight_decay": 0.01,
    "gradient_accumulation_steps": 2, "logging_steps": 1, "eval_strategy": "steps",
    "eval_steps": 20, "save_strategy": "no", "seed": 3, "use_cpu": True, "report_to": "none",
    "disable_tqdm": True
}
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64
}
LORA = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0}
WORDS = ("the a cat dog bird fish old new red blue runs sees eats sleeps in on under near house "
         "tree river and but or not very slowly today Berlin Paris Anna Tom").split()

# ---- data, tokenizers, models ------------------------------------------------


def sentence(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(3, 14)))


def train_tokenizer(folder, kind, lines):
    if kind == "bert":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(
            lowercase=True), pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer.train_from_iterator(
            lines, trainers.WordPieceTrainer(vocab_size=70, special_tokens=special))
        tokenizer.post_processor = processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
        transformers.BertTokenizer(tokenizer_object=tokenizer, vocab=tokenizer.get_vocab(),
                                   model_max_length=64).save_pretrained(folder)
        return
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(
        add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(
        lines,
        trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"],
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>",
                                         bos_token="<|endoftext|>", pad_token="<|endoftext|>",
                                         model_max_length=64).save_pretrained(folder)
    if kind == "gpt2":  # the class that knows add_prefix_space
        file = folder / "tokenizer_config.json"
        file.write_text(
            json.dumps(json.loads(file.read_text()) | {"tokenizer_class": "GPT2Tokenizer"}))


def make_model(folder, auto, config, kind, lines):
    """A folder with random weights and a tokenizer that was trained on `lines`."""
    torch.manual_seed(1)
    train_tokenizer(folder, kind, lines)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = dict(config, vocab_size=len(tokenizer) + 3, pad_token_id=tokenizer.pad_token_id)
    config |= {
        "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    }.get(config["model_type"], {})
    if config["model_type"] == "gpt2":
        config |= {
            "n_embd": config.pop("hidden_size"), "n_layer": config.pop("num_hidden_layers"),
            "n_head": config.pop("num_attention_heads"),
            "n_positions": config.pop("max_position_embeddings")
        }
    auto.from_config(transformers.AutoConfig.for_model(**config)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines))
    return path


def write_rows(path, rows):
    return write_lines(path, [json.dumps(row) for row in rows])


# ---- both sides --------------------------------------------------------------


def gradus_command(task, flags):
    words = []
    for key, value in flags.items():
        words += [f"--{key}", str(value).lower() if isinstance(value, bool) else str(value)]
    return [str(GRADUS), "train", "--task", task, *words]


def run_gradus(task, flags, cache):
    words = gradus_command(task, flags)
    done = subprocess.run(words, capture_output=True, text=True,
                          env=dict(os.environ, XDG_CACHE_HOME=str(cache)))
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-3000:]}")


class Script:
    """What all scripts share: model, tokenizer, Trainer, and the order train, evaluate, predict."""
    def __init__(self, flags, auto, tokenizer=None, **config):
        self.flags = flags
        names = {field for field in transformers.TrainingArguments.__dataclass_fields__}
        self.args = transformers.TrainingArguments(
            **{key: value for key, value in flags.items() if key in names} | {"do_train": True})
        transformers.set_seed(self.args.seed)
        folder = flags["model_name_or_path"]
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **tokenizer or {})
        self.config = transformers.AutoConfig.from_pretrained(folder, **config)
        self.model = auto.from_pretrained(folder, config=self.config)
        self.model = with_adapter(self.model, flags)

    def run(self, train, evaluation, test=None, perplexity=False, report_predict=False, **more):
        trainer = transformers.Trainer(self.model, self.args, train_dataset=train,
                                       eval_dataset=evaluation, processing_class=self.tokenizer,
                                       **more)
        trainer.remove_callback(transformers.PrinterCallback)
        metrics = trainer.train().metrics
        trainer.save_model()
        metrics["train_samples"] = len(train)
        trainer.save_metrics("train", metrics)
        trainer.save_state()
        metrics = trainer.evaluate()
        metrics["eval_samples"] = len(evaluation)
        if perplexity:
            metrics["perplexity"] = math.exp(metrics["eval_loss"])
        trainer.save_metrics("eval", metrics)
        if test is None:
            return None
        output = trainer.predict(test, metric_key_prefix="predict")
        if report_predict:
            output.metrics["predict_samples"] = len(test)
            trainer.save_metrics("predict", output.metrics)
        return output


def map_batches(rows, workers):
    """Batches of 1000 rows, none across the borders of the workers' shards."""
    for worker in range(workers):
        each, more = divmod(len(rows), workers)
        begin = worker * each + min(worker, more)
        shard = rows[begin:begin + each + (worker < more)]
        yield from (shard[first:first + 1000] for first in range(0, len(shard), 1000))


def grouped(tokenizer, texts, block, workers):
    blocks = []
    for batch in map_batches(texts, workers):
        encoded = [tokenizer(text) for text in batch]
        joined = {key: sum((row[key] for row in encoded), []) for key in encoded[0]}
        for begin in range(0, len(joined["input_ids"]) // block * block, block):
            row = {key: value[begin:begin + block] for key, value in joined.items()}
            blocks.append(row | {"labels": list(row["input_ids"])})
    return blocks


def run_clm(flags):
    script = Script(flags, transformers.AutoModelForCausalLM)
    load = lambda path: pathlib.Path(path).read_text().splitlines(keepends=True) if path.endswith(
        "txt") else [json.loads(line)["text"] for line in open(path)]
    train = load(flags["train_file"])
    if "validation_file" in flags:
        evaluation = load(flags["validation_file"])
    else:
        border = round(len(train) * flags.get("validation_split_percentage", 5) / 100)
        train, evaluation = train[border:], train[:border]
    train, evaluation = (grouped(script.tokenizer, texts, flags["block_size"],
                                 flags.get("preprocessing_num_workers", 1))
                         for texts in (train, evaluation))

    def accuracy(prediction):
        predictions, labels = prediction.predictions[:, :-1].reshape(
            -1), prediction.label_ids[:, 1:].reshape(-1)
        return {"accuracy": float((predictions == labels).mean())}

    script.run(
        train[:flags.get("max_train_samples")], evaluation[:flags.get("max_eval_samples")],
        perplexity=True, data_collator=transformers.default_data_collator, compute_metrics=accuracy,
        preprocess_logits_for_metrics=lambda logits, _:
        (logits[0] if isinstance(logits, tuple) else logits).argmax(-1))


def run_mlm(flags):
    script = Script(flags, transformers.AutoModelForMaskedLM)
    rows = [[json.loads(line)
             for line in open(flags[name])]
            for name in ("train_file", "validation_file")]

    def accuracy(prediction):
        kept = prediction.label_ids != -100
        return {
            "accuracy": float((prediction.predictions[kept] == prediction.label_ids[kept]).mean())
        }

    script.run(
        *rows, perplexity=True,
        data_collator=transformers.DataCollatorForTokenClassification(script.tokenizer),
        compute_metrics=accuracy, preprocess_logits_for_metrics=lambda logits, _:
        (logits[0] if isinstance(logits, tuple) else logits).argmax(-1))


def run_classification(flags):
    rows = [[json.loads(line)
             for line in open(flags[name])]
            for name in ("train_file", "validation_file", "test_file")]
    first = rows[0][0]["label"]
    problem = "regression" if isinstance(first,
                                         float) else "multi_label_classification" if isinstance(
                                             first, list) else "single_label_classification"
    flat = lambda label: label if isinstance(label, list) else [label]
    names = sorted({str(label) for split in rows for row in split for label in flat(row["label"])
                   }) if problem != "regression" else []
    script = Script(flags, transformers.AutoModelForSequenceClassification,
                    num_labels=max(len(names), 1), problem_type=problem)
    if names:
        script.model.config.label2id = {name: i for i, name in enumerate(names)}
        script.model.config.id2label = {i: name for i, name in enumerate(names)}
    padding = flags.get("pad_to_max_length", True)

    def prepare(row):
        texts = [row["sentence1"], row["sentence2"]] if "sentence1" in row else [row["sentence"]]
        encoded = dict(
            script.tokenizer(*texts, padding="max_length" if padding else False,
                             max_length=flags["max_seq_length"], truncation=True))
        if problem == "regression":
            return encoded | {"label": row["label"]}
        if problem == "multi_label_classification":
            return encoded | {"label": [float(name in row["label"]) for name in names]}
        return encoded | {"label": names.index(str(row["label"]))}

    def metrics(prediction):
        if problem == "regression":
            return {
                "mse": float(((prediction.predictions.squeeze() - prediction.label_ids)**2).mean())
            }
        if problem == "multi_label_classification":
            found, real = prediction.predictions > 0, prediction.label_ids > 0.5
            return {"f1": float(2 * (found & real).sum() / (found.sum() + real.sum()))}
        return {
            "accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())
        }

    train, evaluation, test = ([prepare(row) for row in split] for split in rows)
    for row in test:
        row.pop("label")
    output = script.run(
        train, evaluation, test, compute_metrics=metrics,
        data_collator=transformers.default_data_collator
        if padding else transformers.DataCollatorWithPadding(script.tokenizer))
    with open(pathlib.Path(flags["output_dir"], "predict_results.txt"), "w") as file:
        file.write("index\tprediction\n")
        for i, scores in enumerate(output.predictions):
            if problem == "regression":
                file.write(f"{i}\t{float(scores[0]):3.3f}\n")
            elif problem == "multi_label_classification":
                file.write(f"{i}\t{[names[k] for k in numpy.flatnonzero(scores > 0)]}\n")
            else:
                file.write(f"{i}\t{names[scores.argmax()]}\n")


def entities(tags):
    """(type, first, last) by the rules of CoNLL's evaluation, for IOB tags."""
    found, begin, kind = [], None, None
    for i, tag in enumerate(tags + ["O"]):
        if kind is not None and (tag[0] in "BO" or tag[2:] != kind):
            found.append((kind, begin, i - 1))
            kind = None
        if tag != "O" and kind is None:
            begin, kind = i, tag[2:]
    return found


def run_ner(flags):
    if "dataset_name" in flags:  # numbers with names, in the data set's order
        loaded = datasets.load_from_disk(flags["dataset_name"])
        names = loaded["train"].features["ner_tags"].feature.names
        rows = [[
            row | {"ner_tags": [names[number]
                                for number in row["ner_tags"]]}
            for row in loaded[name]
        ]
                for name in ("train", "validation", "test")]
    else:
        rows = [[json.loads(line)
                 for line in open(flags[name])]
                for name in ("train_file", "validation_file", "test_file")]
        names = sorted({tag for row in rows[0] for tag in row["ner_tags"]})
    prefix = {"add_prefix_space": True} if "gpt2" in flags["model_name_or_path"] else None
    script = Script(flags, transformers.AutoModelForTokenClassification, prefix,
                    num_labels=len(names))
    script.model.config.label2id = {name: i for i, name in enumerate(names)}
    script.model.config.id2label = dict(enumerate(names))
    inside = [
        names.index("I-" + name[2:]) if name.startswith("B-") and "I-" + name[2:] in names else i
        for i, name in enumerate(names)
    ]

    def prepare(row):
        encoded = script.tokenizer(row["tokens"], truncation=True, is_split_into_words=True)
        labels, before = [], None
        for word in encoded.word_ids():
            number = None if word is None else names.index(row["ner_tags"][word])
            labels.append(-100 if word is None else number if word !=
                          before else inside[number] if flags.get("label_all_tokens") else -100)
            before = word
        return dict(encoded) | {"labels": labels}

    def tags(predictions, labels):
        return ([[names[p]
                  for p, l in zip(row, right)
                  if l != -100]
                 for row, right in zip(predictions.argmax(2), labels)],
                [[names[l] for l in right if l != -100] for right in labels])

    def metrics(prediction):
        found, real = tags(prediction.predictions, prediction.label_ids)
        a, b = ({(i, *entity)
                 for i, row in enumerate(rows)
                 for entity in entities(row)}
                for rows in (found, real))
        precision, recall = (len(a & b) / len(x) if x else 0.0 for x in (a, b))
        pairs = [(x, y) for p, r in zip(found, real) for x, y in zip(p, r)]
        return {
            "precision": precision, "recall": recall,
            "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
            "accuracy": sum(x == y for x, y in pairs) / len(pairs)
        }

    train, evaluation, test = ([prepare(row) for row in split] for split in rows)
    output = script.run(
        train, evaluation, test, report_predict=True, compute_metrics=metrics,
        data_collator=transformers.DataCollatorForTokenClassification(script.tokenizer))
    with open(pathlib.Path(flags["output_dir"], "predictions.txt"), "w") as file:
        for row in tags(output.predictions, output.label_ids)[0]:
            file.write(" ".join(row) + "\n")


# ---- comparing ---------------------------------------------------------------


def is_speed(key):
    return key.endswith(("_runtime", "_per_second", "_preparation_time"))


def near(a, b, tolerance):
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= tolerance * max(abs(a), abs(b), 1e-6)
    return a == b


def compare_dicts(what, ours, theirs, problems):
    if ours.keys() != theirs.keys():
        problems.append(f"{what}: only here {sorted(ours.keys() - theirs.keys())}, only in Python "
                        f"{sorted(theirs.keys() - ours.keys())}")
    for key in ours.keys() & theirs.keys():
        if not is_speed(key) and not near(ours[key], theirs[key],
                                          1e-9 if key == "learning_rate" else 1e-5):
            problems.append(f"{what}: {key} is {ours[key]!r}, Python's {theirs[key]!r}")


def compare(ours, theirs, auto):
    problems, read = [], lambda folder, name: json.loads((folder / name).read_text())
    histories = [read(folder, "trainer_state.json")["log_history"] for folder in (ours, theirs)]
    if len(histories[0]) != len(histories[1]):
        problems.append(
            f"log_history has {len(histories[0])} entries, Python's {len(histories[1])}")
    for mine, other in zip(*histories):
        compare_dicts(f"step {mine['step']}", mine, other, problems)
    losses = [[entry["loss"] for entry in history if "loss" in entry] for history in histories]
    if len(losses[0]) != STEPS:
        problems.append(f"{len(losses[0])} losses, expected {STEPS}")
    for name in sorted(
        {path.name for folder in (ours, theirs) for path in folder.glob("*_results.json")}):
        if not ((ours / name).exists() and (theirs / name).exists()):
            problems.append(f"{name} is written by one side only")
            continue
        compare_dicts(name, read(ours, name), read(theirs, name), problems)
    for name in {path.name for path in theirs.glob("*.txt")}:
        if not (ours / name).exists() or (ours / name).read_text() != (theirs / name).read_text():
            problems.append(f"{name} differs")
    is_adapter = (theirs / "adapter_config.json").exists()
    configs = [{} if is_adapter else read(folder, "config.json") for folder in (ours, theirs)]
    for key in ("id2label", "label2id", "problem_type", "architectures", "vocab_size"):
        if configs[0].get(key) != configs[1].get(key):
            problems.append(
                f"config.json: {key} is {configs[0].get(key)}, Python's {configs[1].get(key)}")
    (mine,
     info), other = auto.from_pretrained(ours,
                                         output_loading_info=True), auto.from_pretrained(theirs)
    keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
    if not is_adapter and any(info[key] for key in keys):
        problems.append(f"the saved folder does not load: {info}")
    ids = torch.arange(5, 15)[None]
    difference = (mine.eval()(ids).logits - other.eval()(ids).logits).abs().max().item()
    if difference > 1e-4:
        problems.append(f"the saved models' outputs differ by {difference}")
    if is_adapter:
        compare_merged(GRADUS, ours, mine(ids).logits, auto, problems)
    return max(abs(a - b) / abs(b) for a, b in zip(*losses)), problems


# ---- cases -------------------------------------------------------------------


def classified(rng, kind, rows):
    made = []
    for _ in range(rows):
        text = sentence(rng)
        label = {
            "class": "animal" if "cat" in text or "dog" in text else
                     "place" if "house" in text else "other", "number": round(len(text) / 20, 3),
            "several": [word for word in ("cat", "dog", "old") if word in text.split()]
        }[kind]
        made.append({"sentence": text, "label": label} if kind !=
                    "number" else {"sentence1": text, "sentence2": sentence(rng), "label": label})
    return made


def tagged(rng, rows):
    tag = {"Anna": "B-PER", "Tom": "I-PER", "Berlin": "B-LOC", "Paris": "B-LOC"}
    return [{"tokens": words, "ner_tags": [tag.get(word, "O")
                                           for word in words]}
            for words in (sentence(rng).split() for _ in range(rows))]


def masked(rng, tokenizer, rows):
    made = []
    for _ in range(rows):
        ids = tokenizer(sentence(rng), truncation=True, max_length=24)["input_ids"]
        hidden = [i for i in range(1, len(ids) - 1) if rng.random() < 0.2] or [1]
        made.append({
            "input_ids": [
                tokenizer.mask_token_id if i in hidden else id for i, id in enumerate(ids)
            ], "attention_mask": [1] * len(ids),
            "labels": [id if i in hidden else -100 for i, id in enumerate(ids)]
        })
    return made


def cases(folder, rng):
    lines = [sentence(rng) for _ in range(1400)]
    auto = transformers

    def model(name, kind, head, config):
        path = folder / f"model-{name}"
        make_model(path, head, config, kind, lines)
        return str(path)

    gpt2 = {"model_type": "gpt2"} | SMALL
    del gpt2["intermediate_size"]
    llama = {"model_type": "llama", "num_key_value_heads": 2} | SMALL
    bert = {"model_type": "bert"} | SMALL
    text = write_lines(folder / "train.txt", lines)
    held_out = write_lines(folder / "validation.txt", [sentence(rng) for _ in range(40)])
    of_gpt2 = {
        "model_name_or_path": model("gpt2", "bpe", auto.AutoModelForCausalLM, gpt2),
        "train_file": str(text), "validation_file": str(held_out), "block_size": 32,
        "max_eval_samples": 9
    }
    yield "causal-lm", "GPT-2", auto.AutoModelForCausalLM, run_clm, of_gpt2
    yield "causal-lm", "GPT-2, LoRA", auto.AutoModelForCausalLM, run_clm, of_gpt2 | LORA
    rows = write_rows(folder / "train.json",
                      [{"id": i, "text": line} for i, line in enumerate(lines)])
    yield "causal-lm", "Llama", auto.AutoModelForCausalLM, run_clm, {
        "model_name_or_path": model("llama", "bpe", auto.AutoModelForCausalLM, llama),
        "train_file": str(rows), "validation_split_percentage": 7, "block_size": 24,
        "label_smoothing_factor": 0.1, "lr_scheduler_type": "cosine", "preprocessing_num_workers": 3
    }
    classifiers = [
        ("class", "BERT, classes", bert, 3, {"label_smoothing_factor": 0.1, "max_seq_length": 24}),
        ("number", "BERT, regression on pairs", bert, 1,
         {"pad_to_max_length": False, "max_seq_length": 20}),
        ("several", "Llama, several labels", llama, 3,
         {"pad_to_max_length": False, "max_seq_length": 32}),
    ]
    head = auto.AutoModelForSequenceClassification
    for kind, name, base, labels, more in classifiers:
        files = {
            f"{part}_file": str(
                write_rows(folder / f"{kind}-{part}.json", classified(rng, kind, count)))
            for part, count in (("train", 150), ("validation", 30), ("test", 13))
        }
        folder_of_model = model(kind, "bert", head, base | {"num_labels": labels})
        flags = files | {"model_name_or_path": folder_of_model, "do_predict": True} | more
        yield "text-classification", name, head, run_classification, flags
        if kind == "class":
            yield "text-classification", name + ", LoRA", head, run_classification, flags | LORA
    masked_model = model("masked", "bert", auto.AutoModelForMaskedLM, bert)
    tokenizer = transformers.AutoTokenizer.from_pretrained(masked_model)
    files = {
        f"{part}_file": str(
            write_rows(folder / f"masked-{part}.json", masked(rng, tokenizer, count)))
        for part, count in (("train", 300), ("validation", 25))
    }
    files["model_name_or_path"] = masked_model
    yield "masked-lm", "BERT", auto.AutoModelForMaskedLM, run_mlm, files
    yield "masked-lm", "BERT, LoRA", auto.AutoModelForMaskedLM, run_mlm, files | LORA
    splits = {
        part: tagged(rng, count)
        for part, count in (("train", 150), ("validation", 30), ("test", 11))
    }
    files = {
        f"{part}_file": str(write_rows(folder / f"tagged-{part}.json", rows))
        for part, rows in splits.items()
    }
    names = ["O", "B-PER", "I-PER", "B-LOC"]
    features = datasets.Features({
        "tokens": datasets.List(datasets.Value("string")),
        "ner_tags": datasets.List(datasets.ClassLabel(names=names))
    })
    datasets.DatasetDict({
        part: datasets.Dataset.from_list(rows, features=features) for part, rows in splits.items()
    }).save_to_disk(folder / "tagged")
    head = auto.AutoModelForTokenClassification
    tagger = {
        "model_name_or_path": model("tagged", "bert", head, bert | {"num_labels": 4}),
        "do_predict": True, "learning_rate": 2e-3
    }
    yield "token-classification", "BERT", head, run_ner, files | tagger | {
        "label_all_tokens": True
    }
    yield "token-classification", "BERT, LoRA", head, run_ner, files | tagger | LORA
    of_gpt2 = gpt2 | {"num_labels": 4, "classifier_dropout": 0.0}
    yield "token-classification", "GPT-2", head, run_ner, files | tagger | {
        "model_name_or_path": model("gpt2-tagged", "gpt2", head, of_gpt2)
    }
    yield "token-classification", "BERT, data set folder", head, run_ner, {
        "dataset_name": str(folder / "tagged")
    } | tagger


def main():
    if not GRADUS.exists():
        print(f"skipped: {GRADUS} is not built")
        return 77
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    wrong, only = 0, sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        every = cases(folder, random.Random(11))
        for number, (task, name, auto, script, flags) in enumerate(every):
            if only and task not in only:
                continue
            ours, theirs = folder / f"ours-{number}", folder / f"theirs-{number}"
            flags = COMMON | flags
            run_gradus(task, flags | {"output_dir": str(ours)}, folder / "cache")
            script(flags | {"output_dir": str(theirs)})
            worst, problems = compare(ours, theirs, auto)
            print(f"{task}, {name}: worst relative difference of {STEPS} losses {worst:.3g}")
            if problems:
                wrong += 1
                print("  " + "\n  ".join(problems[:12]))
    print(f"{wrong} cases differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
