"""Top-1 and top-5 error: at once, or batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.errors import AcclimateError
from acclimate.metrics.figure import Figure, binomial_errors, figure_of
from acclimate.metrics.sums import Sums, check_shapes, known_labels, refuse, zero

__all__ = ["ErrorCounts", "top_k_error"]


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
    labelled = known.sum()
    refuse(images=len(logits), labelled=labelled, outside=outside, nan=_nan_rows(logits))
    top = (scoring or Scoring()).top(logits, k)
    _check_choices(k, top.shape[1])
    return 100 * int(_wrong(top, labels, known)) / int(labelled)


def _wrong(top: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    return ((top != labels[:, None]).all(dim=1) & known).sum()


def _nan_rows(logits: Tensor) -> Tensor:
    return logits.isnan().any(dim=1).sum()


def _check_choices(k: int, choices: int) -> None:
    if choices < k:
        raise AcclimateError(
            f"top-{k} error needs at least {k} classes to choose from, got {choices}; use k=1"
        )


@dataclass(kw_only=True)
class ErrorCounts(Sums):
    """Counts of wrong predictions, batch by batch; counts of disjoint images add up.

    Sums stay on the device of the logits, and nothing waits for the host before :meth:`error`.

    >>> first, second = ErrorCounts(), ErrorCounts()
    >>> first.update(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 0]))
    >>> second.update(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), torch.tensor([0, -1]))
    >>> print((first + second).error())
    33.3 % (3 images)
    """

    unsummed = ("answers",)
    answers: int | None = None
    """Fewest classes there were to choose from, up to 5; None before the first batch."""
    labelled: Tensor = field(default_factory=zero)
    wrong_top1: Tensor = field(default_factory=zero)
    wrong_top5: Tensor = field(default_factory=zero)
    outside: Tensor = field(default_factory=zero)
    nan: Tensor = field(default_factory=zero)

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor, *, scoring: Scoring | None = None) -> None:
        """Add a batch; images with label -1 are left out."""
        check_shapes(logits, labels)
        labels = labels.to(logits.device, non_blocking=True)
        known, outside = known_labels(labels, classes=logits.shape[1], scoring=scoring)
        top = (scoring or Scoring()).top(logits, 5)
        self.move(logits.device)
        self.merge(
            ErrorCounts(
                images=len(logits),
                answers=top.shape[1],
                labelled=known.sum(),
                wrong_top1=_wrong(top[:, :1], labels, known),
                wrong_top5=_wrong(top, labels, known),
                outside=outside,
                nan=_nan_rows(logits),
            )
        )

    @classmethod
    def of(cls, *, wrong: int, images: int) -> ErrorCounts:
        """Counts known from elsewhere: ``wrong`` of ``images``, top-1 only.

        >>> print(ErrorCounts.of(wrong=1, images=4).error())
        25.0 % (4 images)
        """
        if not 0 <= wrong <= images or images == 0:
            raise AcclimateError(f"expected 0 <= wrong <= images > 0, got {wrong} of {images}")
        labelled, wrong_top1 = torch.tensor(images), torch.tensor(wrong)
        return cls(images=images, answers=1, labelled=labelled, wrong_top1=wrong_top1)

    def merge(self, other: ErrorCounts) -> None:
        """Add the counts of other images (another process, another part of the set)."""
        both = [n for n in (self.answers, other.answers) if n is not None]
        self.answers = min(both, default=None)
        super().merge(other)

    def counts(self, k: Literal[1, 5] = 1) -> tuple[int, int]:
        """How many are wrong, and of how many; refused where that says nothing."""
        if k not in (1, 5):
            raise AcclimateError(f"expected k = 1 or 5, got {k}; top_k_error takes any k")
        refuse(images=self.images, labelled=self.labelled, outside=self.outside, nan=self.nan)
        if self.answers is not None:
            _check_choices(k, self.answers)
        return int(self.wrong_top1 if k == 1 else self.wrong_top5), int(self.labelled)

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
        return figure_of(
            100 * wrong / labelled,
            images=labelled,
            samples=lambda rng: binomial_errors(wrong, labelled, draws=draws, rng=rng),
            interval=interval,
            draws=draws,
            seed=seed,
        )
