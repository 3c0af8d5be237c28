"""Benchmark data sets as they are published: opened from disk, checked before any work is done."""

from __future__ import annotations

# Imported for what they register.
from acclimate.data.benchmarks import (  # noqa: F401
    cifar,
    digits,
    imagenet,
    imagenet_d,
    own_images,
    stl10,
    wilds,
)
from acclimate.data.benchmarks.mnist_m import build_mnist_m
from acclimate.data.benchmarks.registry import (
    Dataset,
    Request,
    check_classes_fit,
    check_dataset,
    find_dataset,
    list_datasets,
    missing_parts,
    open_dataset,
    register_dataset,
)

__all__ = [
    "Dataset",
    "Request",
    "build_mnist_m",
    "check_classes_fit",
    "check_dataset",
    "find_dataset",
    "list_datasets",
    "missing_parts",
    "open_dataset",
    "register_dataset",
]
