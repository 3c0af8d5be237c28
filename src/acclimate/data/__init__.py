"""Where pictures come from: folders, arrays, data sets; their labels; batches of model input."""

from acclimate.data.base import ImageSource, Skipped
from acclimate.data.benchmarks import find_dataset, list_datasets, open_dataset
from acclimate.data.corrupted import write_corrupted
from acclimate.data.corruptions import corrupt
from acclimate.data.labels import ClassList, match_classes
from acclimate.data.loading import Batch, batch_count, batches, epoch_order
from acclimate.data.opening import open_images
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shift import Shift, ShiftedSource

__all__ = [
    "Batch",
    "ClassList",
    "ImageSource",
    "Preprocessing",
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
