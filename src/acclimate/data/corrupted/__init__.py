"""A clean set made an ImageNet-C or CIFAR-10-C of its own on disk, in the published layouts."""

from acclimate.data.corrupted.writing import Written, check_call, choose_shifts, write_corrupted

__all__ = ["Written", "check_call", "choose_shifts", "write_corrupted"]
