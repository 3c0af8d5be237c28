"""A small convolutional network for 8 × 8 digits, and the weights that come with the package."""

from __future__ import annotations

from importlib.resources import files

from safetensors.torch import load
from torch import nn

from acclimate.data import ClassList
from acclimate.demo.digits import PREPROCESSING
from acclimate.models import LoadedModel

__all__ = ["build_network", "load_digits_model"]


def build_network(width: int = 32) -> nn.Sequential:
    """Three convolutions with batch norm, and a linear classifier."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, width, 1),
        *block(width, width, 1),
        *block(width, 2 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def load_digits_model() -> LoadedModel:
    """The trained network; ``python -m acclimate.demo.train`` makes its weights anew."""
    model = build_network()
    model.load_state_dict(load((files("acclimate.demo") / "digits.safetensors").read_bytes()))
    return LoadedModel(
        name="acclimate:digits",
        model=model.eval(),
        preprocessing=PREPROCESSING,
        classes=ClassList(tuple("0123456789")),
    )
