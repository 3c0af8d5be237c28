"""What methods that look at other views of a picture say to what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import acclimate
from acclimate.errors import AcclimateError

VIEWING = ["adacontrast", "cotta", "deyo", "dino", "memo", "rotta", "self-ensembling", "ttt"]
OTHERS = ["conjugate", "eata", "eta", "lame", "note", "rdumb", "sar", "shot-im", "t3a", "tent"]
SHAPES = [(6,), (6, 30), (6, 5, 7, 7)]


def net(shape: tuple[int, ...]) -> nn.Module:
    """A network for vectors, signals or volumes."""
    if len(shape) == 1:
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    kinds: Any = {
        2: (nn.Conv1d, nn.BatchNorm1d, nn.AdaptiveAvgPool1d),
        4: (nn.Conv3d, nn.BatchNorm3d, nn.AdaptiveAvgPool3d),
    }
    convolution, norm, pool = kinds[len(shape)]
    return nn.Sequential(
        convolution(6, 8, 3), norm(8), nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(8, 4)
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("recipe", VIEWING)
def test_what_is_no_image_has_no_views(recipe: str, shape: tuple[int, ...], tmp_path: Any) -> None:
    options: dict[str, Any] = {}
    if recipe == "ttt":
        head = {"weight": torch.zeros(4, 8), "bias": torch.zeros(4)}
        save_file(head, tmp_path / "head.safetensors")
        options["objective.head"] = str(tmp_path / "head.safetensors")
    stream = acclimate.Stream(net(shape), recipe, options=options)
    got = r"\d+×" + "×".join(map(str, shape))
    with pytest.raises(AcclimateError, match=rf"images as N×C×H×W .* got {got}; choose"):
        stream(torch.rand(4, *shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("recipe", OTHERS)
def test_the_others_take_anything_a_network_takes(recipe: str, shape: tuple[int, ...]) -> None:
    stream = acclimate.Stream(net(shape), recipe)
    for _ in range(3):
        assert torch.isfinite(stream(torch.rand(4, *shape))).all()
