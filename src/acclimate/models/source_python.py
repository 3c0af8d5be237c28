"""``py:package.module:function``: a model the user's own code makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models.record import LoadedModel
from acclimate.models.source_timm import preprocessing_of
from acclimate.models.sources import Request, no_class_count, with_weights
from acclimate.registry import current_folder_importable, find_object

__all__ = ["load_python"]


def load_python(request: Request) -> LoadedModel:
    """The model of a user's function; the current folder can be imported from."""
    no_class_count(request)
    function = find_object(request.name)
    if isinstance(function, nn.Module) or not callable(function):
        raise AcclimateError(
            f"expected a function at {request.spec} that makes the model, "
            f"got a {type(function).__name__}"
        )
    with current_folder_importable():
        made = _call(function, request)
    if isinstance(made, nn.Module):
        made = LoadedModel(name=request.spec, model=made, preprocessing=preprocessing_of(made))
    if not isinstance(made, LoadedModel):
        raise AcclimateError(
            f"expected a torch.nn.Module (or an acclimate.models.LoadedModel) from {request.spec}, "
            f"got {type(made).__name__}"
        )
    return with_weights(replace(made, name=request.spec), request)


def _call(function: Callable[[], Any], request: Request) -> Any:
    try:
        return function()
    except AcclimateError:
        raise
    except Exception as error:
        raise AcclimateError(
            f"{request.spec}, called without arguments, failed: {type(error).__name__}: {error}"
        ) from error
