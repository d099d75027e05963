"""The Python side of images.py: images_peer.py make | train | eval FOLDER. `make` writes 160 JPEG
files, the others print images per second of torchvision's transforms on Pillow images."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import (CenterCrop, Compose, Normalize, RandomHorizontalFlip,
                                    RandomResizedCrop, Resize, ToTensor)

TAIL = [ToTensor(), Normalize([0.5] * 3, [0.5] * 3)]
TRANSFORMS = {
    "train": Compose([RandomResizedCrop((224, 224)), RandomHorizontalFlip(), *TAIL]),
    "eval": Compose([Resize((224, 224)), CenterCrop((224, 224)), *TAIL])
}


def make(folder):
    """Smooth noise of several scales, which compresses about as photographs do."""
    rng = np.random.default_rng(0)
    for i in range(160):
        image = sum(
            np.array(
                Image.fromarray(rng.integers(0, 256, (size, size, 3), np.uint8)).resize(
                    (1024, 768), Image.Resampling.BICUBIC), float) * weight
            for size, weight in ((4, 0.5), (32, 0.25), (128, 0.15), (512, 0.1)))
        path = folder / ("a" if i % 2 else "b") / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image.astype(np.uint8)).save(path, quality=90)
    return 160


def measure(mode, folder):
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(ImageFolder(folder, TRANSFORMS[mode]), batch_size=32)
    best = 0.0
    for _ in range(3):
        start = time.process_time()
        for _ in loader:
            pass
        best = max(best, len(loader.dataset) / (time.process_time() - start))
    return best


if __name__ == "__main__":
    mode, folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps({"value": make(folder) if mode == "make" else measure(mode, folder)}))
