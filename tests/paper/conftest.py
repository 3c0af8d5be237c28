from __future__ import annotations

import numpy as np
import pytest

from acclimate.data.corruptions import DEV, TEST
from acclimate.paper import Available


@pytest.fixture
def cifar(tmp_path):
    """The clean data set alone."""
    from tiny_data import tiny_npz

    root = tiny_npz(tmp_path / "cifar10" / "cifar10-test.npz")
    return Available(roots={"cifar10": str(root)}, incomplete=True)


@pytest.fixture
def cifar_c(tmp_path):
    """The published data set; what is in its files is not looked at."""
    root = tmp_path / "cifar10-c"
    root.mkdir()
    for name in (*TEST, *DEV, "labels"):
        np.save(root / f"{name}.npy", np.zeros(1, np.uint8))
    return Available(roots={"cifar10-c": str(root)})
