"""How the models that callers gave want their images, where their own record does not say it."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.models.source_timm import preprocessing_of

__all__ = ["carry_preprocessing", "given_preprocessing", "remember_preprocessing"]

# Beside the models, not on them: what a user gets back is the plain model.
_GIVEN: WeakKeyDictionary[nn.Module, Preprocessing] = WeakKeyDictionary()


def remember_preprocessing(model: nn.Module, preprocessing: Preprocessing | None) -> None:
    """Note how a model wants its images, as its caller says; None forgets what was noted."""
    if preprocessing is None:
        _GIVEN.pop(model, None)
    else:
        _GIVEN[model] = preprocessing


def carry_preprocessing(model: nn.Module, copied: nn.Module) -> None:
    """Let a copy want its images as the model it is a copy of."""
    remember_preprocessing(copied, _GIVEN.get(model))


def given_preprocessing(model: nn.Module) -> Preprocessing | None:
    """How a model wants its images: as its caller said last, else by its own record.

    >>> model, how = nn.Linear(2, 3), Preprocessing(size=(8, 8))
    >>> remember_preprocessing(model, how)
    >>> given_preprocessing(model) == how
    True
    """
    return _GIVEN.get(model) or preprocessing_of(model)
