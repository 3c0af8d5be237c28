"""What a model predicts on images whose classes are not quite its own (ImageNet-D, Appendix D).

Throughout, ``predictions`` are numbers of the model's outputs, ``label_of`` the label each output
counts as (-1 for none) and ``labels`` those of the images (-1 where unknown). Errors and shares
are in percent; every result says over how many images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = [
    "Confusion",
    "Confusions",
    "Control",
    "FilteredError",
    "MostPredicted",
    "UnmappableShare",
    "confusion_matrix",
    "confusions",
    "filtered_error",
    "imagenet_control",
    "most_predicted",
    "unmappable_share",
]


@dataclass(frozen=True)
class UnmappableShare:
    """The share of images, in percent, whose prediction counts as no label."""

    percent: float
    images: int


@dataclass(frozen=True)
class FilteredError:
    """Error over the images whose prediction counts as some label; None if there is none.

    ``rejected`` is the share of the labelled ``images``, in percent, that were filtered out.
    """

    error: float | None
    rejected: float
    kept: int
    images: int


@dataclass(frozen=True)
class PredictedClass:
    """An output, how often it was predicted, and whether it counts as a label of the data set."""

    output: int
    name: str
    count: int
    percent: float
    mapped: bool | None


@dataclass(frozen=True)
class MostPredicted:
    """The outputs predicted most often, out of ``images`` predictions."""

    classes: tuple[PredictedClass, ...]
    images: int


@dataclass(frozen=True)
class Control:
    """The same map on the model's own validation set, to see what the choice of classes does.

    Attributes:
        plain_error: over all images, outputs against outputs.
        mapped_labels: over the images whose label the map knows; a prediction it does not know is
            wrong (the paper's 12.1).
        mapped_predictions: over the images whose prediction the map knows; a label it does not
            know makes the image wrong (the paper's 13.4).
        mapped_both: over the images whose label and prediction it knows.
    """

    plain_error: float
    mapped_labels: FilteredError
    mapped_predictions: FilteredError
    mapped_both: FilteredError
    images: int


@dataclass(frozen=True)
class Confusion:
    """Images of ``label`` predicted as ``answer``; ``percent`` is of the images of ``label``."""

    label: str
    answer: str
    count: int
    percent: float


@dataclass(frozen=True)
class Confusions:
    """The check of a label map on images much like the model's own (the Real domain).

    Attributes:
        pairs: the most frequent mistakes among the classes, most frequent first.
        off_diagonal: classes that some other class is predicted for at least as often as they are
            themselves. On the Real domain this points at a mistake in the map.
        unmappable: images whose prediction is no class at all; they are in no pair.
        images: labelled images.
    """

    pairs: tuple[Confusion, ...]
    off_diagonal: tuple[str, ...]
    unmappable: int
    images: int


def unmappable_share(predictions: Tensor, label_of: Tensor) -> UnmappableShare:
    """How many predictions are none of the data set's classes.

    >>> unmappable_share(torch.tensor([0, 1, 1, 2]), torch.tensor([0, -1, 1]))
    UnmappableShare(percent=50.0, images=4)
    """
    mapped = _mapped(predictions, label_of)
    return UnmappableShare(100 * float((mapped < 0).double().mean()), images=len(mapped))


def filtered_error(predictions: Tensor, labels: Tensor, label_of: Tensor) -> FilteredError:
    """The error over the images whose prediction is one of the data set's classes at all.

    >>> label_of = torch.tensor([0, -1, 1])
    >>> filtered_error(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 0, 1]), label_of)
    FilteredError(error=33.33..., rejected=25.0, kept=3, images=4)
    """
    mapped, labels = _mapped(predictions, label_of), _check_pairs(predictions, labels)
    known = labels >= 0
    return _error(mapped[known] != labels[known], keep=mapped[known] >= 0)


def imagenet_control(predictions: Tensor, labels: Tensor, label_of: Tensor) -> Control:
    """Score a model's own validation set through the map; ``labels`` are outputs here.

    >>> label_of = torch.tensor([0, 0, 1, -1])
    >>> control = imagenet_control(
    ...     torch.tensor([0, 0, 3, 2]), torch.tensor([0, 1, 2, 3]), label_of
    ... )
    >>> control.plain_error, round(control.mapped_labels.error, 1), control.mapped_both.error
    (75.0, 33.3, 0.0)
    """
    mapped = _mapped(predictions, label_of)
    truth = _mapped(_check_pairs(predictions, labels), label_of, what="labels")
    wrong = mapped != truth  # images the map knows neither side of are in none of the errors
    plain = predictions.cpu() != labels.cpu()
    return Control(
        plain_error=100 * float(plain.double().mean()),
        mapped_labels=_error(wrong, keep=truth >= 0),
        mapped_predictions=_error(wrong, keep=mapped >= 0),
        mapped_both=_error(wrong, keep=(truth >= 0) & (mapped >= 0)),
        images=len(mapped),
    )


def most_predicted(
    predictions: Tensor, names: Sequence[str], k: int = 10, *, label_of: Tensor | None = None
) -> MostPredicted:
    """The ``k`` outputs predicted most often (ties: the lower number first).

    >>> top = most_predicted(torch.tensor([2, 0, 2]), ["cat", "dog", "comic book"], 1)
    >>> top.classes[0].name, top.classes[0].count, top.images
    ('comic book', 2, 3)
    """
    _check_k(k)
    outputs = torch.arange(len(names)) if label_of is None else label_of.cpu()
    if len(outputs) != len(names):
        raise AcclimateError(
            f"expected a name for each of the {len(outputs)} outputs, got {len(names)} names"
        )
    _mapped(predictions, outputs)
    counts = torch.bincount(predictions.cpu().long(), minlength=len(names)).tolist()
    order = sorted(range(len(names)), key=lambda output: -counts[output])[:k]
    return MostPredicted(
        classes=tuple(
            PredictedClass(
                output=output,
                name=names[output],
                count=counts[output],
                percent=100 * counts[output] / len(predictions),
                mapped=None if label_of is None else bool(outputs[output] >= 0),
            )
            for output in order
            if counts[output] > 0
        ),
        images=len(predictions),
    )


def confusions(
    predictions: Tensor, labels: Tensor, label_of: Tensor, names: Sequence[str], *, k: int = 10
) -> Confusions:
    """Which classes are taken for which, ``names`` being those of the labels.

    >>> found = confusions(
    ...     torch.tensor([0, 1, 2, 3]),
    ...     torch.tensor([0, 1, 1, 1]),
    ...     torch.tensor([0, 0, 1, -1]),
    ...     ["cup", "mug"],
    ... )
    >>> found.pairs
    (Confusion(label='mug', answer='cup', count=1, percent=33.33...),)
    >>> found.off_diagonal, found.unmappable
    (('mug',), 1)
    """
    _check_k(k)
    counts = confusion_matrix(predictions, labels, label_of, classes=len(names))
    of_label, own = counts.sum(dim=1).tolist(), counts.diagonal().tolist()
    others = counts[:, :-1].clone().fill_diagonal_(0)
    order = others.flatten().sort(descending=True, stable=True).indices[:k].tolist()
    cells = [(*divmod(place, len(names)), int(others.flatten()[place])) for place in order]
    most = others.amax(1).tolist()
    return Confusions(
        pairs=tuple(
            Confusion(names[row], names[column], count, 100 * count / of_label[row])
            for row, column, count in cells
            if count > 0
        ),
        off_diagonal=tuple(
            name for i, name in enumerate(names) if of_label[i] > 0 and own[i] <= most[i]
        ),
        unmappable=int(counts[:, -1].sum()),
        images=int(counts.sum()),
    )


def confusion_matrix(
    predictions: Tensor, labels: Tensor, label_of: Tensor, *, classes: int
) -> Tensor:
    """Counts of labels (rows) by predictions (columns), the last column for those that are none.

    >>> label_of = torch.tensor([0, 1, -1])
    >>> confusion_matrix(torch.tensor([0, 2]), torch.tensor([0, 1]), label_of, classes=2)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    mapped, labels = _mapped(predictions, label_of), _check_pairs(predictions, labels)
    highest = max(int(label_of.max()), int(labels.max()))
    if highest >= classes:
        raise AcclimateError(
            f"expected labels below {classes}, one for each class, got up to {highest}"
        )
    known = labels >= 0
    columns = torch.where(mapped < 0, classes, mapped)[known]
    cells = labels[known] * (classes + 1) + columns
    return torch.bincount(cells, minlength=classes * (classes + 1)).view(classes, classes + 1)


