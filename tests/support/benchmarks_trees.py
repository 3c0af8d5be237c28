"""Small real JPEG files in the layouts of the ImageNet family."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from acclimate.data import Preprocessing

TINY = Preprocessing(size=(8, 8))
"""The size the files have, so that reading thousands of them takes a moment."""


def write_image(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (value, value, value)).save(path, "JPEG")
    return path


def class_folders(base: Path, names: Iterable[str], *, each: int = 1) -> Path:
    """The same image in all the class folders; one file on disk, with many names."""
    original = write_image(base.parent / f".{base.name}-original.JPEG", 128)
    for name in names:
        (base / name).mkdir(parents=True)
        for number in range(each):
            os.link(original, base / name / f"image_{number:04}.JPEG")
    return base
