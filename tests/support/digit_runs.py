"""Short runs on some digits in fog, and how their results compare."""

from __future__ import annotations

import torch
from torch import Tensor

import acclimate
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = (part[:150] for part in digits("held-out", shifted=True))
INPUT = PREPROCESSING.normalize(torch.from_numpy(IMAGES)[:, None])
QUICK = {"epochs": 2, "optimizer.lr": 1e-2}


def adapt(model=None, data=INPUT, recipe="ent", **options):
    model = load_digits_model() if model is None else model
    options = {"options": QUICK, "batch_size": 32, "progress": False, **options}
    return acclimate.adapt(model, data, recipe, **options)


def weights(result) -> dict[str, Tensor]:
    return result.model.state_dict()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[k], other[k]) for k in one)
