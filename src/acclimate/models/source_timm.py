"""``timm:NAME_OR_DIR``: the models of timm, with the preprocessing each one records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn

from acclimate.data.labels import ClassList, imagenet_classes
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models.libraries import hub_answers, import_optional, import_timm, kept_offline
from acclimate.models.sources import Entry, Origin, Request, unknown_model, unreachable
from acclimate.reading import read_object
from acclimate.text import user_path

__all__ = ["find_timm", "preprocessing_of", "timm_names"]

_RECORD, _WEIGHTS = "config.json", "model.safetensors"


def timm_names() -> list[str]:
    """The names of timm's architectures, and of all its published weights (``NAME.TAG``)."""
    timm = import_timm()
    return sorted({*timm.list_models(), *timm.list_pretrained()})


def find_timm(request: Request) -> Entry:
    """What timm has under a name."""
    timm = import_timm()
    if not timm.is_model(request.name):
        if (folder := user_path(request.name)).is_dir():
            return _in_folder(folder, timm)
        raise unknown_model(request, timm_names())
    try:
        # None for an architecture nobody published weights for.
        config = timm.get_pretrained_cfg(request.name, allow_unregistered=True)
    except RuntimeError as error:  # The architecture is known, the tag is not.
        raise unknown_model(request, timm_names()) from error
    published = config if config is not None and config.has_weights else None
    title = ".".join(filter(None, (config.architecture, config.tag))) if config else ""

    def build(_: Mapping[str, Tensor], classes: int | None) -> nn.Module:
        options = {} if classes is None else {"num_classes": classes}
        model: nn.Module = timm.create_model(request.name, pretrained=False, **options)
        return model

    def fetch() -> nn.Module:
        if published is None:
            raise AcclimateError(
                f"timm publishes no weights for {request.name}; give a file: weights=FILE, on the "
                "command line --weights FILE"
            )
        try:
            with kept_offline(when=bool(published.hf_hub_id) and not hub_answers()):
                model: nn.Module = timm.create_model(request.name, pretrained=True)
        except (OSError, RuntimeError) as error:
            raise unreachable(request, f"timm's weights {title}", error) from error
        return model

    return Entry(
        class_count=None if published is None else published.num_classes,
        build=build,
        fetch=fetch,
        title=f"{title} of timm",
        preprocessing=preprocessing_of,
        classes=_classes,
        origin=None
        if published is None
        else Origin(
            library="timm",
            hub=published.hf_hub_id or None,
            place=published.url or None,
            licence=published.license or None,
        ),
    )


def _in_folder(folder: Path, timm: Any) -> Entry:
    """A model that timm wrote (``timm.models.save_for_hf``): its record, and its weights."""
    record = read_object(folder / _RECORD, "architecture")
    name, known = str(record["architecture"]), record.get("pretrained_cfg")
    settings = known if isinstance(known, dict) else record
    labels = record.get("label_names") or settings.get("label_names")
    count = record.get("num_classes", settings.get("num_classes"))
    if not timm.is_model(name.partition(".")[0]) or type(count) is not int or count < 1:
        raise AcclimateError(
            f"expected {folder / _RECORD} to name an architecture of timm and a num_classes, as "
            f"timm.models.save_for_hf(model, {str(folder)!r}) writes it, got {name!r:.60} and "
            f"{count!r:.20}"
        )
    spec = f"local-dir:{folder}"

    def build(_: Mapping[str, Tensor], classes: int | None) -> nn.Module:
        options = {} if classes is None else {"num_classes": classes}
        model: nn.Module = timm.create_model(spec, pretrained=False, **options)
        return model

    def fetch() -> nn.Module:
        if not (folder / _WEIGHTS).is_file():
            raise AcclimateError(
                f"no {_WEIGHTS} in {folder}; write it with timm.models.save_for_hf(model, "
                f"{str(folder)!r}, safe_serialization=True), or give weights=FILE (--weights FILE)"
            )
        try:
            model: nn.Module = timm.create_model(spec, pretrained=True)
        except (OSError, RuntimeError, TypeError, ValueError, KeyError, SafetensorError) as error:
            raise AcclimateError(f"cannot load the model in {folder}: {error}") from error
        return model

    def classes_of(model: nn.Module) -> ClassList | None:
        if isinstance(labels, list) and len(labels) == count:
            return ClassList(tuple(map(str, labels)))
        return _classes(model)

    return Entry(
        class_count=count,
        build=build,
        fetch=fetch,
        title=f"{name} in {folder}",
        preprocessing=preprocessing_of,
        classes=classes_of,
    )


def _classes(model: nn.Module) -> ClassList | None:
    return imagenet_classes() if getattr(model, "num_classes", None) == 1000 else None


def preprocessing_of(model: nn.Module) -> Preprocessing | None:
    """The preprocessing in the record that timm keeps on its modules; None without a record.

    >>> preprocessing_of(nn.Linear(2, 2)) is None
    True
    """
    record = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if not isinstance(record, Mapping):
        return None
    import_timm()
    resolve = import_optional("timm.data", extra="models").resolve_data_config
    return preprocessing_from_timm(resolve(pretrained_cfg=record))


def preprocessing_from_timm(config: Mapping[str, Any]) -> Preprocessing | None:
    """timm's data config as ours; None, with a warning, where ours cannot express it.

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
