"""The numbers of each method are those its paper prints."""

from __future__ import annotations

import math
from typing import Any

import pytest

from acclimate.methods.registry import get_recipe

SHARED = {"batch_size": 64, "epochs": 1, "optimizer.lr": 0.00025, "optimizer.momentum": 0.9}
PUBLISHED: dict[str, dict[str, Any]] = {
    "adacontrast": {
        "batch_size": 128, "optimizer.lr": 2e-4, "teacher.momentum": 0.999,
        "objective.neighbours": 10, "objective.queue": 16384, "objective.temperature": 0.07,
        "objective.contrast": 1.0, "objective.diversity": 1.0,
    },
    "asr": {
        **SHARED, "filter.margin": 0.4, "regularizer.adjustment": 0.15, "regularizer.weight": 5.0,
        "regularizer.share": 0.5, "regularizer.kept": 0.5, "regularizer.slope": 20.0,
    },
    "cmf": {
        **SHARED, "objective.temperature": 1 / 3, "regularizer.memory": 0.99,
        "regularizer.momentum": 0.99, "regularizer.noise": 0.005,
    },
    "come": {**SHARED, "objective": "opinion-entropy", "filter": "none"},
    "come-sar": {
        **SHARED, "objective": "opinion-entropy", "filter": "opinion-margin",
        "filter.margin": 0.4, "optimizer.rho": 0.05,
    },
    "deyo": {
        **SHARED, "selector": "early-affine", "filter.margin": 0.5, "filter.weight_margin": 0.4,
        "filter.min_difference": 0.2, "filter.patches": 4,
    },
    "eata": {
        **SHARED, "filter.margin": 0.4, "regularizer.weight": 2000.0, "regularizer.samples": 2000,
        "regularizer.images": None,
    },
    "eta": {**SHARED, "filter.margin": 0.4, "filter.momentum": 0.9},
    "lame": {"batch_size": 64, "predictor.neighbours": 5, "predictor.iterations": 100},
    "memo": {
        **SHARED, "optimizer.momentum": 0.0, "objective.augmentations": 64,
        "objective.smallest_crop": 0.08, "normalization": "single-image", "normalization.prior": 16,
    },
    "note": {
        "batch_size": 64, "optimizer.lr": 1e-4, "filter.capacity": 64,
        "normalization.momentum": 0.01, "normalization.strength": 4.0,
    },
    "neo": {"batch_size": 64, "normalization": "source", "predictor.momentum": None},
    "rdumb": {**SHARED, "filter.margin": 0.4, "regularizer.every": 1000},
    "rem": {
        "batch_size": 50, "optimizer": "adam", "optimizer.lr": 1e-3, "selector": "early-affine",
        "objective.share": 0.1, "objective.levels": 3, "objective.ranking": 1.0,
        "objective.margin": 0.0,
    },
    "rmt": {
        **SHARED, "optimizer.lr": 0.01, "objective.temperature": 0.1, "objective.width": 128,
        "objective.contrast": 1.0, "teacher.momentum": 0.999, "selector": "all",
    },
    "roid": {
        **SHARED, "objective.momentum": 0.9, "objective.temperature": 1 / 3, "objective.clip": 0.99,
        "objective.consistency": 1.0, "regularizer.momentum": 0.99, "predictor": "prior-corrected",
    },
    "rotta": {
        "batch_size": 64, "optimizer.lr": 1e-3, "teacher.momentum": 0.999, "filter.capacity": 64,
        "filter.timeliness": 1.0, "filter.uncertainty": 1.0, "normalization.momentum": 0.05,
    },
    "santa": {
        **SHARED, "optimizer.lr": 0.01, "objective.temperature": 0.1, "objective.width": 128,
        "objective.contrast": 1.0, "selector": "affine",
    },
    "sar": {**SHARED, "optimizer.rho": 0.05, "regularizer.floor": 0.2 / math.log(1000)},
    "self-ensembling": {
        "batch_size": 56, "optimizer.lr": 1e-5, "teacher.momentum": 0.99, "objective.weight": 3.0,
        "objective.confidence": 0.968, "objective.balance": 0.005, "objective.pixels": 2.0,
    },
    "shot-im": {
        "batch_size": 64, "epochs": 15, "optimizer.lr": 1e-3, "optimizer.momentum": 0.9,
        "optimizer.nesterov": True, "optimizer.weight_decay": 1e-3, "objective.diversity": 1.0,
    },
    "slr": {
        "batch_size": 64, "optimizer.lr": 0.0006, "objective.labels": "soft",
        "objective.weight": 0.025, "regularizer.weight": 1.0, "regularizer.momentum": 0.9,
    },
    "spa": {
        **SHARED, "optimizer.lr": 0.01, "objective.frequencies": 0.2, "objective.noise": 0.4,
        "objective.patches": 14, "objective.rate": 5.0,
    },
    "t3a": {"predictor.supports": 20},
    "tent": {**SHARED, "objective": "cross-entropy", "objective.stop_gradient": False},
    "ttt": {"epochs": 10, "optimizer.momentum": 0.0, "objective.copies": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_defaults_are_the_papers(name: str) -> None:
    recipe = get_recipe(name).to_dict()
    for option, value in PUBLISHED[name].items():
        part, _, field = option.partition(".")
        found = recipe[part]
        if isinstance(found, dict):
            found = found[field or "kind"]
        assert found == value, option
