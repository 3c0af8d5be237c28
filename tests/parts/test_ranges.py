"""Every number in every part has a range, declared beside its default."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import pytest

import acclimate.methods  # noqa: F401  the parts that methods bring
from acclimate.errors import AcclimateError
from acclimate.parts import PARTS, Confidence, option

NUMBERS = [
    (PARTS[slot][kind], each.name)
    for slot in PARTS
    for kind in PARTS[slot]
    for each in fields(PARTS[slot][kind])
    if str(each.type).split(" ")[0] in ("int", "float")
]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
@pytest.mark.parametrize("value", [-1e9, math.nan, math.inf])
def test_a_number_outside_its_range_is_refused(kind: Any, name: str, value: float) -> None:
    with pytest.raises(AcclimateError, match=f"expected {name} >=? -?[0-9].*, got {value}"):
        kind(**{name: value})


@dataclass(frozen=True, kw_only=True)
class Strict(Confidence):
    threshold: float = 0.9
    share: float = option(0.5, low=0, high=1, open_high=True)


def test_a_subclass_with_another_default_keeps_the_range() -> None:
    assert Strict(threshold=1.0, share=0.0).threshold == 1.0
    with pytest.raises(AcclimateError, match="expected threshold >= 0 and <= 1, got 2"):
        Strict(threshold=2)
    with pytest.raises(AcclimateError, match="expected share >= 0 and < 1, got 1"):
        Strict(share=1)
