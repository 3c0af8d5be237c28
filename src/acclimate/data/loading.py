"""From a source to model input on the device, read ahead while the model works."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from acclimate.data.base import ImageSource
from acclimate.data.memory import device_budget
from acclimate.errors import AcclimateError

__all__ = ["Batch", "Resident", "batch_count", "batches", "epoch_order"]


class Resident:
    """Room on the device for all images of a source, filled as they come by.

    Whether they fit is known with the first of them, which has their shape and type; where they
    do not, nothing is kept and everything stays missing. Images are kept as they were read, uint8
    or float32, so that batches are the same with and without.

    Args:
        count: how many images the source has.
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
        self._pixels: Tensor | None = None  # a row an image, as it lay in memory
        self._shape = torch.Size()  # of one image
        self._strides: tuple[int, ...] = ()

    def missing(self, indices: Tensor) -> Tensor:
        """Those of these indices, on the CPU, whose images have to be read."""
        return indices[~self._known[indices]]

    def keep(self, indices: Tensor, images: Tensor) -> None:
        """Keep images that are on the device, by their indices on the CPU, if all would fit."""
        count = len(self._known)
        if not len(images) or count * images[0].nbytes > self._room:
            return
        size = images[0].numel()
        if self._pixels is None:
            self._pixels = images.new_empty((count, size))
            self._shape, self._strides = images[0].shape, torch.empty_like(images[0]).stride()
        rows = indices.to(self._device, non_blocking=self._device.type == "cuda")
        packed = images.new_empty((len(images), size))
        self._shaped(packed).copy_(images)
        self._pixels.index_copy_(0, rows, packed)
        self._known[indices] = True  # last: from now on they are not read again

    def take(self, rows: Tensor) -> Tensor:
        """A copy of the images at these indices, which are on the device and not missing."""
        assert self._pixels is not None
        return self._shaped(self._pixels.index_select(0, rows))

    def _shaped(self, pixels: Tensor) -> Tensor:
        # Strides count too, those of a single channel as well: a model may round in another way.
        size = self._shape.numel()
        return pixels.as_strided((len(pixels), *self._shape), (size, *self._strides))


Part: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Images as the model takes them, on the device, and their indices, on the CPU.

    Where only a part of a batch is read, the indices are still those of the whole batch. ``rows``
    are the same indices on the device, to choose from what lies there without waiting for it.
    """

    images: Tensor
    indices: Tensor
    rows: Tensor


@dataclass(frozen=True)
class _Read:
    """Where in the order a batch lies, what had to be read of it, and its images, if any."""

    place: slice
    indices: Tensor
    images: Tensor | None


def batch_count(n: int, batch_size: int) -> int:
    """How many batches ``n`` images make.

    One image has no batch statistics, so a single one left over joins the batch before it.

    >>> batch_count(64, 32), batch_count(65, 32), batch_count(66, 32), batch_count(1, 32)
    (2, 2, 3, 1)
    """
    if batch_size < 1:
        raise AcclimateError(f"expected batch_size >= 1, got {batch_size}")
    full, rest = divmod(n, batch_size)
    return full + (rest > 1 or (rest == 1 and full == 0))


def epoch_order(n: int, *, seed: int, epoch: int) -> Tensor:
    """The order of images in an epoch. It depends on seed and epoch alone: nothing to save.

    >>> torch.equal(epoch_order(9, seed=0, epoch=3), epoch_order(9, seed=0, epoch=3))
    True
    """
    # Hashed rather than added, or epoch 1 of seed 0 would be epoch 0 of seed 1.
    mixed = hashlib.blake2b(f"{seed}/{epoch}".encode(), digest_size=7).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(mixed, "little"))
    return torch.randperm(n, generator=generator)


def batches(
    source: ImageSource,
    *,
    batch_size: int,
    order: Tensor | None = None,
    device: torch.device | str = "cpu",
    start: int = 0,
    prefetch: int = 2,
    part: Part | None = None,
    resident: Resident | None = None,
) -> Iterator[Batch]:
    """Batches of model input, float32 on ``device``.

    Args:
        source: where the images come from.
        batch_size: images in a batch; a single one left over joins the last batch.
        order: the indices of the images, in the order to read them; None is from the first on.
        device: where the model is. Images travel as uint8 and are normalised there.
        start: the first batch to yield, to resume a run.
        prefetch: how many batches are read ahead by a thread; 0 reads without one.
        part: which of a batch's indices to read, where other processes read the rest; maybe none.
            Called once for the indices on the CPU, and once for those on the device.
        resident: what stays on the device from pass to pass: images it has are not read again.
    """
    order = torch.arange(len(source)) if order is None else order.cpu()
    count = batch_count(len(order), batch_size)
    if start < 0 or prefetch < 0:
        raise AcclimateError(f"expected start and prefetch >= 0, got {start} and {prefetch}")
    if len(order) and not 0 <= int(order.min()) <= int(order.max()) < len(source):
        raise AcclimateError(
            f"expected indices from 0 to {len(source) - 1} as order, got {int(order.min())} to "
            f"{int(order.max())}"
        )
    if resident is not None and not len(resident.missing(order)):
        prefetch = 0  # nothing to read: no thread is needed
    there = torch.device(device)
    on_gpu = there.type == "cuda"

    def read() -> Generator[_Read, None, None]:
        for batch in range(start, count):
            end = (batch + 1) * batch_size if batch < count - 1 else len(order)
            place = slice(batch * batch_size, end)
            wanted = order[place] if part is None else part(order[place])
            indices = wanted if resident is None else resident.missing(wanted)
            if len(wanted) and not len(indices):
                yield _Read(place, indices, None)
                continue
            # An empty batch needs a shape too: one image is read for it, and left out.
            images = source.read(indices if len(indices) else order[place][:1])[: len(indices)]
            if on_gpu:  # a copy from pinned memory does not wait for the device
                indices, images = indices.pin_memory(), images.pin_memory()
            yield _Read(place, indices, images)

    def ready() -> Iterator[Batch]:
        order_there = order.to(there)  # once: with every batch it would wait for the device
        ahead = _read_ahead(read(), prefetch) if prefetch else read()
        with closing(ahead):  # stops the thread when the batches are not all wanted
            for each in ahead:
                rows = order_there[each.place]
                wanted, images = rows if part is None else part(rows), each.images
                if images is not None:
                    images = images.to(there, non_blocking=on_gpu)
                    if resident is not None:
                        resident.keep(each.indices, images)
                if images is None or len(images) < len(wanted):
                    assert resident is not None
                    images = resident.take(wanted)
                if source.preprocessing is not None:
                    images = source.preprocessing.normalize(images)
                yield Batch(images, order[each.place], rows)

    return ready()


def _read_ahead(items: Generator[_Read, None, None], depth: int) -> Generator[_Read, None, None]:
    """The same items, read by a thread that is at most ``depth`` ahead."""
    results: queue.Queue[_Read | BaseException | None] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def work() -> None:
        try:
            for item in items:
                results.put(item)
                if stop.is_set():
                    return
            results.put(None)
        except BaseException as error:  # to be raised where the batches are used
            results.put(error)

    thread = threading.Thread(target=work, name="acclimate-read-ahead", daemon=True)
    thread.start()
    try:
        while (result := results.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        # Once stop is set the thread puts one thing more at most; emptying makes room for it.
        stop.set()
        while not results.empty():
            results.get_nowait()
        thread.join()
