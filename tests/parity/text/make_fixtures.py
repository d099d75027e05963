#!/usr/bin/env python3
"""Makes tests/parity/text/fixtures: three small tokenizers and what transformers makes of texts and
chats with them.

    ~/.cache/gradus/peer/bin/python tests/parity/text/make_fixtures.py

The tokenizers are trained here on sample_text.py; the tests need no Python.
"""

import json
import os
import pathlib
import shutil
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
warnings.filterwarnings("ignore")

import tokenizers
import transformers
from tokenizers import (
    Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
)
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

import chat_cases
from sample_text import TEXTS, sentences

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"
transformers.logging.set_verbosity_error()


def make_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(sentences(), trainer)
    tokenizer.enable_truncation(12)  # baked in, and to be forgotten
    tokenizer.enable_padding(length=12, pad_id=0, pad_token="<|endoftext|>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>",
                                   eos_token="<|endoftext|>", unk_token="<|endoftext|>",
                                   pad_token="<|endoftext|>", model_max_length=1024,
                                   padding_side="left")


def make_wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False)
    tokenizer.train_from_iterator(sentences(), trainer)
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special)
    names = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                 mask_token="[MASK]")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512,
        model_input_names=["input_ids", "token_type_ids",
                           "attention_mask"], clean_up_tokenization_spaces=True, **names)


def make_unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(),
         normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=420, special_tokens=["<pad>", "</s>", "<unk>"],
                                      unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(sentences(), trainer)
    end = tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", end)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>",
                                   unk_token="<unk>",
                                   extra_special_tokens=["<extra_0>",
                                                         "<extra_1>"], truncation_side="left")


def window(encoding):
    return {
        "ids": encoding.ids, "type_ids": encoding.type_ids,
        "attention_mask": encoding.attention_mask,
        "special_tokens_mask": encoding.special_tokens_mask, "offsets": encoding.offsets,
        "word_ids": encoding.word_ids, "sequence_ids": encoding.sequence_ids
    }


def encode_case(tokenizer, text, pair=None, **options):
    """What transformers answers, in the form tokenizer_tool.cpp has."""
    case = {"text": text, **({} if pair is None else {"pair": pair}), "options": options}
    try:
        result = tokenizer(text, pair, **options)
    except BaseException as error:  # tokenizers panics for some
        return {**case, "error": f"{type(error).__name__}: {error}"[:120]}
    ids = result.encodings[0].ids
    names = [name for name in result if name != "overflow_to_sample_mapping"]
    return {
        **case, "windows": [window(encoding) for encoding in result.encodings], "columns": names,
        "decoded": [tokenizer.decode(ids),
                    tokenizer.decode(ids, skip_special_tokens=True)]
    }


def encode_cases(tokenizer):
    cases = [encode_case(tokenizer, text) for text in TEXTS]
    cases += [encode_case(tokenizer, text, add_special_tokens=False) for text in TEXTS[::4]]
    long, question = " ".join(sentences(12)), "Why does the river carry the bridge?"
    for options in ({"max_length": 16, "truncation": True}, {"max_length": 16}, {
            "max_length": 56, "truncation": "only_second", "stride": 5,
            "return_overflowing_tokens": True
    }, {"max_length": 21, "truncation": "longest_first", "return_overflowing_tokens": True}, {
            "max_length": 64, "truncation": "only_second", "stride": 8,
            "return_overflowing_tokens": True, "padding": "max_length"
    }):
        cases.append(encode_case(tokenizer, question, long, **options))
        if options.get("truncation") != "only_second":
            cases.append(encode_case(tokenizer, long, **options))
    cases.append(
        encode_case(tokenizer, long, max_length=17, truncation="only_first", stride=4,
                    return_overflowing_tokens=True))
    cases.append(encode_case(tokenizer, question, ""))
    cases.append(encode_case(tokenizer, question, max_length=3, truncation=True))
    return cases


def word_cases(tokenizer):
    cases = []
    for words in (["Hello", "river", "don't"], ["a"], ["Łódź", "",
                                                       "café!"], " ".join(sentences(3)).split()):
        encoding = tokenizer(words, is_split_into_words=True).encodings[0]
        cases.append({"words": words, "windows": [window(encoding)]})
    return cases


def chat_case(tokenizer, template, messages, options):
    case = {"template": template, "messages": messages, "options": options}
    given = {key: value for key, value in options.items() if key not in ("mask", "variables")
            } | options.get("variables", {})
    try:
        text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False,
                                             **given)
        result = tokenizer.apply_chat_template(
            messages, chat_template=template,
            return_assistant_tokens_mask=options.get("mask", False), **given)
    except Exception as error:
        return {**case, "error": f"{type(error).__name__}: {error}"[:200]}
    return {
        **case, "text": text, "ids": result["input_ids"],
        "assistant_masks": result.get("assistant_masks", [])
    }


def chat_cases_of(tokenizer):
    cases = []
    for template in chat_cases.TEMPLATES.values():
        for messages in chat_cases.CHATS.values():
            for options in chat_cases.OPTIONS:
                if options.get("mask") and "{% generation %}" not in template:
                    continue
                cases.append(chat_case(tokenizer, template, messages, options))
    for name in ("chatml", "llama3", "gemma", "falcon"):
        cases.append(
            chat_case(tokenizer, chat_cases.TEMPLATES[name], chat_cases.CHATS["three"][:2],
                      {"continue_final_message": True}))
    return cases


def expression_cases():
    cases = []
    for expression in chat_cases.EXPRESSIONS:
        try:
            text = render_jinja_template([[{"role": "user", "content": "x"}]],
                                         chat_template=expression, v=chat_cases.VALUE)[0][0]
            cases.append({"template": expression, "text": text})
        except Exception as error:
            cases.append(
                {"template": expression, "error": f"{type(error).__name__}: {error}"[:120]})
    return cases


def index_templates(cases):
    """Templates, chats and options are few and long: the cases name them by number."""
    tables = {"template": [], "messages": [], "options": []}
    for case in cases:
        for key, table in tables.items():
            if case[key] not in table:
                table.append(case[key])
            case[key] = table.index(case[key])
    return {**tables, "cases": cases}


def write(path, value):
    path.write_text(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    shutil.rmtree(FIXTURES, ignore_errors=True)
    versions = {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
    made = {"bpe": make_bpe(), "wordpiece": make_wordpiece(), "unigram": make_unigram()}
    for name, tokenizer in made.items():
        if name == "bpe":
            tokenizer.chat_template = chat_cases.CHATML
        tokenizer.save_pretrained(FIXTURES / name)
        compact = json.loads((FIXTURES / name / "tokenizer.json").read_text(encoding="utf-8"))
        write(FIXTURES / name / "tokenizer.json", compact)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(FIXTURES / name)
        facts = {
            "full_vocab_size": len(tokenizer), "vocab_size": tokenizer.vocab_size,
            "all_special_ids": tokenizer.all_special_ids,
            "all_special_tokens": tokenizer.all_special_tokens
        }
        write(
            FIXTURES / name / "cases.json", {
                "made_with": versions, "facts": facts, "encode": encode_cases(tokenizer),
                "words": word_cases(tokenizer)
            })
    tokenizer = PreTrainedTokenizerFast.from_pretrained(FIXTURES / "bpe")
    write(
        FIXTURES / "chat.json", {
            "made_with": versions, **index_templates(chat_cases_of(tokenizer)), "value":
                chat_cases.VALUE, "expressions": expression_cases()
        })
    for path in sorted(FIXTURES.rglob("*")):
        if path.is_file():
            print(path.relative_to(HERE), path.stat().st_size)


if __name__ == "__main__":
    main()
