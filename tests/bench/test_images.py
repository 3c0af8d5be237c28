"""A few pictures of a source, for small versions of a sweep."""

from __future__ import annotations

import torch

from acclimate.bench.images import few_images
from acclimate.data import open_images


def pictures(labels: list[int] | None):
    numbered = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 2, 2)
    return open_images(numbered, labels=labels)


def taken(images) -> list[int]:
    return images.read(torch.arange(len(images)))[:, 0, 0, 0].int().tolist()


def test_the_first_where_they_hold_all_classes():
    images, notes = few_images(pictures([0, 1, 2, 3, 0, 1, 2, 3]), 4)
    assert (taken(images), images.labels.tolist(), notes) == ([0, 1, 2, 3], [0, 1, 2, 3], [])


def test_spread_over_a_folder_that_is_sorted_by_class():
    images, notes = few_images(pictures([0, 0, 1, 1, 2, 2, 3, 3]), 4)
    assert (taken(images), images.labels.tolist(), notes) == ([0, 2, 4, 6], [0, 1, 2, 3], [])


def test_missing_classes_are_said():
    _, notes = few_images(pictures([0, 0, 1, 1, 2, 2, 3, 3]), 2)
    assert notes == ["2 of 8 images, spread over them, hold 2 of 4 classes"]
    _, notes = few_images(pictures([0, 0, 0, 0, 0, 0, 0, 1]), 3)
    assert notes == ["3 of 8 images, the first, hold 1 of 2 classes"]


def test_the_first_where_nothing_is_known():
    images, notes = few_images(pictures(None), 3)
    assert (taken(images), images.labels, notes) == ([0, 1, 2], None, [])


def test_all_of_them():
    source = pictures(None)
    assert few_images(source, None) == (source, [])
    assert few_images(source, 8) == (source, [])


def test_others_are_other_data():
    labels = [0, 0, 1, 1, 2, 2, 3, 3]
    found = [few_images(pictures(labels), count)[0].fingerprint() for count in (2, 4, 8)]
    found.append(few_images(pictures(None), 4)[0].fingerprint())
    assert len(set(found)) == 4
