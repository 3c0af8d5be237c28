"""The CIFAR-scale networks: their sizes, what they take, and their names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.errors import AcclimateError
from acclimate.models import list_models, load, norm_layers
from acclimate.models.architectures import ARCHITECTURES
from acclimate.models.networks.cifar_resnet import resnet18, resnet50
from acclimate.models.networks.depth26 import ResNet26

PARAMETERS = {
    "wrn-28-10": 36_479_194,
    "wrn-40-2": 2_243_546,
    "wrn-26-1-bn": 366_938,
    "wrn-26-1-gn": 366_938,
    "wrn-26-2-bn": 1_456_858,
    "wrn-26-2-gn": 1_456_858,
    "wrn-26-16-bn": 92_678_618,
    "wrn-26-16-gn": 92_678_618,
    "resnet18-cifar": 11_173_962,
    "resnet50-cifar": 23_520_842,
    "vit-cifar": 2_693_578,
}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts(name: str) -> None:
    with torch.device("meta"):
        model = ARCHITECTURES[name](classes=10)
    assert count(model) == PARAMETERS[name]


def test_every_architecture_has_its_count_here_and_is_listed() -> None:
    assert PARAMETERS.keys() == ARCHITECTURES.keys()
    assert {f"acclimate:{name}" for name in PARAMETERS} <= set(list_models())


def test_depth_26_counts_derived_by_hand() -> None:
    def by_hand(width: int, classes: int) -> int:
        a, b, c = 16 * width, 32 * width, 64 * width
        convolutions = 9 * (
            3 * 16 + (16 * a + 7 * a * a) + (a * b + 7 * b * b) + (b * c + 7 * c * c)
        )
        norms = 2 * ((16 + 7 * a) + (a + 7 * b) + (b + 7 * c) + c)
        return convolutions + norms + (c + 1) * classes

    for width, classes in ((1, 10), (2, 10), (3, 7)):
        assert count(ResNet26(width, classes=classes)) == by_hand(width, classes)


@pytest.mark.parametrize("norm", ["bn", "gn"])
@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (3, 17)])
def test_depth_26_takes_grey_and_colour_of_any_side(norm: str, channels: int, side: int) -> None:
    model = ResNet26(1, norm=norm, classes=4, channels=channels).eval()
    images = torch.rand(2, channels, side, side)
    assert model(images).shape == (2, 4)
    torch.testing.assert_close(model.fc(model.features(images)), model(images))


def test_depth_26_norms() -> None:
    assert norm_layers(ResNet26(1)) == {"BatchNorm": 25}
    model = ResNet26(2, norm="gn")
    assert norm_layers(model) == {"GroupNorm": 25}
    assert {m.num_groups for m in model.modules() if isinstance(m, nn.GroupNorm)} == {8}


def test_depth_26_shortcuts_average_and_add_zero_channels() -> None:
    block = ResNet26(2).layer2[0]
    nn.init.zeros_(block.conv2.weight)
    x = torch.rand(1, 32, 4, 4)
    out = block.eval()(x)
    torch.testing.assert_close(out[:, :32], nn.functional.avg_pool2d(x, 2))
    assert out.shape == (1, 64, 2, 2)
    assert not out[:, 32:].any()


def test_mistakes_in_depth_26() -> None:
    with pytest.raises(AcclimateError, match="expected a width >= 1, got 0"):
        ResNet26(0)
    with pytest.raises(AcclimateError, match="unknown norm of a depth-26 network 'ln'"):
        ResNet26(1, norm="ln")


@pytest.mark.parametrize("make", [resnet18, resnet50])
def test_cifar_resnets_halve_three_times_only(make: type) -> None:
    model = make(classes=3, channels=1).eval()
    sides = []
    model.layer4.register_forward_hook(lambda m, i, out: sides.append(tuple(out.shape[2:])))
    assert model(torch.rand(1, 1, 32, 32)).shape == (1, 3)
    assert sides == [(4, 4)]


def test_untrained_says_so_and_knows_its_record() -> None:
    loaded = load("acclimate:wrn-26-1-bn")
    assert not loaded.model.training
    assert loaded.preprocessing is not None
    assert (loaded.preprocessing.size, loaded.preprocessing.mean) == ((32, 32), (0.5, 0.5, 0.5))
    assert loaded.classes is not None
    assert loaded.classes.names == CIFAR10_CLASSES
    assert "untrained: give weights" in loaded.describe()
    assert loaded.name == "acclimate:wrn-26-1-bn"


def test_another_class_count_has_no_names() -> None:
    loaded = load("acclimate:wrn-26-1-gn", num_classes=7)
    assert loaded.classes is None
    assert loaded.model(torch.rand(1, 3, 32, 32)).shape == (1, 7)
    assert load("acclimate:wrn-26-1-gn", num_classes=10).classes is not None


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("wrn-28-10", 3.6e7),
        ("wrn-40-2", 2.2e6),
        ("wrn-26-2-gn", 1.5e6),  # "WRN-26-1-GN"
        ("wrn-26-2-bn", 1.5e6),  # "WRN-26-1-BN" and "WRN-26-2 DANN"
        ("wrn-26-16-bn", 9.3e7),
    ],
)
def test_parameter_counts_are_those_the_paper_prints(name: str, printed: float) -> None:
    assert float(f"{PARAMETERS[name]:.1e}") == printed
