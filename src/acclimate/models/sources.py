"""What all sources of models share: the request, the entry a library has for it, the refusals."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from acclimate.data.labels import ClassList, imagenet_classes
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.checks import check_layers
from acclimate.models.filling import fill
from acclimate.models.record import LoadedModel, Metadata
from acclimate.models.weights import load_weights

__all__ = [
    "Entry",
    "Origin",
    "Request",
    "Source",
    "load_entry",
    "no_class_count",
    "outline_entry",
    "unknown_model",
    "unreachable",
    "with_imagenet_ids",
    "with_weights",
]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asked for: the spec, its part after the prefix, and the options of ``load``.

    ``metadata`` is the record in the weights file, if it has one.
    """

    spec: str
    name: str
    weights: Path | None = None
    num_classes: int | None = None
    unsafe_pickle: bool = False
    metadata: Metadata | None = None

    @property
    def class_count(self) -> int | None:
        """The class count asked for, else that of the weights file, else None."""
        recorded = None if self.metadata is None else self.metadata.classes
        if self.num_classes is not None or recorded is None:
            return self.num_classes
        return len(recorded)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where weights come from, by the library's own record; None is not recorded.

    ``hub`` is a name on the hub of Hugging Face, ``place`` an address or a folder.
    """

    library: str
    hub: str | None = None
    place: str | None = None
    licence: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model as a library has it.

    ``build`` makes one without weights, for the tensors it will get and a class count (None: its
    own); ``fetch`` the one with the published weights, which are called ``title``, have
    ``class_count`` classes (None: nothing is published) and come from ``origin``.
    """

    class_count: int | None
    build: Callable[[Mapping[str, Tensor], int | None], nn.Module]
    fetch: Callable[[], nn.Module]
    title: str
    preprocessing: Callable[[nn.Module], Preprocessing | None]
    classes: Callable[[nn.Module], ClassList | None]
    origin: Origin | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A prefix: how a model is loaded from there, and which names it has (None: not countable).

    ``outline`` makes shapes without weights (None: models must be loaded), ``origin`` is where
    weights would be fetched from (None: they are not fetched).
    """

    load: Callable[[Request], LoadedModel]
    names: Callable[[], list[str]] | None = None
    outline: Callable[[Request], LoadedModel] | None = None
    origin: Callable[[Request], Origin | None] | None = None


def load_entry(entry: Entry, request: Request) -> LoadedModel:
    """The model with its published weights, or those of the request's file."""
    if request.weights is None:
        _check_class_count(request, entry)
        return _described(entry, request, entry.fetch(), entry.title)
    tensors = load_weights(request.weights, unsafe_pickle=request.unsafe_pickle)
    model = entry.build(tensors, request.class_count)
    fill(model, tensors)
    return _described(entry, request, model, str(request.weights))


def outline_entry(entry: Entry, request: Request) -> LoadedModel:
    """The shapes of the model, without its weights."""
    _check_class_count(request, entry)
    asked = request.num_classes if entry.class_count is None else None
    with torch.device("meta"):
        model = entry.build({}, asked).eval()
    return _described(entry, request, model, "not loaded: this is the architecture alone")


def _described(entry: Entry, request: Request, model: nn.Module, source: str) -> LoadedModel:
    return LoadedModel(
        name=request.spec,
        model=model,
        preprocessing=entry.preprocessing(model),
        classes=entry.classes(model),
        source=source,
    )


def _check_class_count(request: Request, entry: Entry) -> None:
    """Refuse another class count for published weights: the last layer would be untrained."""
    if entry.class_count is not None and request.num_classes not in (None, entry.class_count):
        raise AcclimateError(
            f"the published weights of {request.spec} are for {entry.class_count} classes, got "
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


def with_weights(loaded: LoadedModel, request: Request) -> LoadedModel:
    """``loaded``, whose class count is settled, filled from the request's file if it names one."""
    check_layers(loaded.model, origin=f" from {request.spec}")
    if request.weights is None:
        return loaded
    tensors = load_weights(request.weights, unsafe_pickle=request.unsafe_pickle)
    # A model made in half precision would round them.
    fill(loaded.model.float(), tensors, settled=True)
    return replace(loaded, source=str(request.weights))


def with_imagenet_ids(names: Sequence[str]) -> ClassList:
    """A class list of ``names``, with WordNet ids if these are the classes of ImageNet-1k.

    Listings differ in a few names ("crane bird"), so nearly all of the first names have to agree.

    >>> with_imagenet_ids(["cat", "dog"]).ids is None
    True
    """

    def first(name: str) -> str:
        return name.partition(",")[0].strip().casefold()

    known = imagenet_classes()
    pairs = zip(known.names, names, strict=False)
    agreeing = sum(first(ours) == first(theirs) for ours, theirs in pairs)
    is_imagenet = len(names) == len(known) and agreeing >= 0.95 * len(known)
    return ClassList(names=tuple(names), ids=known.ids if is_imagenet else None)


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
    """The error for published weights that could not be fetched; a file needs no network."""
    gist = str(error).strip().partition("\n")[0][:200]
    return AcclimateError(
        f"could not get {what} for {request.spec} ({type(error).__name__}: {gist}); without a "
        "network, give a file you have: weights=FILE, on the command line --weights FILE"
    )
