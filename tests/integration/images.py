"""images.py GRADUS: image classification of the program on folders of good and bad images.

Damaged files, a header that claims too much and a folder with one class are answered with their
errors; CMYK and 16-bit images are trained on. Uses only the standard library.
"""

import json
import shutil
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from program import run, says

SEEDS = Path(__file__).resolve().parents[1] / "fuzz/seeds/images"
SHAPE = ("image_size=16,patch_size=8,hidden_size=16,num_attention_heads=2,num_hidden_layers=1,"
         "intermediate_size=16")
TRAIN = [
    "train", "--task", "image-classification", "--model_type", "vit", "--config_overrides", SHAPE,
    "--do_train", "--max_steps", "2", "--per_device_train_batch_size", "8", "--use_cpu",
    "--report_to", "none", "--disable_tqdm", "--save_strategy", "no"
]
GOOD = ["--validation_dir", "good"]


def chunk(kind, data):
    whole = kind + data
    return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))


def wide_png():
    """A file of 60 bytes that claims a million pixels in each direction."""
    header = struct.pack(">IIBBBBB", 1_000_000, 1_000_000, 8, 2, 0, 0, 0)
    return b"".join([
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"")),
        chunk(b"IEND", b"")
    ])


def make(root, **more):
    """Two classes with four images each; `more` are further files of the class cat."""
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for i, seed in enumerate(("jpeg_0", "jpeg_2", "png_rgb", "webp_lossy")):
            shutil.copy(SEEDS / seed, root / name / f"{i}.jpg")  # the content counts
    for file, content in more.items():
        (root / "cat" / file.replace("_", ".")).write_bytes(content)


def bad_files(folder):
    """A bad file ends the run with its name; --skip_bad_rows leaves it out with its name."""
    jpeg = (SEEDS / "jpeg_0").read_bytes()
    for name, file, content, words in (
            ("cut", "bad_jpg", jpeg[:len(jpeg) // 2], ["G-IMG-2", "is damaged: the file is cut"]),
            ("wide", "bad_png", wide_png(), ["G-IMG-3", "1000000 x 1000000 pixels"]),
            ("text", "bad_jpg", b"no image", ["G-IMG-1", "begins like no PNG, JPEG or WebP"])):
        make(folder / name, **{file: content})
        bad = f"{name}/cat/{file.replace('_', '.')}"
        for more in ([], ["--scaled_decoding"]):
            text = run(1, folder, *TRAIN, *GOOD, "--train_dir", name, *more, "--output_dir", "bad")
            says(text, bad, *words)
        text = run(0, folder, *TRAIN, *GOOD, "--train_dir", name, "--skip_bad_rows", "1",
                   "--output_dir", f"{name}-run")
        says(text, "Left out: " + bad)
        results = json.loads((folder / f"{name}-run/all_results.json").read_text())
        if results["train_samples"] != 8:
            sys.exit(f"{name}: expected 8 rows, received {results['train_samples']}")
    make(folder / "two", bad_jpg=b"no image", worse_jpg=b"neither")
    text = run(1, folder, *TRAIN, *GOOD, "--train_dir", "two", "--skip_bad_rows", "1",
               "--output_dir", "bad")
    says(text, "G-IMG-7", "more than 1 images cannot be read")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "good")
        make(folder / "kinds", cmyk_jpg=(SEEDS / "jpeg_cmyk").read_bytes(),
             deep_png=(SEEDS / "png16_grey").read_bytes())
        run(0, folder, *TRAIN, *GOOD, "--train_dir", "kinds", "--output_dir", "kinds-run")
        results = json.loads((folder / "kinds-run/all_results.json").read_text())
        if results["train_samples"] != 10:
            sys.exit(f"CMYK or 16-bit images were left out: {results}")
        bad_files(folder)
        make(folder / "one")
        shutil.rmtree(folder / "one/dog")
        text = run(1, folder, *TRAIN, "--train_dir", "one", "--output_dir", "bad")
        says(text, "G-IMG-5", "there is one class only ('cat')")
    print("images: CMYK and 16-bit images are trained on; bad input is named")


if __name__ == "__main__":
    main()
