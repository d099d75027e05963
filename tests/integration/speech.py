"""speech.py GRADUS: speech recognition and pre-training of the program on sound made here.

A tiny model learns to tell two tones apart and is evaluated, predicted with and resumed. Bad sound,
columns and flags are answered with their errors. Uses only the standard library.
"""

import array
import json
import math
import random
import sys
import tempfile
import wave
from pathlib import Path

from program import run

RATE = 8000
WORDS = {"low": 300, "high": 1500}
CONFIG = dict(model_type="wav2vec2", hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
              intermediate_size=32, conv_dim=[16, 16, 16], conv_stride=[10, 8, 4],
              conv_kernel=[20, 8, 4], num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
              feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True,
              num_codevectors_per_group=8, codevector_dim=16, proj_codevector_dim=16,
              num_negatives=5, mask_time_prob=0.4, mask_time_length=2)


def write_sound(file, words, rate=RATE):
    samples = array.array("h")
    for word in words:
        samples.extend(
            int(9000 * math.sin(2 * math.pi * WORDS[word] * i / rate)) for i in range(rate // 5))
        samples.extend([0] * 400)
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())


def make_data(folder):
    draw = random.Random(0)
    for split, count in (("train", 24), ("test", 8)):
        (folder / split).mkdir(parents=True)
        rows = ["file_name,text"]
        for i in range(count):
            words = draw.choices(list(WORDS), k=draw.randint(1, 2))
            write_sound(folder / split / f"{i}.wav", words)
            rows.append(f"{i}.wav,{' '.join(words)}")
        (folder / split / "metadata.csv").write_text("\n".join(rows) + "\n")
    (folder / "config").mkdir()
    (folder / "config/config.json").write_text(json.dumps(CONFIG))
    # Without a mask the padding is silence, which the model learns to say nothing about.
    (folder / "config/preprocessor_config.json").write_text(
        json.dumps(dict(feature_size=1, sampling_rate=16000, return_attention_mask=False)))


def odd_sound(folder, train):
    """Empty and silent clips, another rate and a text longer than its clip."""
    odd = folder / "odd"
    for split in ("train", "test"):
        (odd / split).mkdir(parents=True)
        write_sound(odd / split / "low.wav", ["low"])
        write_sound(odd / split / "none.wav", [])
        write_sound(odd / split / "fast.wav", ["high"], rate=44100)
        with wave.open(str(odd / split / "silent.wav"), "wb") as out:
            out.setparams((1, 2, RATE, 1600, "NONE", ""))
            out.writeframes(bytes(3200))
        (odd / split / "metadata.csv").write_text(
            "file_name,text\nlow.wav,low\nnone.wav,low\nfast.wav,high\nsilent.wav,low\n")
    words = [word if word != "." else "odd" for word in train]
    last = ["--max_steps", "3", "--save_strategy", "no", "--logging_steps", "1", "--output_dir"]
    run(0, folder, *words, *last, "odd-run")
    metrics = results(folder, "odd-run")
    if not math.isfinite(metrics["eval_loss"]) or metrics["train_samples"] != 3:
        sys.exit(f"the empty clip is not left out, or silence has no loss: {metrics}")
    rows = (odd / "test/metadata.csv").read_text().replace("fast.wav,high",
                                                           "fast.wav," + "high low " * 40)
    (odd / "test/metadata.csv").write_text(rows)
    run(0, folder, *words, *last, "infinite")
    if not math.isinf(float(results(folder, "infinite")["eval_loss"])):
        sys.exit("a text longer than its clip has a finite loss")
    run(0, folder, *words, *last, "finite", "--ctc_zero_infinity", "true")
    if not math.isfinite(results(folder, "finite")["eval_loss"]):
        sys.exit("--ctc_zero_infinity leaves the loss infinite")


def bad_texts(folder, train):
    """Texts that a CSV reads as numbers or as nothing are named, and left out when allowed."""
    texts = folder / "texts"
    for split in ("train", "test"):
        (texts / split).mkdir(parents=True)
        for i in range(3):
            write_sound(texts / split / f"{i}.wav", ["low"])
        (texts / split / "metadata.csv").write_text(
            "file_name,text\n0.wav,low\n1.wav,\n2.wav,low\n")
    words = [word if word != "." else "texts" for word in train]
    words += ["--max_steps", "1", "--save_strategy", "no", "--output_dir", "texts-run"]
    text = run(1, folder, *words)
    if "row 1: --text_column_name 'text' has no value" not in text:
        sys.exit(f"a row without a text is not named: {text[-1500:]}")
    run(0, folder, *words, "--skip_bad_rows", "1")
    if results(folder, "texts-run")["train_samples"] != 2:
        sys.exit("a row without a text is not left out")
    (texts / "train/metadata.csv").write_text("file_name,text\n0.wav,1\n1.wav,2\n")
    text = run(1, folder, *words)
    if "is int, expected text" not in text:
        sys.exit(f"numbers in place of texts are not named: {text[-1500:]}")
    text = run(2, folder, *words, "--label_smoothing_factor", "0.1")
    if "--label_smoothing_factor" not in text:
        sys.exit(f"label smoothing is not refused: {text[-1500:]}")
    text = run(2, folder, *words, "--train_split_name", "train+")
    if "a split without a name" not in text:
        sys.exit(f"a split without a name is not refused: {text[-1500:]}")
    text = run(1, folder, *words, "--train_split_name", "dev")
    if "no split 'dev'" not in text:
        sys.exit(f"a split that is not there is not named: {text[-1500:]}")


def shown(folder):
    """data show describes sound: a folder, a table with paths, and a page."""
    text = run(0, folder, "data", "show", "odd/train", "--html", "page.html")
    if "4 clips" not in text or "silent" not in text:
        sys.exit(f"data show does not describe the clips: {text}")
    if (folder / "page.html").read_text().count("<audio controls") != 3:
        sys.exit("the page has not three players")
    report = json.loads(run(0, folder, "data", "show", "odd/test/metadata.csv", "--json"))
    if report["sampling_rates"] != {"8000": 3, "44100": 1}:
        sys.exit(f"data show counts the rates wrongly: {report}")


def results(folder, name):
    return json.loads((folder / name / "all_results.json").read_text())


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder)
        data = ["--dataset_name", ".", "--train_split_name", "train", "--eval_split_name", "test"]
        train = [
            "train", "--task", "speech-recognition-ctc", *data, "--config_name", "config",
            "--do_train", "--do_eval", "--eval_metrics", "wer", "cer", "--use_cpu",
            "--freeze_feature_encoder", "false", "--mask_time_length", "2", "--learning_rate",
            "5e-3", "--per_device_train_batch_size", "8", "--report_to", "none", "--disable_tqdm"
        ]
        run(0, folder, *train, "--max_steps", "120", "--save_steps", "60", "--output_dir", "asr")
        metrics = results(folder, "asr")
        if not metrics["eval_loss"] <= 1.5 or "eval_cer" not in metrics:
            sys.exit(f"the model has not learnt: {metrics}")
        for file in ("vocab.json", "preprocessor_config.json", "tokenizer_config.json"):
            for place in ("asr", "asr/checkpoint-60"):
                if not (folder / place / file).exists():
                    sys.exit(f"{place} has no {file}")
        # The run that goes on from its middle ends as the one that was never stopped.
        before = (folder / "asr/model.safetensors").read_bytes()
        run(0, folder, *train, "--max_steps", "120", "--save_steps", "60", "--output_dir", "asr",
            "--resume_from_checkpoint", "asr/checkpoint-60")
        if (folder / "asr/model.safetensors").read_bytes() != before:
            sys.exit("the resumed run differs")
        run(0, folder, "predict", "--task", "speech-recognition-ctc", *data, "--model_name_or_path",
            "asr", "--tokenizer_name_or_path", "asr", "--use_cpu", "--output_dir", "said",
            "--report_to", "none")
        lines = (folder / "said/generated_predictions.txt").read_text().splitlines()
        if len(lines) != 8:
            sys.exit(f"expected 8 transcripts, received {lines}")
        run(0, folder, "predict", "--task", "speech-recognition-ctc", *data, "--model_name_or_path",
            "asr", "--tokenizer_name_or_path", "asr", "--use_cpu", "--output_dir", "alone",
            "--per_device_eval_batch_size", "1", "--report_to", "none")
        alone = (folder / "alone/generated_predictions.txt").read_text().splitlines()
        if "[UNK]" in "".join(alone):
            sys.exit(f"the end of short clips is read as an unknown symbol: {alone}")

        pretrain = [
            "train", "--task", "wav2vec2-pretraining", "--dataset_name", ".", "--config_name",
            "config", "--do_train", "--do_eval", "--validation_split_percentage", "20",
            "--min_duration_in_seconds", "0.1", "--max_steps", "20", "--logging_steps", "5",
            "--use_cpu", "--report_to", "none", "--disable_tqdm", "--output_dir", "pretrained"
        ]
        run(0, folder, *pretrain)
        if "eval_contrastive_loss" not in results(folder, "pretrained"):
            sys.exit("the pre-training has no eval_contrastive_loss")
        tuned = [word if word != "--config_name" else "--model_name_or_path" for word in train]
        tuned[tuned.index("config")] = "pretrained"
        run(0, folder, *tuned, "--max_steps", "2", "--save_strategy", "no", "--output_dir", "tuned")

        # Bad input.
        (folder / "train/3.wav").write_bytes(b"RIFF....WAVE")
        text = run(1, folder, *train, "--max_steps", "2", "--output_dir", "bad")
        if "G-AUDIO-1" not in text or "3.wav" not in text:
            sys.exit(f"a damaged clip is not named: {text[-1500:]}")
        text = run(0, folder, *train, "--max_steps", "2", "--output_dir", "bad", "--skip_bad_rows",
                   "1", "--save_strategy", "no")
        if "3.wav" not in text:
            sys.exit(f"the skipped clip is not named: {text[-1500:]}")
        (folder / "train/3.wav").unlink()
        odd_sound(folder, train)
        shown(folder)
        run(2, folder, *train, "--max_steps", "2", "--output_dir", "bad", "--text_column_name",
            "words", "--skip_bad_rows", "1")
        run(2, folder, *train, "--max_steps", "2", "--output_dir", "bad", "--eval_metrics", "bleu")
        bad_texts(folder, train)
    print("speech: trained, resumed, predicted, pre-trained; bad input is named")


if __name__ == "__main__":
    main()
