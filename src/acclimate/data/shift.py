"""Shifts by name: the one grammar of ``imagenet/fog:3@7``, ``fog:3``, ``clipart``, ``cifar/test``.

No torch here, so that a table of results starts at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from acclimate.errors import AcclimateError
from acclimate.text import plain_name

__all__ = [
    "DEV",
    "GROUPS",
    "PRESETS",
    "SEVERITIES",
    "STAND_INS",
    "TEST",
    "Group",
    "Preset",
    "Shift",
    "group_of",
    "plain_shift",
]

Preset: TypeAlias = Literal["imagenet", "cifar"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
"""Whose constants a corruption can be made with."""

SEVERITIES = (1, 2, 3, 4, 5)

DEV: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four corruptions on which hyper-parameters may be chosen."""

TEST: tuple[str, ...] = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate",
    "jpeg_compression",
)  # fmt: skip
"""The fifteen corruptions on which results are reported, in the benchmark's order."""

GROUPS: Mapping[str, tuple[str, ...]] = {"all": (*TEST, *DEV), "dev": DEV, "test": TEST}

STAND_INS: Mapping[str, str] = {"frost-procedural": "frost"}
"""Corruptions of our own making that take the place of one of the benchmark's."""

Group: TypeAlias = Literal["dev", "test"]

_FORM = re.compile(
    r"((?P<preset>[^/:@]+)/)?(?P<name>[^/:@]+)(:(?P<severity>\d+))?(@(?P<seed>\d+))?"
)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A corruption or domain, or a group of them.

    Attributes:
        name: fog, clipart; a group is test, dev or all.
        severity: 1 to 5; None where there are none, or all are meant.
        preset: whose constants it is made with on the fly; None for a data set's own.
        seed: which draw of one that is made on the fly.

    >>> Shift.parse("cifar/snow:5@7")
    Shift(name='snow', severity=5, preset='cifar', seed=7)
    >>> print(Shift.parse("fog:3"), Shift.parse("clipart"), Shift.parse("cifar/test:2@0"))
    fog:3 clipart cifar/test:2
    """

    name: str
    severity: int | None = None
    preset: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        plain_name("shift", self.name)
        if self.severity is not None and self.severity not in SEVERITIES:
            raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {self.severity!r}")
        if self.seed < 0:
            raise AcclimateError(f"expected a seed >= 0, got {self.seed}")

    @classmethod
    def parse(cls, text: str) -> Shift:
        """Read [PRESET/]NAME[:SEVERITY][@SEED]."""
        return _parsed(text)

    def __str__(self) -> str:
        preset = f"{self.preset}/" if self.preset else ""
        severity = "" if self.severity is None else f":{self.severity}"
        return f"{preset}{self.name}{severity}{f'@{self.seed}' if self.seed else ''}"

    @property
    def plain(self) -> str:
        """The benchmark's name, also where one of ours stands in for it."""
        return plain_shift(self.name)

    @property
    def group(self) -> Group | None:
        """Whether it is there to choose on (dev) or to report on (test)."""
        return group_of(self.name)

    def expanded(
        self, groups: Mapping[str, tuple[str, ...]] = GROUPS, *, severities: bool = True
    ) -> list[Shift]:
        """Single shifts: a group's members, and all severities where none is named.

        >>> [str(each) for each in Shift.parse("cifar/dev:1@3").expanded()][:2]
        ['cifar/speckle_noise:1@3', 'cifar/gaussian_blur:1@3']
        >>> len(Shift.parse("test").expanded())
        75
        """
        asked = (self.severity,) if self.severity or not severities else SEVERITIES
        names = groups.get(self.name, (self.name,))
        return [replace(self, name=name, severity=number) for name in names for number in asked]


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Shift:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise AcclimateError(
            "expected a shift as NAME or NAME:SEVERITY (clipart, fog:3) of the data set's own, or "
            "as PRESET/NAME:SEVERITY to be made on the fly (imagenet/fog:3, cifar/snow:5; another "
            f"draw with @7), got {text!r}"
        )
    severity = match["severity"]
    if severity is not None and severity not in map(str, SEVERITIES):
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {text!r}")
    return Shift(
        preset=match["preset"],
        name=match["name"],
        severity=None if severity is None else int(severity),
        seed=int(match["seed"] or 0),
    )


def plain_shift(name: str) -> str:
    """A corruption by the benchmark's name, also where ours stands in for it.

    >>> plain_shift("frost-procedural"), plain_shift("fog")
    ('frost', 'fog')
    """
    return STAND_INS.get(name, name)


def group_of(corruption: str | None) -> Group | None:
    """Whether a corruption is one to choose on or one to report on; None for anything else.

    >>> group_of("spatter"), group_of("frost-procedural"), group_of("clipart")
    ('dev', 'test', None)
    """
    name = "" if corruption is None else plain_shift(corruption)
    if name == "dev" or name in DEV:
        return "dev"
    return "test" if name == "test" or name in TEST else None
