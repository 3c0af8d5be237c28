"""The published numbers: how strong each corruption is at each severity, in both benchmarks."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Literal, get_args

from acclimate.corruption_names import SEVERITIES
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["PRESETS", "Preset", "constants"]

Preset = Literal["imagenet", "cifar"]
PRESETS: tuple[Preset, ...] = get_args(Preset)

_TABLE: dict[str, Any] = json.loads(
    resources.files(__package__).joinpath("constants.json").read_text(encoding="utf-8")
)


def constants(name: str, severity: int, *, preset: Preset) -> dict[str, float | tuple[float, ...]]:
    """The published constants of one corruption at one severity.

    >>> constants("fog", 3, preset="cifar")
    {'amount': 0.75, 'wibble_decay': 2.5}
    >>> constants("motion_blur", 1, preset="imagenet")
    {'radius': 10, 'sigma': 3, 'angle_degrees': (-45, 45)}
    """
    if preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    table: dict[str, Any] = _TABLE[preset]
    if name not in table:
        raise unknown_name("corruption", str(name), table)
    # 3.0 is one of them too, but is no index.
    if not hasattr(severity, "__index__") or severity not in SEVERITIES:
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {severity!r}")
    return {key: _at(value, severity) for key, value in table[name].items()}


def _at(value: Any, severity: int) -> float | tuple[float, ...]:
    # A list of five goes by severity; anything else (an angle's range, a scale) holds for all.
    if not isinstance(value, list):
        return float(value)
    if len(value) != len(SEVERITIES):
        return tuple(value)
    number: float = value[severity - 1]
    return number
