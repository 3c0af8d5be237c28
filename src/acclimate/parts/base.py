"""What every part of a recipe has in common: options that are data, and the phases it may act in.

A part is a frozen dataclass. Its options are its fields; whatever it remembers between steps is the
state object its ``prepare`` returns, which the learner keeps, moves and checkpoints. Every other
method is one phase of a step and does nothing unless the part says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.models.outputs import Outputs
from acclimate.parts.statistics import StatisticsControl
from acclimate.registry import Registry, find_object

__all__ = [
    "PARTS",
    "Closure",
    "LearnerLike",
    "Need",
    "Part",
    "Step",
    "check_options",
    "check_range",
    "option",
    "part_class",
    "part_kind",
]

Need = Literal["features"]
Closure = Callable[[], Tensor]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One choice in a recipe. Subclass it, override a phase or two, and register it.

    ``state`` is whatever :meth:`prepare` returned: a dataclass of tensors, modules, generators and
    numbers, or None.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    changes_architecture: ClassVar[bool] = False
    gathers: ClassVar[bool] = False
    """Whether it learns from the images without gradients, so that a run must go through them."""
    shareable: ClassVar[bool] = True
    """Whether several processes, each with its part of a batch, do what one would do. Parts that
    have views, a memory or predictions of their own do not, and need not say so."""
    steady: ClassVar[bool] = False
    """Whether each step is the same work on the device, with all that is remembered changed in
    place and nothing read back: only then may a step be captured and replayed. A class says so for
    itself; what inherits from it must say so again."""

    def __post_init__(self) -> None:
        check_options(self)

    def check(self, model: nn.Module) -> None:
        """Refuse a model this part cannot work with (an AcclimateError with the reason)."""

    def prepare(self, learner: LearnerLike) -> Any:
        """Before the first step: inspect the model, build the state."""
        return None

    def parameters(self, state: Any) -> Mapping[str, nn.Parameter]:
        """Parameters of the state that learn beside the model's (a projection head)."""
        return {}

    def start_epoch(self, state: Any, learner: LearnerLike) -> None:
        """Before the first batch of every epoch."""

    def collect(self, state: Any, images: Tensor) -> Tensor:
        """Replace the batch that arrived by the batch to learn from (a memory)."""
        return images

    def transform(self, state: Any, images: Tensor, weights: Mapping[str, Tensor] | None) -> Tensor:
        """Change what the model is shown, with the state's own parameters or with others."""
        return images

    def views(self, state: Any, images: Tensor) -> Sequence[Tensor] | None:
        """Several views of the images, where the objective compares views; one part's alone."""
        return None

    def weights(self, state: Any, step: Step) -> Tensor | None:
        """How much each image counts (0: not at all); None counts all alike."""
        return None

    def reweigh(self, state: Any, step: Step, weights: Tensor) -> Tensor:
        """The weights where gradients are taken again within one step, after the parameters moved;
        those of before unless a part says otherwise."""
        return weights

    def loss(self, state: Any, step: Step) -> Tensor | None:
        """A term of the loss: one value per image, or a scalar."""
        return None

    def update(self, state: Any, learner: LearnerLike, closure: Closure) -> Tensor | None:
        """Move the parameters (the optimiser only); each ``closure()`` takes gradients anew."""
        return None

    def after_step(self, state: Any, step: Step) -> None:
        """After the parameters moved (moving averages, queues, resets)."""

    def predict(self, state: Any, step: Step) -> Tensor | None:
        """The prediction in place of the student's logits."""
        return None

    def export(self, state: Any, learner: LearnerLike) -> None:
        """When the plain model is returned: write what it needs into it, or refuse."""


PARTS: dict[str, Registry[type[Part]]] = {
    slot: Registry(slot)
    for slot in (
        "objective",
        "selector",
        "normalization",
        "teacher",
        "filter",
        "regularizer",
        "optimizer",
        "predictor",
    )
}


def part_class(slot: str, kind: str) -> type[Part]:
    """The class of a part by its registered name, or as ``py:module:Class``.

    >>> part_class("teacher", "epoch").__name__
    'Epoch'
    >>> part_class("teacher", "py:acclimate.parts.teachers:Epoch").__name__
    'Epoch'
    """
    prefix, _, reference = kind.partition(":")
    if prefix != "py" or not reference:
        return PARTS[slot][kind]
    if "<locals>" in reference:
        raise AcclimateError(
            f"{kind} is defined inside a function, from where it cannot be imported; "
            "define it at the top level of a module"
        )
    found = find_object(reference, what="class")
    if isinstance(found, type) and issubclass(found, Part):
        return found
    raise AcclimateError(f"expected {kind} to be a subclass of acclimate.parts.Part, got {found!r}")


def part_kind(slot: str, part: Part) -> str:
    """The registered name of a part, or ``py:module:Class``; :func:`part_class` reads both."""
    cls = type(part)
    names = (name for name in PARTS[slot] if PARTS[slot][name] is cls)
    return next(names, f"py:{cls.__module__}:{cls.__qualname__}")


