"""Tensors in safetensors files, with a checksum and a record beside them; checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import Writer, write_files
from acclimate.reading import parse_json

__all__ = [
    "fingerprint",
    "previous_of",
    "read_checkpoint",
    "read_record",
    "read_tensors",
    "remove_checkpoint",
    "tensors_sha256",
    "tensors_writer",
    "write_checkpoint",
]

_SEAL = "acclimate.sha256"
"""The key in a record under which the hash of the tensors and of the rest of it lies."""


def tensors_writer(
    tensors: Mapping[str, Tensor], record: Mapping[str, Any] | None = None
) -> Writer:
    """Tensors, a JSON record beside them, and the sha256 of both, in one safetensors file."""
    whole = {k: v.detach().to("cpu").contiguous() for k, v in tensors.items()}
    # safetensors refuses tensors that share memory (tied weights): each key gets its own copy.
    seen: set[int] = set()
    for key, tensor in whole.items():
        if tensor.untyped_storage().data_ptr() in seen:
            whole[key] = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
    sealed = {**(record or {}), _SEAL: tensors_sha256(whole, record)}
    # One entry only: safetensors writes several in an order that differs from run to run.
    return lambda path: save_file(whole, path, metadata={"record": json.dumps(sealed)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read :func:`tensors_writer`'s file back, or another's, which has no record.

    What is not what was written is refused: a few bytes that differ would go unnoticed.
    """
    with _opened(path) as (file, record):
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    written = record.pop(_SEAL, None)  # files of 0.1 have none
    if written is not None and written != (found := tensors_sha256(tensors, record)):
        raise AcclimateError(
            f"could not read {path}: expected contents with the sha256 {written!s:.12}, got "
            f"{found:.12}; the file is damaged: copy it again, or write it anew"
        )
    return tensors, record


def tensors_sha256(tensors: Mapping[str, Tensor], record: Mapping[str, Any] | None = None) -> str:
    """The sha256 of named tensors, and of a record beside them.

    >>> tensors_sha256({"weight": torch.zeros(2)})[:8]
    'a1c83a1a'
    """
    plain = json.loads(json.dumps(record or {}))
    total = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(_bytes_of(tensor))
    return total.hexdigest()


def read_record(path: Path) -> dict[str, Any]:
    """The record of :func:`tensors_writer` alone, empty where a file has none."""
    with _opened(path) as (_, record):
        record.pop(_SEAL, None)
        return record


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    try:
        with safe_open(path, framework="pt") as file:
            record: Any = {}
            with suppress(AcclimateError):  # files of others may have something else there
                record = parse_json((file.metadata() or {}).get("record", "{}"), path)
            yield file, record if isinstance(record, dict) else {}
    except SafetensorError as error:
        raise AcclimateError(
            f"could not read {path}: it is damaged or cut short; copy or download it again "
            f"({error})"
        ) from error
    except (OSError, ValueError) as error:
        raise AcclimateError(f"could not read {path}: {error}") from error


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any] | None = None
) -> None:
    """Write a checkpoint, whole or not at all; the one before it stays beside it."""
    write = tensors_writer(tensors, record)
    if path.exists():
        # A second name, not a new one: at no time is there no checkpoint under its own.
        with suppress(OSError):  # a disk without them keeps one checkpoint
            previous_of(path).unlink(missing_ok=True)
            os.link(path, previous_of(path))
    write_files({path: write})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint that is whole, with a warning where the last is not; None for none."""
    if not path.exists():
        return None
    previous = previous_of(path)
    try:
        return read_tensors(path)
    except AcclimateError as error:
        if not previous.exists():
            raise
        found = read_tensors(previous)
        with suppress(OSError):  # else the next one written would keep the damaged one beside it
            os.replace(previous, path)
        warnings.warn(
            f"{error}; the run resumes from the checkpoint before it, {previous.name}",
            AcclimateWarning,
            stacklevel=2,
        )
        return found


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint that has done its work, and the one before it."""
    for each in (previous_of(path), path):
        each.unlink(missing_ok=True)


def previous_of(path: Path) -> Path:
    """Where the checkpoint before the last one lies.

    >>> previous_of(Path("run/checkpoint.safetensors")).name
    'checkpoint.previous.safetensors'
    """
    return path.with_suffix(f".previous{path.suffix}")


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
