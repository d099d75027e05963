"""An exported folder through `gradus train`, and the same rows for transformers' Trainer.

Each task makes a small data set in files, as a user has them, and hands Python's Trainer what the
task's script makes of these files. Models whose batch no task makes (segmentation, boxes, two
kinds of input, spectrograms) have no entry in TASKS; exported_architectures.py trains them with
gradus' Trainer class.
"""
import json
import os
import random
import shutil
import struct
import subprocess

import torch
import transformers
from PIL import Image, ImageOps
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torchvision.transforms import (Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop,
                                    ToTensor)

import exported_runs as runs
import speech_test as speech
from image_task_test import CLASSES, make_folder

UNKNOWN, MASK, FIRST_WORD = 3, 4, 5
SEED = runs.ARGS["seed"]


class Data:
    """The flags that name the files to gradus, and the rows and collator of Python's Trainer."""

    def __init__(self, flags, rows, collate):
        self.flags, self.rows, self.collate = flags, rows, collate


def save_tokenizer(config, folder):
    """Words w5, w6, …, whose number is their id, in a vocabulary of the config's size."""
    names = {
        config.pad_token_id: "<pad>", config.eos_token_id: "</s>", UNKNOWN: "<unk>", MASK: "<mask>"
    }
    vocabulary = {names.get(i, f"w{i}"): i for i in range(config.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>",
                                                             [("</s>", config.eos_token_id)])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>",
                                         eos_token="</s>", unk_token="<unk>", mask_token="<mask>",
                                         model_max_length=64).save_pretrained(folder)


def save_companions(auto, config, folder):
    """What the task reads beside config.json; the exporter takes it over."""
    if auto in ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering",
                "Seq2SeqLM"):
        save_tokenizer(config, folder)
    elif auto == "ImageClassification":
        size = {"height": config.image_size, "width": config.image_size}
        transformers.ViTImageProcessor(size=size).save_pretrained(folder)


    elif auto == "CTC":
        letters = speech.vocabulary_of([" ".join(speech.WORDS).lower()])
        letters |= {"<s>": len(letters), "</s>": len(letters) + 1}
        assert config.vocab_size == len(letters) and config.pad_token_id == letters["[PAD]"]
        (folder / "vocab.json").write_text(json.dumps(letters))
        speech_tokenizer(folder).save_pretrained(folder)
        transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)


def speech_tokenizer(folder):
    return transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json", unk_token="[UNK]",
                                             pad_token="[PAD]", word_delimiter_token="|")


def words(rng, vocabulary, least, most):
    return [rng.randrange(FIRST_WORD, vocabulary) for _ in range(rng.randint(least, most))]


def text_of(ids):
    return " ".join(f"w{i}" for i in ids)


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def causal_lm(source, exported, work, fixed):
    """A file of tokens, cut into blocks."""
    rng, length = random.Random(1), source.batch["input_ids"].size(1)
    vocabulary = source.config.get_text_config().vocab_size
    blocks = [words(rng, vocabulary, length, length) for _ in range(runs.ROWS)]
    file = work / "tokens.bin"
    file.write_bytes(struct.pack(f"<{runs.ROWS * length}H", *sum(blocks, [])))
    rows = [{"input_ids": torch.tensor(ids), "labels": torch.tensor(ids)} for ids in blocks]
    return Data({"train_file": file, "block_size": length}, rows,
                transformers.default_data_collator)


def masked_lm(source, exported, work, fixed):
    """Rows of different lengths whose masks are in the file; else the generators decide on them."""
    rng, length = random.Random(2), source.batch["input_ids"].size(1)
    rows = []
    for _ in range(runs.ROWS):
        ids = words(rng, source.config.vocab_size, length if "length" in fixed else 8, length)
        hidden = {i for i in range(len(ids)) if rng.random() < 0.2} or {1}
        rows.append({
            "input_ids": [MASK if i in hidden else id for i, id in enumerate(ids)],
            "attention_mask": [1] * len(ids),
            "labels": [id if i in hidden else -100 for i, id in enumerate(ids)]
        })
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    file = write_rows(work / "masked.jsonl", rows)
    # Without a file to evaluate on, the task sets the first rows of the other apart, as run_mlm.
    return Data({"train_file": file, "validation_file": file}, rows,
                transformers.DataCollatorForTokenClassification(tokenizer))


