"""``torchvision:NAME[@WEIGHTS]``: torchvision's classifiers with their published weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import unknown_name
from acclimate.models.libraries import import_optional, import_torchvision
from acclimate.models.sources import (
    Entry,
    Origin,
    Request,
    unknown_model,
    unreachable,
    with_imagenet_ids,
)

__all__ = ["find_torchvision", "torchvision_names"]

_AUXILIARY = {"googlenet": "aux1.", "inception_v3": "AuxLogits."}


def torchvision_names() -> list[str]:
    """The names of torchvision's classifiers."""
    models = _models()
    names: list[str] = models.list_models(module=models)
    return names


def find_torchvision(request: Request) -> Entry:
    """What torchvision has under a name and, after ``@``, a name of weights."""
    models = _models()
    name, _, tag = request.name.partition("@")
    if name not in (known := torchvision_names()):
        raise unknown_model(request, known)
    weights = models.get_model_weights(name)
    if tag and tag not in weights.__members__:
        raise unknown_name(f"weights of torchvision:{name}", tag, weights.__members__)
    record = weights[tag] if tag else weights.DEFAULT
    categories = record.meta["categories"]

    def build(tensors: Mapping[str, Tensor], classes: int | None) -> nn.Module:
        own = {} if classes is None else {"num_classes": classes}
        options = {**_options(name, record, tensors), **own}
        model: nn.Module = models.get_model(name, weights=None, **options)
        return model

    def fetch() -> nn.Module:
        try:
            model: nn.Module = models.get_model(name, weights=record)
        except (OSError, RuntimeError) as error:
            raise unreachable(request, f"the weights {record} ({record.url})", error) from error
        return model

    def classes_of(_: nn.Module) -> ClassList | None:
        own = request.class_count not in (None, len(categories))
        return None if own else with_imagenet_ids(categories)

    return Entry(
        class_count=len(categories),
        build=build,
        fetch=fetch,
        title=f"{record} of torchvision",
        preprocessing=lambda _: _preprocessing(record.transforms()),
        classes=classes_of,
        origin=Origin(library="torchvision", place=record.url),
    )


def _models() -> Any:
    import_torchvision()
    return import_optional("torchvision.models", extra="models")


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
