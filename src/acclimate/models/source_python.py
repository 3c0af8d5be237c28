"""``py:package.module:function``: a model the user's own code makes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import nn

from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.record import LoadedModel
from acclimate.models.source_timm import preprocessing_of
from acclimate.models.sources import Request, no_class_count, with_weights

__all__ = ["load_python"]


def load_python(request: Request) -> LoadedModel:
    """Answer a request for a user's function; the current folder can be imported from."""
    no_class_count(request)
    module_name, _, function_name = request.name.partition(":")
    if not module_name or not function_name:
        raise AcclimateError(
            f"expected py:package.module:function, for example py:my_models:resnet, "
            f"got {request.spec!r}"
        )
    with _current_folder_importable():
        function = _function(_module(module_name), function_name)
        made = _call(function, request)
    if isinstance(made, nn.Module):
        made = LoadedModel(name=request.spec, model=made, preprocessing=preprocessing_of(made))
    if not isinstance(made, LoadedModel):
        raise AcclimateError(
            f"expected a torch.nn.Module (or an acclimate.models.LoadedModel) from {request.spec}, "
            f"got {type(made).__name__}"
        )
    return with_weights(replace(made, name=request.spec), request)


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # What the user's module itself fails to import is named as such.
        own = error.name is not None and (name == error.name or name.startswith(f"{error.name}."))
        raise AcclimateError(
            f"no module {name!r}; expected it in {os.getcwd()} or installed"
            if own
            else f"{name} could not be imported: {error}"
        ) from error
    except Exception as error:
        raise AcclimateError(
            f"{name} could not be imported: {type(error).__name__}: {error}"
        ) from error


def _function(module: ModuleType, name: str) -> Callable[[], Any]:
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, nn.Module):
        function: Callable[[], Any] = found
        return function
    if found is not None:
        raise AcclimateError(
            f"expected a function {name} in {module.__name__} that makes the model, "
            f"got a {type(found).__name__}"
        )
    public = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    raise unknown_name(f"function in {module.__name__}", name, public)


def _call(function: Callable[[], Any], request: Request) -> Any:
    try:
        return function()
    except AcclimateError:
        raise
    except Exception as error:
        raise AcclimateError(
            f"{request.spec}, called without arguments, failed: {type(error).__name__}: {error}"
        ) from error
