"""make.py FOLDER [CLIPS]: spoken digits, said by espeak-ng in many voices, speeds and pitches.

Writes FOLDER/train, FOLDER/test (voices that are not in train) and FOLDER/tenth (the texts of every
tenth clip of train), each with metadata.csv, and FOLDER/config: what `--config_name` takes for a
small wav2vec 2.0 with fresh weights. CLIPS is the number of clips to train on. Needs espeak-ng, and
Python without packages.
"""
import concurrent.futures
import csv
import json
import pathlib
import random
import subprocess
import sys
import wave

DIGITS = "zero one two three four five six seven eight nine".split()
ACCENTS = ["en-us", "en-gb", "en-gb-x-rp", "en-029"]
VOICES = (
    "m1 m2 m3 m4 m6 m7 m8 f1 f2 f3 f5 max steph steph2 steph3 linda edward edward2 adam anika "
    "antonio aunty benjamin boris caleb ed iven iven2 iven3 iven4 john michel miguel pablo paul "
    "pedro rob robert sandro travis victor zac klatt klatt2 klatt3 klatt4 klatt5 klatt6 Alex "
    "Alicia Andrea Andy Annie Denis Diogo Gene Gene2 Henrique Hugo Jacky Lee Marco Mario Michael "
    "Mike Nguyen gustave marcelo norbert quincy shelby grandma grandpa kaukovalta").split()
HELD_OUT = "m5 f4 belinda david".split()
RATE = 8000
CONFIG = {
    "model_type": "wav2vec2", "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 192, "conv_dim": [32, 48, 64, 64], "conv_kernel": [16, 8, 4, 4],
    "conv_stride": [8, 4, 2, 2], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True,
    "num_codevectors_per_group": 24, "num_codevector_groups": 2, "codevector_dim": 64,
    "proj_codevector_dim": 64, "num_negatives": 20, "mask_time_prob": 0.5, "mask_time_length": 5,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "feat_proj_dropout": 0.0, "feat_quantizer_dropout": 0.0, "layerdrop": 0.0
}


def say(file, text, voice, speed, pitch):
    # -z: without half a second of silence at the end.
    words = ["-z", "-v", voice, "-s", str(speed), "-p", str(pitch), "-w", str(file), text]
    subprocess.run(["espeak-ng", *words], check=True)
    # Lengths are multiples of a fifth of a second: batches of few shapes are faster, because a
    # convolution is prepared for each.
    with wave.open(str(file), "rb") as sound:
        form, samples = sound.getparams(), sound.readframes(sound.getnframes())
    samples += bytes(-len(samples) % (form.framerate // 5 * form.sampwidth))
    with wave.open(str(file), "wb") as sound:
        sound.setparams(form)
        sound.writeframes(samples)


def make(root, split, count, voices, speeds, pitches, rng):
    folder = root / split
    folder.mkdir(parents=True, exist_ok=True)
    rows, jobs = [], []
    for i in range(count):
        text = " ".join(rng.choices(DIGITS, k=rng.randint(1, 3)))
        voice = f"{rng.choice(ACCENTS)}+{rng.choice(voices)}"
        file = folder / f"{i:04d}.wav"
        jobs.append((file, text, voice, rng.randint(*speeds), rng.randint(*pitches)))
        rows.append((file.name, text, voice))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(say, *words) for words in jobs]:
            job.result()
    write(folder, rows)
    return rows


def write(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "metadata.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file_name", "text", "voice"), *rows])


def main():
    root, rng = pathlib.Path(sys.argv[1]), random.Random(0)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 6000
    make(root, "test", 240 if count > 240 else 8, HELD_OUT, (130, 190), (30, 70), rng)
    rows = make(root, "train", count, VOICES, (120, 200), (20, 80), rng)
    write(root / "tenth", [(f"../train/{name}", *said) for name, *said in rows[::10]])
    (root / "config").mkdir(exist_ok=True)
    (root / "config/config.json").write_text(json.dumps(CONFIG, indent=2))
    # Without a mask the padding is silence, which the model learns to say nothing about.
    (root / "config/preprocessor_config.json").write_text(
        json.dumps({"feature_size": 1, "sampling_rate": RATE, "do_normalize": True,
                    "return_attention_mask": False}, indent=2))


if __name__ == "__main__":
    main()
