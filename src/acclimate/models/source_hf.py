"""``hf:NAME_OR_DIR``: image classifiers of transformers, from the hub or a folder."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models.libraries import (
    hub_address,
    hub_answers,
    import_optional,
    import_torchvision,
    kept_offline,
)
from acclimate.models.record import LoadedModel
from acclimate.models.sources import (
    Entry,
    Origin,
    Request,
    load_entry,
    outline_entry,
    unreachable,
    with_imagenet_ids,
)

__all__ = ["load_hf", "origin_hf", "outline_hf", "preprocessing_from_hf"]

_PROCESSOR = "preprocessor_config.json"
# Pillow's numbers, which transformers writes into its files.
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def preprocessing_from_hf(config: Mapping[str, Any]) -> Preprocessing | None:
    """The record for an image processor's ``to_dict()``; None where it cannot be put so.

    >>> preprocessing_from_hf({
    ...     "do_resize": True, "size": {"height": 224, "width": 224}, "resample": 2,
    ...     "do_rescale": True, "rescale_factor": 1 / 255,
    ...     "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    ... }).describe()
    'both sides to 224 px (bilinear), centre 224×224, mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)'
    """
    shape = _shape(config)
    if shape is None or config.get("do_flip_channel_order"):
        return None
    interpolation = _RESAMPLE.get(int(config.get("resample") or 0))
    if interpolation is None:
        return None
    size, resize, squash = shape
    mean, std = _scale(config)
    return Preprocessing(
        size=size, resize=resize, squash=squash, interpolation=interpolation, mean=mean, std=std
    )


def _shape(config: Mapping[str, Any]) -> tuple[tuple[int, int], int | None, bool] | None:
    """(size, resize, squash), by the rules each family of processors has of its own."""
    crop = _pair(config.get("crop_size")) if config.get("do_center_crop") else None
    if not config.get("do_resize"):
        return (crop, None, False) if crop else None
    size = config.get("size") or {}
    if "shortest_edge" in size:
        edge = int(size["shortest_edge"])
        family = str(config.get("image_processor_type", ""))
        if family.startswith("ConvNext") and edge >= 384:
            return (edge, edge), edge, True
        resize = edge
        if config.get("crop_pct"):
            resize = int(edge / config["crop_pct"])
        elif family.startswith("Levit"):
            resize = int(256 / 224 * edge)
        return crop or (edge, edge), resize, False
    both = _pair(size)
    if both is None:
        return None
    if both[0] == both[1]:
        return crop or both, both[0], True
    return (both, None, True) if crop in (None, both) else None


def _pair(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return int(size["height"]), int(size["width"])
    return None


def _scale(config: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std for pixels in [0, 1], whatever range the processor takes them to first."""
    normalize = bool(config.get("do_normalize"))
    mean = [float(value) for value in config["image_mean"]] if normalize else [0.0] * 3
    std = [float(value) for value in config["image_std"]] if normalize else [1.0] * 3
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale") else 1.0
    spread, offset = 255 * factor, 1.0 if config.get("rescale_offset") else 0.0
    if config.get("include_top"):
        # EfficientNet's processor divides by the std a second time.
        std = [value**2 for value in std]
    return (
        tuple((value + offset) / spread for value in mean),
        tuple(value / spread for value in std),
    )


def load_hf(request: Request) -> LoadedModel:
    """A transformers model. Code that a repository brings is never run."""
    return load_entry(_find(request, local=_is_folder(request) or not hub_answers()), request)


def outline_hf(request: Request) -> LoadedModel:
    """The shapes of a transformers model, from a folder or from what was downloaded before."""
    entry = _find(request, local=True, why="nothing is downloaded for this")
    return outline_entry(entry, request)


def origin_hf(request: Request) -> Origin:
    """The folder, or the name on the hub."""
    if _is_folder(request):
        return Origin(library="transformers", place=str(Path(request.name).resolve()))
    return Origin(library="transformers", hub=request.name, place=f"{hub_address()}/{request.name}")


def _find(request: Request, *, local: bool, why: str = "the hub does not answer") -> Entry:
    # transformers imports torchvision wherever it finds it.
    if importlib.util.find_spec("torchvision"):
        import_torchvision()
    transformers = import_optional("transformers", extra="hf")
    options = {"local_files_only": local, "trust_remote_code": False}
    config = _config(transformers, request, options, why=why)

    def build(_: Mapping[str, Tensor], classes: int | None) -> nn.Module:
        own = config
        if classes is not None:
            own = type(config).from_dict({**config.to_dict(), "num_labels": classes})
        try:
            model: nn.Module = transformers.AutoModelForImageClassification.from_config(
                own, trust_remote_code=False
            )
        except ValueError as error:
            raise _no_classifier(request, error) from error
        except Exception as error:
            raise _broken(request, "config.json", error) from error
        return model

    def preprocessing(_: nn.Module) -> Preprocessing | None:
        with kept_offline(when=local):
            return _preprocessing(transformers, request, options)

    def classes_of(_: nn.Module) -> ClassList | None:
        own = request.class_count not in (None, config.num_labels)
        return None if own else _classes(config)

    return Entry(
        class_count=config.num_labels,
        build=build,
        fetch=lambda: _published(transformers, request, options),
        title=f"{request.name} of transformers",
        preprocessing=preprocessing,
        classes=classes_of,
    )


def _is_folder(request: Request) -> bool:
    return Path(request.name).is_dir()


def _config(transformers: Any, request: Request, options: Mapping[str, bool], *, why: str) -> Any:
    local = options["local_files_only"]
    try:
        with kept_offline(when=local):
            return transformers.AutoConfig.from_pretrained(request.name, **options)
    except (OSError, ValueError) as error:
        if _is_own_code(error):
            raise _no_classifier(request, error) from error
        if not local or _is_folder(request):
            raise unreachable(request, "the config.json", error) from error
        raise AcclimateError(
            f"expected {request.spec} as a folder or among what transformers downloaded before "
            f"({why}), got neither; where there is a network run: hf download {request.name}, or "
            "give a folder made by save_pretrained: hf:FOLDER"
        ) from error
    except Exception as error:  # on broken values transformers raises nearly anything
        raise _broken(request, "config.json", error) from error


def _published(transformers: Any, request: Request, options: Mapping[str, bool]) -> nn.Module:
    _check_folder(request)
    try:
        with kept_offline(when=options["local_files_only"]):
            model, info = transformers.AutoModelForImageClassification.from_pretrained(
                request.name,
                use_safetensors=None if request.unsafe_pickle else True,
                output_loading_info=True,
                **options,
            )
    except OSError as error:
        raise unreachable(request, "the safetensors weights", error) from error
    except (RuntimeError, ValueError) as error:
        raise _no_classifier(request, error) from error
    except Exception as error:
        raise _broken(request, "config.json", error) from error
    if info["missing_keys"]:
        raise AcclimateError(
            f"the weights of {request.spec} lack {', '.join(sorted(info['missing_keys'])[:3])}, "
            "which would be left untrained; choose a model fine-tuned for classification"
        )
    classifier: nn.Module = model
    return classifier


def _is_own_code(error: Exception) -> bool:
    """Whether transformers wants to run code that a repository brings, and was not allowed to."""
    return "trust_remote_code" in str(error)


def _broken(request: Request, file: str, error: Exception) -> Exception:
    """What to raise for a file whose values are not those transformers writes."""
    if isinstance(error, MemoryError):
        return error
    gist = " ".join(str(error).split())
    return AcclimateError(
        f"cannot use the {file} of {request.spec}: {type(error).__name__}: {gist:.300}; it is "
        "damaged: get it again, or save the model anew with save_pretrained"
    )


def _no_classifier(request: Request, error: Exception) -> AcclimateError:
    if _is_own_code(error):  # transformers would advise to run it
        return AcclimateError(
            f"{request.spec} brings Python code of its own, which is never run; to use code "
            "you trust, write a function that makes the model: py:package.module:function"
        )
    return AcclimateError(f"{request.spec} is not an image classifier: {error}")


def _check_folder(request: Request) -> None:
    folder = Path(request.name)
    if not folder.is_dir() or request.unsafe_pickle or any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("*.bin")):
        raise AcclimateError(
            f"{folder} holds only pickled weights, and reading them could run code hidden in "
            "them. If you trust them: unsafe_pickle=True, on the command line --unsafe-pickle"
        )
    raise AcclimateError(f"no *.safetensors in {folder}; was it made by save_pretrained?")


def _preprocessing(
    transformers: Any, request: Request, options: Mapping[str, bool]
) -> Preprocessing | None:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(request.name, **options)
    except (OSError, ValueError) as error:
        if _is_own_code(error):
            warnings.warn(
                f"no preprocessing recorded: the image processor of {request.spec} is Python code "
                "of its own, which is never run; give your own",
                AcclimateWarning,
                stacklevel=2,
            )
        return None  # No record beside the weights: none is made up.
    except Exception as error:
        raise _broken(request, _PROCESSOR, error) from error
    try:
        found = preprocessing_from_hf(processor.to_dict())
    except Exception as error:
        raise _broken(request, _PROCESSOR, error) from error
    if found is None:
        warnings.warn(
            f"no preprocessing recorded: what {type(processor).__name__} of {request.spec} does "
            "cannot be expressed here; give your own",
            AcclimateWarning,
            stacklevel=2,
        )
    return found


def _classes(config: Any) -> ClassList | None:
    """The class names, unless they are the LABEL_0, LABEL_1, … of a model nobody named them for."""
    names = [str(config.id2label[index]) for index in range(config.num_labels)]
    unnamed = all(name == f"LABEL_{index}" for index, name in enumerate(names))
    return None if unnamed else with_imagenet_ids(names)
