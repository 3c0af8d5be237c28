"""A job: one model, one recipe, one shift, one seed; and the key its result is kept under."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from acclimate.data.shift import Group, Shift
from acclimate.errors import AcclimateError, unknown_name
from acclimate.files import file_sha256
from acclimate.text import plain_name, user_path

__all__ = [
    "SEQUENCES",
    "SETTINGS",
    "STATIONARY",
    "UNADAPTED",
    "ImageOrder",
    "Job",
    "Options",
    "Value",
    "Weights",
]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A weights file: where it lies, which may change, and the sha256 of it, which says what it is.

    >>> here, there = (Weights(path=path, sha256="0a1b") for path in ("a.pt", "old/a.pt"))
    >>> here == there
    True
    """

    path: str = field(compare=False)
    sha256: str

    @classmethod
    def of(cls, path: str | Path) -> Weights:
        """Read a file; the second time only if it changed."""
        file = user_path(path).absolute()
        try:
            state = file.stat()
            digest = _sha256(file, state.st_size, state.st_mtime_ns)
        except OSError as error:
            raise AcclimateError(
                f"cannot read the weights file {path}: {error.strerror}; check its path"
            ) from error
        return cls(path=str(file), sha256=digest)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed: int) -> str:
    """Size and time of change are arguments so that another file is read anew."""
    return file_sha256(file)


STATIONARY = "stationary"

SETTINGS = {
    STATIONARY: "one shift, gone through as often as the recipe says; scored afterwards",
    "online": "one shift, gone through once; each image is predicted before it is learnt from",
    "correlated": "online, with images of a class close together (Dirichlet, correlated:0.1)",
    "single": "online, one image at a time",
    "continual": "online through a group of shifts, one after the other, without a reset",
    "gradual": "continual, each shift growing from severity 1 to 5 and fading again",
    "mixed": "online, the images of a group of shifts in one random order",
}
"""What each one is, in words."""

SEQUENCES = frozenset({"continual", "gradual", "mixed"})
"""Those that run through a group of shifts: ``cifar/test:5``."""

_CONCENTRATION = 0.1


@dataclass(frozen=True)
class ImageOrder:
    """One of `SETTINGS`, and how correlated its labels are where they are.

    >>> ImageOrder.parse("correlated"), str(ImageOrder.parse("correlated:0.01"))
    (ImageOrder(name='correlated', concentration=0.1), 'correlated:0.01')
    """

    name: str
    concentration: float | None = None

    @classmethod
    def parse(cls, word: str) -> ImageOrder:
        """Read ``name`` or, for correlated labels, ``name:concentration``."""
        name, colon, number = word.partition(":")
        if name not in SETTINGS:
            raise unknown_name("setting", name, list(SETTINGS))
        if name != "correlated":
            if colon:
                raise AcclimateError(f"the setting {name} takes no number, got {word!r}")
            return cls(name)
        try:
            concentration = float(number) if colon else _CONCENTRATION
        except ValueError:
            concentration = float("nan")
        if not 0 < concentration < float("inf"):
            raise AcclimateError(f"expected a concentration > 0, as correlated:0.1, got {word!r}")
        return cls(name, concentration)

    def __str__(self) -> str:
        number = self.concentration
        return self.name if number is None else f"{self.name}:{number:g}"

    @property
    def batch_size(self) -> int | None:
        """Where the setting decides it."""
        return 1 if self.name == "single" else None


Value: TypeAlias = str | int | float | bool | None
Options: TypeAlias = tuple[tuple[str, Value], ...]

_MOST = 2**63  # from here on a store cannot keep it
UNADAPTED = "none"
"""The recipe of the unadapted model."""

