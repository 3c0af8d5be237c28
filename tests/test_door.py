"""What ``import acclimate`` alone gives: everything that messages and docs tell people to type."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate import parts
from acclimate.learner.learner import Learner

CALLS = """
import sys
import acclimate
assert "torch" not in sys.modules
assert set(acclimate.__all__) <= set(dir(acclimate))
acclimate.models.load, acclimate.data.corrupt, acclimate.parts.Objective, acclimate.metrics.mce
acclimate.methods.get_recipe, acclimate.theory.simulate, acclimate.bench.Plan
acclimate.pretraining.pretrain, acclimate.parallel.alone
acclimate.Recipe(name="mine").with_options({"optimizer": "sam"})
from acclimate import *
"""


def test_one_import_opens_every_package_and_begins_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALLS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'acclimate' has no attribute 'recipes'"):
        _ = acclimate.recipes


def test_every_base_and_every_registered_part_is_in_parts() -> None:
    for slot, table in parts.PARTS.items():
        assert getattr(parts, slot.capitalize()) in parts.Part.__subclasses__()
        own = [
            table[name] for name in table if table[name].__module__.startswith("acclimate.parts")
        ]
        assert all(getattr(parts, kind.__name__) is kind for kind in own)


@dataclass
class Centroids:
    rows: Tensor


@dataclass(frozen=True, kw_only=True)
class Unregistered(parts.Objective):
    """A method of the user's own, which asks how many classes there are."""

    def prepare(self, learner: parts.LearnerLike) -> Centroids:
        return Centroids(torch.zeros(learner.classes, 2))

    def loss(self, state: Any, step: parts.Step) -> Tensor:
        return parts.entropy(step.student.logits)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def test_a_part_that_nobody_registered_runs_and_is_stored(tmp_path: Any) -> None:
    recipe = acclimate.Recipe(name="mine", objective=Unregistered())
    images = torch.rand(16, 3, 2, 2)
    whole = acclimate.adapt(net(), images, recipe, out=tmp_path / "run", progress=False)
    again = acclimate.adapt(net(), images, recipe, out=tmp_path / "run", progress=False)
    assert again.recipe == whole.recipe
    assert isinstance(again.recipe.objective, Unregistered)
    assert torch.equal(whole.predictions, again.predictions)
    assert acclimate.Stream(net(), recipe)(images).shape == (16, 3)


def test_the_number_of_classes_is_the_classifiers_unless_given() -> None:
    recipe = acclimate.Recipe(name="mine", objective=Unregistered())
    assert len(Learner(net(), recipe).states["objective"].rows) == 3
    assert len(Learner(net(), recipe, classes=5).states["objective"].rows) == 5
