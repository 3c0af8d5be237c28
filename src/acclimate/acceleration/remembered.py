"""What a clock chose, kept on the machine: chosen once, so that a seed gives the same again."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import sync
from acclimate.reading import read_object

__all__ = ["CACHE", "choices_folder", "remembered", "structure_of"]

CACHE = "ACCLIMATE_CACHE"
"""The environment variable that names the folder for what is kept from run to run."""


def choices_folder() -> Path:
    """Where choices are kept: each is one small file, and any of them may be deleted."""
    own = os.environ.get(CACHE)
    shared = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "acclimate"
    try:
        return Path(own or shared).expanduser() / "choices"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "acclimate" / "choices"


def remembered(
    depends_on: Mapping[str, Any], choose: Callable[[], Mapping[str, bool]]
) -> Mapping[str, bool]:
    """What was chosen before for the same circumstances, or what is chosen now, and is kept.

    Of processes that choose at the same time one is first, and the others take its choice. Where
    nothing can be kept it is chosen anew each time, with a warning.

    >>> circumstances = {"model": "net", "threads": 2}
    >>> remembered(circumstances, lambda: {"half": True})
    {'half': True}
    >>> remembered(circumstances, lambda: {"half": False})
    {'half': True}
    """
    text = json.dumps(depends_on, sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:24]
    path = choices_folder() / f"{name}.json"
    kept = _kept(path)
    if kept is not None:
        return kept
    chosen = dict(choose())
    try:
        _keep(path, json.dumps({"chosen": chosen, "depends_on": depends_on}, indent=2))
    except OSError as error:
        warnings.warn(
            f"what is faster was measured and cannot be kept in {path.parent} ({error.strerror}): "
            f"the next run may choose otherwise, and end in other digits; set {CACHE} to a folder "
            "that can be written to, or take speed='exact'",
            AcclimateWarning,
            stacklevel=2,
        )
        return chosen
    return _kept(path) or chosen


def structure_of(model: nn.Module) -> str:
    """A digest of a model's layers and of the shapes of its weights, not of their values.

    >>> structure_of(nn.Linear(2, 3)) == structure_of(nn.Linear(2, 3)) != structure_of(nn.ReLU())
    True
    """
    layers = [
        (name, f"{type(module).__module__}.{type(module).__qualname__}")
        for name, module in model.named_modules()
    ]
    shapes = [(name, list(tensor.shape)) for name, tensor in model.named_parameters()]
    return hashlib.sha256(json.dumps([layers, shapes]).encode()).hexdigest()[:16]


def _kept(path: Path) -> dict[str, bool] | None:
    """A choice that is stored and whole."""
    try:
        chosen = read_object(path, "chosen")["chosen"]
    except AcclimateError:  # none, or damaged: chosen anew
        return None
    sound = isinstance(chosen, dict) and all(isinstance(each, bool) for each in chosen.values())
    return chosen if sound else None


def _keep(path: Path, text: str) -> None:
    """Write a choice unless a whole one is there by now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, own = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        with suppress(OSError):  # it exists, or the disk has no second names
            os.link(own, path)  # unlike a rename it leaves the choice of who was first
        if _kept(path) is None:  # none, or a damaged one
            os.replace(own, path)
        sync(path.parent)
    finally:
        Path(own).unlink(missing_ok=True)
