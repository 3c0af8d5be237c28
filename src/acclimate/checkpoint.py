"""Files that are whole or not there: written beside, synced, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = [
    "Writer",
    "json_writer",
    "read_record",
    "read_tensors",
    "remove_partial",
    "tensors_writer",
    "text_writer",
    "write_files",
]

Writer = Callable[[Path], None]
"""Fills the file at a path."""


def write_files(files: Mapping[Path, Writer]) -> None:
    """Write some files, all or none: a full disk leaves those that were there before.

    Each is written beside its place; when all are on the disk they are renamed, in order.
    """
    partial = {path: path.with_name(f".{path.name}.partial") for path in files}
    path = Path()
    try:
        for path, write in files.items():
            write(partial[path])
            with partial[path].open("rb+") as file:
                os.fsync(file.fileno())
            partial[path].chmod(_usual_mode())  # safetensors' are for their owner alone
        for path in files:
            os.replace(partial[path], path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kept = "; the previous one is untouched" if path.exists() else ""
        raise AcclimateError(f"could not write {path}: {reason}{kept}") from error
    finally:
        for temporary in partial.values():
            temporary.unlink(missing_ok=True)


def _usual_mode() -> int:
    """What a new file may be read and written by, as the user's umask has it."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def remove_partial(folder: Path) -> None:
    """Remove what a process that was killed in :func:`write_files` left in a folder."""
    for temporary in folder.glob(".*.partial"):
        temporary.unlink(missing_ok=True)


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


def text_writer(text: str) -> Writer:
    """A text file. Names of files that are not valid UTF-8 are written as they are."""

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")

    return write


def json_writer(value: Any) -> Writer:
    """A JSON file."""
    return text_writer(json.dumps(value, indent=2) + "\n")
