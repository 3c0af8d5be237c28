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

__all__ = ["read_tensors", "write_atomically", "write_json", "write_tensors", "write_text"]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path``, then put it in place; the old file survives a failure."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kept = "; the previous one is untouched" if path.exists() else ""
        raise AcclimateError(f"could not write {path}: {reason}{kept}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Tensors and a JSON record in one safetensors file."""
    whole = {k: v.detach().to("cpu").contiguous() for k, v in tensors.items()}
    # safetensors refuses tensors that share memory (tied weights): each key gets its own copy.
    seen: set[int] = set()
    for key, tensor in whole.items():
        if tensor.untyped_storage().data_ptr() in seen:
            whole[key] = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
    metadata = {"record": json.dumps(record), "format": "pt"}
    write_atomically(path, lambda temporary: save_file(whole, temporary, metadata=metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read :func:`write_tensors`'s file back."""
    try:
        with safe_open(path, framework="pt") as file:
            record = json.loads((file.metadata() or {}).get("record", "{}"))
            return {key: file.get_tensor(key) for key in file.keys()}, record  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        raise AcclimateError(f"could not read {path}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    write_atomically(path, lambda temporary: _write(temporary, text))


def write_json(path: Path, value: Any) -> None:
    """A JSON file, whole or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
