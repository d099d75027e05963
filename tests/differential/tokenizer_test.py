#!/usr/bin/env python3
"""Tokenizer of gradus against transformers' fast tokenizers, both asked now.

1. 10,000 random Unicode strings and pathological ones (empty, NUL, lone surrogates in JSON, 1 MB
   without a space) for a BPE, a WordPiece and a Unigram tokenizer: ids, offsets, masks, word and
   sequence ids, decoded text.
2. Truncation, windows with stride, pairs, words; chat templates and Jinja expressions.
3. Training on the same file, and a saved folder read back by transformers.

The small tokenizers are those of tests/parity/text; real ones are tried too where they lie in
~/.cache/gradus/tokenizers/{gpt2,minilm} (tokenizer.json and tokenizer_config.json).

Usage: tokenizer_test.py [build folder] [strings]   (default: build/release 10000) Exit: 0 equal, 1
different, 77 when transformers is not installed.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RUST_BACKTRACE", "0")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity/text"))
try:
    import transformers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    import make_fixtures
except ImportError as error:
    print(f"skipped: the peer is not there ({error}); `make peer` makes it")
    sys.exit(77)
import chat_cases
from sample_text import TEXTS, sentences

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release")
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
TOOL = BUILD / "bin/tokenizer_tool"
FIXTURES = ROOT / "tests/parity/text/fixtures"
CACHE = pathlib.Path.home() / ".cache/gradus/tokenizers"
failures = []


def fail(text):
    failures.append(text)
    if len(failures) <= 20:
        print("different:", text[:1200])


def ask(command, folder, requests):
    lines = "\n".join(
        request if isinstance(request, str) else json.dumps(request) for request in requests) + "\n"
    answer = subprocess.run([TOOL, command, str(folder)], input=lines.encode(), capture_output=True)
    if answer.returncode != 0:
        sys.exit(f"tokenizer_tool failed: {answer.stderr.decode()}")
    return [json.loads(line) for line in answer.stdout.decode().split("\n")[:-1]]


def random_strings(count, seed=7):
    chance = random.Random(seed)
    words = " ".join(sentences(50)).split()
    ranges = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700),
              (0x900, 0xA00), (0x1100, 0x1200), (0x2000, 0x2070), (0x3040, 0x3100),
              (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xE000, 0xF900), (0xFB00, 0x10000),
              (0x1F300, 0x1FAFF), (0, 0x20), (0x10000, 0x110000), (0, 0xD800)]
    for _ in range(count):
        pieces = []
        for _ in range(chance.randrange(0, 12)):
            kind = chance.random()
            if kind < 0.4:
                pieces.append(chance.choice(words))
            elif kind < 0.55:
                pieces.append(chance.choice([" ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000",
                                             ""]))
            else:
                low, high = chance.choice(ranges)
                pieces.append("".join(
                    chr(chance.randrange(low, high)) for _ in range(chance.randrange(1, 8))))
            pieces.append(chance.choice([" ", " ", ""]))
        yield "".join(pieces)


def pathological():
    return [
        "", "\0", "a\0b\0", "\u0301" * 50, "x" * 1_000_000, "é" * 500_000, "ab" * 500_000,
        "1" * 300_000, "\u200d" * 1000, " " * 100_000, "\U0010ffff" * 100
    ]


def compare_encodings(name, folder, tokenizer, texts):
    answers = ask("encode", folder, [{"text": text} for text in texts])
    different = 0
    for text, ours in zip(texts, answers):
        theirs = make_fixtures.encode_case(tokenizer, text)
        if "error" in theirs or "error" in ours:
            if ("error" in theirs) != ("error" in ours):
                fail(f"{name}: {text[:60]!r}: transformers {theirs.get('error')}, gradus "
                     f"{ours.get('error')}")
            continue
        for key in ("windows", "columns", "decoded"):
            if json.loads(json.dumps(theirs[key])) != ours[key]:
                different += 1
                fail(
                    f"{name}: {key} of {text[:80]!r}:\n  transformers "
                    f"{json.dumps(theirs[key])[:500]}\n  gradus       {json.dumps(ours[key])[:500]}"
                )
    print(f"{name}: {len(texts)} texts, {different} differences")


def compare_surrogates(name, folder, tokenizer):
    """JSON may hold half a surrogate pair: text that is not Unicode. Both refuse it."""
    for line in (r'{"text": "a\ud800b"}', r'{"text": "\udc00"}', r'{"text": "\ud83d"}'):
        try:
            tokenizer(json.loads(line)["text"])
            theirs = True
        except (TypeError, ValueError):
            theirs = False
        ours = "error" not in ask("encode", folder, [line])[0]
        if ours != theirs:
            fail(f"{name}: {line}: transformers accepts: {theirs}, gradus: {ours}")


def compare_cases(name, folder, tokenizer):
    for command, cases in (("encode", make_fixtures.encode_cases(tokenizer)),
                           ("words", make_fixtures.word_cases(tokenizer))):
        requests = [{
            key: value for key, value in case.items() if key in ("text", "pair", "options", "words")
        } for case in cases]
        for case, ours in zip(cases, ask(command, folder, requests)):
            expected = json.loads(json.dumps(case))
            same = ("error" in case) == ("error" in ours) and ("error" in case or all(
                expected[key] == ours.get(key)
                for key in ("windows", "columns", "decoded")
                if key in case))
            if not same:
                fail(f"{name}: {command} {json.dumps(case)[:300]}:\n  gradus "
                     f"{json.dumps(ours)[:300]}")


def compare_chats(folder, tokenizer):
    cases = make_fixtures.chat_cases_of(tokenizer)
    for case, ours in zip(cases, ask("chat", folder, cases)):
        if ("error" in case) != ("error" in ours):
            fail(f"chat: {case['template'][:40]!r} {case['messages']} {case['options']}: "
                 f"transformers {case.get('error')}, gradus {ours.get('error')}")
        elif "error" not in case:
            for key in ("text", "ids", "assistant_masks"):
                if case[key] != ours[key]:
                    fail(f"chat {key}: {case['template'][:40]!r} {case['messages']} "
                         f"{case['options']}:\n  transformers {case[key]!r}\n  gradus       "
                         f"{ours[key]!r}")
    expressions = make_fixtures.expression_cases()
    requests = [{
        "template": case["template"], "messages": [{"role": "user", "content": "x"}],
        "options": {"variables": {"v": chat_cases.VALUE}}
    } for case in expressions]
    for case, ours in zip(expressions, ask("chat", folder, requests)):
        if case.get("text") != ours.get("text") or ("error" in case) != ("error" in ours):
            fail(f"expression {case['template']!r}:\n  transformers "
                 f"{case.get('text', case.get('error'))!r}\n  gradus       "
                 f"{ours.get('text', ours.get('error'))!r}")
    print(f"chat: {len(cases)} chats, {len(expressions)} expressions")


def compare_training(folder):
    text = folder / "text.txt"
    text.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
    # WordPiece and Unigram break ties by chance (two runs of the peer differ): there only what is
    # certain is compared.
    for kind, size in (("bpe", 600), ("wordpiece", 200), ("unigram", 600)):
        subprocess.run([TOOL, "train", kind, text, folder / kind, str(size)], check=True)
        trained = PreTrainedTokenizerFast.from_pretrained(folder / kind)
        if kind == "bpe":
            peer = make_fixtures.tokenizers.implementations.ByteLevelBPETokenizer()
            peer.train(str(text), vocab_size=size, special_tokens=["<|endoftext|>"],
                       show_progress=False)
        elif kind == "wordpiece":
            peer = make_fixtures.tokenizers.implementations.BertWordPieceTokenizer()
            peer.train(str(text), vocab_size=size, show_progress=False)
        else:
            compare_encodings("trained unigram", folder / kind, trained, TEXTS)
            continue
        if set(peer.get_vocab()) != set(
                trained.get_vocab()) or kind == "bpe" and peer.get_vocab() != trained.get_vocab():
            fail(f"training {kind}: {len(set(peer.get_vocab()) ^ set(trained.get_vocab()))} tokens "
                 f"differ")
        compare_encodings(f"trained {kind}", folder / kind, trained, TEXTS)


def compare_saved(name, source, folder, texts):
    subprocess.run([TOOL, "resave", source, folder / name], check=True)
    before = AutoTokenizer.from_pretrained(source)
    after = AutoTokenizer.from_pretrained(folder / name)
    for attribute in ("padding_side", "truncation_side", "model_max_length", "all_special_tokens",
                      "model_input_names", "chat_template", "clean_up_tokenization_spaces"):
        if getattr(before, attribute) != getattr(after, attribute):
            fail(f"saved {name}: {attribute} was {getattr(before, attribute)!r}, is "
                 f"{getattr(after, attribute)!r}")
    for text in texts:
        if before(text)["input_ids"] != after(text)["input_ids"]:
            fail(f"saved {name}: ids of {text[:60]!r}")


def main():
    transformers.logging.set_verbosity_error()
    strings = list(random_strings(COUNT))
    real = {
        name: CACHE / name
        for name in ("gpt2", "minilm")
        if (CACHE / name / "tokenizer.json").exists()
    }
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        for name in ("bpe", "wordpiece", "unigram", *real):
            folder = real.get(name, FIXTURES / name)
            tokenizer = AutoTokenizer.from_pretrained(
                folder) if name in real else PreTrainedTokenizerFast.from_pretrained(folder)
            compare_encodings(name, folder, tokenizer, strings + TEXTS)
            compare_encodings(name + " (pathological)", folder, tokenizer, pathological())
            compare_surrogates(name, folder, tokenizer)
            compare_cases(name, folder, tokenizer)
            compare_saved(name, folder, temporary, TEXTS)
        compare_chats(FIXTURES / "bpe", PreTrainedTokenizerFast.from_pretrained(FIXTURES / "bpe"))
        compare_training(temporary)
    print(f"{len(failures)} differences" if failures else "all equal")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
