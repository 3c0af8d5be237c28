"""The mean over images of a term of the loss."""

from __future__ import annotations

from torch import Tensor

from acclimate import parallel
from acclimate.errors import AcclimateError

__all__ = ["mean_term"]


def mean_term(term: Tensor, weights: Tensor | None, counting: Tensor | None, images: int) -> Tensor:
    """Mean over the images that count; a scalar term is taken as it is.

    Of several processes each has its part of the mean; the parts add up.

    >>> import torch
    >>> mean_term(torch.tensor([1.0, 3.0]), None, None, 2)
    tensor(2.)
    """
    if term.ndim == 0:
        if parallel.active():
            raise AcclimateError(
                "a part of the recipe returns a single number as its loss, which cannot be shared "
                "out over processes; return one value per image, or adapt in one process"
            )
        return term
    if weights is not None:
        assert counting is not None
        return (term * weights).sum() / counting
    return term.sum() / images if parallel.active() else term.mean()
