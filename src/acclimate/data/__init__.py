"""Where pictures come from: folders, arrays, data sets; their labels; batches of model input."""

from acclimate.data.base import ImageSource, Skipped
from acclimate.data.corruptions import corrupt
from acclimate.data.labels import ClassList, match_classes
from acclimate.data.loading import Batch, batch_count, batches, epoch_order
from acclimate.data.opening import open_images
from acclimate.data.preprocessing import Preprocessing

__all__ = [
    "Batch",
    "ClassList",
    "ImageSource",
    "Preprocessing",
    "Skipped",
    "batch_count",
    "batches",
    "corrupt",
    "epoch_order",
    "match_classes",
    "open_images",
]