_KEY_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is run to get one result. Where data lies and what it runs on are no part of it.

    Attributes:
        model: as ``--model`` has it, ``acclimate:wrn-40-2``.
        dataset: one of ``acclimate list datasets``.
        recipe: one of ``acclimate list recipes``; "none" is the unadapted model.
        shift: "cifar/fog:3" is made on the fly, "fog:3" and "clipart" are the data set's own, None
            is the data set itself.
        options: changes to the recipe, sorted by name.
        seed: of the adaptation.
        images: only so many of the shift; None is all.
        weights: a file the model is filled with.
        split: of the data set; None is its first.
        forgetting: also measure the error on clean images.
        setting: in which order the images come, one of `SETTINGS`; None is "stationary". Where it
            runs through a group of shifts, ``shift`` names the group, "cifar/test:5".
        batch_size: images at a time, to which the learning rate is scaled; None is the recipe's.

    >>> job = Job.of(model="acclimate:wrn-40-2", dataset="cifar10", recipe="ent",
    ...              shift="cifar/fog:3", options={"optimizer.lr": 1e-3})
    >>> job.corruption, job.severity, job.preset, job.group
    ('fog', 3, 'cifar', 'test')
    >>> job == Job.from_dict(job.to_dict()), len(job.key)
    (True, 16)
    """

    model: str
    dataset: str
    recipe: str
    shift: str | None = None
    options: Options = ()
    seed: int = 0
    images: int | None = None
    weights: Weights | None = None
    split: str | None = None
    forgetting: bool = False
    setting: str | None = None
    batch_size: int | None = None
    _shift: Shift | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        shift = None if self.shift is None else Shift.parse(self.shift)
        object.__setattr__(self, "_shift", shift)
        if self.setting is not None:
            object.__setattr__(self, "setting", _setting(self.setting))
        object.__setattr__(self, "options", tuple(sorted(self.options)))

    @classmethod
    def of(
        cls,
        *,
        options: Mapping[str, Value] | None = None,
        weights: str | Path | None = None,
        **values: Any,
    ) -> Job:
        """A job from a mapping of options and the path of a weights file, which is read."""
        return cls(
            options=tuple((options or {}).items()),
            weights=None if weights is None else Weights.of(weights),
            **values,
        )

    @cached_property
    def key(self) -> str:
        """16 hex digits over the content.

        What is at its default is left out, so that a field added later leaves old keys as they are.
        """
        plain = self.to_dict()
        if self.weights is not None:
            plain["weights"] = self.weights.sha256
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]

    @property
    def corruption(self) -> str | None:
        """The corruption or domain alone: fog, clipart; None where the images are clean."""
        return None if self._shift is None else self._shift.name

    @property
    def severity(self) -> int | None:
        """1 to 5; None where there are no severities."""
        return None if self._shift is None else self._shift.severity

    @property
    def preset(self) -> str | None:
        """Whose constants a corruption is made with; None where it is not made on the fly."""
        return None if self._shift is None else self._shift.preset

    @property
    def draw(self) -> int:
        """Which draw of a corruption that is made on the fly; 0 is the first."""
        return self._shift.seed if self._shift else 0

    @property
    def group(self) -> Group | None:
        """Whether the corruption is one to choose on (dev) or to report on (test)."""
        return None if self._shift is None else self._shift.group

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without those at their defaults."""
        plain: dict[str, Any] = {}
        for item in _FIELDS:
            value = getattr(self, item.name)
            if value != item.default:
                plain[item.name] = value
        if self.options:
            plain["options"] = {key: _canonical(value) for key, value in self.options}
        if self.weights is not None:
            plain["weights"] = vars(self.weights).copy()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Job:
        """Read :meth:`to_dict`'s values back."""
        if not isinstance(plain, Mapping):
            raise AcclimateError(f"expected the fields of a job, got {plain!r:.200}")
        values = dict(plain)
        known = [item.name for item in _FIELDS]
        for name in values:
            if name not in known:
                raise unknown_name("field of a job", name, known)
        try:
            if "options" in values:
                values["options"] = tuple(values["options"].items())
            if "weights" in values:
                values["weights"] = Weights(**values["weights"])
            return cls(**values)
        except (TypeError, AttributeError) as error:
            raise AcclimateError(f"expected the fields of a job, got {plain!r:.200}") from error


_FIELDS = [item for item in fields(Job) if item.init]


def _setting(word: str) -> str | None:
    setting = ImageOrder.parse(word)
    return None if setting.name == STATIONARY else str(setting)


def _canonical(value: Value) -> Value:
    """1.0 and 1 are the same option."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check(job: Job) -> None:
    for name in ("model", "dataset", "recipe"):
        value = getattr(job, name)
        if not isinstance(value, str) or not value:
            raise AcclimateError(f"expected a name as the {name} of a job, got {value!r}")
        if name != "model":  # which may be a folder: hf:../finetuned
            plain_name(f"{name} of a job", value)
    for name, least in (("seed", 0), ("images", 1), ("batch_size", 1)):
        value = getattr(job, name)
        if value is None and name != "seed":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise AcclimateError(f"expected {name} >= {least}, got {value!r}")
        if value >= _MOST:
            raise AcclimateError(f"expected {name} < 2^63, got {value}")
    names = [key for key, _ in job.options]
    for key, value in job.options:
        plain = value is None or isinstance(value, str | int | float)
        if not plain or (isinstance(value, float) and not math.isfinite(value)):
            raise AcclimateError(f"{key}: expected a word or a number, got {value!r:.60}")
    if len(set(names)) < len(names):
        raise AcclimateError(f"expected each option of a job once, got {', '.join(names)}")