_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _mapped(predictions: Tensor, label_of: Tensor, *, what: str = "predictions") -> Tensor:
    """The label each prediction counts as, on the CPU, once the two fit each other."""
    if predictions.ndim != 1 or len(predictions) == 0 or predictions.dtype not in _WHOLE:
        raise AcclimateError(
            f"expected {what} as a flat tensor of class numbers, at least one, got "
            f"{predictions.dtype} of shape {tuple(predictions.shape)}; take the argmax of logits"
        )
    low, high = int(predictions.min()), int(predictions.max())
    if low < 0 or high >= len(label_of):
        raise AcclimateError(
            f"expected {what} from 0 to {len(label_of) - 1}, got {low} to {high}; give numbers of "
            "the model's outputs, not labels they were mapped to"
        )
    return label_of.cpu()[predictions.cpu().long()]


def _check_pairs(predictions: Tensor, labels: Tensor) -> Tensor:
    """The labels on the CPU, once there is one per prediction."""
    if labels.ndim != 1 or len(labels) != len(predictions) or labels.dtype not in _WHOLE:
        raise AcclimateError(
            f"expected one class number as label for each of the {len(predictions)} predictions, "
            f"got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    return labels.cpu().long()


def _check_k(k: int) -> None:
    if k < 1:
        raise AcclimateError(f"expected k >= 1, got {k}")


def _error(wrong: Tensor, *, keep: Tensor) -> FilteredError:
    images, kept = len(wrong), int(keep.sum())
    return FilteredError(
        error=100 * int((wrong & keep).sum()) / kept if kept else None,
        rejected=100 * (images - kept) / images if images else 0.0,
        kept=kept,
        images=images,
    )
