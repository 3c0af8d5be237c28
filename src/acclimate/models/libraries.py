"""timm, torchvision, transformers and the hub of Hugging Face: imported when a model needs them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from acclimate.errors import AcclimateError

__all__ = [
    "hub_address",
    "hub_answers",
    "import_optional",
    "import_timm",
    "import_torchvision",
    "kept_offline",
]

_HUB_SECONDS = 5.0
# A torch.library.Library takes its definitions away when it is collected.
_kept: list[torch.library.Library] = []


def import_optional(package: str, *, extra: str) -> Any:
    """The module ``package``, or an error that names the extra that brings it.

    >>> import_optional("no_such_package", extra="models")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: this needs no_such_package, which is not installed;
    run: pip install 'acclimate[models]'
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there but lacks something of its own is not ours to explain.
        if error.name is None or error.name != package.partition(".")[0]:
            raise
        raise AcclimateError(
            f"this needs {error.name}, which is not installed; "
            f"run: pip install 'acclimate[{extra}]'"
        ) from error


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
    torch_library: Any = torch.library  # its classes carry no types yet
    library = torch_library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)
    return import_optional("torchvision", extra="models")


def import_timm() -> Any:
    """The timm module."""
    import_torchvision()
    return import_optional("timm", extra="models")


def hub_address() -> str:
    """Where the hub is: the public one, or that of HF_ENDPOINT."""
    address: str = _hub("constants").ENDPOINT
    return address


def hub_answers() -> bool:
    """Whether the hub can be reached.

    Without a network its own client tries each file six times, half a minute in all. It keeps
    proxies and certificates as the user has set them, so it is that client that asks here, too.
    """
    if _hub("constants").HF_HUB_OFFLINE:
        return False
    try:
        _hub("utils").get_session().head(hub_address(), timeout=_HUB_SECONDS)
    except Exception:  # which ones there are depends on the client's HTTP library
        return False
    return True


@contextmanager
def kept_offline(*, when: bool = True) -> Iterator[None]:
    """Let the hub's client use its cache alone, for a while.

    ``local_files_only`` is not enough: the client also asks the hub for things of its own.
    """
    constants = _hub("constants")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or when
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _hub(module: str) -> Any:
    return import_optional(f"huggingface_hub.{module}", extra="hf")
