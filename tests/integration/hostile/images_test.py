#!/usr/bin/env python3
"""Images from strangers: small files that take long to look at.

    python images_test.py GRADUS
"""
import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import hostile

SEEDS = Path(__file__).resolve().parents[2] / "fuzz" / "seeds" / "images"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_texts(count):
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(b"a" * 7_900_000, 9))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\0"))
    return b"\x89PNG\r\n\x1a\n" + header + text * count + pixel + chunk(b"IEND", b"")


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
        for label in "ab":
            (top / "texts" / label).mkdir(parents=True)
            (top / "texts" / label / "texts.png").write_bytes(png_of_texts(990))
        hostile.accepts("very many packed texts", ["data", "show", top / "texts"], top)
        hostile.finish(2)


main()
