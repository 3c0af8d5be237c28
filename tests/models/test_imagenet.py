"""The thousand classes of ImageNet-1k."""

from __future__ import annotations

import re

from acclimate.models import imagenet_classes
from acclimate.models.sources import with_imagenet_ids

# The ten classes of imagenette.
IMAGENETTE = {
    "n01440764": (0, "tench"),
    "n02102040": (217, "English springer"),
    "n02979186": (482, "cassette player"),
    "n03000684": (491, "chain saw"),
    "n03028079": (497, "church"),
    "n03394916": (566, "French horn"),
    "n03417042": (569, "garbage truck"),
    "n03425413": (571, "gas pump"),
    "n03445777": (574, "golf ball"),
    "n03888257": (701, "parachute"),
}


def test_known_classes_are_where_every_model_has_them() -> None:
    classes = imagenet_classes()
    assert classes.ids is not None
    for id_, (index, name) in IMAGENETTE.items():
        assert classes.ids[index] == id_
        assert classes.names[index].split(",")[0] == name
    assert (classes.ids[999], classes.names[999].split(",")[0]) == ("n15075141", "toilet tissue")


def test_the_list_is_whole() -> None:
    classes = imagenet_classes()
    assert classes.ids is not None
    assert len(classes) == len(set(classes.ids)) == 1000
    assert list(classes.ids) == sorted(classes.ids)
    assert all(re.fullmatch(r"n\d{8}", id_) for id_ in classes.ids)
    assert all(name.strip() == name and name for name in classes.names)


def test_ids_are_given_to_imagenet_names_only() -> None:
    known = imagenet_classes()
    short = [name.split(",")[0] for name in known.names]
    assert with_imagenet_ids(["crane bird", *short[1:]]).ids == known.ids
    assert with_imagenet_ids(short[::-1]).ids is None
    assert with_imagenet_ids(short[:999]).ids is None
