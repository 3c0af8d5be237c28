"""``hf:NAME_OR_DIR``: image classifiers of transformers, from the hub or a folder."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models._hub import hub_address, hub_answers, kept_offline
from acclimate.models._optional import import_optional
from acclimate.models._source import NOT_LOADED, Request, check_class_count, unreachable
from acclimate.models._torchvision import import_torchvision
from acclimate.models.filling import fill
from acclimate.models.hf_preprocessing import preprocessing_from_hf
from acclimate.models.imagenet import with_imagenet_ids
from acclimate.models.origin import Origin
from acclimate.models.record import LoadedModel
from acclimate.models.weights import load_weights

__all__ = ["load_hf", "origin_hf", "outline_hf"]


def load_hf(request: Request) -> LoadedModel:
    """Answer a request for a transformers model. Code that a repository brings is never run."""
    transformers = _transformers()
    local = _is_folder(request) or not hub_answers()
    with kept_offline(when=local):
        return _loaded(transformers, request, local=local)


def _loaded(transformers: Any, request: Request, *, local: bool) -> LoadedModel:
    config = _config(transformers, request, local=local)
    if request.weights is None:
        check_class_count(request, config.num_labels)
        model = _published(transformers, request, local=local)
        source = f"{request.name} of transformers"
    else:
        model, source = _from_file(transformers, config, request), str(request.weights)
    own_classes = request.class_count not in (None, config.num_labels)
    return LoadedModel(
        name=request.spec,
        model=model,
        preprocessing=_preprocessing(transformers, request, local=local),
        classes=None if own_classes else _classes(config),
        source=source,
    )


def outline_hf(request: Request) -> LoadedModel:
    """The shapes of a transformers model, from a folder or from what was downloaded before."""
    transformers = _transformers()
    with kept_offline():
        config = _config(transformers, request, local=True, why="nothing is downloaded for this")
        preprocessing = _preprocessing(transformers, request, local=True)
    check_class_count(request, config.num_labels)
    with torch.device("meta"):
        model = _bare(transformers, config, request).eval()
    return LoadedModel(
        name=request.spec,
        model=model,
        preprocessing=preprocessing,
        classes=_classes(config),
        source=NOT_LOADED,
    )


def origin_hf(request: Request) -> Origin:
    """The folder, or the name on the hub."""
    if _is_folder(request):
        return Origin(library="transformers", place=str(Path(request.name).resolve()))
    return Origin(library="transformers", hub=request.name, place=f"{hub_address()}/{request.name}")


def _is_folder(request: Request) -> bool:
    return Path(request.name).is_dir()


def _transformers() -> Any:
    # transformers imports torchvision wherever it finds it.
    if importlib.util.find_spec("torchvision"):
        import_torchvision()
    return import_optional("transformers", extra="hf")


def _config(
    transformers: Any, request: Request, *, local: bool, why: str = "the hub does not answer"
) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(request.name, local_files_only=local)
    except (OSError, ValueError) as error:
        if not local or _is_folder(request):
            raise unreachable(request, "the config.json", error) from error
        raise AcclimateError(
            f"expected {request.spec} as a folder or among what transformers downloaded before "
            f"({why}), got neither; where there is a network run: hf download {request.name}, or "
            "give a folder made by save_pretrained: hf:FOLDER"
        ) from error


def _published(transformers: Any, request: Request, *, local: bool) -> nn.Module:
    _check_folder(request)
    try:
        model, info = transformers.AutoModelForImageClassification.from_pretrained(
            request.name,
            use_safetensors=None if request.unsafe_pickle else True,
            output_loading_info=True,
            local_files_only=local,
        )
    except OSError as error:
        raise unreachable(request, "the safetensors weights", error) from error
    except (RuntimeError, ValueError) as error:
        raise AcclimateError(f"{request.spec} is not an image classifier: {error}") from error
    if info["missing_keys"]:
        raise AcclimateError(
            f"the weights of {request.spec} lack {', '.join(sorted(info['missing_keys'])[:3])}, "
            "which would be left untrained; choose a model fine-tuned for classification"
        )
    classifier: nn.Module = model
    return classifier


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


def _from_file(transformers: Any, config: Any, request: Request) -> nn.Module:
    assert request.weights is not None
    tensors = load_weights(request.weights, unsafe_pickle=request.unsafe_pickle)
    own = {} if request.class_count is None else {"num_labels": request.class_count}
    config = type(config).from_dict({**config.to_dict(), **own}) if own else config
    model = _bare(transformers, config, request)
    fill(model, tensors)
    return model


def _bare(transformers: Any, config: Any, request: Request) -> nn.Module:
    try:
        model: nn.Module = transformers.AutoModelForImageClassification.from_config(config)
    except ValueError as error:
        raise AcclimateError(f"{request.spec} is not an image classifier: {error}") from error
    return model


def _preprocessing(transformers: Any, request: Request, *, local: bool) -> Preprocessing | None:
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(
            request.name, local_files_only=local
        )
    except (OSError, ValueError):
        return None  # No record beside the weights: none is made up.
    found = preprocessing_from_hf(processor.to_dict())
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
