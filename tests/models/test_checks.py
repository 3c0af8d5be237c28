"""Models that cannot run, or cannot learn, are refused before anything is done with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import acclimate
from acclimate.bench.scoring import evaluate
from acclimate.data import open_images
from acclimate.errors import AcclimateError
from nets import CLASSES, bn_net, images


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(6, 3), nn.BatchNorm2d(6), nn.Flatten(), nn.LazyLinear(2))


def meta() -> nn.Module:
    return bn_net().to("meta")


def dynamic() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(bn_net(), {nn.Linear}, dtype=torch.qint8)


def static() -> nn.Module:
    ends = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
    net = nn.Sequential(ends[0], bn_net(), ends[1]).eval()
    net.qconfig = torch.ao.quantization.get_default_qconfig("onednn")
    torch.ao.quantization.prepare(net, inplace=True)
    net(images(4))
    return torch.ao.quantization.convert(net)


REFUSED = [
    (lazy, r"layers have their shapes, got LazyConv2d as 0, .*pass a batch through the model"),
    (meta, r"expected a model with weights, got Conv2d as 0 on the meta device.*load its weights"),
]
QUANTISED = [
    (dynamic, r"in floating point, got a quantised layer \(Linear as 9\); adapt the model from"),
    (static, r"in floating point, got a quantised layer \(Quantize as 0\)"),
]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.mark.parametrize(("make", "message"), [*REFUSED, *QUANTISED])
@pytest.mark.parametrize("recipe", ["ent", "rpl", "shot-im"])
def test_no_recipe_learns_in_them(make, message, recipe) -> None:
    with pytest.raises(AcclimateError, match=message):
        acclimate.adapt(make(), images(16), recipe, batch_size=8, progress=False)
    with pytest.raises(AcclimateError, match=message):
        acclimate.Stream(make(), recipe)


@pytest.mark.parametrize(("make", "message"), [*REFUSED, QUANTISED[1]])
def test_without_gradients(make, message) -> None:
    for recipe in ("bn", "t3a"):
        with pytest.raises(AcclimateError, match=message):
            acclimate.adapt(make(), images(16), recipe, batch_size=8, progress=False)


def test_layers_quantised_as_they_run_pass_where_nothing_is_learnt() -> None:
    result = acclimate.adapt(dynamic(), images(16), "bn", batch_size=8, progress=False)
    assert result.predictions.shape == (16,)
    assert acclimate.Stream(dynamic(), "bn")(images(16)).shape == (16, CLASSES)


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_they_are_not_evaluated(make, message) -> None:
    with pytest.raises(AcclimateError, match=message):
        evaluate(make(), open_images(images(4), labels=[0, 1, 2, 3]), progress=False)
