"""``paper:NAME``: the ImageNet-scale models of the paper, each with the record of its weights."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from acclimate.data.labels import imagenet_classes
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, unknown_name
from acclimate.models.filling import fill
from acclimate.models.record import LoadedModel
from acclimate.models.source_timm import find_timm
from acclimate.models.source_torchvision import find_torchvision
from acclimate.models.sources import Entry, Request, load_entry, no_class_count, outline_entry
from acclimate.models.weights import load_weights

__all__ = ["PaperModel", "find_record", "load_paper", "outline_paper", "paper_names", "preset_name"]

_LIBRARIES = {"timm": find_timm, "torchvision": find_torchvision}
_HALF = (0.5, 0.5, 0.5)
_DINO = "vit-s16-dino"


@dataclass(frozen=True, kw_only=True)
class PaperModel:
    """What is known of a model's weights; None and empty where nothing is published.

    ``weights`` is who fetches them: a library, or the user, who gives a ``file``.
    ``sha256`` holds the beginnings of the published files' hashes, newest first.
    """

    name: str
    title: str
    architecture: str
    weights: Literal["timm", "torchvision", "file"]
    page: str
    files: tuple[str, ...]
    layout: str | None
    licence: str
    sha256: tuple[str, ...]
    clean_error: float | None
    clean_error_from: str | None
    size: int
    resize: int
    interpolation: str
    scale: Literal["imagenet", "half"]
    preset: str | None
    note: str | None

    @property
    def preprocessing(self) -> Preprocessing:
        """How the paper or the weights' authors feed it."""
        fed = Preprocessing(
            size=(self.size, self.size), resize=self.resize, interpolation=self.interpolation
        )
        return fed if self.scale == "imagenet" else replace(fed, mean=_HALF, std=_HALF)

    def how_to_get(self) -> str:
        """What to download, from where, and where to pass it.

        >>> print(find_record("resnet50-augmix").how_to_get())
        get the weights of paper:resnet50-augmix from https://github.com/google-research/augmix
        (https://drive.google.com/file/d/1z-1V3rdFiwqSECz7Wkmn4VJVefJGJGiF/view; a state dict under
        'state_dict', its names beginning with 'module.') and pass them as weights=FILE, on the
        command line --weights FILE
        """
        details = "; ".join([*self.files, *([self.layout] if self.layout else [])])
        return (
            f"get the weights of paper:{self.name} from {self.page} ({details}) and pass them as "
            "weights=FILE, on the command line --weights FILE"
        )


@cache
def _records() -> dict[str, PaperModel]:
    text = (files("acclimate.models") / "paper_models.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)
    lists = ("files", "sha256")
    made = (PaperModel(**{**entry, **{k: tuple(entry[k]) for k in lists}}) for entry in entries)
    return {record.name: record for record in made}


def paper_names() -> list[str]:
    """The names after ``paper:``."""
    return sorted(_records())


def find_record(name: str) -> PaperModel:
    """The record of a name, with or without ``paper:``.

    >>> find_record("paper:efficientnet-l2-noisy-student").size
    475
    """
    records, name = _records(), name.removeprefix("paper:")
    if name not in records:
        raise unknown_name("paper model", name, records)
    return records[name]


def preset_name(spec: str) -> str:
    """The name under which ``acclimate.presets`` knows a model: for most, the spec itself.

    >>> preset_name("paper:resnet50-augmix"), preset_name("timm:resnet18")
    ('torchvision:resnet50', 'timm:resnet18')
    """
    record = _records().get(spec.removeprefix("paper:")) if spec.startswith("paper:") else None
    return spec if record is None else record.preset or spec


def load_paper(request: Request) -> LoadedModel:
    """One of the paper's models."""
    record = find_record(request.name)
    if request.weights is None and record.weights == "file":
        raise AcclimateError(
            f"expected a weights file: no library brings it; {record.how_to_get()}"
        )
    checked = None if request.weights is None else _checked(record, request.weights)
    if record.name == _DINO:
        loaded = _load_dino(record, request)
    else:
        try:
            loaded = load_entry(_entry(record, request), request)
        except AcclimateError as error:
            if request.weights is not None or request.num_classes is not None:
                raise
            raise AcclimateError(f"{error}. Published at {', '.join(record.files)}") from error
    return _as_recorded(replace(loaded, source=checked or loaded.source), record)


def outline_paper(request: Request) -> LoadedModel:
    """The shapes of one of the paper's models, without its weights."""
    record = find_record(request.name)
    if record.name == _DINO:
        no_class_count(request)
    bare = outline_entry(_entry(record, request), request)
    with torch.device("meta"):
        return _as_recorded(bare, record)


def _entry(record: PaperModel, request: Request) -> Entry:
    library, _, name = record.architecture.partition(":")
    return _LIBRARIES[library](replace(request, name=name))


def _as_recorded(loaded: LoadedModel, record: PaperModel) -> LoadedModel:
    """An architecture under the record's name, with its classifier and preprocessing."""
    model = loaded.model
    if record.name == _DINO and not isinstance(model, DinoClassifier):
        model = DinoClassifier(model)
    return replace(
        loaded,
        name=f"paper:{record.name}",
        model=model,
        preprocessing=record.preprocessing,
        classes=imagenet_classes() if record.name == _DINO else loaded.classes,
    )


def _checked(record: PaperModel, path: Path) -> str:
    """The path, and whether it is the published file, before anything in it is read."""
    if not path.exists():
        raise AcclimateError(f"no weights file {path}; check the path, or {record.how_to_get()}")
    if not record.sha256 or not path.is_file() or not os.access(path, os.R_OK):
        return str(path)  # what cannot be read is refused, with the reason, by load_weights
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    digest = sha256.hexdigest()
    if digest.startswith(record.sha256):
        return f"{path} (the published file by its sha256)"
    if any(start in path.name for start in record.sha256):
        raise AcclimateError(
            f"expected the sha256 of {path} to begin as in its name, got {digest[:8]}: it is "
            f"damaged or not the published file. Download it again from {record.files[0]}, or "
            "rename it to use it anyway"
        )
    return f"{path} (not the published file: its sha256 begins with {digest[:8]})"


class DinoClassifier(nn.Module):
    """ViT-S as DINO's authors classify with it: a layer on the class tokens of the last blocks."""

    def __init__(self, backbone: nn.Module, *, blocks: int = 4, classes: int = 1000) -> None:
        super().__init__()
        self.backbone = backbone
        self.blocks = blocks
        self.head = nn.Linear(blocks * int(backbone.num_features), classes)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        backbone: Any = self.backbone
        layers = backbone.get_intermediate_layers(
            images, n=self.blocks, return_prefix_tokens=True, norm=True
        )
        logits: Tensor = self.head(torch.cat([prefix[:, 0] for _, prefix in layers], dim=-1))
        return logits


def _load_dino(record: PaperModel, request: Request) -> LoadedModel:
    """Both official files in a folder, or one file with the whole model (as ``adapt`` writes)."""
    no_class_count(request)
    assert request.weights is not None
    backbone = _entry(record, request).build({}, None)
    model = DinoClassifier(backbone)
    parts: dict[Path, nn.Module] = {request.weights: model}
    if request.weights.is_dir():
        paths = (request.weights / url.rpartition("/")[2] for url in record.files)
        parts = dict(zip(paths, (backbone, model.head), strict=True))
    for path, part in parts.items():
        _checked(record, path)
        fill(part, load_weights(path, unsafe_pickle=request.unsafe_pickle), settled=True)
    return LoadedModel(name=request.spec, model=model, source=str(request.weights))
