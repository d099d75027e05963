"""make.py FOLDER: writes a data set of drawn shapes, FOLDER/train and FOLDER/validation, with one
folder of PNG files per class: circle, cross, square, triangle.

Shapes have any colour, size and place on a noisy ground. Needs Python without packages.
"""
import pathlib
import random
import struct
import sys
import zlib

CLASSES = ["circle", "cross", "square", "triangle"]


def png(width, height, rows):
    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data +
                struct.pack(">I", zlib.crc32(name + data)))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(
        b"IEND", b"")


def is_inside(name, x, y):
    """Whether a point of the square from -1 to 1 belongs to the shape."""
    if name == "circle":
        return x * x + y * y <= 1
    if name == "cross":
        return abs(x) <= 0.35 or abs(y) <= 0.35
    if name == "square":
        return True
    return abs(x) <= (y + 1) / 2


def draw(rng, name):
    width, height = rng.randrange(36, 56), rng.randrange(36, 56)
    radius = rng.uniform(0.28, 0.42) * min(width, height)
    middle = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
    ground = [rng.randrange(0, 110) for _ in range(3)]
    colour = [rng.randrange(140, 256) for _ in range(3)]
    if rng.random() < 0.5:
        ground, colour = colour, ground
    rows = []
    for y in range(height):
        row = []
        for x in range(width):
            u, v = (x - middle[0]) / radius, (y - middle[1]) / radius
            inside = abs(u) <= 1 and abs(v) <= 1 and is_inside(name, u, v)
            for value in colour if inside else ground:
                row.append(max(0, min(255, value + rng.randrange(-20, 21))))
        rows.append(row)
    return png(width, height, rows)


def main():
    root, rng = pathlib.Path(sys.argv[1]), random.Random(0)
    for split, count in (("train", 300), ("validation", 50)):
        for name in CLASSES:
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                (folder / f"{i:04d}.png").write_bytes(draw(rng, name))


if __name__ == "__main__":
    main()
