"""Where images come from: folders, arrays, data sets; their labels; batches of model input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used

if TYPE_CHECKING:
    from acclimate.data.base import ImageSource, Skipped
    from acclimate.data.benchmarks import find_dataset, list_datasets, open_dataset
    from acclimate.data.corrupted import write_corrupted
    from acclimate.data.corruptions import corrupt
    from acclimate.data.labels import ClassList, Scoring, match_classes
    from acclimate.data.loading import Batch, batch_count, batches, epoch_order
    from acclimate.data.opening import open_images
    from acclimate.data.preprocessing import Preprocessing
    from acclimate.data.shift import Shift
    from acclimate.data.shifted import ShiftedSource

# Names of corruptions are read by tables of results, which wait for no torch.
_NAMES = {
    "base": "ImageSource Skipped",
    "benchmarks": "find_dataset list_datasets open_dataset",
    "corrupted": "write_corrupted",
    "corruptions": "corrupt",
    "labels": "ClassList Scoring match_classes",
    "loading": "Batch batch_count batches epoch_order",
    "opening": "open_images",
    "preprocessing": "Preprocessing",
    "shift": "Shift",
    "shifted": "ShiftedSource",
}

__all__ = [
    "Batch",
    "ClassList",
    "ImageSource",
    "Preprocessing",
    "Scoring",
    "Shift",
    "ShiftedSource",
    "Skipped",
    "batch_count",
    "batches",
    "corrupt",
    "epoch_order",
    "find_dataset",
    "list_datasets",
    "match_classes",
    "open_dataset",
    "open_images",
    "write_corrupted",
]

# So that acclimate.data.benchmarks.build_mnist_m works as typed, after `import acclimate`.
__getattr__, __dir__ = imported_when_used(
    __name__,
    {name: module for module, names in _NAMES.items() for name in names.split()},
    modules=("benchmarks", "corruptions"),
)
