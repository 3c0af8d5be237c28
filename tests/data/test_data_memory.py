"""How much memory pictures may take."""

from __future__ import annotations

import pytest

from acclimate.data.memory import available_memory, cache_budget
from acclimate.errors import AcclimateError


def test_a_third_of_what_is_available_unless_told():
    assert available_memory() > 0
    assert 0 < cache_budget(None) <= available_memory() // 2
    assert cache_budget(0) == 0
    assert cache_budget(123) == 123


def test_less_than_nothing_is_refused():
    with pytest.raises(AcclimateError, match="cache >= 0 bytes, got -1"):
        cache_budget(-1)
