"""ViT-S/16 of DINO with its authors' classifier, which comes in two files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.models.filling import fill
from acclimate.models.record import LoadedModel
from acclimate.models.sources import Request, import_optional, no_class_count
from acclimate.models.torchvision_import import import_torchvision
from acclimate.models.weights import load_weights

__all__ = ["DinoClassifier", "load_dino"]


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


def load_dino(
    request: Request,
    backbone_name: str,
    *,
    file_names: Sequence[str],
    check: Callable[[Path], object],
) -> LoadedModel:
    """Both official files in a folder, or one file with the whole model (as ``adapt`` writes).

    Args:
        request: What was asked for; its weights are the folder or the file.
        backbone_name: timm's name of the backbone.
        file_names: How the files of backbone and classifier are called in a folder.
        check: Refuses a file that is not there or not what it says, before it is read.
    """
    no_class_count(request)
    assert request.weights is not None
    import_torchvision()
    timm = import_optional("timm", extra="models")
    backbone = timm.create_model(backbone_name, pretrained=False)
    model = DinoClassifier(backbone)
    parts: dict[Path, nn.Module] = {request.weights: model}
    if request.weights.is_dir():
        paths = (request.weights / name for name in file_names)
        parts = dict(zip(paths, (backbone, model.head), strict=True))
    for path, part in parts.items():
        check(path)
        fill(part, load_weights(path, unsafe_pickle=request.unsafe_pickle), settled=True)
    return LoadedModel(name=request.spec, model=model, source=str(request.weights))
