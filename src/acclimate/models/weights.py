"""Weights files, read without running what may be hidden in them."""

from __future__ import annotations

import argparse
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.checkpoint import read_tensors
from acclimate.errors import AcclimateError

__all__ = ["load_weights"]

_PICKLED = (".pt", ".pth", ".bin", ".tar", ".ckpt", ".t7")
_NOTES = int | float | str | None
_NESTED = ("state_dict", "model", "model_state_dict", "net", "algorithm")  # the last: WILDS
# How a file of torch.save begins: a zip archive, or a pickle in the format before torch 1.6.
_TORCH_STARTS = (b"PK\x03\x04", b"\x80")


def load_weights(
    path: str | Path, *, unsafe_pickle: bool = False, entry: str | None = None
) -> dict[str, Tensor]:
    """The tensors in a ``.safetensors`` or ``torch.save`` file, by name, on the CPU in float32.

    Of a training checkpoint the entry ``state_dict``, ``model``, ``model_state_dict``, ``net`` or
    ``algorithm`` is unwrapped, and before these the one that ``entry`` names; numbers and strings
    beside the tensors are ignored. Files that hold Python objects beside tensors can run code when
    they are read; they are refused without ``unsafe_pickle``, for files you trust.
    """
    path = Path(path)
    if path.is_dir():
        raise AcclimateError(f"expected a weights file, got the folder {path}")
    if not path.exists():
        raise AcclimateError(f"no weights file {path}; check the path")
    if path.is_fifo() or path.is_char_device() or path.is_socket():
        raise AcclimateError(f"expected a weights file, got the pipe or device {path}")
    if path.stat().st_size == 0:
        raise AcclimateError(f"the weights file {path} is empty; copy or download it again")
    if not os.access(path, os.R_OK):
        raise AcclimateError(f"the weights file {path} may not be read; check its permissions")
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path)
    elif path.suffix in _PICKLED:
        content = _read_pickled(path, unsafe_pickle=unsafe_pickle)
        if isinstance(content, Mapping) and entry in content:
            content = content[entry]
        tensors = _tensors_of(content, path)
    else:
        raise AcclimateError(
            f"expected weights in a file ending in .safetensors, {', '.join(_PICKLED)}, got {path}"
        )
    if not tensors:
        raise AcclimateError(f"no weights in {path}: the file is whole, but holds no tensors")
    detached = {name: tensor.detach() for name, tensor in tensors.items()}
    return {name: t.float() if t.is_floating_point() else t for name, t in detached.items()}


def _read_pickled(path: Path, *, unsafe_pickle: bool) -> Any:
    with path.open("rb") as file:
        start = file.read(4)
    if not start.startswith(_TORCH_STARTS):
        raise AcclimateError(
            f"{path} was not written by torch.save (it begins with {start!r}); "
            "is it a web page or a pointer in place of the download?"
        )
    try:
        # The options of a training run, which many files hold, are plain values.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not unsafe_pickle:
            # The object torch would not read; the rest of its message is advice about torch.load.
            found = re.search(r"GLOBAL (\S+)", str(error))
            culprit = f" (it asks for {found[1]})" if found else ""
            raise AcclimateError(
                f"{path} holds more than tensors, and reading it could run code hidden in it. "
                "If you trust where it came from: unsafe_pickle=True, on the command line "
                f"--unsafe-pickle{culprit}"
            ) from error
    except Exception as error:  # by where a file is cut, its reader stumbles over anything
        raise _damaged(path, error) from error
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except (ImportError, AttributeError) as error:
        raise AcclimateError(
            f"{path} holds objects of a package that is not here ({error}); install it, or save "
            "the file again with only its state_dict"
        ) from error
    except Exception as error:
        raise _damaged(path, error) from error


def _tensors_of(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, which may have an epoch, an accuracy or a name beside them."""
    if isinstance(content, nn.Module):
        content = content.state_dict()
    if not isinstance(content, Mapping):
        raise AcclimateError(f"expected tensors by name in {path}, got {type(content).__name__}")
    # "model" is the name of the architecture in some files, and the weights in others.
    for key in _NESTED:
        if isinstance(content.get(key), Mapping | nn.Module):
            return _tensors_of(content[key], path)
    if content and not any(isinstance(value, Tensor) for value in content.values()):
        entries = [f"{key} ({type(value).__name__})" for key, value in content.items()]
        raise AcclimateError(
            f"expected tensors by name in {path}, or an entry {', '.join(_NESTED)}, "
            f"got the entries {', '.join(entries[:5])}"
        )
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor | _NOTES):
            raise AcclimateError(
                f"expected tensors by name in {path}, got {type(value).__name__} under {key!r} "
                "among them; save the model's state_dict alone"
            )
    return {key: value for key, value in content.items() if isinstance(value, Tensor)}


def _damaged(path: Path, error: Exception) -> AcclimateError:
    gist = str(error).strip().partition("\n")[0][:200] or type(error).__name__
    return AcclimateError(f"{path} is damaged or cut short; copy or download it again ({gist})")
