"""ImageNet-D: the pictures of DomainNet that a model of ImageNet's thousand classes can answer."""

from acclimate.data.imagenet_d.mapping import (
    MappedClass,
    family,
    imagenet_d_classes,
    imagenet_d_scoring,
    label_of_output,
    left_out,
    mapping,
)

__all__ = [
    "MappedClass",
    "family",
    "imagenet_d_classes",
    "imagenet_d_scoring",
    "label_of_output",
    "left_out",
    "mapping",
]
