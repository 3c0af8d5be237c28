"""Pictures that stay on the device once they came by, so that later passes read nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.data.memory import device_budget

__all__ = ["Resident"]


class Resident:
    """Room on the device for all pictures of a source, filled as they come by.

    Whether they fit shows with the first of them, which tells their shape and type; where they do
    not, nothing is kept and everything stays missing. Pictures are kept as they were read, uint8 or
    float32, so that batches are the same with and without.

    Args:
        count: how many pictures the source has.
        device: where the model is.
        room: bytes they may take; None is a third of what is free on a GPU, and nothing elsewhere,
            since sources keep what they decoded in the memory of the host themselves.

    >>> resident = Resident(3, device="cpu", room=1000)
    >>> resident.keep(torch.tensor([2, 0]), torch.tensor([[[[8.0]]], [[[6.0]]]]))
    >>> resident.missing(torch.tensor([0, 1, 2]))
    tensor([1])
    >>> resident.take(torch.tensor([0, 2])).flatten()
    tensor([6., 8.])
    """

    def __init__(self, count: int, *, device: torch.device | str, room: int | None = None) -> None:
        self._device = torch.device(device)
        self._room = device_budget(self._device, room)
        # On the CPU: the thread that reads ahead asks for it, and must not wait for the device.
        self._known = torch.zeros(count, dtype=torch.bool)
        self._pixels: Tensor | None = None  # a row a picture, as it lay in memory
        self._shape = torch.Size()  # of one picture
        self._strides: tuple[int, ...] = ()

    def missing(self, numbers: Tensor) -> Tensor:
        """Those of these numbers, on the CPU, whose pictures have to be read."""
        return numbers[~self._known[numbers]]

    def keep(self, numbers: Tensor, images: Tensor) -> None:
        """Keep pictures that are on the device, by their numbers on the CPU, if all would fit."""
        count = len(self._known)
        if not len(images) or count * images[0].nbytes > self._room:
            return
        size = images[0].numel()
        if self._pixels is None:
            self._pixels = images.new_empty((count, size))
            self._shape, self._strides = images[0].shape, torch.empty_like(images[0]).stride()
        rows = numbers.to(self._device, non_blocking=self._device.type == "cuda")
        packed = images.new_empty((len(images), size))
        self._shaped(packed).copy_(images)
        self._pixels.index_copy_(0, rows, packed)
        self._known[numbers] = True  # last: from now on nobody reads them

    def take(self, rows: Tensor) -> Tensor:
        """A copy of the pictures of these numbers, which are on the device and not missing."""
        assert self._pixels is not None
        return self._shaped(self._pixels.index_select(0, rows))

    def _shaped(self, pixels: Tensor) -> Tensor:
        # Strides count too, those of a single channel as well: a model may round otherwise.
        size = self._shape.numel()
        return pixels.as_strided((len(pixels), *self._shape), (size, *self._strides))
