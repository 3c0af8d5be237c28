"""Images of one's own as a data set: a folder, arrays or shards."""

from __future__ import annotations

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.data.files import find_images
from acclimate.data.labels import BY_INDEX
from acclimate.data.opening import open_images
from acclimate.errors import AcclimateError

__all__ = ["FOLDER"]

FOLDER = "folder"


def _open(request: Request) -> ImageSource:
    return open_images(
        request.root,
        preprocessing=request.preprocessing,
        labels=BY_INDEX,  # what is scored has labels, and numbers are what is left
        classes=request.classes,
        cache=request.cache,
        progress=request.progress,
    )


def _check(request: Request) -> None:
    root = request.root
    if root.is_dir():
        find_images(root)
    elif not root.exists() and not set("{*") & set(root.name):
        raise AcclimateError(f"no such folder or file: {root}; check its path")


register_dataset(
    Dataset(
        name=FOLDER,
        title="images of your own: a folder, an array or shards",
        classes=None,
        images="as many as there are",
        size="nothing",
        get="Any folder of images; labels are the names of its sub-folders.",
        layout="CLASS/any-name.jpg\nor the images as .npz, .npy, or .tar shards",
        open=_open,
        check=_check,
    )
)
