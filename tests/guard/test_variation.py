"""Where in a network batches differ: two appearances in the first layers, two mixes in the last."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from acclimate.data.digits import digits
from acclimate.guard.variation import mix_varies, variation
from acclimate.learner.learner import Learner
from acclimate.methods import get_recipe
from acclimate.models import load
from acclimate.models.device import copy_model

CLEAN, LABELS = digits("held-out")
FOGGY, _ = digits("held-out", shifted=True)
SORTED = np.argsort(LABELS, kind="stable")
DRAWN = np.random.default_rng(0).permutation(len(LABELS))


def seen(*batches: np.ndarray) -> dict[str, Tensor]:
    """The statistics of both halves of batches, in each layer of the embedded network."""
    loaded = load("acclimate:digits")
    assert loaded.preprocessing is not None
    learner = Learner(copy_model(loaded.model), get_recipe("bn"), batch_size=64)
    found: dict[str, list[Tensor]] = {}
    for batch in batches:
        images = loaded.preprocessing.normalize(torch.from_numpy(batch)[:, None])
        halves = []
        for half in (images[::2], images[1::2]):
            pool = learner.statistics.pool()
            learner.logits(half)
            pool.close()
            halves.append(learner.statistics.in_units(pool))
        for layer in halves[0]:
            found.setdefault(layer, []).append(torch.stack([half[layer] for half in halves]))
    return {layer: torch.stack(each) for layer, each in found.items()}


@pytest.mark.parametrize("images", [CLEAN, FOGGY], ids=["clean", "fog"])
def test_batches_drawn_alike_differ_as_the_halves_of_one_do(images: np.ndarray) -> None:
    batches = seen(*np.split(images[DRAWN][:640], 10))
    assert not mix_varies(batches)
    assert variation(batches) == pytest.approx((1, 1), abs=0.15)


@pytest.mark.parametrize("images", [CLEAN, FOGGY], ids=["clean", "fog"])
def test_batches_of_other_classes_differ_in_the_last_layer(images: np.ndarray) -> None:
    assert mix_varies(seen(*np.split(images[SORTED][:640], 10)))


def test_batches_of_two_appearances_differ_in_the_first_layers() -> None:
    parts = zip(np.split(CLEAN[DRAWN][:320], 5), np.split(FOGGY[DRAWN][320:640], 5), strict=True)
    assert not mix_varies(seen(*(each for part in parts for each in part)))
