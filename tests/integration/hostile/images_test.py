#!/usr/bin/env python3
"""Images from strangers: small files that take long to look at.

    python images_test.py GRADUS
"""
import shutil
import tempfile
from pathlib import Path

import hostile

SEEDS = Path(__file__).resolve().parents[2] / "fuzz" / "seeds" / "images"


def main():
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for label in "ab":
            (top / "photos" / label).mkdir(parents=True)
            shutil.copy(SEEDS / "jpeg_0", top / "photos" / label / "good.jpg")
        whole = (SEEDS / "jpeg_0").read_bytes()
        blocks = b"\xff\xe1\x00\x0aExif\0\0xx" * 300_000
        (top / "photos" / "a" / "blocks.jpg").write_bytes(whole[:2] + blocks + whole[2:])
        hostile.accepts("very many blocks of Exif", ["data", "show", top / "photos"], top)
        hostile.finish(1)


main()
