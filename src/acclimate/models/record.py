"""What loading a model returns: the module, its preprocessing, its classes, its source."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.models.layers import norm_layers

__all__ = ["LoadedModel"]


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in eval mode and float32, with the record of how it was made.

    ``name`` is the full spec (``timm:resnet50``), ``source`` is where the weights came from;
    ``preprocessing`` and ``classes`` are None where nothing is recorded, never a guess.

    >>> print(LoadedModel(name="py:mine:net", model=nn.Linear(2, 3)).describe())
    py:mine:net
      architecture   Linear, 9 parameters
      normalisation  none
      preprocessing  not recorded
      classes        not recorded
      weights        as made
    """

    name: str
    model: nn.Module = field(repr=False)
    preprocessing: Preprocessing | None = None
    classes: ClassList | None = field(default=None, repr=False)
    source: str = "as made"

    def describe(self) -> str:
        """A few lines a person can check before anything is adapted."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        norms = ", ".join(f"{count} {kind}" for kind, count in norm_layers(self.model).items())
        rows = {
            "architecture": f"{type(self.model).__name__}, {parameters:,} parameters",
            "normalisation": norms or "none",
            "preprocessing": (
                self.preprocessing.describe() if self.preprocessing else "not recorded"
            ),
            "classes": _span(self.classes) if self.classes else "not recorded",
            "weights": self.source,
        }
        return "\n".join([self.name, *(f"  {key:<14} {value}" for key, value in rows.items())])


def _span(classes: ClassList) -> str:
    first, last = (name.split(",")[0] for name in (classes.names[0], classes.names[-1]))
    return f"{len(classes.names)}, {first} … {last}"
