"""Where the commands are called."""

from __future__ import annotations

import sys

import pytest
from adapt_inputs import NETS


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """A folder of the user's own, with his models in a module."""
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    return tmp_path
