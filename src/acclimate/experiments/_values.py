"""The numbers a table can show, and how each is averaged over shifts."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.corruption_names import SEVERITIES, TEST, plain_shift
from acclimate.errors import AcclimateError, unknown_name
from acclimate.experiments._cells import Measure, Shifts, mean_of_means

__all__ = ["VALUES", "Shown", "find_value", "refuse_part_of_mce"]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A number: which column it comes from, what it is in words, how it is averaged.

    Attributes:
        column: of the store.
        title: what it is.
        unit: for the head of its column.
        count: the column with the number of labelled images it is of.
        by_shift: whether the record of a stream has it for each shift on the way.
    """

    column: str
    title: str
    unit: str = ""
    count: str = "labelled"
    by_shift: bool = False
    digits: int = 1
    measure: Measure = mean_of_means
    whole: bool = False
    """Whether it is defined only over all corruptions and severities of ImageNet-C."""


def _mce(shifts: Shifts) -> float | None:
    """The mCE, where all fifteen corruptions at all five severities are there."""
    whole = {plain_shift(str(name)) for name in shifts} == set(TEST)
    if not whole or len(shifts) != len(TEST):
        return None
    if any(set(values) != set(SEVERITIES) for values in shifts.values()):
        return None
    from acclimate.metrics import mce  # needs torch, and no other number here does

    errors = {str(name): [values[s] for s in SEVERITIES] for name, values in shifts.items()}
    return mce(errors).value


def _mebibytes(shifts: Shifts) -> float | None:
    mean = mean_of_means(shifts)
    return None if mean is None else mean / 2**20


VALUES = {
    "error": Shown(
        column="error",
        title="top-1 error % of the model handed back, or of a stream's answers",
        by_shift=True,
    ),
    "online": Shown(
        column="online", title="top-1 error % before each update, first epoch", by_shift=True
    ),
    "unadapted": Shown(column="unadapted", title="top-1 error % of the source model"),
    "mce": Shown(
        column="error",
        title="mCE % of the model handed back, relative to AlexNet",
        measure=_mce,
        whole=True,
    ),
    "ece": Shown(column="ece", title="expected calibration error, 15 bins", digits=3),
    "seconds": Shown(column="seconds", title="seconds for one shift"),
    "memory": Shown(
        column="memory",
        title="MiB of memory at the peak",
        unit="MiB",
        digits=0,
        measure=_mebibytes,
    ),
    "forgetting": Shown(
        column="forgetting",
        title="top-1 error % on clean images, after minus before",
        unit="points",
        count="forgetting_images",
    ),
}


def find_value(name: str) -> Shown:
    """A number by its name.

    >>> find_value("online").title
    'top-1 error % before each update, first epoch'
    """
    if name not in VALUES:
        raise unknown_name("value", name, VALUES)
    return VALUES[name]


def refuse_part_of_mce(value: str, names: tuple[str, ...]) -> None:
    """The mCE is a mean over corruptions and severities, and has none of its own."""
    split = [name for name in names if name in ("corruption", "severity")]
    if find_value(value).whole and split:
        raise AcclimateError(
            f"the {value} is a mean over all corruptions and severities, got it by "
            f"{' and '.join(split)}; leave that out, or show the error"
        )
