"""Makes the fixtures beside this script: short sounds and what Python makes of them.

`python make_fixtures.py [FOLDER]` with the peer's Python. FOLDER is one into which torchaudio was
installed by itself (`pip install --no-deps --target FOLDER torchaudio==2.11.0`): there is none for
the peer's torch, and only its pure Python function `resample` is used.
"""
import json
import pathlib
import random
import sys
import tempfile

import jiwer
import numpy
import soundfile
import torch
from safetensors.torch import save_file
from transformers import Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, WhisperFeatureExtractor

OUT = pathlib.Path(__file__).parent / "fixtures"


def torchaudio_resample(folder):
    sys.path.insert(0, folder)
    version, torch.version.cuda = torch.version.cuda, None  # its libraries are not loaded
    from torchaudio.functional import resample
    torch.version.cuda = version
    return resample


def tone(samples, rate, channels=1):
    time = numpy.arange(samples) / rate
    waves = [
        0.4 * numpy.sin(2 * numpy.pi * (300 + 200 * c) * time) +
        0.2 * numpy.sin(2 * numpy.pi * (1700 + 90 * c) * time**1.1) for c in range(channels)
    ]
    return numpy.stack(waves, 1).astype(numpy.float32)


def sounds(resample):
    # Far more samples than bytes.
    soundfile.write(OUT / "packed/silence.flac", numpy.zeros(20_000_000, numpy.int16), 16000)
    tensors = {}
    for name, rate, channels, options in [
        ("mono.wav", 16000, 1, {}), ("stereo.wav", 44100, 2, {}),
        ("float.wav", 8000, 1, dict(subtype="FLOAT")), ("mono.flac", 22050, 1, {}),
        ("stereo24.flac", 48000, 2, dict(subtype="PCM_24")), ("mono.ogg", 16000, 1, {}),
        ("stereo.mp3", 44100, 2, {})
    ]:
        soundfile.write(OUT / name, tone(rate // 8, rate, channels), rate, **options)
        samples, read_rate = soundfile.read(OUT / name, dtype="float32", always_2d=True)
        assert read_rate == rate
        mono = torch.tensor(samples.mean(axis=1))
        tensors[f"{name}/samples"] = mono
        tensors[f"{name}/16000"] = resample(mono, rate, 16000).clone()
        tensors[f"{name}/normed"] = torch.tensor(
            Wav2Vec2FeatureExtractor()(mono.numpy(), sampling_rate=16000).input_values[0])
    noise = torch.randn(1001, generator=torch.Generator().manual_seed(0))
    for pair in ((16000, 8000), (8000, 16000), (22050, 16000), (11025, 48000), (16000, 15999)):
        tensors[f"noise/{pair[0]}-{pair[1]}"] = resample(noise, *pair).clone()
    tensors["noise/samples"] = noise
    mel = WhisperFeatureExtractor(chunk_length=1)
    second = torch.tensor(tone(16000, 16000)[:, 0])
    tensors["mel/samples"] = second
    tensors["mel/features"] = torch.tensor(
        mel(second.numpy(), sampling_rate=16000, return_tensors="np").input_features[0])
    save_file(tensors, OUT / "sounds.safetensors")


def texts():
    vocabulary = {"a": 1, "b": 2, "ü": 3, "|": 0, "[UNK]": 4, "[PAD]": 5}
    (OUT / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = Wav2Vec2CTCTokenizer(OUT / "vocab.json", unk_token="[UNK]", pad_token="[PAD]",
                                     word_delimiter_token="|")
    encoded = ["ab ba", "ab  ü", "", " a ", "xyz|a", "a [PAD] b", "aaa bbb "]
    rows = [[1, 1, 5, 1, 2, 0, 0, 2], [5, 5, 5], [0, 0, 1, -100, -100, 2], [6, 7, 3, 3, 4, 4, 99]]
    draw = random.Random(0)
    words = ["one", "two", "three", "for", "fünf", "a"]
    rates = []
    for _ in range(40):
        count = draw.randint(1, 4)
        references = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(count)]
        predictions = [
            draw.choice(["", " ", "  "]).join(draw.choices(words, k=draw.randint(0, 5)))
            for _ in range(count)
        ]
        rates.append(
            dict(references=references, predictions=predictions,
                 wer=jiwer.wer(references, predictions), cer=jiwer.cer(references, predictions)))
    for references, predictions in [([" a \t b\tc "], ["a b c"]), ([""], ["a b"]), ([""], [""])]:
        rates.append(
            dict(references=references, predictions=predictions,
                 wer=jiwer.wer(references, predictions), cer=jiwer.cer(references, predictions)))
    content = dict(
        folders=list(folders()), length=len(tokenizer), special=tokenizer.all_special_ids,
        encoded=[[text, tokenizer(text).input_ids] for text in encoded],
        decoded=[[row, tokenizer.decode(row),
                  tokenizer.decode(row, group_tokens=False)] for row in rows], rates=rates)
    (OUT / "texts.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


LETTERS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "A": 5, "Ü": 6, "S": 7, "SH": 8}


def folders():
    """Folders of tokenizers with rare settings, and what their tokenizers make of texts."""
    plain = {key: value for key, value in LETTERS.items() if not key.startswith(("<s", "</"))}
    cases = [
        ("lower", LETTERS, dict(do_lower_case=True), {}),
        ("lower_added", LETTERS, dict(do_lower_case=True), dict(tokens=["q", "ß"], special=[])),
        ("delimiter", LETTERS, dict(replace_word_delimiter_char="_"), {}),
        ("added", LETTERS, {}, dict(tokens=["XY", "ß"], special=["<x>"])),
        ("no_ends", plain, dict(bos_token=None, eos_token=None), {}),
        ("languages", {
            "eng": LETTERS, "deu": {**LETTERS, "ß": 9}
        }, dict(target_lang="deu"), {}),
    ]
    texts = ["üß a", "A XY S ß", "<x>A <s> SH A", "A|Ü", "a q ß a"]
    rows = [[5, 5, 4, 4, 6, 0, 6], [9, 10, 11, 8, 4, 1, 2], [4, 5, 4]]
    for name, vocabulary, settings, added in cases:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "vocab.json").write_text(json.dumps(vocabulary))
            tokenizer = Wav2Vec2CTCTokenizer(folder / "vocab.json", **settings)
            if added:
                tokenizer.add_tokens(added["tokens"])
                tokenizer.add_special_tokens({"additional_special_tokens": added["special"]})
            tokenizer.save_pretrained(folder)
            tokenizer = Wav2Vec2CTCTokenizer.from_pretrained(folder)
            room = max(tokenizer.get_vocab().values()) + 1  # len() counts, whatever the numbers
            yield dict(name=name, room=room, special=sorted(tokenizer.all_special_ids),
                       files={file.name: file.read_text() for file in sorted(folder.iterdir())},
                       encoded=[[text, tokenizer(text).input_ids] for text in texts],
                       decoded=[[row, tokenizer.decode(row)] for row in rows])
    yield old_folder(texts, rows)


def old_folder(texts, rows):
    """As transformers wrote it before version 5: a file for each kind of setting."""
    marks = dict(bos_token="<s>", eos_token="</s>", unk_token="[UNK]", pad_token="[PAD]")
    files = {
        "vocab.json": {
            "a": 0, "b": 1, "|": 2, "[UNK]": 3, "[PAD]": 4
        }, "added_tokens.json": {
            "<s>": 5, "</s>": 6
        }, "special_tokens_map.json": marks, "tokenizer_config.json": {
            "do_lower_case": False
        }
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))
        tokenizer = Wav2Vec2CTCTokenizer.from_pretrained(folder)
        room = max(tokenizer.get_vocab().values()) + 1
        return dict(name="old", room=room, special=sorted(tokenizer.all_special_ids),
                    files={name: json.dumps(content) for name, content in files.items()},
                    encoded=[[text, tokenizer(text).input_ids] for text in texts],
                    decoded=[[row, tokenizer.decode(row)] for row in rows])


def main():
    OUT.mkdir(exist_ok=True)
    sounds(torchaudio_resample(sys.argv[1]))
    texts()


if __name__ == "__main__":
    main()
