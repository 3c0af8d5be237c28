"""How a model wants its images, as its caller said last."""

from __future__ import annotations

import gc

from torch import nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import copy_model
from acclimate.models.given import _GIVEN, given_preprocessing
from nets import tiny_vit

HOW = Preprocessing(size=(8, 8), mean=(0.3,), std=(0.2,))


def test_what_the_caller_says_last_counts_and_copies_follow() -> None:
    model = nn.Linear(2, 2)
    as_loaded(model, HOW)
    assert given_preprocessing(model) == HOW
    assert given_preprocessing(copy_model(model)) == HOW
    as_loaded(LoadedModel(name="mine", model=model, preprocessing=None))
    assert given_preprocessing(model) is None


def test_where_nobody_says_it_the_models_own_record_counts() -> None:
    model = tiny_vit()
    model.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.1,) * 3, "std": (0.2,) * 3}
    own = given_preprocessing(model)
    assert own is not None
    assert own.mean == (0.1,) * 3
    as_loaded(model, HOW)
    assert given_preprocessing(model) == HOW


def test_the_model_is_left_unmarked_and_free_to_go() -> None:
    model = nn.Linear(2, 2)
    before, known = dict(vars(model)), len(_GIVEN)
    as_loaded(model, HOW)
    assert vars(model) == before
    assert len(_GIVEN) == known + 1
    del model, before
    gc.collect()
    assert len(_GIVEN) <= known
