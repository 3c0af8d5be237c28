"""The guard: watches adaptation without labels, and keeps the last good state to return to."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields
from typing import get_args

import torch
from torch import Tensor

from acclimate.errors import AcclimateError, AcclimateWarning, unknown_name
from acclimate.learner.learner import Learner
from acclimate.metrics.scores import effective_classes
from acclimate.parts.objectives import CrossEntropy
from acclimate.recipe import Recipe
from acclimate.text import Action
from acclimate.theory import will_collapse

__all__ = ["Guard", "Watch", "drift", "make_guard", "warn_of_temperatures"]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """When adaptation is going wrong, and what to do then.

    Every ``check_every`` steps the guard looks for: values that are not finite; predictions that
    use fewer than ``min_diversity`` times the classes that so many images used at the start;
    learning parameters that moved by more than ``max_drift`` of their norm (on hold-out shifts,
    runs beyond 0.15 went on to collapse); and predictions of the source model overturned by
    learning: a share that is more than ``max_flips`` above what it was at the start, and more than
    the share that the source model itself is not confident of.
    ``action`` is what it does then: "rollback" (to the state before the last good check, and stop
    learning), "stop", "warn", "observe" (record only) or "off".
    """

    action: Action = "rollback"
    check_every: int = 10
    min_diversity: float = 0.5
    max_drift: float = 0.15
    max_flips: float = 0.3

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise unknown_name("guard action", str(self.action), get_args(Action))
        if self.check_every < 1:
            raise AcclimateError(f"expected check_every >= 1, got {self.check_every}")

    @property
    def acts(self) -> bool:
        """Whether it may change what is returned."""
        return self.action in ("rollback", "stop")


def make_guard(guard: str | Guard) -> Guard:
    """A guard from its action; a Guard is returned unchanged.

    >>> make_guard("observe").acts
    False
    """
    return guard if isinstance(guard, Guard) else Guard(action=guard)  # type: ignore[arg-type]


def warn_of_temperatures(recipe: Recipe) -> None:
    """Warn when the recipe's temperatures lie in the collapse region of Proposition 1."""
    objective = recipe.objective
    if isinstance(objective, CrossEntropy):
        collapse = will_collapse(
            objective.student_temperature, objective.teacher_temperature, objective.stop_gradient
        )
        if collapse:
            warnings.warn(
                f"collapse is likely (the paper's Proposition 1): {collapse.reason}",
                AcclimateWarning,
                stacklevel=2,
            )


def drift(learner: Learner) -> float:
    """How far the learning parameters moved, relative to the norm they started with."""
    if not learner.learning:
        return 0.0
    now = [p.detach() for p in learner.learning.values()]
    start = list(learner.source.values())
    moved = torch.stack(torch._foreach_norm(torch._foreach_sub(now, start))).norm()
    norm = torch.stack(torch._foreach_norm(start)).norm()
    return float(moved / norm.clamp_min(1e-12))


def _classes_in(images: int, *, of: float) -> float:
    """How many of some evenly used classes this many images can be expected to show.

    >>> round(_classes_in(320, of=1000)), round(_classes_in(320, of=10))
    (274, 10)
    """
    return of * (1 - (1 - 1 / max(of, 1)) ** images)


ENOUGH_COMPARED = 64
"""Below this many compared images a share of flips says little."""

UNKNOWN = -1.0
"""No reference yet: the first window will set it."""


