"""A corpus of image files that are odd, broken or hostile.

python tests/support/broken_images.py FOLDER   writes it, to try on other programs
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

NOISE = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
KINDS = ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_of_size(width: int, height: int) -> bytes:
    """A header that promises so many pixels, and next to no data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0")), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def odd_images() -> dict[str, bytes]:
    """Files that are images, of every mode."""
    image = Image.fromarray(NOISE)
    frames = [image.rotate(90), image.rotate(180)]
    return {
        "palette.png": encoded(image.convert("P"), "PNG"),
        "transparent-palette.png": encoded(image.convert("P"), "PNG", transparency=3),
        "alpha.png": encoded(image.convert("RGBA"), "PNG"),
        "grey-alpha.png": encoded(image.convert("LA"), "PNG"),
        "one-bit.png": encoded(image.convert("1"), "PNG"),
        "sixteen-bit.png": encoded(Image.fromarray(NOISE[..., 0].astype(np.uint16) * 257), "PNG"),
        "float.tiff": encoded(Image.fromarray(NOISE[..., 0].astype(np.float32) / 255), "TIFF"),
        "cmyk.jpg": encoded(image.convert("CMYK"), "JPEG"),
        "animated.gif": encoded(image, "GIF", save_all=True, append_images=frames),
        "animated.webp": encoded(image, "WEBP", save_all=True, append_images=frames),
        "pages.tiff": encoded(image, "TIFF", save_all=True, append_images=frames),
        "one-pixel.png": encoded(image.resize((1, 1)), "PNG"),
        "jpeg-in-a.png": encoded(image, "JPEG"),
        "png-in-a.jpg": encoded(image, "PNG"),
    }


def broken_images() -> dict[str, bytes]:
    """Files with the name of an image and no image in them."""
    image = Image.fromarray(NOISE)
    found = {
        "empty.png": b"",
        "zeros.jpg": bytes(1000),
        "text.png": b"not an image",
        "page.gif": b"<html>404</html>",
        "huge.png": png_of_size(2**31 - 1, 2**31 - 1),
        "wide.png": png_of_size(2**31 - 1, 1),
        "bomb.png": png_of_size(30_000, 30_000),
        "no-pixels.png": png_of_size(0, 0),
    }
    for kind in KINDS:
        whole, name = encoded(image, kind), kind.lower()
        found[f"header-alone.{name}"] = whole[:10]
        found[f"wrong-header.{name}"] = b"\0\0\0\0" + whole[4:]
    for kind in ("PNG", "WEBP", "BMP"):  # of others Pillow shows what is there
        found[f"truncated.{kind.lower()}"] = encoded(image, kind)[:-60]
    return found


def write_corpus(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**odd_images(), **broken_images()}.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
