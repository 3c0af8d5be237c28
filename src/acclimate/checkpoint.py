"""Tensors in safetensors files, with a record beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.files import Writer

__all__ = ["read_record", "read_tensors", "tensors_writer"]


def tensors_writer(
    tensors: Mapping[str, Tensor], record: Mapping[str, Any] | None = None
) -> Writer:
    """Tensors, and a JSON record beside them, in one safetensors file."""
    whole = {k: v.detach().to("cpu").contiguous() for k, v in tensors.items()}
    # safetensors refuses tensors that share memory (tied weights): each key gets its own copy.
    seen: set[int] = set()
    for key, tensor in whole.items():
        if tensor.untyped_storage().data_ptr() in seen:
            whole[key] = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
    # One entry only: safetensors writes several in an order that differs from run to run.
    metadata = {"format": "pt"} if record is None else {"record": json.dumps(record)}
    return lambda path: save_file(whole, path, metadata=metadata)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read :func:`tensors_writer`'s file back."""
    try:
        with safe_open(path, framework="pt") as file:
            record = _record_of(file)
            return {key: file.get_tensor(key) for key in file.keys()}, record  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise AcclimateError(f"could not read {path}: {error}") from error


def read_record(path: Path) -> dict[str, Any]:
    """The record of :func:`tensors_writer` alone, empty where a file has none."""
    try:
        with safe_open(path, framework="pt") as file:
            return _record_of(file)
    except (OSError, SafetensorError, ValueError) as error:
        raise AcclimateError(f"could not read {path}: {error}") from error


def _record_of(file: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((file.metadata() or {}).get("record", "{}"))
    return record
