"""Settings: in which order a model meets the images of its shifts, and whether it may forget."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.errors import AcclimateError, unknown_name

__all__ = ["SEQUENCES", "SETTINGS", "STATIONARY", "Setting"]

STATIONARY = "stationary"

SETTINGS = {
    STATIONARY: "one shift, gone through as often as the recipe says; scored afterwards",
    "online": "one shift, gone through once; each image is answered before it is learnt from",
    "correlated": "online, with images of a class close together (Dirichlet, correlated:0.1)",
    "single": "online, one image at a time",
    "continual": "online through a group of shifts, one after the other, without a reset",
    "gradual": "continual, each shift growing from severity 1 to 5 and fading again",
    "mixed": "online, the images of a group of shifts in one random order",
}
"""What each one is, in words."""

SEQUENCES = frozenset({"continual", "gradual", "mixed"})
"""Those that run through a group of shifts: ``cifar/test:5``."""

_CONCENTRATION = 0.1


@dataclass(frozen=True)
class Setting:
    """One of `SETTINGS`, and how correlated its labels are where they are.

    >>> Setting.parse("correlated"), str(Setting.parse("correlated:0.01"))
    (Setting(name='correlated', concentration=0.1), 'correlated:0.01')
    """

    name: str
    concentration: float | None = None

    @classmethod
    def parse(cls, word: str) -> Setting:
        """Read ``name`` or, for correlated labels, ``name:concentration``."""
        name, colon, number = word.partition(":")
        if name not in SETTINGS:
            raise unknown_name("setting", name, list(SETTINGS))
        if name != "correlated":
            if colon:
                raise AcclimateError(f"the setting {name} takes no number, got {word!r}")
            return cls(name)
        try:
            concentration = float(number) if colon else _CONCENTRATION
        except ValueError:
            concentration = float("nan")
        if not 0 < concentration < float("inf"):
            raise AcclimateError(f"expected a concentration > 0, as correlated:0.1, got {word!r}")
        return cls(name, concentration)

    def __str__(self) -> str:
        number = self.concentration
        return self.name if number is None else f"{self.name}:{number:g}"

    @property
    def batch_size(self) -> int | None:
        """Where the setting decides it."""
        return 1 if self.name == "single" else None