def option(
    default: T,
    *,
    low: float,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> T:
    """A field of a part with its range, as :func:`check_range` takes it; subclasses keep it.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Doubtful(Part):
    ...     threshold: float = option(0.5, low=0, high=1)
    >>> Doubtful(threshold=2)
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected threshold >= 0 and <= 1, got 2
    """
    allowed = {"low": low, "high": high, "open_low": open_low, "open_high": open_high}
    return field(default=default, metadata={"range": allowed})


def check_options(options: Any) -> None:
    """Refuse a dataclass with a field outside the range that it, or one it overrides, has."""
    ranges: dict[str, Any] = {}
    for cls in reversed(type(options).__mro__):
        for name, each in vars(cls).get("__dataclass_fields__", {}).items():
            if "range" in each.metadata:
                ranges[name] = each.metadata["range"]
    for name, allowed in ranges.items():
        check_range(options, name, **allowed)


def check_range(
    options: Any,
    name: str,
    *,
    low: float,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Refuse a field of a dataclass that is not a finite number in its range; None is no number.

    >>> from acclimate.parts.filters import Confidence
    >>> check_range(Confidence(threshold=0.5), "threshold", low=0.6)
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected threshold >= 0.6, got 0.5
    """
    assert name in {field.name for field in fields(options)}
    value = getattr(options, name)
    if value is None:
        return
    above = low < value if open_low else low <= value
    below = value < high if open_high or high == math.inf else value <= high
    if not (above and below):
        lower = f"{'>' if open_low else '>='} {low:g}"
        upper = "" if high == math.inf else f" and {'<' if open_high else '<='} {high:g}"
        raise AcclimateError(f"expected {name} {lower}{upper}, got {value!r}")


class LearnerLike(Protocol):
    """What a part may read and do of the learner that runs it."""

    model: nn.Module
    batch_size: int
    lr: float
    generator: torch.Generator
    steps: int
    backwards: int
    parts: dict[str, Part]
    states: dict[str, Any]
    learning: dict[str, nn.Parameter]
    """The parameters that learn, by name; those of a part are named ``slot:name``."""
    source: dict[str, Tensor]
    """Their values in the source model."""

    @property
    def classes(self) -> int:
        """How many classes the model predicts."""

    @property
    def statistics(self) -> StatisticsControl:
        """The batch-norm statistics of the model."""

    def forward(
        self, images: Tensor, *, weights: Mapping[str, Tensor] | None = None, learning: bool = True
    ) -> Outputs:
        """One forward pass with the recipe's statistics, the student's weights or those given."""

    def source_forward(self, images: Tensor) -> Outputs:
        """The unadapted model: source parameters, source statistics."""

    def teacher_forward(self, step: Step, images: Tensor) -> Outputs:
        """A forward pass of the recipe's teacher."""

    def restore_source(self) -> None:
        """Put the source's parameters back."""

    def overwrite(self, name: str, value: Tensor) -> None:
        """Write a parameter of the plain model, for a part's ``export``."""


class Step:
    """A batch and what the student, the teacher and the source say about it.

    Parts read ``step.student``, ``step.teacher`` and ``step.source``; each costs one forward pass
    the first time and nothing after that. With the instant teacher, student and teacher are one.
    ``step.loss`` is what the update returned, for what comes after it; None where nothing counted.
    """

    def __init__(
        self,
        learner: LearnerLike,
        images: Tensor,
        *,
        views: Sequence[Tensor] | None = None,
        learning: bool = True,
    ) -> None:
        self.learner = learner
        self.images = images
        self.views = [images] if views is None else list(views)
        self.learning = learning
        self.loss: Tensor | None = None
        # Kept with their outputs: an id means nothing once its tensor is gone.
        self._student: dict[int, tuple[Tensor, Outputs]] = {}
        self._teacher: dict[int, tuple[Tensor, Outputs]] = {}
        self._source: Outputs | None = None

    @property
    def student(self) -> Outputs:
        """The learning model on the batch, with gradients."""
        return self.student_of(self.images)

    @property
    def teacher(self) -> Outputs:
        """The teacher on the batch."""
        return self.teacher_of(self.images)

    @property
    def source(self) -> Outputs:
        """The unadapted model, with its own statistics, on the batch."""
        if self._source is None:
            self._source = self.learner.source_forward(self.images)
        return self._source

    def student_of(self, view: Tensor) -> Outputs:
        """The learning model on one view."""
        if id(view) not in self._student:
            self._student[id(view)] = view, self.learner.forward(view, learning=self.learning)
        return self._student[id(view)][1]

    def teacher_of(self, view: Tensor) -> Outputs:
        """The teacher on one view."""
        if id(view) not in self._teacher:
            self._teacher[id(view)] = view, self.learner.teacher_forward(self, view)
        return self._teacher[id(view)][1]

    def forget(self) -> None:
        """Drop what depends on the student's parameters, after they moved within one step."""
        self._student.clear()
        self._teacher.clear()
