"""ImageNet-C: corruption, severity, class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data import ImageSource
from acclimate.data.benchmarks import find_dataset, imagenet, missing_parts, open_dataset
from acclimate.data.labels import imagenet_classes
from acclimate.errors import AcclimateError, AcclimateWarning
from benchmarks_trees import TINY, class_folders, write_image

IDS = imagenet_classes().ids or ()


def open_tiny(root: Path, shift: str, severity: int, **options: object) -> ImageSource:
    return open_dataset(
        "imagenet-c",
        root,
        shift=shift,
        severity=severity,
        **{"preprocessing": TINY, "progress": False, **options},
    )


def test_four_corruptions_are_held_out_and_fifteen_reported():
    record = find_dataset("imagenet-c")
    assert sorted(record.dev) == ["gaussian_blur", "saturate", "spatter", "speckle_noise"]
    assert len(record.test) == 15
    assert {"gaussian_noise", "fog", "jpeg_compression"} <= set(record.test)
    assert sorted(imagenet._GROUP_OF) == sorted(record.shifts)


@pytest.mark.parametrize("inside", ["defocus_blur/4", "blur/defocus_blur/4"])
def test_the_images_of_one_corruption_at_one_severity(tmp_path, inside):
    class_folders(tmp_path / inside, IDS)
    write_image(tmp_path / inside.replace("4", "5") / IDS[0] / "1.JPEG")
    with pytest.warns(AcclimateWarning, match=r"expected 50,000 images .* 50 in each .* 1,000"):
        source = open_tiny(tmp_path, "defocus_blur", 4, incomplete=True)
    assert source.labels is not None
    assert source.labels.tolist() == list(range(1000))
    with pytest.raises(AcclimateError, match=r"found 1,000 \(n01440764 has 1, .*, …\)"):
        open_tiny(tmp_path, "defocus_blur", 4)


def test_images_are_taken_as_stored(tmp_path):
    path = tmp_path / "fog" / "1" / IDS[2] / "1.JPEG"
    path.parent.mkdir(parents=True)
    noise = torch.randint(0, 256, (224, 224, 3), generator=torch.Generator().manual_seed(0))
    Image.fromarray(noise.to(torch.uint8).numpy()).save(path)
    with pytest.warns(AcclimateWarning):
        source = open_tiny(tmp_path, "fog", 1, incomplete=True, preprocessing=None)
    assert source.preprocessing is not None
    assert source.preprocessing.resize is None
    stored = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)
    assert torch.equal(source.read(torch.tensor([0]))[0], stored)


def test_all_that_is_missing_is_named_at_once(tmp_path):
    for name in find_dataset("imagenet-c").shifts:
        for severity in range(1, 6):
            if name != "snow" and (name, severity) not in [("fog", 2), ("fog", 5)]:
                (tmp_path / name / str(severity)).mkdir(parents=True)
    assert missing_parts("imagenet-c", tmp_path) == [
        *(f"snow/{severity}" for severity in range(1, 6)),
        "fog/2",
        "fog/5",
    ]
    with pytest.raises(AcclimateError) as caught:
        open_tiny(tmp_path, "fog", 2, incomplete=True)
    text = str(caught.value)
    assert "expected fog/2 (of weather.tar)" in text
    assert "Missing in all: snow, fog (2, 5)\n" in text
    assert "https://zenodo.org" in text


def test_a_part_without_any_class_folder_tells_how_to_get_it(tmp_path):
    (tmp_path / "fog" / "1").mkdir(parents=True)
    with pytest.raises(AcclimateError, match=r"the 1000 class folders of imagenet-c[\s\S]*zenodo"):
        open_tiny(tmp_path, "fog", 1, incomplete=True)


@pytest.mark.parametrize(
    ("shift", "severity", "message"),
    [("fogg", 1, "unknown corruption of imagenet-c 'fogg'"), ("fog", 6, "got 6")],
)
def test_unknown_corruptions_and_severities(tmp_path, shift, severity, message):
    with pytest.raises(AcclimateError, match=message):
        open_tiny(tmp_path, shift, severity)