def summarization(source, exported, work, fixed):
    """Texts and their last words."""
    rng, rows = random.Random(3), []
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    pairs = []
    for _ in range(runs.ROWS):
        text = text_of(words(rng, source.config.vocab_size, 6, 20)).split()
        pairs.append({"text": " ".join(text), "summary": " ".join(text[-rng.randint(2, 6):])})
        labels = tokenizer(text_target=pairs[-1]["summary"])["input_ids"]
        rows.append({
            "input_ids": tokenizer(pairs[-1]["text"])["input_ids"], "labels": labels,
            "attention_mask": tokenizer(pairs[-1]["text"])["attention_mask"]
        })
    flags = {
        "train_file": write_rows(work / "texts.jsonl", pairs), "text_column": "text",
        "summary_column": "summary", "max_source_length": 32, "max_target_length": 16
    }
    return Data(flags, rows, transformers.DataCollatorForSeq2Seq(tokenizer, source.model))


def text_classification(source, exported, work, fixed):
    """Texts of three classes, filled up to one length."""
    rng, length = random.Random(5), source.batch["input_ids"].size(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    texts, rows = [], []
    for _ in range(runs.ROWS):
        text = text_of(words(rng, source.config.vocab_size, 4, length - 2))
        label = rng.randrange(len(CLASSES))
        texts.append({"text": text, "label": sorted(CLASSES)[label]})
        rows.append({**tokenizer(text, padding="max_length", max_length=length), "label": label})
    flags = {"train_file": write_rows(work / "classes.jsonl", texts), "max_seq_length": length}
    return Data(flags, rows, transformers.default_data_collator)


def token_classification(source, exported, work, fixed):
    """Words with one tag each; the token that ends a text has none."""
    rng, length = random.Random(6), source.batch["input_ids"].size(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    sentences, rows = [], []
    for _ in range(runs.ROWS):
        ids = words(rng, source.config.vocab_size, 4, length - 2)
        tags = [rng.randrange(len(CLASSES)) for _ in ids]
        sentences.append(
            {"tokens": text_of(ids).split(), "ner_tags": [sorted(CLASSES)[tag] for tag in tags]})
        rows.append({**tokenizer(text_of(ids)), "labels": tags + [-100]})
    return Data({"train_file": write_rows(work / "tags.jsonl", sentences)}, rows,
                transformers.DataCollatorForTokenClassification(tokenizer))


def question_answering(source, exported, work, fixed):
    """Answers of one to three words in a text, which fits into one window with its question."""
    rng, length = random.Random(7), source.batch["input_ids"].size(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    asked, rows = [], []
    for number in range(runs.ROWS):
        question = text_of(words(rng, source.config.vocab_size, 2, 4))
        context = text_of(words(rng, source.config.vocab_size, 8, length - 6)).split()
        first = rng.randrange(len(context) - 1)  # run_qa misplaces the beginning in the last word
        answer = context[first:first + rng.randint(1, 3)]
        asked.append({
            "id": str(number), "question": question, "context": " ".join(context), "answers": {
                "text": [" ".join(answer)], "answer_start": [len(" ".join([*context[:first], ""]))]
            }
        })
        place = len(question.split()) + 1 + first
        rows.append({
            **tokenizer(question, " ".join(context), padding="max_length", max_length=length),
            "start_positions": place, "end_positions": place + len(answer) - 1
        })
    flags = {
        "train_file": write_rows(work / "questions.jsonl", asked), "max_seq_length": length,
        "doc_stride": 4
    }
    return Data(flags, rows, transformers.default_data_collator)


def image_classification(source, exported, work, fixed):
    """Folders of images. gradus seeds a generator for each batch (docs/user/images.md)."""
    make_folder(work / "images", runs.ROWS, seed=4)
    rows = []
    for label, name in enumerate(sorted(CLASSES)):
        for file in sorted((work / "images" / name).iterdir()):
            image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
            rows.append({"pixel_values": image, "labels": label})
    processor = transformers.AutoImageProcessor.from_pretrained(exported)
    transform = Compose([
        RandomResizedCrop((processor.size["height"], processor.size["width"])),
        RandomHorizontalFlip(), ToTensor(),
        Normalize(mean=processor.image_mean, std=processor.image_std)
    ])
    batches = -(-len(rows) // runs.ARGS["per_device_train_batch_size"])
    done = [0]

    def collate(examples):
        epoch, batch = divmod(done[0], batches)
        done[0] += 1
        torch.manual_seed((SEED + epoch * 0x9E3779B1 + batch * 0x85EBCA77) & (2**64 - 1))
        return {
            "pixel_values": torch.stack([transform(e["pixel_values"]) for e in examples]),
            "labels": torch.tensor([e["labels"] for e in examples])
        }

    return Data({"train_dir": work / "images", "train_val_split": 0}, rows, collate)


def speech_recognition_ctc(source, exported, work, fixed):
    """A folder of clips with what is said in them."""
    speech.make_data(work / "clips", {"train": runs.ROWS})
    tokenizer = speech_tokenizer(exported)
    extractor = transformers.Wav2Vec2FeatureExtractor.from_pretrained(exported)
    rows = [{
        "input_values": extractor(sound, sampling_rate=speech.RATE).input_values[0],
        "labels": tokenizer(text.replace("!", "").lower() + " ").input_ids
    } for sound, text in speech.rows_of(work / "clips", "train")]
    config = source.config
    flags = {
        "dataset_name": work / "clips", "train_split_name": "train", "chars_to_ignore": "!",
        "tokenizer_name_or_path": exported, "freeze_feature_encoder": False, "mask_time_prob": 0,
        "ctc_loss_reduction": config.ctc_loss_reduction,
        "ctc_zero_infinity": config.ctc_zero_infinity
    }
    return Data(flags, rows, speech.Collator(extractor, tokenizer))


# The task of gradus for what exported.json calls the model's task.
TASKS = {
    "causal_lm": ("causal-lm", causal_lm), "masked_lm": ("masked-lm", masked_lm),
    "sequence_classification": ("text-classification", text_classification),
    "token_classification": ("token-classification", token_classification),
    "question_answering": ("question-answering", question_answering),
    "seq2seq_lm": ("summarization", summarization),
    "image_classification": ("image-classification", image_classification),
    "ctc": ("speech-recognition-ctc", speech_recognition_ctc)
}


def program_run(task, exported, data, output, **more):
    """The log of `gradus train` with the flags of Python's Trainer; `more` are further ones."""
    command = [runs.BUILD / "bin/gradus", "train", "--task", task, "--do_train"]
    for name, value in {
            "model_name_or_path": exported, "output_dir": output, **data.flags, **runs.ARGS, **more
    }.items():
        command += [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": str(output.parent / "cache")})
    if done.returncode != 0:
        raise AssertionError(f"gradus train --task {task}: " + done.stderr[-2000:])
    return json.loads((output / "trainer_state.json").read_text())["log_history"]


def train_and_resume(task, exported, data, work):
    """The log of a run, and how far the weights of one that was stopped halfway are from its."""
    half = runs.STEPS // 2
    log = program_run(task, exported, data, work / "whole", save_strategy="steps", save_steps=half)
    shutil.copytree(work / f"whole/checkpoint-{half}", work / f"resumed/checkpoint-{half}")
    program_run(task, exported, data, work / "resumed",
                resume_from_checkpoint=work / f"resumed/checkpoint-{half}")
    ends = [runs.load_file(work / name / "model.safetensors") for name in ("whole", "resumed")]
    assert ends[0].keys() == ends[1].keys()
    assert all(p.isfinite().all() for p in ends[0].values()), "a weight is not finite"
    return log, max((ends[0][n] - p).abs().max().item() for n, p in ends[1].items())
