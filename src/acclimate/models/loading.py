"""One door to models: a prefix says where a model comes from, a name says which."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import torch

from acclimate.errors import AcclimateError, unknown_name
from acclimate.models import source_torchvision
from acclimate.models._optional import import_optional
from acclimate.models._source import Request, Source, unknown_model
from acclimate.models._torchvision import import_torchvision
from acclimate.models.builtin import builtin_names, load_builtin
from acclimate.models.imagenet import imagenet_classes, with_imagenet_ids
from acclimate.models.paper import dress, find_record, load_paper, paper_names
from acclimate.models.record import LoadedModel
from acclimate.models.source_hf import load_hf
from acclimate.models.source_python import load_python
from acclimate.models.source_timm import load_timm, preprocessing_of, timm_names
from acclimate.models.source_torchvision import load_torchvision, torchvision_names

__all__ = ["list_models", "load", "outline"]

_SOURCES = {
    "acclimate": Source(load=load_builtin, names=builtin_names),
    "hf": Source(load=load_hf),
    "paper": Source(load=load_paper, names=paper_names),
    "py": Source(load=load_python),
    "timm": Source(load=load_timm, names=timm_names),
    "torchvision": Source(load=load_torchvision, names=torchvision_names),
}
_FORMS = (
    "acclimate:NAME, paper:NAME, timm:NAME, torchvision:NAME[@WEIGHTS], hf:NAME_OR_DIR, "
    "py:package.module:function"
)
_NOT_LOADED = "not loaded: this is the architecture alone"


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
        num_classes: The class count of ``weights``, where it is not the architecture's own.
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
    request = Request(
        spec=spec,
        name=name,
        weights=None if weights is None else Path(weights),
        num_classes=num_classes,
        unsafe_pickle=unsafe_pickle,
    )
    loaded = source.load(request)
    loaded.model.eval().float()
    return loaded


def outline(spec: str) -> LoadedModel:
    """The model ``spec`` names as its library makes it, on the meta device: shapes, no weights.

    It needs no network and next to no memory. Models of ``acclimate:``, ``hf:`` and ``py:`` are
    loaded, since only loading tells what they are.

    >>> outline("acclimate:digits").name
    'acclimate:digits'
    """
    _, name = _parse(spec)
    prefix = spec.partition(":")[0]
    if prefix == "paper":
        record = find_record(name)
        with torch.device("meta"):
            return dress(outline(record.architecture), record)
    if prefix == "timm":
        return _outline_timm(spec, name)
    if prefix == "torchvision":
        return _outline_torchvision(spec, name)
    return load(spec)


def _outline_timm(spec: str, name: str) -> LoadedModel:
    import_torchvision()
    timm = import_optional("timm", extra="models")
    if name not in (known := timm_names()):
        raise unknown_model(Request(spec=spec, name=name), known)
    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False).eval()
    classes = imagenet_classes() if getattr(model, "num_classes", None) == 1000 else None
    preprocessing = preprocessing_of(model)
    return LoadedModel(
        name=spec, model=model, preprocessing=preprocessing, classes=classes, source=_NOT_LOADED
    )


def _outline_torchvision(spec: str, name: str) -> LoadedModel:
    models, (name, _, tag) = source_torchvision._models(), name.partition("@")
    if name not in (known := torchvision_names()):
        raise unknown_model(Request(spec=spec, name=name), known)
    record = source_torchvision._record(models, name, tag)
    options = source_torchvision._options(name, record, {})
    with torch.device("meta"):
        model = models.get_model(name, weights=None, **options).eval()
    return LoadedModel(
        name=spec,
        model=model,
        preprocessing=source_torchvision._preprocessing(record.transforms()),
        classes=with_imagenet_ids(record.meta["categories"]),
        source=_NOT_LOADED,
    )


def list_models(pattern: str = "*") -> list[str]:
    """The specs that match ``pattern``, a name with the wildcards ``*``, ``?`` and ``[…]``.

    timm and torchvision have some three thousand names: they, and the paper's, are listed where
    the pattern asks for them by prefix (``timm:resnet50*``), else only the package's own are.

    >>> list_models("acclimate:dig*")
    ['acclimate:digits']
    """
    prefix, colon, _ = pattern.partition(":")
    if not colon or prefix not in _SOURCES:
        prefix = "acclimate"
    names = _SOURCES[prefix].names
    if names is None:
        raise AcclimateError(f"{prefix}: models cannot be listed; any of {_FORMS} can be loaded")
    specs = (f"{prefix}:{name}" for name in names())
    return [spec for spec in specs if fnmatchcase(spec, pattern)]


def _parse(spec: str) -> tuple[Source, str]:
    prefix, _, name = spec.partition(":")
    if not name:
        raise AcclimateError(f"expected a model with a prefix ({_FORMS}), got {spec!r}")
    if prefix not in _SOURCES:
        raise unknown_name("model prefix", prefix, _SOURCES)
    return _SOURCES[prefix], name
