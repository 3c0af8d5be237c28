"""What a weights file of this package says of itself, so that it loads without being told."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.models.record import LoadedModel

__all__ = ["Written", "read_written", "written_record"]

# Checkpoints of runs keep records of their own in the same place: this key tells ours from them.
_KEY = "loads_as"


@dataclass(frozen=True, kw_only=True)
class Written:
    """The spec that weights were written for, and what was known of input and output."""

    name: str
    classes: ClassList | None = None
    preprocessing: Preprocessing | None = None

    def check_count(self, asked: int, file: Path) -> None:
        """Refuse a class count that contradicts the file's."""
        if self.classes is not None and asked != len(self.classes):
            raise AcclimateError(
                f"{file} is for {len(self.classes)} classes by its record, got "
                f"num_classes={asked} (--num-classes {asked}); leave it out"
            )

    def applied(self, loaded: LoadedModel, file: Path) -> LoadedModel:
        """``loaded`` with what the file knows; what it does not know stays as it is."""
        known = {"its classes": self.classes, "its preprocessing": self.preprocessing}
        said = " and ".join(words for words, value in known.items() if value is not None)
        return replace(
            loaded,
            classes=self.classes or loaded.classes,
            preprocessing=self.preprocessing or loaded.preprocessing,
            source=f"{file}, with {said}" if said else loaded.source,
        )


def written_record(loaded: LoadedModel) -> dict[str, Any]:
    """What :func:`acclimate.checkpoint.tensors_writer` is to keep beside the model's tensors.

    >>> from torch import nn
    >>> pets = ClassList(("cat", "dog"))
    >>> written_record(LoadedModel(name="py:mine:net", model=nn.Linear(2, 2), classes=pets))
    {'loads_as': {'name': 'py:mine:net', 'classes': {'names': ('cat', 'dog'), 'ids': None},
    'preprocessing': None}}
    """
    return {
        _KEY: {
            "name": loaded.name,
            "classes": None if loaded.classes is None else asdict(loaded.classes),
            "preprocessing": None if loaded.preprocessing is None else asdict(loaded.preprocessing),
        }
    }


def read_written(path: Path) -> Written | None:
    """The record of a weights file, None where it has none or is no safetensors file.

    A file that cannot be read at all has none: whoever reads its tensors says why.
    """
    if path.suffix != ".safetensors":
        return None
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("record", "{}")
    except (OSError, SafetensorError):
        return None
    try:
        record = json.loads(text)
        return _parsed(record[_KEY]) if isinstance(record, dict) and _KEY in record else None
    except (AcclimateError, KeyError, TypeError, ValueError) as error:
        raise AcclimateError(
            f"the record of classes and preprocessing in {path} is damaged ({_KEY}: "
            f"{type(error).__name__}: {error}); write the file again, or save its tensors alone"
        ) from error


def _parsed(entry: Any) -> Written:
    name, classes, fed = entry["name"], entry["classes"], entry["preprocessing"]
    if not isinstance(name, str):
        raise TypeError(f"expected a model's name, got {name!r}")
    return Written(
        name=name,
        classes=None if classes is None else _classes(**classes),
        preprocessing=None if fed is None else _preprocessing(**fed),
    )


def _classes(*, names: list[str], ids: list[str] | None) -> ClassList:
    for words in (names, ids):
        if words is not None and not (
            isinstance(words, list) and words and all(isinstance(word, str) for word in words)
        ):
            raise TypeError(f"expected a list of names, got {words!r:.60}")
    return ClassList(tuple(names), ids=None if ids is None else tuple(ids))


def _preprocessing(**fields: Any) -> Preprocessing:
    mean, std = (tuple(map(float, fields[key])) for key in ("mean", "std"))
    if not all(map(math.isfinite, (*mean, *std))):
        raise ValueError(f"expected finite numbers, got mean {mean} and std {std}")
    size = tuple(map(int, fields["size"]))
    return Preprocessing(**{**fields, "size": size, "mean": mean, "std": std})
