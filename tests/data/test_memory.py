"""How much memory images may take."""

from __future__ import annotations

import pytest
import torch

from acclimate.data.memory import available_memory, cache_budget, device_budget
from acclimate.errors import AcclimateError


def test_a_third_of_what_is_available_unless_given():
    assert available_memory() > 0
    assert 0 < cache_budget(None) <= available_memory() // 2
    assert cache_budget(0) == 0
    assert cache_budget(123) == 123


def test_less_than_nothing_is_refused():
    with pytest.raises(AcclimateError, match="cache >= 0 bytes, got -1"):
        cache_budget(-1)


def test_on_a_device_a_third_of_what_is_free_and_none_on_a_cpu():
    cpu = torch.device("cpu")
    assert device_budget(cpu, None) == 0
    assert device_budget(cpu, 123) == 123
    with pytest.raises(AcclimateError, match="room >= 0 bytes, got -1"):
        device_budget(cpu, -1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_third_of_a_gpu():
    free, _ = torch.cuda.mem_get_info()
    assert 0 < device_budget(torch.device("cuda"), None) <= free
