"""``timm:NAME``: the models of timm, with the preprocessing each one records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models.filling import fill
from acclimate.models.hub import hub_answers, kept_offline
from acclimate.models.imagenet import imagenet_classes
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

__all__ = ["load_timm", "origin_timm", "outline_timm", "preprocessing_of", "timm_names"]


def timm_names() -> list[str]:
    """The names of timm's architectures, and of all its published weights (``NAME.TAG``)."""
    timm = _timm()
    return sorted({*timm.list_models(), *timm.list_pretrained()})


def load_timm(request: Request) -> LoadedModel:
    """Answer a request for a timm model."""
    timm = _timm()
    config = _config(timm, request)
    if request.weights is None:
        model, source = _published(timm, config, request)
    else:
        model, source = _from_file(timm, request), str(request.weights)
    return _loaded(request, model, source)


def outline_timm(request: Request) -> LoadedModel:
    """The shapes of a timm model, without its weights."""
    timm = _timm()
    if (config := _config(timm, request)) is not None:
        check_class_count(request, config.num_classes)
    with torch.device("meta"):
        model = timm.create_model(request.name, pretrained=False).eval()
    return _loaded(request, model, NOT_LOADED)


def origin_timm(request: Request) -> Origin | None:
    """Where timm would fetch the weights; None for an architecture without any."""
    config = _config(_timm(), request)
    if config is None or not config.has_weights:
        return None
    return Origin(
        library="timm",
        hub=config.hf_hub_id or None,
        place=config.url or None,
        licence=config.license or None,
    )


def _loaded(request: Request, model: nn.Module, source: str) -> LoadedModel:
    return LoadedModel(
        name=request.spec,
        model=model,
        preprocessing=preprocessing_of(model),
        classes=imagenet_classes() if getattr(model, "num_classes", None) == 1000 else None,
        source=source,
    )


def preprocessing_of(model: nn.Module) -> Preprocessing | None:
    """What the record timm keeps on its modules says of their input; None without a record.

    >>> preprocessing_of(nn.Linear(2, 2)) is None
    True
    """
    record = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if not isinstance(record, Mapping):
        return None
    _timm()
    resolve = import_optional("timm.data", extra="models").resolve_data_config
    return preprocessing_from_timm(resolve(pretrained_cfg=record))


def preprocessing_from_timm(config: Mapping[str, Any]) -> Preprocessing | None:
    """timm's data config as a record of ours; None, with a warning, where ours has no words for it.

    >>> config = {"input_size": (3, 224, 224), "crop_pct": 0.95, "interpolation": "bicubic",
    ...           "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "crop_mode": "center"}
    >>> preprocessing_from_timm(config).resize
    235
    """
    _, height, width = config["input_size"]
    mode, crop = config.get("crop_mode", "center"), config["crop_pct"]
    if mode not in ("center", "squash") or (height != width and crop != 1):
        warnings.warn(
            f"no preprocessing recorded: timm's crop mode {mode!r} of {height}×{width} at "
            f"{crop:g} cannot be expressed here; give your own",
            AcclimateWarning,
            stacklevel=2,
        )
        return None
    return Preprocessing(
        size=(height, width),
        resize=math.floor(height / crop) if height == width else None,
        squash=mode == "squash",
        interpolation=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def _timm() -> Any:
    import_torchvision()
    return import_optional("timm", extra="models")


def _config(timm: Any, request: Request) -> Any:
    """timm's record of the weights; None for an architecture nobody published any for."""
    if not timm.is_model(request.name):
        raise unknown_model(request, timm_names())
    try:
        return timm.get_pretrained_cfg(request.name, allow_unregistered=True)
    except RuntimeError as error:  # The architecture is known, the tag is not.
        raise unknown_model(request, timm_names()) from error


def _published(timm: Any, config: Any, request: Request) -> tuple[nn.Module, str]:
    if config is None or not config.has_weights:
        raise AcclimateError(
            f"timm publishes no weights for {request.name}; give a file: weights=FILE, on the "
            "command line --weights FILE"
        )
    check_class_count(request, config.num_classes)
    weights = ".".join(part for part in (config.architecture, config.tag) if part)
    try:
        with kept_offline(when=bool(config.hf_hub_id) and not hub_answers()):
            model: nn.Module = timm.create_model(request.name, pretrained=True)
    except (OSError, RuntimeError) as error:
        raise unreachable(request, f"timm's weights {weights}", error) from error
    return model, f"{weights} of timm"


def _from_file(timm: Any, request: Request) -> nn.Module:
    assert request.weights is not None
    tensors = load_weights(request.weights, unsafe_pickle=request.unsafe_pickle)
    options = {} if request.class_count is None else {"num_classes": request.class_count}
    model: nn.Module = timm.create_model(request.name, pretrained=False, **options)
    fill(model, tensors)
    return model
