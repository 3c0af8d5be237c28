"""ImageNet-R, -A, V2 and Sketch: which classes, which labels, how many images."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from acclimate.data import ImageSource
from acclimate.data.benchmarks import missing_parts, open_dataset
from acclimate.data.benchmarks.imagenet import subset_classes
from acclimate.data.labels import imagenet_classes
from acclimate.errors import AcclimateError, AcclimateWarning
from benchmarks_trees import TINY, class_folders, write_image

IDS = imagenet_classes().ids or ()


def open_tiny(name: str, root: Path, **options: object) -> ImageSource:
    return open_dataset(name, root, preprocessing=TINY, progress=False, **options)


def ids_of(name: str) -> list[str]:
    return [IDS[index] for index in subset_classes(name)]


@pytest.mark.parametrize("name", ["imagenet-r", "imagenet-a"])
def test_the_class_lists_hold_200_classes_each(name):
    indices = subset_classes(name)
    assert len(set(indices)) == 200
    assert list(indices) == sorted(indices)
    assert 0 <= indices[0] <= indices[-1] < 1000


@pytest.mark.parametrize("name", ["imagenet-r", "imagenet-a"])
def test_the_class_lists_are_those_timm_ships(name):
    spec = importlib.util.find_spec("timm")  # its files are enough, no need to import all of it
    if spec is None or spec.origin is None:
        pytest.skip("timm is not installed")
    file = Path(spec.origin).parent / "data" / "_info" / f"{name.replace('-', '_')}_synsets.txt"
    assert ids_of(name) == file.read_text().split()


def test_imagenet_a_whole(tmp_path):
    # 37.5 images a class on average: half of the classes have one less.
    class_folders(tmp_path / "imagenet-a", ids_of("imagenet-a")[:100], each=37)
    class_folders(tmp_path / "imagenet-a", ids_of("imagenet-a")[100:], each=38)
    source = open_tiny("imagenet-a", tmp_path)
    assert len(source) == 7500
    assert source.labels is not None
    assert source.labels.unique().tolist() == list(subset_classes("imagenet-a"))
    logits = torch.zeros(1, 1000)
    logits[0, [0, 6, 988]] = torch.tensor([9.0, 1.0, 2.0])
    assert source.scoring is not None
    assert source.scoring.predict(logits).tolist() == [988]  # 0, the tench, is not asked


@pytest.mark.parametrize("inside", ["imagenet-r", "."])
def test_imagenet_r_is_labelled_by_imagenets_indices(tmp_path, inside):
    class_folders(tmp_path / "root" / inside, ids_of("imagenet-r"))
    with pytest.raises(AcclimateError, match=r"expected 30,000 images .* found 200 \(the smallest"):
        open_tiny("imagenet-r", tmp_path / "root")
    with pytest.warns(AcclimateWarning, match="expected 30,000"):
        source = open_tiny("imagenet-r", tmp_path / "root", incomplete=True)
    assert source.labels is not None
    assert tuple(source.labels.tolist()) == subset_classes("imagenet-r")
    assert source.scoring is not None
    assert source.scoring.keep is not None
    assert tuple(source.scoring.keep.tolist()) == subset_classes("imagenet-r")


def test_a_class_outside_the_200_is_named(tmp_path):
    class_folders(tmp_path, [*ids_of("imagenet-r"), IDS[0]])
    with pytest.raises(AcclimateError, match=f"1 of 201 folders .* none of the 200 .*: {IDS[0]};"):
        open_tiny("imagenet-r", tmp_path, incomplete=True)


def test_a_class_without_images_is_named(tmp_path):
    class_folders(tmp_path, ids_of("imagenet-r"))
    empty = ids_of("imagenet-r")[5]
    (tmp_path / empty / "image_0000.JPEG").unlink()
    with pytest.raises(AcclimateError, match=f"found 199 .{empty} has 0"):
        open_tiny("imagenet-r", tmp_path)


V2 = "imagenetv2-matched-frequency-format-val"


def test_imagenetv2_whole_its_folders_are_indices_not_words(tmp_path):
    base = class_folders(tmp_path / V2, map(str, range(1000)), each=10)
    (base / "10" / "image_0003.JPEG").unlink()
    write_image(base / "10" / "zebra.jpeg", 250)
    source = open_tiny("imagenetv2", tmp_path)
    assert len(source) == 10_000
    assert source.labels is not None
    assert source.labels.tolist() == [label for label in range(1000) for _ in range(10)]
    assert all(
        name.split("/")[0] == str(label)
        for name, label in zip(source.names, source.labels.tolist(), strict=True)
    )
    assert source.names[109] == "10/zebra.jpeg"
    assert int(source.read(torch.tensor([109])).min()) > 240


def test_imagenetv2_with_padded_indices(tmp_path):
    class_folders(tmp_path / V2, (f"{number:03}" for number in range(1000)))
    with pytest.warns(AcclimateWarning, match="10 in each class"):
        source = open_tiny("imagenetv2", tmp_path, incomplete=True)
    assert source.labels is not None
    assert source.labels.tolist() == list(range(1000))


def test_imagenetv2_has_three_variants(tmp_path):
    for index, folder in enumerate(
        [V2, "imagenetv2-threshold0.7-format-val", "imagenetv2-topimages"]
    ):
        write_image(tmp_path / folder / str(index) / "1.jpeg")
    assert missing_parts("imagenetv2", tmp_path) == []
    for index, split in enumerate(["matched-frequency", "threshold-0.7", "top-images"]):
        with pytest.warns(AcclimateWarning):
            source = open_tiny("imagenetv2", tmp_path, split=split, incomplete=True)
        assert source.labels is not None
        assert source.labels.tolist() == [index]


def test_an_imagenetv2_variant_that_is_not_there_is_not_taken_from_another(tmp_path):
    write_image(tmp_path / V2 / "0" / "1.jpeg")
    assert missing_parts("imagenetv2", tmp_path) == [
        "imagenetv2-threshold0.7-format-val",
        "imagenetv2-top-images-format-val",
    ]
    for root in (tmp_path, tmp_path / V2):
        with pytest.raises(AcclimateError, match="expected imagenetv2-top-images-format-val in"):
            open_tiny("imagenetv2", root, split="top-images", incomplete=True)
    with pytest.warns(AcclimateWarning):
        assert len(open_tiny("imagenetv2", tmp_path / V2, incomplete=True)) == 1


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("1000", "none of the 1000 .*: 1000;"),
        ("n01440764", "none of the 1000"),
        ("07", "both class 7"),
    ],
)
def test_imagenetv2_folders_that_are_no_class(tmp_path, extra, message):
    class_folders(tmp_path / V2, [*map(str, range(1000)), extra])
    with pytest.raises(AcclimateError, match=message):
        open_tiny("imagenetv2", tmp_path, incomplete=True)


@pytest.mark.parametrize("inside", ["sketch", "."])
def test_imagenet_sketch(tmp_path, inside):
    class_folders(tmp_path / "root" / inside, IDS)
    with pytest.raises(AcclimateError, match="expected 50,889 images"):
        open_tiny("imagenet-sketch", tmp_path / "root")
    with pytest.warns(AcclimateWarning, match="expected 50,889 images"):
        source = open_tiny("imagenet-sketch", tmp_path / "root", incomplete=True)
    assert source.labels is not None
    assert source.labels.tolist() == list(range(1000))
    assert source.scoring is None
