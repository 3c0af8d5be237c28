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
from acclimate.errors import AcclimateError

__all__ = ["Batch", "batch_count", "batches", "epoch_order"]

Part: TypeAlias = Callable[[Tensor], Tensor]
_Batches: TypeAlias = "Generator[Batch, None, None]"


@dataclass(frozen=True)
class Batch:
    """Pictures as the model takes them, on the device, and their numbers, on the CPU.

    Where only a part of a batch is read, the numbers are still those of the whole batch.
    """

    images: Tensor
    indices: Tensor


def batch_count(n: int, batch_size: int) -> int:
    """How many batches ``n`` pictures make.

    One picture has no batch statistics, so a single one left over joins the batch before it.

    >>> batch_count(64, 32), batch_count(65, 32), batch_count(66, 32), batch_count(1, 32)
    (2, 2, 3, 1)
    """
    if batch_size < 1:
        raise AcclimateError(f"expected batch_size >= 1, got {batch_size}")
    full, rest = divmod(n, batch_size)
    return full + (rest > 1 or (rest == 1 and full == 0))


def epoch_order(n: int, *, seed: int, epoch: int) -> Tensor:
    """The order of pictures in an epoch. It hangs on seed and epoch alone: nothing to save.

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
) -> Iterator[Batch]:
    """Batches of model input, float32 on ``device``.

    Args:
        source: where the pictures come from.
        batch_size: pictures in a batch; a single one left over joins the last batch.
        order: the numbers of the pictures, in the order to read them; None is as they come.
        device: where the model is. Pictures travel as uint8 and are normalised there.
        start: the first batch to yield, to go on where a run was stopped.
        prefetch: how many batches are read ahead by a thread; 0 reads without one.
        part: which of a batch's numbers to read, where others read the rest; maybe none of them.
    """
    order = torch.arange(len(source)) if order is None else order.cpu()
    count = batch_count(len(order), batch_size)
    if start < 0 or prefetch < 0:
        raise AcclimateError(f"expected start and prefetch >= 0, got {start} and {prefetch}")
    if len(order) and not 0 <= int(order.min()) <= int(order.max()) < len(source):
        raise AcclimateError(f"expected an order of numbers below {len(source)}")
    chunks = _chunks(order, batch_size, count, start)
    return _ready(source, chunks, torch.device(device), prefetch, part)


def _chunks(order: Tensor, batch_size: int, count: int, start: int) -> Iterator[Tensor]:
    for number in range(start, count):
        end = (number + 1) * batch_size if number < count - 1 else len(order)
        yield order[number * batch_size : end]


def _ready(
    source: ImageSource,
    chunks: Iterator[Tensor],
    device: torch.device,
    prefetch: int,
    part: Part | None,
) -> Iterator[Batch]:
    pin = device.type == "cuda"
    raw = _read(source, chunks, part, pin=pin)
    ahead = _read_ahead(raw, prefetch) if prefetch else raw
    with closing(ahead):  # stops the thread when the batches are not all wanted
        for batch in ahead:
            images = batch.images.to(device, non_blocking=pin)
            if source.preprocessing is not None:
                images = source.preprocessing.normalize(images)
            yield Batch(images, batch.indices)


def _read(
    source: ImageSource, chunks: Iterator[Tensor], part: Part | None, *, pin: bool
) -> _Batches:
    for indices in chunks:
        wanted = indices if part is None else part(indices)
        # No picture has no shape: one is read for it, and left out.
        images = source.read(wanted) if len(wanted) else source.read(indices[:1])[:0]
        yield Batch(images.pin_memory() if pin else images, indices)


def _read_ahead(items: _Batches, depth: int) -> _Batches:
    """The same items, made by a thread that is at most ``depth`` ahead."""
    results: queue.Queue[Batch | BaseException | None] = queue.Queue(maxsize=depth)
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
