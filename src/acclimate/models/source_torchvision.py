"""``torchvision:NAME[@WEIGHTS]``: torchvision's classifiers with their published weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import unknown_name
from acclimate.models.filling import fill
from acclimate.models.imagenet import with_imagenet_ids
from acclimate.models.record import LoadedModel
from acclimate.models.sources import (
    NOT_LOADED,
    Origin,
    Request,
    check_class_count,
    import_optional,
    unknown_model,
    unreachable,
)
from acclimate.models.torchvision_import import import_torchvision
from acclimate.models.weights import load_weights

__all__ = [
    "load_torchvision",
    "origin_torchvision",
    "outline_torchvision",
    "torchvision_names",
]

# The file torchvision publishes for DenseNets still has names with a dot too many.
_OLD_DENSENET = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)$")
_AUXILIARY = {"googlenet": "aux1.", "inception_v3": "AuxLogits."}


def torchvision_names() -> list[str]:
    """The names of torchvision's classifiers."""
    models = _models()
    names: list[str] = models.list_models(module=models)
    return names


def load_torchvision(request: Request) -> LoadedModel:
    """Answer a request for a torchvision model."""
    models = _models()
    name, record = _found(models, request)
    categories = record.meta["categories"]
    if request.weights is None:
        check_class_count(request, len(categories))
        model, source = _published(models, name, record, request), f"{record} of torchvision"
    else:
        model, source = _from_file(models, name, record, request), str(request.weights)
    own_classes = request.class_count not in (None, len(categories))
    return LoadedModel(
        name=request.spec,
        model=model,
        preprocessing=_preprocessing(record.transforms()),
        classes=None if own_classes else with_imagenet_ids(categories),
        source=source,
    )


def outline_torchvision(request: Request) -> LoadedModel:
    """The shapes of a torchvision model, without its weights."""
    models = _models()
    name, record = _found(models, request)
    categories = record.meta["categories"]
    check_class_count(request, len(categories))
    with torch.device("meta"):
        model = models.get_model(name, weights=None, **_options(name, record, {})).eval()
    return LoadedModel(
        name=request.spec,
        model=model,
        preprocessing=_preprocessing(record.transforms()),
        classes=with_imagenet_ids(categories),
        source=NOT_LOADED,
    )


def origin_torchvision(request: Request) -> Origin:
    """Where torchvision would fetch the weights."""
    return Origin(library="torchvision", place=_found(_models(), request)[1].url)


def _models() -> Any:
    import_torchvision()
    return import_optional("torchvision.models", extra="models")


def _found(models: Any, request: Request) -> tuple[str, Any]:
    """The architecture's name, and the entry of its published weights."""
    name, _, tag = request.name.partition("@")
    if name not in (known := torchvision_names()):
        raise unknown_model(request, known)
    return name, _record(models, name, tag)


def _record(models: Any, name: str, tag: str) -> Any:
    """The entry of published weights called ``tag``, or torchvision's default one."""
    entries = models.get_model_weights(name)
    if not tag:
        return entries.DEFAULT
    if tag not in entries.__members__:
        raise unknown_name(f"weights of torchvision:{name}", tag, entries.__members__)
    return entries[tag]


def _published(models: Any, name: str, record: Any, request: Request) -> nn.Module:
    try:
        model: nn.Module = models.get_model(name, weights=record)
    except (OSError, RuntimeError) as error:
        raise unreachable(request, f"the weights {record} ({record.url})", error) from error
    return model


def _from_file(models: Any, name: str, record: Any, request: Request) -> nn.Module:
    assert request.weights is not None
    tensors = load_weights(request.weights, unsafe_pickle=request.unsafe_pickle)
    if name.startswith("densenet"):
        tensors = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in tensors.items()}
    options = _options(name, record, tensors)
    if request.class_count is not None:
        options["num_classes"] = request.class_count
    model: nn.Module = models.get_model(name, weights=None, **options)
    fill(model, tensors)
    return model


def _options(name: str, record: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """What torchvision itself sets beside published weights and a bare model would lack."""
    if name in _AUXILIARY:
        auxiliary = any(_AUXILIARY[name] in key for key in tensors)
        return {"transform_input": True, "init_weights": False, "aux_logits": auxiliary}
    if name.startswith("vit_"):
        return {"image_size": record.meta["min_size"][0]}
    return {}


def _preprocessing(transforms: Any) -> Preprocessing:
    crop, resize = transforms.crop_size, transforms.resize_size
    return Preprocessing(
        size=(crop[0], crop[-1]),
        resize=resize[0],
        interpolation=transforms.interpolation.value,
        mean=tuple(transforms.mean),
        std=tuple(transforms.std),
    )
