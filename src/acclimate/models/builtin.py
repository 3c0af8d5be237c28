"""``acclimate:NAME``: the models that come with this package, and those users add."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

from acclimate.errors import AcclimateError, unknown_name
from acclimate.models._source import Request, no_class_count, with_weights
from acclimate.models.record import LoadedModel

__all__ = ["builtin_names", "load_builtin", "register_builtin"]

Maker = Callable[[], LoadedModel]

# "module:function" is imported only when the model is asked for, so that listing stays cheap.
_MAKERS: dict[str, str | Maker] = {
    "digits": "acclimate.demo.model:load_digits_model",
}


def register_builtin(name: str) -> Callable[[Maker], Maker]:
    """Make the decorated function's model available as ``acclimate:NAME``.

    >>> from torch import nn
    >>> @register_builtin("doc-example")
    ... def example() -> LoadedModel:
    ...     return LoadedModel(name="acclimate:doc-example", model=nn.Linear(2, 2))
    >>> "doc-example" in builtin_names()
    True
    """

    def register(maker: Maker) -> Maker:
        if name in _MAKERS and not _is_entry_of(maker, _MAKERS[name]):
            raise AcclimateError(
                f"a model acclimate:{name} is registered already; use another name"
            )
        _MAKERS[name] = maker
        return maker

    return register


def builtin_names() -> list[str]:
    """The names after ``acclimate:``."""
    return sorted(_MAKERS)


def load_builtin(request: Request) -> LoadedModel:
    """Answer a request for one of the package's own models."""
    if request.name not in _MAKERS:
        raise unknown_name("acclimate model", request.name, _MAKERS)
    no_class_count(request)
    maker = _MAKERS[request.name]
    if isinstance(maker, str):
        module, _, function = maker.partition(":")
        maker = _maker(module, function)
    return with_weights(replace(maker(), name=request.spec), request)


def _maker(module: str, function: str) -> Maker:
    maker: Maker = getattr(importlib.import_module(module), function)
    return maker


def _is_entry_of(maker: Maker, entry: str | Maker) -> bool:
    """Whether ``maker`` is the function a lazy entry points to, which may carry the decorator."""
    return entry in (maker, f"{maker.__module__}:{maker.__qualname__}")
