"""The Python side of audio.py: audio_peer.py make FOLDER RATE | read FOLDER. `make` writes 48 FLAC
files, `read` prints clips per second of soundfile, torchaudio's resampling and transformers'
feature extractor behind torch's loader. No torchaudio fits every torch: its algorithm stands
here."""

import functools
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
import torch
from transformers import Wav2Vec2FeatureExtractor


def make(folder, rate):
    """Clips of 8 to 12 seconds: gliding tones with overtones and some noise."""
    rng = np.random.default_rng(0)
    for i in range(48):
        t = np.arange(int(rate * rng.uniform(8, 12))) / rate
        pitch = 120 + 60 * np.sin(2 * np.pi * rng.uniform(0.2, 2) * t)
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        voice = sum(np.sin(k * phase) / k for k in range(1, 12))
        sound = 0.1 * voice * (0.5 + 0.5 * np.sin(2 * np.pi * 3 * t)) + rng.normal(0, 0.003, len(t))
        soundfile.write(folder / f"{i:03d}.flac", sound, rate, subtype="PCM_16")
    return 48


@functools.cache
def kernel(old, new):
    """A sinc filter of width 6 with a Hann window and a roll-off of 0.99, for each phase."""
    base = min(old, new) * 0.99
    width = math.ceil(6 * old / base)
    places = torch.arange(-width, width + old)[None, None] / old
    t = (torch.arange(0, -new, -1)[:, None, None] / new + places) * base
    t = t.clamp(-6, 6)
    window = torch.cos(t * math.pi / 6 / 2)**2
    t = t * math.pi
    return torch.where(t == 0, 1.0, t.sin() / t) * window * base / old, width


def resample(sound, rate, to=16000):
    if rate == to:
        return sound
    common = math.gcd(rate, to)
    old, new = rate // common, to // common
    taps, width = kernel(old, new)
    padded = torch.nn.functional.pad(sound[None], (width, width + old))
    found = torch.nn.functional.conv1d(padded[:, None], taps, stride=old)
    return found.transpose(1, 2).reshape(-1)[:math.ceil(new * len(sound) / old)]


class Clips(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.glob("*.flac"))
        self.extractor = Wav2Vec2FeatureExtractor()

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        sound, rate = soundfile.read(self.files[index], dtype="float32")
        sound = resample(torch.from_numpy(sound), rate)
        return self.extractor(sound.numpy(), sampling_rate=16000)["input_values"][0]

    def collate(self, clips):
        return self.extractor.pad({"input_values": clips}, return_tensors="pt")


def measure(folder):
    torch.set_num_threads(1)
    clips = Clips(folder)
    loader = torch.utils.data.DataLoader(clips, batch_size=8, collate_fn=clips.collate)
    best = 0.0
    for _ in range(3):
        start = time.process_time()
        for _ in loader:
            pass
        best = max(best, len(clips) / (time.process_time() - start))
    return best


if __name__ == "__main__":
    mode, folder = sys.argv[1], Path(sys.argv[2])
    found = make(folder, int(sys.argv[3])) if mode == "make" else measure(folder)
    print(json.dumps({"value": found}))
