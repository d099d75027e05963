"""Makes the fixtures beside this script: small images with the pixels that Pillow decodes, and what
torchvision and transformers make of them.

decode.safetensors      bytes/NAME (a file) and rgb/NAME (its pixels); the names of damaged/NAME end
                        with the error that gradus reports
transforms.safetensors  the image, resized/FILTER_HEIGHT_WIDTH, crops (what RandomResizedCrop and
                        RandomHorizontalFlip draw), and train/N and eval/N: whole pipelines
processors.safetensors  pixel_values of image processors; their configs are in the metadata

The files are also what tests/fuzz/fuzz_image.cpp starts from (tests/fuzz/seeds/images).
Run with the peer's Python: `python make_fixtures.py`.
"""
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image, ImageOps
from safetensors.torch import save_file
from torchvision import transforms

OUT = pathlib.Path(__file__).parent / "fixtures"
SEEDS = pathlib.Path(__file__).parents[2] / "fuzz/seeds/images"
VERSIONS = {
    "pillow": PIL.__version__, "torchvision": torchvision.__version__,
    "transformers": transformers.__version__, "seed": "0"
}


def picture(width, height, channels=3, seed=0):
    """Slopes, an edge and some noise: what filters and codecs treat differently."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height), 255 - x * 3]
    image = np.stack(planes[:channels], -1) + rng.normal(0, 20, (height, width, channels))
    image[:, width // 3:width // 3 + 2] = 0
    return np.clip(image, 0, 255).astype(np.uint8)


def encode(array, mode, kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(array, mode).save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, depth, colour, rows, *extra):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"".join([
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), *extra, chunk(b"IDAT", zlib.compress(rows)),
        chunk(b"IEND", b"")
    ])


def png16(colour, channels):
    values = np.linspace(0, 65535, 9 * 4 * channels).astype(">u2").reshape(4, 9 * channels)
    values[0, :4] = [0, 200, 255, 256]
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    return png(9, 4, 16, colour, rows)


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def images():
    rgb, grey = picture(37, 29), picture(23, 31, 1)[:, :, 0]
    files = {
        "png_rgb": encode(rgb, "RGB", "PNG"), "png_grey": encode(grey, "L", "PNG"),
        "png_rgba": encode(picture(21, 18, 4), "RGBA", "PNG"),
        "png_grey_alpha": encode(picture(21, 18, 2), "LA", "PNG"), "png16_grey": png16(0, 1),
        "png16_rgb": png16(2, 3), "png16_grey_alpha": png16(4, 2), "png16_rgba": png16(6, 4)
    }
    palette = chunk(b"PLTE", bytes([10, 20, 30, 40, 50, 60, 7, 8, 9]))
    for depth in (1, 2, 4):
        rows = b"".join(b"\0" + bytes([0b00011011, 0b11100100]) for _ in range(3))
        files[f"png{depth}_grey"] = png(16 // depth, 3, depth, 0, rows)
        files[f"png{depth}_palette"] = png(16 // depth, 3, depth, 3, rows, palette)
    files["png8_palette_outside"] = png(6, 1, 8, 3, b"\0" + bytes([0, 1, 2, 3, 200, 255]), palette)
    files["png_palette_alpha"] = png(3, 1, 8, 3, b"\0\0\1\2", palette, chunk(b"tRNS", b"\0\x80"))
    files["png_grey_transparent"] = png(3, 1, 8, 0, b"\0\0\1\2", chunk(b"tRNS", b"\0\1"))
    # seven passes of an interlaced image of 8 x 8, without a filter
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
              (0, 1, 1, 2)]
    square = picture(8, 8)
    rows = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes
                    for row in square[y::dy, x::dx])
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 1)
    files["png_interlaced"] = b"".join([
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)),
        chunk(b"IEND", b"")
    ])
    files["jpeg_grey"] = encode(grey, "L", "JPEG", quality=80)
    files["jpeg_cmyk"] = encode(picture(21, 18, 4), "CMYK", "JPEG", quality=80)
    files["jpeg_progressive"] = encode(rgb, "RGB", "JPEG", quality=70, progressive=True)
    for subsampling in (0, 1, 2):
        files[f"jpeg_{subsampling}"] = encode(rgb, "RGB", "JPEG", quality=85,
                                              subsampling=subsampling)
    files["jpeg_restart"] = encode(rgb, "RGB", "JPEG", quality=85, restart_marker_blocks=2)
    files["webp_lossy"] = encode(rgb, "RGB", "WEBP", quality=70)
    files["webp_lossless"] = encode(rgb, "RGB", "WEBP", lossless=True)
    files["webp_alpha"] = encode(picture(21, 18, 4), "RGBA", "WEBP", quality=70)
    frames = [Image.fromarray(picture(20, 16, seed=s)) for s in (1, 2)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    files["webp_animated"] = buffer.getvalue()
    for orientation in range(1, 9):
        files[f"jpeg_turned_{orientation}"] = encode(picture(11, 7), "RGB", "JPEG", quality=90,
                                                     exif=exif(orientation))
    # Orientations that are longer than the format asks for, and that ImageMagick writes as a text.
    for order, mark in (("<", b"II*\0"), (">", b"MM\0*")):
        long = mark + struct.pack(order + "IHHHIII", 8, 1, 0x112, 4, 1, 6, 0)
        files[f"jpeg_turned_long_{mark[:2].decode()}"] = encode(picture(11, 7), "RGB", "JPEG",
                                                                exif=b"Exif\0\0" + long)
    text = f"\nexif\n{len(exif(6)):8}\n{exif(6).hex()[:36]}\n{exif(6).hex()[36:]}\n".encode()
    rows = b"".join(b"\0" + row.tobytes() for row in picture(11, 7))
    files["png_turned_text"] = png(
        11, 7, 8, 2, rows, chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text)))
    files["png_turned"] = encode(picture(11, 7), "RGB", "PNG", exif=exif(6))
    files["webp_turned"] = encode(picture(11, 7), "RGB", "WEBP", lossless=True, exif=exif(8))
    return files


def damaged(files):
    """Files that no image can be made of, by the id of the error."""
    wide = struct.pack(">IIBBBBB", 1_000_000, 1_000_000, 8, 2, 0, 0, 0)
    flipped = bytearray(files["png_rgb"])
    flipped[len(flipped) // 2] ^= 255
    return {
        "text/G-IMG-1": b"not an image at all", "empty/G-IMG-1": b"x",
        "gif/G-IMG-1": b"GIF89a" + bytes(40),
        "png_cut/G-IMG-2": files["png_rgb"][:len(files["png_rgb"]) // 2],
        "png_header_cut/G-IMG-2": files["png_rgb"][:20], "png_flipped/G-IMG-2": bytes(flipped),
        "png_rows_missing/G-IMG-2": png(4, 9, 8, 0, b"\0abcd"),
        "png_filter/G-IMG-2": png(4, 1, 8, 0, b"\7abcd"),
        "jpeg_cut/G-IMG-2": files["jpeg_0"][:len(files["jpeg_0"]) // 2],
        "jpeg_header_cut/G-IMG-2": files["jpeg_0"][:100],
        "jpeg_progressive_cut/G-IMG-2": files["jpeg_progressive"][:-40],
        "webp_cut/G-IMG-2": files["webp_lossy"][:len(files["webp_lossy"]) // 2],
        "webp_header_cut/G-IMG-2": files["webp_lossy"][:16],
        "png_zero/G-IMG-2": png(0, 4, 8, 0, b""),
        "png_wide/G-IMG-3": b"".join([
            b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", wide), chunk(b"IDAT", zlib.compress(b"")),
            chunk(b"IEND", b"")
        ])
    }


def bytes_tensor(data):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone()


def make_decode():
    files = images()
    tensors = {}
    for name, data in files.items():
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        tensors[f"bytes/{name}"] = bytes_tensor(data)
        (SEEDS / name).write_bytes(data)
        tensors[f"rgb/{name}"] = torch.from_numpy(np.array(image))
    for name, data in damaged(files).items():
        tensors[f"damaged/{name}"] = bytes_tensor(data)
        try:
            Image.open(io.BytesIO(data)).convert("RGB")
            print(name, "is read by Pillow")
        except Exception as error:
            print(name, type(error).__name__)
    save_file(tensors, OUT / "decode.safetensors", VERSIONS)


def make_transforms():
    image = Image.fromarray(picture(61, 47, seed=3))
    tensors = {"image": torch.from_numpy(np.array(image))}
    filters = {"lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
    for name, number in filters.items():
        for height, width in ((13, 17), (47, 30), (20, 61), (90, 100), (1, 1), (13, 55), (20, 90)):
            resized = image.resize((width, height), number)
            tensors[f"resized/{name}_{height}_{width}"] = torch.from_numpy(np.array(resized))
    crops = []
    torch.manual_seed(7)
    for width, height in ((61, 47), (500, 375), (375, 500), (20, 3000), (3000, 20), (1, 1), (2, 3)):
        for _ in range(12):
            top, left, h, w = transforms.RandomResizedCrop.get_params(
                Image.new("L", (width, height)), (0.08, 1.0), (3 / 4, 4 / 3))
            crops.append([height, width, top, left, h, w, int(torch.rand(1).item() < 0.5)])
    tensors["crops"] = torch.tensor(crops)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    normalize = transforms.Normalize(mean, std)
    for number, size in enumerate(((24, 24), (19, 31), 24)):
        train = transforms.Compose([
            transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(),
            transforms.ToTensor(), normalize
        ])
        val = transforms.Compose(
            [transforms.Resize(size), transforms.CenterCrop(size),
             transforms.ToTensor(), normalize])
        torch.manual_seed(11)
        tensors[f"train/{number}"] = torch.stack([train(image) for _ in range(6)])
        tensors[f"eval/{number}"] = val(image)
    for number, size in enumerate(((50, 60), (60, 20), (47, 61), (80, 80))):
        tensors[f"center/{size[0]}_{size[1]}"] = torch.from_numpy(
            np.array(transforms.CenterCrop(size)(image)))
    save_file(tensors, OUT / "transforms.safetensors", VERSIONS)


def make_processors():
    image = Image.fromarray(picture(61, 47, seed=3))
    vit, convnext = transformers.ViTImageProcessorPil, transformers.ConvNextImageProcessorPil
    processors = {
        "vit": vit(size={"height": 24, "width": 24}),
        "vit_wide": vit(size={"height": 20, "width": 33}, resample=3,
                        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]),
        "vit_plain": vit(do_resize=False, do_normalize=False),
        "convnext": convnext(size={"shortest_edge": 32}),
        "convnext_pct": convnext(size={"shortest_edge": 28}, crop_pct=0.95, resample=2),
        "convnext_large": convnext(size={"shortest_edge": 384}),
        "convnext_odd_rest": convnext(size={"shortest_edge": 28}, crop_pct=0.9),
        "vit_nearest": vit(size={"height": 25, "width": 90}, resample=0),
        "vit_pair": vit(size=[20, 33]),
        "vit_middle": vit(size={"height": 35, "width": 24}, do_center_crop=True,
                          crop_size={"height": 20, "width": 24})
    }
    tensors, metadata = {"image": torch.from_numpy(np.array(image))}, dict(VERSIONS)
    for name, processor in processors.items():
        pixels = processor(image, return_tensors="pt").pixel_values[0]
        tensors[name] = pixels if name != "convnext_large" else pixels[:, ::16, ::16].contiguous()
        config = processor.to_dict()
        config["image_processor_type"] = config["image_processor_type"].removesuffix("Pil")
        metadata["config/" + name] = json.dumps(config)
    save_file(tensors, OUT / "processors.safetensors", metadata)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    SEEDS.mkdir(exist_ok=True)
    make_decode()
    make_transforms()
    make_processors()
    for path in sorted(OUT.iterdir()):
        print(path.name, path.stat().st_size)
