"""A clean set made an ImageNet-C or CIFAR-10-C of its own on disk, in the published layouts."""

from acclimate.data.corrupted.choice import choose_shifts
from acclimate.data.corrupted.writing import Written, write_corrupted

__all__ = ["Written", "choose_shifts", "write_corrupted"]
