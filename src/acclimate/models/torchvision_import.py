"""Import torchvision, also beside a torch build its compiled operators were not made for."""

from __future__ import annotations

from typing import Any

import torch

from acclimate.models.sources import import_optional

__all__ = ["import_torchvision"]

_SCHEMAS = {
    name: f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms")
}
# A torch.library.Library takes its definitions away when it is collected.
_kept: list[torch.library.Library] = []


def import_torchvision() -> Any:
    """The torchvision module; call this before anything that imports it (timm, transformers).

    A CPU build of torch beside a CUDA build of torchvision fails at import with "operator
    torchvision::nms does not exist", since torchvision describes an operator its library could
    not register. Naming the operators is enough for models, transforms and datasets; only
    ``torchvision.ops.nms`` and the decoders of ``torchvision.io`` stay unusable.
    """
    try:
        return import_optional("torchvision", extra="models")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    _name_operators()
    return import_optional("torchvision", extra="models")


def _name_operators() -> None:
    torch_library: Any = torch.library  # Its classes carry no types yet.
    library = torch_library.Library("torchvision", "FRAGMENT")
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    _kept.append(library)
