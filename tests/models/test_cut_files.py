"""Weights files cut anywhere, in both of torch's formats: a clear message, never a traceback."""

from __future__ import annotations

import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.models import load_weights


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_cut_anywhere(zipped, tmp_path):
    whole, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5)}
    torch.save(tensors, whole, _use_new_zipfile_serialization=zipped)
    data = whole.read_bytes()
    for length in range(1, len(data), max(1, len(data) // 80)):
        cut.write_bytes(data[:length])
        with pytest.raises(AcclimateError, match=r"cut\.pt"):
            load_weights(cut)
    assert torch.equal(load_weights(whole)["b"], tensors["b"])