@dataclass
class Watch:
    """What the guard remembers: sums of the current window, the reference, and two good states."""

    steps: int = 0
    images: int = 0
    compared: int = 0
    reference: float = 0.0
    reference_flips: float = UNKNOWN
    doubted: float = UNKNOWN
    finite: Tensor = field(default_factory=lambda: torch.tensor(True))
    probability: Tensor = field(default_factory=lambda: torch.zeros(()))
    source_probability: Tensor = field(default_factory=lambda: torch.zeros(()))
    last_probability: Tensor = field(default_factory=lambda: torch.zeros(()))
    last_images: int = 0
    flips: Tensor = field(default_factory=lambda: torch.zeros(()))
    doubts: Tensor = field(default_factory=lambda: torch.zeros(()))
    older: dict[str, Tensor] = field(default_factory=dict)
    newer: dict[str, Tensor] = field(default_factory=dict)

    @torch.no_grad()
    def see(
        self,
        logits: Tensor,
        loss: Tensor | None,
        *,
        source_classes: Tensor | None = None,
        source_logits: Tensor | None = None,
    ) -> None:
        """Add a batch to the window; nothing is read back from the device."""
        p = logits.float().softmax(dim=1)
        finite = torch.isfinite(logits).all()
        if loss is not None:
            finite = finite & torch.isfinite(loss)
        self.steps += 1
        self.images += len(logits)
        self.finite = self.finite.to(finite.device) & finite
        self.probability = self.probability.to(p.device) + p.sum(dim=0)
        self.last_probability, self.last_images = p.mean(dim=0), len(logits)
        if source_logits is not None:
            q = source_logits.float().softmax(dim=1)
            self.source_probability = self.source_probability.to(q.device) + q.sum(dim=0)
            confidence, source_classes = q.max(dim=1)
            self.doubts = self.doubts.to(q.device) + (1 - confidence).sum()
        if source_classes is not None:
            self.compared += len(source_classes)
            self.flips = self.flips.to(p.device) + (p.argmax(dim=1) != source_classes).sum()

    def check(self, guard: Guard, learner: Learner) -> str | None:
        """Judge the window: what is wrong, in words, or None; then start a new window."""
        trouble = self._trouble(guard, learner)
        if trouble is None:
            self._keep(learner)
        self._start_window()
        return trouble

    def _trouble(self, guard: Guard, learner: Learner) -> str | None:
        moved = drift(learner)
        if not bool(self.finite) or moved != moved or moved == float("inf"):
            return "loss, logits or parameters are not finite"
        mean = self.probability / self.images
        if self.reference == 0:  # a stream: its first window shows what is normal for the images
            self.reference = float(effective_classes(mean))
        # The window over the last batches, and the last batch alone, which varies more by chance.
        for name, probability, images, share in (
            ("the last batches", mean, self.images, guard.min_diversity),
            ("the last batch", self.last_probability, self.last_images, guard.min_diversity / 2),
        ):
            diversity = float(effective_classes(probability))
            needed = share * self._expected_classes(images)
            if diversity < needed:
                return (
                    f"predictions on {name} use {diversity:.1f} classes in effect, expected at "
                    f"least {needed:.1f}: the classes are collapsing"
                )
        if moved > guard.max_drift:
            return (
                f"the learning parameters moved by {moved:.2f} of their norm, "
                f"more than {guard.max_drift:g}"
            )
        return self._too_many_flips(guard)

    def _expected_classes(self, images: int) -> float:
        """How many classes so many images should show."""
        expected = _classes_in(images, of=self.reference)
        if self.source_probability.ndim:
            # A stream may run through one class for a while; then the source model sees that too.
            seen = effective_classes(self.source_probability / self.source_probability.sum())
            expected = min(expected, float(seen))
        return expected

    def _too_many_flips(self, guard: Guard) -> str | None:
        if self.compared < ENOUGH_COMPARED:
            return None
        flipped = float(self.flips) / self.compared
        if self.reference_flips == UNKNOWN:
            self.reference_flips = flipped
        # Where the source model is hardly confident, most of its predictions should change.
        doubted = float(self.doubts) / self.compared if self.doubted == UNKNOWN else self.doubted
        if flipped > max(self.reference_flips + guard.max_flips, doubted):
            return (
                f"{flipped:.0%} of the source model's predictions are overturned, "
                f"{self.reference_flips:.0%} at the start"
            )
        return None

    def _keep(self, learner: Learner) -> None:
        # Trouble shows late: the state before the last good check is the one to trust.
        self.older = self.newer
        self.newer = learner.snapshot(optimizer=False)

    def _start_window(self) -> None:
        kept = {"older", "newer", "reference", "reference_flips", "doubted"}
        if self.compared < ENOUGH_COMPARED:  # a stream of small batches gathers over windows
            kept |= {"flips", "doubts", "compared"}
        fresh = Watch()
        for item in fields(self):
            if item.name not in kept:
                setattr(self, item.name, getattr(fresh, item.name))

    def start(
        self,
        learner: Learner,
        *,
        reference: float = 0.0,
        flips: float = UNKNOWN,
        doubted: float = UNKNOWN,
    ) -> None:
        """Keep the state before the first step, and what is normal for these images.

        That is the diversity, the share of predictions that new statistics overturn, and the share
        that the source model doubts: one less its mean confidence.
        """
        self.reference, self.reference_flips, self.doubted = reference, flips, doubted
        self._keep(learner)
        self.older = dict(self.newer)

    def roll_back(self, learner: Learner) -> int:
        """Restore the last state that passed two checks; the step it was taken at."""
        self.newer = dict(self.older)
        learner.load_state_tensors(self.older)
        self._start_window()
        return int(self.older["learner/steps"])
