"""Broken image files cost themselves, and no other image anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st
from PIL import Image

from acclimate.data import open_images
from acclimate.data.decode import UnreadableImageError, decode
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from broken_images import KINDS, NOISE, broken_images, encoded, odd_images
from fuzzing import cases, damaged_bytes

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, and of what is left out

SMALL = Preprocessing(size=(8, 8))
ODD, BROKEN = odd_images(), broken_images()
WHOLE = {f"whole.{kind.lower()}": encoded(Image.fromarray(NOISE), kind) for kind in KINDS}


@pytest.mark.parametrize("name", [*ODD, *WHOLE])
def test_every_mode_is_read(name: str) -> None:
    pixels = decode((ODD | WHOLE)[name], SMALL)
    assert pixels.shape == SMALL.shape
    assert pixels.max() > pixels.min() or name == "one-pixel.png"


@pytest.mark.parametrize("name", BROKEN)
def test_every_broken_file_has_a_reason(name: str) -> None:
    with pytest.raises(UnreadableImageError):
        decode(BROKEN[name], SMALL)


def folder_of(files: dict[str, bytes], root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, content in files.items():
        (root / name).write_bytes(content)
    return root


@cases(60)
@given(
    st.sets(st.sampled_from(sorted(ODD | WHOLE)), max_size=4),
    st.sets(st.sampled_from(sorted(BROKEN)), max_size=6),
)
def test_broken_files_cost_only_themselves(
    tmp_path_factory: pytest.TempPathFactory, good: set[str], bad: set[str]
) -> None:
    files = {name: (ODD | WHOLE | BROKEN)[name] for name in good | bad}
    root = folder_of(files, tmp_path_factory.getbasetemp() / "images")
    if not good:
        with pytest.raises(AcclimateError):
            open_images(root, preprocessing=SMALL, progress=False)
        return
    source = open_images(root, preprocessing=SMALL, progress=False)
    assert list(source.names) == sorted(good)
    assert {skipped.name for skipped in source.skipped} == bad
    found = source.read(torch.arange(len(source)))
    for name, pixels in zip(source.names, found, strict=True):
        assert torch.equal(pixels, torch.as_tensor(decode(files[name], SMALL)))


@cases(150)
@given(st.data())
def test_damaged_files_are_read_or_have_a_reason(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ODD | WHOLE)))
    content = data.draw(damaged_bytes((ODD | WHOLE)[name]))
    try:
        assert decode(content, SMALL).shape == SMALL.shape
        event("read")
    except UnreadableImageError:
        event("refused")
