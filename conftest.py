"""What cannot be imported here is not collected: Triton comes with PyTorch for NVIDIA's GPUs,
Lightning and what the server is made of with extras. No test run keeps anything for the next."""

from __future__ import annotations

import itertools
import os
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import pytest

# What the tests' clocks choose is no concern of the person who runs them, nor of other tests.
_cache, _numbers = TemporaryDirectory(), itertools.count()


@pytest.fixture(autouse=True)
def _own_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCLIMATE_CACHE", os.path.join(_cache.name, str(next(_numbers))))


NEEDS = {
    "triton": "src/acclimate/acceleration/triton_*.py",
    "lightning": "src/acclimate/lightning.py",
    "fastapi": "src/acclimate/serve/app.py",
    "prometheus_client": "src/acclimate/serve/[fm][eo]*.py",
    "grpc": "src/acclimate/serve/on_ray.py",  # comes with ray[serve]
}

collect_ignore_glob = [files for package, files in NEEDS.items() if find_spec(package) is None]
