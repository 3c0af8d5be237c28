"""Scores of predictions that need no labels, from the literature on unsupervised selection."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["effective_classes", "information_maximization", "nuclear_norm_score"]


def effective_classes(mean_probability: Tensor) -> Tensor:
    """exp of the entropy of the average prediction: how many classes are in use, evenly counted.

    >>> effective_classes(torch.tensor([0.5, 0.5, 0.0]))
    tensor(2.)
    """
    entropy: Tensor = torch.special.entr(mean_probability).sum()
    return entropy.exp()


def information_maximization(*, diversity: float, entropy: float) -> float:
    """H(mean p) - mean H(p), the mutual information of image and class: sure *and* diverse.

    >>> information_maximization(diversity=math.e, entropy=0.0)
    1.0
    """
    return math.log(max(diversity, 1e-12)) - entropy


def nuclear_norm_score(gram: Tensor, images: int) -> float:
    """Nuclear norm of the N × C predictions P from PᵀP, over its upper bound √(N · min(N, C)).

    >>> p = torch.eye(2).repeat(3, 1)
    >>> round(nuclear_norm_score((p.T @ p).double(), images=6), 6)
    1.0
    """
    if images == 0 or not bool(torch.isfinite(gram).all()):
        return 0.0
    eigenvalues = torch.linalg.eigvalsh(gram.double().cpu()).clamp_min(0)
    bound = math.sqrt(images * min(images, gram.shape[0]))
    return float(eigenvalues.sqrt().sum()) / bound
