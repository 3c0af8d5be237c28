"""The embedded network, trained on clean digits by ``benchmarks/train_digits.py``."""

from __future__ import annotations

from importlib.resources import files

from safetensors.torch import load
from torch import nn

from acclimate.data.digits import PREPROCESSING
from acclimate.data.labels import ClassList
from acclimate.models.record import LoadedModel

__all__ = ["digits_network", "load_digits_model"]


def digits_network(width: int = 32) -> nn.Sequential:
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
    """The network with its weights, ``acclimate:digits``."""
    model = digits_network()
    model.load_state_dict(load((files(__package__) / "digits.safetensors").read_bytes()))
    return LoadedModel(
        name="acclimate:digits",
        model=model.eval(),
        preprocessing=PREPROCESSING,
        classes=ClassList(tuple("0123456789")),
    )
