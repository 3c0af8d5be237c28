"""Benchmark data sets as they are published: opened from disk, checked before any work is done."""

from __future__ import annotations

# Imported for what they register.
from acclimate.data.benchmarks import (
    cifar,
    digits,
    domainnet,
    imagenet,
    imagenet_c,
    imagenet_variants,
    mnist_m,
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
    "cifar",
    "digits",
    "domainnet",
    "find_dataset",
    "imagenet",
    "imagenet_c",
    "imagenet_variants",
    "list_datasets",
    "missing_parts",
    "mnist_m",
    "open_dataset",
    "register_dataset",
    "stl10",
    "wilds",
]
