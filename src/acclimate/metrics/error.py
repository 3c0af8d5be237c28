"""Top-1 and top-5 error: at once, or batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.errors import AcclimateError
from acclimate.metrics.bootstrap import binomial_errors, check_draws, percentile_interval
from acclimate.metrics.figure import Figure

__all__ = ["ErrorCounts", "check_shapes", "known_labels", "refuse", "top_k_error"]


def check_shapes(logits: Tensor, labels: Tensor) -> None:
    """Refuse what is not N × classes logits with N whole-number labels; costs no wait."""
    if logits.ndim != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise AcclimateError(
            "expected logits as floating-point numbers of shape images × classes, got "
            f"{logits.dtype} of shape {tuple(logits.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise AcclimateError(
            f"expected labels as whole numbers (class indices), got {labels.dtype}"
        )
    if labels.shape != (len(logits),):
        raise AcclimateError(
            f"expected a label for each of the {len(logits)} images, got labels of shape "
            f"{tuple(labels.shape)}; use -1 where a label is not known"
        )


def known_labels(labels: Tensor, *, classes: int, scoring: Scoring | None) -> tuple[Tensor, Tensor]:
    """Which labels count, and how many are no label at all (neither -1 nor a class)."""
    last: Tensor | int = classes - 1
    if scoring is not None and scoring.label_of is not None:
        last = scoring.label_of.to(labels.device).max()
    known = (labels >= 0) & (labels <= last)
    if scoring is not None and scoring.keep is not None and scoring.label_of is None:
        known &= torch.isin(labels, scoring.keep.to(labels.device))
    return known, ((labels != -1) & ~known).sum()


def refuse(*, images: int, labelled: int, outside: int, nan: int) -> None:
    """Refuse sums of which no figure can be made."""
    if images == 0:
        raise AcclimateError("expected predictions to score, got none; is the data set empty?")
    if outside:
        raise AcclimateError(
            "expected labels from 0 up to the last class, or -1 for unknown, got "
            f"{outside:,} others among {images:,}; are these the labels of another data set, or "
            "counted from 1?"
        )
    if nan:
        raise AcclimateError(
            f"expected numbers as logits, got NaN for {nan:,} of {images:,} images; the model "
            "has diverged: use the guard, or a smaller learning rate"
        )
    if labelled == 0:
        raise AcclimateError(
            f"expected at least one known label, got {images:,} images with label -1; an error "
            "needs labels (what needs none is in acclimate.metrics.Tally)"
        )


def top_k_error(
    logits: Tensor, labels: Tensor, *, k: int = 1, scoring: Scoring | None = None
) -> float:
    """Share in percent of images whose label is not among the ``k`` highest predictions.

    Images with label -1 (unknown) are left out.

    >>> logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    >>> top_k_error(logits, torch.tensor([0, 1, -1]))
    50.0
    >>> top_k_error(logits, torch.tensor([0, 1, -1]), k=2)
    0.0
    """
    check_shapes(logits, labels)
    if k < 1:
        raise AcclimateError(f"expected k >= 1, got {k}")
    known, outside = known_labels(labels, classes=logits.shape[1], scoring=scoring)
    labelled = int(known.sum())
    refuse(images=len(logits), labelled=labelled, outside=int(outside), nan=int(_nan_rows(logits)))
    top = (scoring or Scoring()).top(logits, k)
    if top.shape[1] < k:
        raise _too_few(k, top.shape[1])
    return 100 * int(_wrong(top, labels, known)) / labelled


def _wrong(top: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    return ((top != labels[:, None]).all(dim=1) & known).sum()


def _nan_rows(logits: Tensor) -> Tensor:
    return logits.isnan().any(dim=1).sum()


def _too_few(k: int, answers: int) -> AcclimateError:
    return AcclimateError(
        f"top-{k} error needs at least {k} classes to choose from, got {answers}; use k=1"
    )


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


@dataclass(kw_only=True)
class ErrorCounts:
    """Counts of wrong predictions, batch by batch; counts of disjoint images add up.

    Sums stay on the device of the logits, and nothing waits for the host before :meth:`error`.

    >>> first, second = ErrorCounts(), ErrorCounts()
    >>> first.update(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 0]))
    >>> second.update(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([0, -1]))
    >>> print((first + second).error())
    33.3 % (3 images)
    """

    images: int = 0
    answers: int | None = None
    """Fewest classes there were to choose from, up to 5; None before the first batch."""
    labelled: Tensor = field(default_factory=_zero)
    wrong_top1: Tensor = field(default_factory=_zero)
    wrong_top5: Tensor = field(default_factory=_zero)
    outside: Tensor = field(default_factory=_zero)
    nan: Tensor = field(default_factory=_zero)

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor, *, scoring: Scoring | None = None) -> None:
        """Add a batch; images with label -1 are left out."""
        check_shapes(logits, labels)
        labels = labels.to(logits.device, non_blocking=True)
        known, outside = known_labels(labels, classes=logits.shape[1], scoring=scoring)
        top = (scoring or Scoring()).top(logits, 5)
        batch = ErrorCounts(
            images=len(logits),
            answers=top.shape[1],
            labelled=known.sum(),
            wrong_top1=_wrong(top[:, :1], labels, known),
            wrong_top5=_wrong(top, labels, known),
            outside=outside,
            nan=_nan_rows(logits),
        )
        if self.labelled.device != logits.device:
            self._move(logits.device)
        self.merge(batch)

    @classmethod
    def of(cls, *, wrong: int, images: int) -> ErrorCounts:
        """Counts known from elsewhere: ``wrong`` of ``images``, top-1 only.

        >>> print(ErrorCounts.of(wrong=1, images=4).error())
        25.0 % (4 images)
        """
        if not 0 <= wrong <= images or images == 0:
            raise AcclimateError(f"expected 0 <= wrong <= images > 0, got {wrong} of {images}")
        return cls(
            images=images,
            answers=1,
            labelled=torch.tensor(images),
            wrong_top1=torch.tensor(wrong),
        )

    def _move(self, device: torch.device) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                setattr(self, f.name, value.to(device))

    def merge(self, other: ErrorCounts) -> None:
        """Add the counts of other images (another process, another part of the set)."""
        self.images += other.images
        both = [n for n in (self.answers, other.answers) if n is not None]
        self.answers = min(both, default=None)
        for name in ("labelled", "wrong_top1", "wrong_top5", "outside", "nan"):
            mine: Tensor = getattr(self, name)
            setattr(self, name, mine + getattr(other, name).to(mine.device))

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        total = ErrorCounts()
        total._move(self.labelled.device)
        total.merge(self)
        total.merge(other)
        return total

    def counts(self, k: Literal[1, 5] = 1) -> tuple[int, int]:
        """How many are wrong, and of how many; refused where that says nothing."""
        if k not in (1, 5):
            raise AcclimateError(f"expected k = 1 or 5, got {k}; top_k_error takes any k")
        labelled = int(self.labelled)
        refuse(images=self.images, labelled=labelled, outside=int(self.outside), nan=int(self.nan))
        if self.answers is not None and self.answers < k:
            raise _too_few(k, self.answers)
        return int(self.wrong_top1 if k == 1 else self.wrong_top5), labelled

    def error(
        self,
        k: Literal[1, 5] = 1,
        *,
        interval: float | None = None,
        draws: int = 1000,
        seed: int = 0,
    ) -> Figure:
        """The top-``k`` error in percent, with a bootstrap interval of that level if given.

        >>> print(ErrorCounts.of(wrong=1234, images=10_000).error(interval=0.95))
        12.3 % (10,000 images, 95 % CI 11.7 to 13.0)
        """
        wrong, labelled = self.counts(k)
        value = 100 * wrong / labelled
        if interval is None:
            return Figure(value=value, images=labelled)
        check_draws(level=interval, draws=draws)
        samples = binomial_errors(wrong, labelled, draws=draws, rng=np.random.default_rng(seed))
        low, high = percentile_interval(samples, level=interval)
        return Figure(value=value, images=labelled, low=low, high=high, level=interval)
