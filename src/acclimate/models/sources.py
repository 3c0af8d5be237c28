"""What all model sources share: the request they answer, and the words for a refusal."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.filling import fill
from acclimate.models.record import LoadedModel
from acclimate.models.weights import load_weights
from acclimate.models.written import Written

__all__ = [
    "NOT_LOADED",
    "Origin",
    "Request",
    "Source",
    "check_class_count",
    "import_optional",
    "no_class_count",
    "unknown_model",
    "unreachable",
    "with_weights",
]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a library's own record says of its weights; None where it says nothing.

    ``hub`` is a name on the hub of Hugging Face, ``place`` an address or a folder.
    """

    library: str
    hub: str | None = None
    place: str | None = None
    licence: str | None = None


NOT_LOADED = "not loaded: this is the architecture alone"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asked for: the spec, its part after the prefix, and the options of ``load``.

    ``written`` is what the weights file says of itself, if it does.
    """

    spec: str
    name: str
    weights: Path | None = None
    num_classes: int | None = None
    unsafe_pickle: bool = False
    written: Written | None = None

    @property
    def class_count(self) -> int | None:
        """The class count asked for, else that of the weights file, else None."""
        if self.num_classes is not None or self.written is None or self.written.classes is None:
            return self.num_classes
        return len(self.written.classes)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A prefix: how a model is loaded from there, and which names it has (None: not countable).

    ``outline`` makes shapes without weights (None: only loading tells), ``origin`` says where the
    weights would be fetched from (None: they are not fetched).
    """

    load: Callable[[Request], LoadedModel]
    names: Callable[[], list[str]] | None = None
    outline: Callable[[Request], LoadedModel] | None = None
    origin: Callable[[Request], Origin | None] | None = None


def with_weights(loaded: LoadedModel, request: Request) -> LoadedModel:
    """``loaded``, whose class count is settled, filled from the request's file if it names one."""
    _check_shapes_are_known(loaded.model, request)
    if request.weights is None:
        return loaded
    tensors = load_weights(request.weights, unsafe_pickle=request.unsafe_pickle)
    # A model made in half precision would round them.
    fill(loaded.model.float(), tensors, settled=True)
    return replace(loaded, source=str(request.weights))


def _check_shapes_are_known(model: nn.Module, request: Request) -> None:
    for name, module in model.named_modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(map(is_lazy, own)):
            raise AcclimateError(
                f"expected a model whose layers have their shapes from {request.spec}, got "
                f"{type(module).__name__} as {name or 'the model'}, which waits for its first "
                "pictures; pass a batch through the model before it is returned"
            )


def check_class_count(request: Request, published: int) -> None:
    """Refuse another class count for published weights: the last layer would be untrained."""
    if request.num_classes not in (None, published):
        raise AcclimateError(
            f"the published weights of {request.spec} are for {published} classes, got "
            f"num_classes={request.num_classes}; give your own weights file with it "
            "(weights=FILE, on the command line --weights FILE)"
        )


def no_class_count(request: Request) -> None:
    """Refuse a class count where the model's maker has already settled it."""
    if request.num_classes is not None:
        raise AcclimateError(
            f"{request.spec} settles its own class count; leave num_classes="
            f"{request.num_classes} out"
        )


def unknown_model(request: Request, names: Iterable[str]) -> AcclimateError:
    """The error for a name a source does not have, with only the nearest of its many names."""
    prefix = request.spec.partition(":")[0]
    near = difflib.get_close_matches(request.name.lower(), list(names), n=5, cutoff=0.5)
    if near:
        return unknown_name(f"{prefix} model", request.name, near)
    return AcclimateError(
        f"unknown {prefix} model {request.name!r}; list_models('{prefix}:*'), on the command line "
        f"acclimate list models '{prefix}:*', shows them all"
    )


def unreachable(request: Request, what: str, error: Exception) -> AcclimateError:
    """The error for published weights that could not be fetched, and the way without a network."""
    gist = str(error).strip().partition("\n")[0][:200]
    return AcclimateError(
        f"could not get {what} for {request.spec} ({type(error).__name__}: {gist}); without a "
        "network, give a file you have: weights=FILE, on the command line --weights FILE"
    )


def import_optional(package: str, *, extra: str) -> Any:
    """The module ``package``, or an error that says which extra brings it.

    >>> import_optional("no_such_package", extra="models")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: this needs no_such_package, which is not installed;
    run: pip install 'acclimate[models]'
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there but lacks something of its own is not ours to explain.
        if error.name is None or error.name != package.partition(".")[0]:
            raise
        raise AcclimateError(
            f"this needs {error.name}, which is not installed; "
            f"run: pip install 'acclimate[{extra}]'"
        ) from error
