"""The bank of cases: nothing that is reported on is in the half to choose on."""

from __future__ import annotations

import pytest
import torch

import bank
from acclimate.data import Preprocessing
from acclimate.data.shift import TEST, Shift

GREY = Preprocessing(size=(16, 16), mean=(0.5,) * 3, std=(0.25,) * 3)


def shifts(half: str) -> set[str]:
    return {name for case in bank.cases(half) for name in (case.shift, case.second) if name}


def test_the_dev_half_holds_no_test_corruption():
    assert not {Shift.parse(name).name for name in shifts("dev")} & set(TEST)
    assert {Shift.parse(name).name for name in shifts("test")} >= set(TEST)


def test_the_same_cases_every_time():
    first, again = list(bank.cases("dev")), list(bank.cases("dev"))
    assert first == again
    assert len(first) > 300


@pytest.mark.parametrize("kind", ["100", "20", "2", "1"])
def test_a_set_holds_so_many_classes(kind):
    labels = torch.arange(1000).repeat(5)
    case = bank.Case(model="resnet50", shift="clean", classes=kind, images=500)
    chosen = bank.chosen_images(labels, case, torch.Generator().manual_seed(0))
    assert len(labels[chosen].unique()) == int(kind)


def test_a_long_tail_is_long():
    labels = torch.arange(10).repeat_interleave(1000)
    case = bank.Case(model="vit", shift="clean", classes="long-tailed", images=2000)
    chosen = bank.chosen_images(labels, case, torch.Generator().manual_seed(0))
    counts = labels[chosen].bincount(minlength=10)
    assert counts.max() > 20 * counts.min()


@pytest.mark.parametrize("half", ["dev", "test"])
def test_every_shift_of_our_own_changes_images_and_nothing_else(half):
    pixels = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    clean = GREY.normalize(pixels)
    for name in (*(f"{change}:5" for change in bank.CHANGES[half]), *bank.HOPELESS[half]):
        if name == "other-objects":  # images of another data set, unchanged
            continue
        seen = bank.shifted(pixels, torch.arange(4), name, GREY, torch.Generator().manual_seed(0))
        assert seen.shape == clean.shape
        assert not torch.equal(seen, clean), name
