"""Which parameters learn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models.layers import norm_kind
from acclimate.models.outputs import find_classifier
from acclimate.parts.adapters import insert_adapters, transformer_sublayers
from acclimate.parts.base import PARTS, LearnerLike, Part, option

__all__ = [
    "Adapters",
    "All",
    "Backbone",
    "LastLayer",
    "Linear",
    "NormAffine",
    "Selector",
]


def _of_modules(model: nn.Module, chosen: list[nn.Module]) -> list[str]:
    """Names of the parameters that belong directly to the chosen modules."""
    ids = {id(p) for module in chosen for p in module.parameters(recurse=False)}
    return [name for name, p in model.named_parameters() if id(p) in ids]


@dataclass(frozen=True, kw_only=True)
class Selector(Part, ABC):
    """Which parameters learn."""

    @abstractmethod
    def names(self, model: nn.Module) -> list[str]:
        """The names of the parameters that learn."""

    def extend(self, model: nn.Module, generator: torch.Generator) -> None:
        """Give a plain model the layers that learning with this selector adds."""

    def check(self, model: nn.Module) -> None:
        """Refuse a model in which nothing would learn."""
        if not self.names(model):
            raise AcclimateError(f"{type(model).__name__} has {self.nothing}")

    nothing = "no parameters; there is nothing to adapt"


@PARTS["selector"].register("affine")
@dataclass(frozen=True, kw_only=True)
class NormAffine(Selector):
    """Scale and shift of the normalisation layers: batch, group, layer and instance norm."""

    steady = True

    nothing = (
        "no normalisation layers with scale and shift to adapt; choose other parameters with "
        "selector=last-layer, selector=linear or selector=all"
    )

    def names(self, model: nn.Module) -> list[str]:
        """γ and β of every normalisation layer."""
        return _of_modules(model, [m for m in model.modules() if norm_kind(m)])


@PARTS["selector"].register("last-layer")
@dataclass(frozen=True, kw_only=True)
class LastLayer(Selector):
    """The classifier on top."""

    steady = True

    def names(self, model: nn.Module) -> list[str]:
        """Weight and bias of the last linear layer."""
        return _of_modules(model, [find_classifier(model)[1]])


@PARTS["selector"].register("linear")
@dataclass(frozen=True, kw_only=True)
class Linear(Selector):
    """Every linear layer, the usual choice between affine and all for transformers."""

    steady = True

    nothing = "no linear layers; choose selector=affine or selector=all"

    def names(self, model: nn.Module) -> list[str]:
        """Weights and biases of the linear layers, attention's fused ones included."""
        kinds = (nn.Linear, nn.MultiheadAttention)
        return _of_modules(model, [m for m in model.modules() if isinstance(m, kinds)])


@PARTS["selector"].register("all")
@dataclass(frozen=True, kw_only=True)
class All(Selector):
    """Every parameter."""

    steady = True

    def names(self, model: nn.Module) -> list[str]:
        """All of them."""
        return [name for name, _ in model.named_parameters()]


@PARTS["selector"].register("backbone")
@dataclass(frozen=True, kw_only=True)
class Backbone(Selector):
    """Everything below the classifier, which stays as the source has it."""

    steady = True

    nothing = "no parameters below its classifier; choose selector=last-layer"

    def names(self, model: nn.Module) -> list[str]:
        """All but the classifier's, and what it shares with other layers."""
        frozen = {id(p) for p in find_classifier(model)[1].parameters()}
        return [name for name, p in model.named_parameters() if id(p) not in frozen]


@PARTS["selector"].register("adapters")
@dataclass(frozen=True, kw_only=True)
class Adapters(Selector):
    """New bottlenecks after each attention and MLP sublayer (Houlsby et al. 2019), and the norms.

    The model that is returned keeps its own keys and has the adapters' beside them.
    """

    steady = True

    changes_architecture = True
    width: int = option(64, low=1)

    def check(self, model: nn.Module) -> None:
        """Refuse a model without transformer blocks."""
        if not transformer_sublayers(model):
            raise AcclimateError(
                f"found no transformer blocks (a module with attention and MLP children) in "
                f"{type(model).__name__}; bottleneck adapters sit in those. "
                "Choose selector=affine, selector=linear or selector=all"
            )

    def extend(self, model: nn.Module, generator: torch.Generator) -> None:
        """Put the bottlenecks in; they start as the identity."""
        insert_adapters(model, width=self.width, generator=generator)

    def prepare(self, learner: LearnerLike) -> None:
        """Put them in before anything is selected."""
        self.extend(learner.model, learner.generator)

    def names(self, model: nn.Module) -> list[str]:
        """The bottlenecks and, as Houlsby et al. do, the layer norms."""
        return NormAffine().names(model) + [
            name for name, _ in model.named_parameters() if ".acclimate_adapter." in f".{name}"
        ]
