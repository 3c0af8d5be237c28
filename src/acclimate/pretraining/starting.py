"""What a training starts from: a bare architecture, or weights that were trained before."""

from __future__ import annotations

from dataclasses import replace

import torch

from acclimate.data import ClassList, ImageSource
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel, load
from acclimate.models.architectures import UNTRAINED
from acclimate.pretraining.stepping import output_count

__all__ = ["fitted_to", "trained_before"]

_UNKNOWN = LoadedModel.source


def trained_before(loaded: LoadedModel) -> str | None:
    """Where weights that were trained before are from; None if none are known.

    >>> trained_before(load("acclimate:wrn-26-1-bn")) is None
    True
    >>> trained_before(load("acclimate:wrn-26-2-bn-cifar10"))
    'trained for this package on CIFAR-10...'
    """
    return None if loaded.source in (UNTRAINED, _UNKNOWN) else loaded.source


def fitted_to(source: ImageSource, loaded: LoadedModel, *, seed: int) -> LoadedModel:
    """The model with an output for every class of the data, made anew if it has others.

    Weights that were trained are not thrown away for that: a model that has some is refused.
    """
    names = source.class_names
    if not names or source.scoring is not None:
        return loaded
    outputs = output_count(loaded.model)
    if outputs is not None and outputs != len(names):
        if loaded.source == UNTRAINED:
            torch.manual_seed(seed)
            loaded = load(loaded.name, num_classes=len(names))
        elif trained_before(loaded) is not None:
            raise AcclimateError(
                f"expected a model for the {len(names)} classes of the data, got {loaded.name} "
                f"with weights for {outputs}; name a bare architecture (acclimate:wrn-40-2), or "
                f"give weights for {len(names)} (--weights FILE --num-classes {len(names)})"
            )
        else:
            return replace(loaded, classes=None)
    return replace(loaded, classes=ClassList(tuple(names)))
