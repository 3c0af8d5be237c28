"""Answers put aside until there are enough to score."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

__all__ = ["Answers"]

_ENOUGH = 2048


class Answers:
    """Hands answers on to be scored, with the numbers of their images, many batches at a time.

    Scoring is two dozen small operations; for each small batch they would take a GPU's host longer
    than the model takes.

    >>> answers = Answers(lambda logits, rows: print(rows))
    >>> for row in range(3):
    ...     answers.add(torch.zeros(1, 2), torch.tensor([row]))
    >>> answers.flush()
    tensor([0, 1, 2])
    """

    def __init__(self, score: Callable[[Tensor, Tensor], None]) -> None:
        self._score = score
        self._images = 0
        self._logits: list[Tensor] = []
        self._rows: list[Tensor] = []

    def add(self, logits: Tensor, rows: Tensor) -> None:
        """Put the answers to a batch aside, and score what there is if that is enough."""
        self._images += len(logits)
        self._logits.append(logits)
        self._rows.append(rows)
        if self._images >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Score what there is."""
        packed = self.pack()
        self._clear()
        if packed:
            self._score(packed["logits"], packed["rows"])

    def pack(self) -> dict[str, Tensor]:
        """What was put aside, for a checkpoint: scores must not hang on when one is written."""
        if not self._images:
            return {}
        return {"logits": torch.cat(self._logits), "rows": torch.cat(self._rows)}

    def unpack(self, packed: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from a checkpoint."""
        self._clear()
        if packed:
            self.add(packed["logits"].to(device), packed["rows"].to(device))

    def _clear(self) -> None:
        self._images, self._logits, self._rows = 0, [], []
