"""What is known of a model: what loading returns, and what a weights file records of it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.models.layers import norm_layers
from acclimate.models.outputs import classifier_weight
from acclimate.reading import parse_json

__all__ = ["LoadedModel", "Metadata", "model_metadata", "read_metadata"]

# Checkpoints of runs keep records of their own in the same place, under other keys.
_KEY = "loads_as"


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in eval mode and float32, with the record of how it was made.

    ``name`` is the full spec (``timm:resnet50``), ``source`` is where the weights came from;
    ``preprocessing`` and ``classes`` are None where nothing is recorded, never a guess.

    >>> print(LoadedModel(name="py:mine:net", model=nn.Linear(2, 3)).describe())
    py:mine:net
      architecture   Linear, 9 parameters
      normalisation  none
      preprocessing  not recorded
      classes        not recorded
      weights        as made
    """

    name: str
    model: nn.Module = field(repr=False)
    preprocessing: Preprocessing | None = None
    classes: ClassList | None = field(default=None, repr=False)
    source: str = "as made"

    @property
    def class_count(self) -> int | None:
        """How many classes it predicts, None where neither record nor last layer tells.

        >>> LoadedModel(name="py:mine:net", model=nn.Linear(2, 3)).class_count
        3
        """
        if self.classes is not None:
            return len(self.classes)
        try:
            return len(classifier_weight(self.model))
        except AcclimateError:
            return None

    def describe(self) -> str:
        """A few lines a person can check before anything is adapted."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        norms = ", ".join(f"{count} {kind}" for kind, count in norm_layers(self.model).items())
        rows = {
            "architecture": f"{type(self.model).__name__}, {parameters:,} parameters",
            "normalisation": norms or "none",
            "preprocessing": (
                self.preprocessing.describe() if self.preprocessing else "not recorded"
            ),
            "classes": _span(self.classes) if self.classes else "not recorded",
            "weights": self.source,
        }
        return "\n".join([self.name, *(f"  {key:<14} {value}" for key, value in rows.items())])


def _span(classes: ClassList) -> str:
    first, last = (name.split(",")[0] for name in (classes.names[0], classes.names[-1]))
    return f"{len(classes.names)}, {first} … {last}"


@dataclass(frozen=True)
class Metadata:
    """The spec that weights were written for; None is what was not known then."""

    name: str
    classes: ClassList | None = None
    preprocessing: Preprocessing | None = None

    def of(self, model: nn.Module) -> LoadedModel:
        """A model that this is the record of."""
        return LoadedModel(
            name=self.name, model=model, preprocessing=self.preprocessing, classes=self.classes
        )


def model_metadata(loaded: LoadedModel) -> dict[str, Any]:
    """What :func:`acclimate.checkpoint.tensors_writer` is to write beside the model's tensors.

    >>> pets = ClassList(("cat", "dog"))
    >>> model_metadata(LoadedModel(name="py:mine:net", model=nn.Linear(2, 2), classes=pets))
    {'loads_as': {'name': 'py:mine:net', 'classes': {'names': ('cat', 'dog'), 'ids': None},
    'preprocessing': None}}
    """
    return {_KEY: asdict(Metadata(loaded.name, loaded.classes, loaded.preprocessing))}


def read_metadata(path: Path) -> Metadata | None:
    """The record in a weights file, None where it has none or is no safetensors file.

    A file that cannot be read at all has none: the error comes from reading its tensors.
    """
    if path.suffix != ".safetensors":
        return None
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("record", "{}")
    except (OSError, SafetensorError):
        return None
    try:
        record = parse_json(text, path)
        return _parsed(**record[_KEY]) if isinstance(record, dict) and _KEY in record else None
    except (AcclimateError, KeyError, TypeError, ValueError) as error:
        raise AcclimateError(
            f"the record of classes and preprocessing in {path} is damaged ({_KEY}: "
            f"{type(error).__name__}: {error}); write the file again, or save its tensors alone"
        ) from error


def _parsed(
    *, name: str, classes: dict[str, Any] | None, preprocessing: dict[str, Any] | None
) -> Metadata:
    if not isinstance(name, str):
        raise TypeError(f"expected a model's name, got {name!r}")
    return Metadata(
        name=name,
        classes=None if classes is None else _classes(**classes),
        preprocessing=None if preprocessing is None else _preprocessing(preprocessing),
    )


def _classes(*, names: list[str], ids: list[str] | None) -> ClassList:
    for each in (names, ids):
        if each is not None and not (
            isinstance(each, list) and each and all(isinstance(name, str) for name in each)
        ):
            raise TypeError(f"expected a list of names, got {each!r:.60}")
    return ClassList(tuple(names), ids=None if ids is None else tuple(ids))


def _preprocessing(fields: dict[str, Any]) -> Preprocessing:
    mean, std = (tuple(map(float, fields[key])) for key in ("mean", "std"))
    if not all(map(math.isfinite, (*mean, *std))):
        raise ValueError(f"expected finite numbers, got mean {mean} and std {std}")
    size = tuple(map(int, fields["size"]))
    return Preprocessing(**{**fields, "size": size, "mean": mean, "std": std})
