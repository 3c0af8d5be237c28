"""A forest of regression trees: numbers in, a number and how far the trees disagree out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Forest"]

_LEAF = -1


@dataclass(frozen=True, kw_only=True)
class Forest:
    """Trees as arrays of their nodes, which are asked by the ``names`` of what they look at.

    A node looks at the number ``names[feature]``: up to ``threshold`` it leads to the next node,
    else to the one ``right`` nodes on. Where ``feature`` is -1 the tree ends in ``value``. Trees
    start at their ``roots``.

    >>> stump = Forest(names=("x",), feature=np.array([0, -1, -1]), threshold=np.array([0.5, 0, 0]),
    ...                right=np.array([2, 0, 0]), value=np.array([0.0, 1.0, 3.0]),
    ...                roots=np.array([0]))
    >>> stump.predict({"x": 0.2}), stump.predict({"x": 0.7})
    ((1.0, 0.0), (3.0, 0.0))
    """

    names: tuple[str, ...]
    feature: np.ndarray
    threshold: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray

    def predict(self, numbers: Mapping[str, float]) -> tuple[float, float]:
        """The mean over the trees, and their standard deviation."""
        x = np.array([numbers[name] for name in self.names], dtype=np.float32)
        at = self.roots
        while True:
            inner = self.feature[at] != _LEAF
            if not inner.any():
                break
            below = x[self.feature[at]] <= self.threshold[at]
            at = np.where(inner, at + np.where(below, 1, self.right[at]), at)
        found = self.value[at].astype(np.float64)
        return float(found.mean()), float(found.std())

    def arrays(self, prefix: str) -> Iterator[tuple[str, np.ndarray]]:
        """By name, to be stored."""
        for name in _ARRAYS:
            yield f"{prefix}/{name}", np.asarray(getattr(self, name))

    @classmethod
    def read(cls, stored: Mapping[str, np.ndarray], prefix: str) -> Forest:
        """From what was stored with :meth:`arrays`."""
        arrays = {name: stored[f"{prefix}/{name}"] for name in _ARRAYS}
        return cls(names=tuple(map(str, arrays.pop("names"))), **arrays)


_ARRAYS = ("names", "feature", "threshold", "right", "value", "roots")
