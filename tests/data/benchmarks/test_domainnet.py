"""ImageNet-D in DomainNet's layout: six domains, the classes ImageNet knows, scored by the map."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from acclimate.data import ImageSource
from acclimate.data.benchmarks import find_dataset, imagenet_d, missing_parts, open_dataset
from acclimate.data.benchmarks.imagenet_d import imagenet_d_classes, left_out
from acclimate.errors import AcclimateError, AcclimateWarning
from benchmarks_trees import TINY, class_folders, write_image

NAMES = imagenet_d_classes().names
OTHERS = tuple(left_out())


def open_tiny(root: Path, shift: str = "clipart", **options: object) -> ImageSource:
    return open_dataset(
        "imagenet-d", root, shift=shift, **{"preprocessing": TINY, "progress": False, **options}
    )


def test_folders_are_labelled_by_their_place_and_scored_through_the_map(tmp_path):
    class_folders(tmp_path / "clipart", reversed(NAMES), each=2)
    source = open_tiny(tmp_path)
    assert len(source) == 328
    assert source.labels is not None
    assert source.labels.tolist() == [label for label in range(164) for _ in range(2)]
    assert source.class_names == NAMES
    logits = torch.zeros(2, 1000)
    logits[0, 207] = logits[1, 603] = 1  # a golden retriever; a horse cart
    assert source.scoring is not None
    assert source.scoring.predict(logits).tolist() == [NAMES.index("dog"), -1]


def test_classes_imagenet_does_not_know_are_left_out_with_a_note(tmp_path, capsys):
    class_folders(tmp_path / "real", [*NAMES, *OTHERS[:3]], each=2)
    assert len(open_tiny(tmp_path, "real", progress=True)) == 328
    assert "imagenet-d: 6 of 334 images in" in capsys.readouterr().err


def test_a_folder_that_is_not_of_domainnet_is_named(tmp_path):
    class_folders(tmp_path / "clipart", [*NAMES, *OTHERS[:3], "unicorn"])
    with pytest.raises(AcclimateError, match=r"1 of 165 folders .* none of the 164 .*: unicorn;"):
        open_tiny(tmp_path, incomplete=True)


def test_missing_classes_are_named(tmp_path):
    class_folders(tmp_path / "clipart", NAMES[2:])
    with pytest.raises(AcclimateError, match=f"2 are missing: {NAMES[0]}, {NAMES[1]};"):
        open_tiny(tmp_path)
    with pytest.warns(AcclimateWarning, match="2 are missing"):
        source = open_tiny(tmp_path, incomplete=True)
    assert source.labels is not None
    assert source.labels.tolist() == list(range(2, 164))


def test_a_whole_domain_is_counted(tmp_path, monkeypatch):
    class_folders(tmp_path / "sketch", [*NAMES, *OTHERS])
    expected = "at least 69,128 images of all classes of DomainNet in .*, found 345;"
    with pytest.raises(AcclimateError, match=expected):
        open_tiny(tmp_path, "sketch")
    monkeypatch.setitem(imagenet_d._AT_LEAST, "sketch", 345)
    assert len(open_tiny(tmp_path, "sketch")) == 164


def test_a_missing_domain_names_all_that_are_missing(tmp_path):
    for domain in ("clipart", "real"):
        (tmp_path / domain).mkdir()
    assert missing_parts("imagenet-d", tmp_path) == ["infograph", "painting", "quickdraw", "sketch"]
    with pytest.raises(AcclimateError) as caught:
        open_tiny(tmp_path, "painting", incomplete=True)
    text = str(caught.value)
    assert "expected the folder painting" in text
    assert "Missing in all: infograph, painting, quickdraw, sketch\n" in text
    assert "https://ai.bu.edu/M3SDA" in text


def test_a_domain_has_to_be_chosen(tmp_path):
    with pytest.raises(AcclimateError, match="has 6 domains, and one has to be chosen"):
        open_dataset("imagenet-d", tmp_path)
    assert find_dataset("imagenet-d").dev == ()


# DomainNet's lists of training and test images.


@pytest.fixture
def listed(tmp_path):
    class_folders(tmp_path / "clipart", NAMES, each=3)
    lines = [f"clipart/{name}/image_0001.JPEG {n}" for n, name in enumerate(NAMES)]
    lines.append(f"clipart/{OTHERS[0]}/elsewhere.jpg 344")
    (tmp_path / "clipart_test.txt").write_text("\n".join(lines) + "\n\n")
    return tmp_path


@pytest.mark.parametrize("place", [".", "txt", "splits"])
def test_a_list_chooses_the_images_of_a_split(listed, place):
    (listed / place).mkdir(exist_ok=True)
    (listed / "clipart_test.txt").rename(listed / place / "clipart_test.txt")
    source = open_tiny(listed, split="test")
    assert len(source) == 164
    assert {name.split("/")[1] for name in source.names} == {"image_0001.JPEG"}
    assert len(open_tiny(listed)) == 492


def test_a_split_needs_its_list(listed):
    with pytest.raises(AcclimateError, match="split 'train' needs clipart_train"):
        open_tiny(listed, split="train")


def test_images_that_are_listed_but_not_there_are_named(listed):
    image_ = listed / "clipart" / NAMES[1] / "image_0001.JPEG"
    image_.unlink()
    with pytest.raises(AcclimateError, match=f"1 images of .* not in .*: {NAMES[1]}/image_0001"):
        open_tiny(listed, split="test")
    with pytest.warns(AcclimateWarning, match="1 images of"):
        assert len(open_tiny(listed, split="test", incomplete=True)) == 163


@pytest.mark.parametrize("line", ["nonsense", "real/zebra/1.jpg 3", "clipart/zebra.jpg 3"])
def test_a_bad_line_in_a_list_is_named(listed, line):
    with (listed / "clipart_test.txt").open("a") as file:
        file.write(line)
    with pytest.raises(AcclimateError, match="in line 167 of"):
        open_tiny(listed, split="test")


def test_images_of_any_kind_count(tmp_path):
    class_folders(tmp_path / "quickdraw", NAMES[1:])
    write_image(tmp_path / "quickdraw" / NAMES[0] / "a.png")
    assert len(open_tiny(tmp_path, "quickdraw")) == 164
