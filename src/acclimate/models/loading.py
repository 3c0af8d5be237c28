"""Load a model by its spec: a prefix for where it comes from, and a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from torch import nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.builtin import builtin_names, load_builtin, load_python
from acclimate.models.given import remember_preprocessing
from acclimate.models.paper import load_paper, outline_paper, paper_names
from acclimate.models.record import LoadedModel, read_metadata
from acclimate.models.source_hf import load_hf, origin_hf, outline_hf
from acclimate.models.source_timm import find_timm, preprocessing_of, timm_names
from acclimate.models.source_torchvision import find_torchvision, torchvision_names
from acclimate.models.sources import Entry, Origin, Request, Source, load_entry, outline_entry
from acclimate.text import user_path

__all__ = ["as_loaded", "list_models", "load", "origin", "outline"]


def _library(find: Callable[[Request], Entry], names: Callable[[], list[str]]) -> Source:
    return Source(
        load=lambda request: load_entry(find(request), request),
        outline=lambda request: outline_entry(find(request), request),
        origin=lambda request: find(request).origin,
        names=names,
    )


_SOURCES = {
    "acclimate": Source(load=load_builtin, names=builtin_names),
    "hf": Source(load=load_hf, outline=outline_hf, origin=origin_hf),
    "paper": Source(load=load_paper, names=paper_names, outline=outline_paper),
    "py": Source(load=load_python),
    "timm": _library(find_timm, timm_names),
    "torchvision": _library(find_torchvision, torchvision_names),
}
_FORMS = (
    "acclimate:NAME, paper:NAME, timm:NAME, torchvision:NAME[@WEIGHTS], hf:NAME_OR_DIR, "
    "py:package.module:function"
)


def as_loaded(
    model: nn.Module | LoadedModel, preprocessing: Preprocessing | None = None
) -> LoadedModel:
    """A model as users give it, with all that is known of it.

    Where no ``preprocessing`` is given it is that of the model's own record, which timm's have.

    >>> as_loaded(nn.Linear(2, 3)).name
    'Linear'
    """
    loaded = _as_loaded(model, preprocessing)
    remember_preprocessing(loaded.model, loaded.preprocessing)
    return loaded


def _as_loaded(
    model: nn.Module | LoadedModel, preprocessing: Preprocessing | None = None
) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model if preprocessing is None else replace(model, preprocessing=preprocessing)
    if not isinstance(model, nn.Module):
        raise AcclimateError(
            f"expected a torch.nn.Module or a loaded model, got {type(model).__name__}; "
            "acclimate.models.load('timm:resnet50') loads one by name"
        )
    found = preprocessing or preprocessing_of(model)
    return LoadedModel(name=type(model).__name__, model=model, preprocessing=found)


def load(
    spec: str,
    *,
    weights: str | Path | None = None,
    num_classes: int | None = None,
    unsafe_pickle: bool = False,
) -> LoadedModel:
    """The model ``spec`` names, in eval mode and float32, with its preprocessing and classes.

    Args:
        spec: ``timm:NAME``, ``torchvision:NAME[@WEIGHTS]``, ``hf:NAME_OR_DIR``,
            ``acclimate:NAME``, ``paper:NAME`` or ``py:package.module:function``.
        weights: A file to fill the model with, in place of the published weights.
        num_classes: The class count of ``weights``, where it is not the architecture's own. Files
            that this package trained record it, with their classes and preprocessing.
        unsafe_pickle: Read files that hold Python objects; they can run code, so trust them.

    >>> load("resnet50")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected a model with a prefix (acclimate:NAME, paper:NAME,
    timm:NAME, torchvision:NAME[@WEIGHTS], hf:NAME_OR_DIR, py:package.module:function),
    got 'resnet50'
    """
    source, name = _parse(spec)
    if num_classes is not None and num_classes < 1:
        raise AcclimateError(f"expected num_classes >= 1, got {num_classes}")
    file = None if weights is None else user_path(weights)
    request = Request(
        spec=spec,
        name=name,
        weights=file,
        num_classes=num_classes,
        unsafe_pickle=unsafe_pickle,
        metadata=None if file is None else read_metadata(file),
    )
    loaded = _load_with_metadata(source, request)
    loaded.model.eval().float()
    return loaded


def _load_with_metadata(source: Source, request: Request) -> LoadedModel:
    """The model, with the classes and the preprocessing that its weights file records."""
    metadata, asked = request.metadata, request.num_classes
    if metadata is None:
        return source.load(request)
    if metadata.classes is not None and asked not in (None, len(metadata.classes)):
        raise AcclimateError(
            f"{request.weights} is for {len(metadata.classes)} classes by its record, got "
            f"num_classes={asked} (--num-classes {asked}); leave it out"
        )
    try:
        loaded = source.load(request)
    except AcclimateError as error:
        if metadata.name == request.spec:
            raise
        raise AcclimateError(f"{error}; by its record it is for {metadata.name}") from error
    recorded = {"its classes": metadata.classes, "its preprocessing": metadata.preprocessing}
    names = " and ".join(name for name, value in recorded.items() if value is not None)
    return replace(
        loaded,
        classes=metadata.classes or loaded.classes,
        preprocessing=metadata.preprocessing or loaded.preprocessing,
        source=f"{request.weights}, with {names}" if names else loaded.source,
    )


def outline(spec: str, *, num_classes: int | None = None) -> LoadedModel:
    """The model ``spec`` names as its library makes it, on the meta device: shapes, no weights.

    It needs no network and next to no memory; of ``hf:`` models the folder, or what was downloaded
    before, must be there. Models of ``acclimate:`` and ``py:`` have no outline: they are loaded.

    >>> outline("acclimate:digits").name
    'acclimate:digits'
    """
    source, name = _parse(spec)
    if source.outline is None:
        return load(spec, num_classes=num_classes)
    return source.outline(Request(spec=spec, name=name, num_classes=num_classes))


def origin(spec: str) -> Origin | None:
    """Where the published weights of ``spec`` would be fetched from, None if from nowhere.

    >>> origin("acclimate:digits") is None
    True
    """
    source, name = _parse(spec)
    return None if source.origin is None else source.origin(Request(spec=spec, name=name))


def list_models(pattern: str = "*") -> list[str]:
    """The specs that match ``pattern``, a name with the wildcards ``*``, ``?`` and ``[…]``.

    timm and torchvision have some three thousand names: they, and the paper's, are listed where
    the pattern asks for them by prefix (``timm:resnet50*``, ``*:resnet50*``), else only the
    package's own are, and the pattern may leave their prefix out.

    >>> list_models("acclimate:dig*") == list_models("dig*") == ["acclimate:digits"]
    True
    """
    asked = pattern.partition(":")[0] if ":" in pattern else "acclimate"
    prefixes = [prefix for prefix in _SOURCES if fnmatchcase(prefix, asked)]
    if not prefixes:
        raise unknown_name("model prefix", asked, _SOURCES)
    lists = {prefix: names for prefix in prefixes if (names := _SOURCES[prefix].names) is not None}
    if not lists:
        raise AcclimateError(f"{asked}: models cannot be listed; any of {_FORMS} can be loaded")
    return [
        f"{prefix}:{name}"
        for prefix, names in lists.items()
        for name in names()
        if fnmatchcase(f"{prefix}:{name}", pattern) or fnmatchcase(name, pattern)
    ]


def _parse(spec: str) -> tuple[Source, str]:
    prefix, _, name = spec.partition(":")
    if not name:
        raise AcclimateError(f"expected a model with a prefix ({_FORMS}), got {spec!r}")
    if prefix not in _SOURCES:
        raise unknown_name("model prefix", prefix, _SOURCES)
    return _SOURCES[prefix], name
