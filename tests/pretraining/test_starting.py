"""What a training starts from: bare architectures are fitted to the data, trained ones are not."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from acclimate.data.arrays import ArraySource
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel, load
from acclimate.pretraining.starting import fitted_to, trained_before
from coloured import RECORD


def images(*names: str) -> ArraySource:
    return ArraySource(
        np.zeros((4, 8, 8, 3), np.uint8), preprocessing=RECORD, class_names=names or None
    )


def test_a_bare_architecture_gets_an_output_for_each_class():
    bare = load("acclimate:wrn-26-1-bn")
    assert trained_before(bare) is None
    fitted = fitted_to(images("cat", "dog", "owl"), bare, seed=0)
    assert fitted.classes.names == ("cat", "dog", "owl")
    assert fitted.model.fc.out_features == 3
    assert fitted_to(images(), bare, seed=0) is bare


def test_trained_weights_are_not_thrown_away_for_another_class_count():
    trained = load("acclimate:wrn-26-2-bn-cifar10")
    assert "trained for this package" in trained_before(trained)
    with pytest.raises(AcclimateError, match=r"2 classes of the data, got .* weights for 10"):
        fitted_to(images("cat", "dog"), trained, seed=0)
    digits = fitted_to(images(*"0123456789"), trained, seed=0)
    assert digits.model is trained.model
    assert digits.classes.names == tuple("0123456789")


def test_of_other_code_nothing_is_known():
    made = LoadedModel(name="py:mine:net", model=nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
    assert trained_before(made) is None
    assert fitted_to(images("cat", "dog"), made, seed=0).classes is None
