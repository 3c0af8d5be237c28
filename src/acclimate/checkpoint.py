"""Tensors in safetensors files, with a record beside them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.files import Writer
from acclimate.reading import parse_json

__all__ = [
    "checkpoint_writer",
    "fingerprint",
    "read_checkpoint",
    "read_record",
    "read_tensors",
    "tensors_writer",
]

_SEAL = "sha256"


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
    with _opened(path) as (file, record):
        return {key: file.get_tensor(key) for key in file.keys()}, record  # noqa: SIM118


def checkpoint_writer(tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> Writer:
    """A state to resume from: tensors, and a record with the sha256 of both."""
    return tensors_writer(tensors, {**record, _SEAL: _sha256(tensors, record)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read :func:`checkpoint_writer`'s file back; one that is damaged is refused.

    A few bytes that differ would be learnt from without notice. 0.1 wrote no sha256 to tell.
    """
    tensors, record = read_tensors(path)
    expected = record.pop(_SEAL, None)
    if expected not in (None, _sha256(tensors, record)):
        raise AcclimateError(f"could not read {path}: it is not what was written, but damaged")
    return tensors, record


def _sha256(tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(record))
    total = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(_bytes_of(tensor))
    return total.hexdigest()


def read_record(path: Path) -> dict[str, Any]:
    """The record of :func:`tensors_writer` alone, empty where a file has none."""
    with _opened(path) as (_, record):
        return record


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    try:
        with safe_open(path, framework="pt") as file:
            record = parse_json((file.metadata() or {}).get("record", "{}"), path)
            if not isinstance(record, dict):
                raise ValueError(f"expected a record, got {record!r:.40}")
            yield file, record
    except (OSError, SafetensorError, ValueError) as error:
        raise AcclimateError(f"could not read {path}: {error}") from error


def fingerprint(tensors: Mapping[str, Any]) -> str:
    """A checksum of named tensors: the same weights, the same eight hex digits.

    >>> fingerprint({"weight": torch.zeros(2)})
    'eeae0a70'
    """
    total = 0
    for name, tensor in sorted(tensors.items()):
        if not isinstance(tensor, Tensor):  # a module's own extra state
            continue
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(_bytes_of(tensor), total)
    return f"{total:08x}"


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
