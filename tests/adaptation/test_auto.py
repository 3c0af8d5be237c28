"""recipe="auto": what is decided from the images, and that it is returned whole."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import acclimate
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.models.networks.digits import load_digits_model
from acclimate.parts.normalization import BatchStatistics, Source

IMAGES, LABELS = (part[:400] for part in digits("held-out"))
BLURRED = corrupt(IMAGES, "gaussian_blur", 4, preset="cifar", seed=0)


def adapt(images=BLURRED, labels=LABELS, model=None, **options) -> acclimate.AdaptationResult:
    settings = {"progress": False, "speed": "exact", "labels": labels} | options
    return acclimate.adapt(model or load_digits_model(), images, **settings)


def test_a_shift_of_appearance_gets_new_statistics_and_is_helped():
    result = adapt()
    assert isinstance(result.recipe.normalization, BatchStatistics)
    assert result.verdict.word == "helpful"
    assert result.error_after < result.error_before - 30


@pytest.mark.parametrize("classes", [1, 2])
def test_a_few_classes_keep_the_statistics_of_training(classes):
    few = classes > LABELS
    result = adapt(IMAGES[few], LABELS[few])
    assert isinstance(result.recipe.normalization, Source)
    assert result.error_after <= result.error_before + 1


def test_what_the_model_knows_is_left_alone():
    result = adapt(IMAGES)
    assert result.error_after <= result.error_before + 1
    assert result.verdict.word == "unchanged"


def test_the_plan_says_what_is_done_and_why_before_it_is_done(capfd):
    result = adapt(progress=True)
    err = capfd.readouterr().err
    statistics, learning = result.record.plan
    assert "with new statistics" in statistics
    assert learning.startswith(f"recipe {result.recipe.name}, learning rate ")
    assert f"plan: {statistics}\nplan: {learning}\n" in err
    assert set(result.record.plan) <= set(result.notes)


def test_it_stops_once_the_estimate_no_longer_improves():
    result = adapt(IMAGES)
    assert len(result.history.epochs) < result.recipe.epochs
    assert result.history.kept_epoch == 0


def test_what_the_user_decides_is_not_decided_again():
    result = adapt(options={"normalization": "source", "epochs": 1, "optimizer.lr": 1e-4})
    assert isinstance(result.recipe.normalization, Source)
    assert (result.recipe.epochs, result.recipe.optimizer.lr) == (1, 1e-4)
    (learning,) = result.record.plan
    assert "at most 1 epoch" in learning


def test_models_without_batch_norm_can_only_learn():
    torch.manual_seed(0)
    group = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    )
    images = np.float32(IMAGES[:, None]) / 255
    result = adapt(images, model=group)
    assert result.recipe.name == "rpl"
    assert "only learning can help" in result.record.plan[0]


def test_too_few_images_to_estimate_get_new_statistics_and_are_unclear():
    result = adapt(BLURRED[:20], LABELS[:20])
    assert isinstance(result.recipe.normalization, BatchStatistics)
    assert "too few images" in result.record.plan[0]
    assert result.verdict.word == "unclear"


def test_the_same_seed_gives_the_same_answer():
    one, two = adapt(), adapt()
    assert torch.equal(one.predictions, two.predictions)
    assert (one.recipe, one.history) == (two.recipe, two.history)


def test_a_run_is_resumed_by_the_plan_it_was_started_with(tmp_path):
    first = adapt(out=tmp_path / "run")
    again = adapt(out=tmp_path / "run")
    assert again.record == first.record
    assert json.loads((tmp_path / "run/run.json").read_text())["plan"] == list(first.record.plan)
    with pytest.raises(AcclimateError, match=r"another run, which differs in .*options"):
        adapt(out=tmp_path / "run", options={"epochs": 1})


def test_a_model_adapted_in_place_is_unchanged_by_planning_alone():
    model = load_digits_model()
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    few = LABELS < 2
    result = adapt(IMAGES[few], LABELS[few], model, inplace=True)
    if result.history.kept_epoch == 0:
        after = result.model.state_dict()
        assert all(torch.equal(after[name], value) for name, value in before.items())
    for name, value in before.items():  # statistics of training are kept in any case
        if "running" in name:
            assert torch.equal(result.model.state_dict()[name], value)
