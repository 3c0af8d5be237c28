"""Several processes, one run: each takes its share of every batch, and all learn the same.

Everything the processes exchange goes through here, over the default group of
``torch.distributed``. Without a group (or with a single process in it) every function returns
what it was given, and nothing is called. All processes must make the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = [
    "PeerError",
    "active",
    "alone",
    "gathered",
    "is_main",
    "on_main",
    "rank",
    "same",
    "share",
    "stacked",
    "sum_in_place",
    "summed",
    "together",
    "world",
]

T = TypeVar("T")
BUCKET = 2**23
"""Values that are summed at once; more would hold a second copy of a large model's gradients."""


class PeerError(AcclimateError):
    """Another process failed, and is about to say so itself."""


_alone: ContextVar[bool] = ContextVar("acclimate_alone", default=False)


def active() -> bool:
    """Whether there are other processes to work with."""
    if _alone.get() or not (dist.is_available() and dist.is_initialized()):
        return False
    return bool(dist.get_world_size() > 1)


@contextmanager
def alone() -> Iterator[None]:
    """Let this process adapt by itself, though it is in a group: each its own model, say.

    >>> with alone():
    ...     world()
    1
    """
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def rank() -> int:
    """The number of this process."""
    return dist.get_rank() if active() else 0


def world() -> int:
    """How many processes share the work."""
    return dist.get_world_size() if active() else 1


def is_main() -> bool:
    """Whether this is the process that writes files and prints."""
    return rank() == 0


def share(values: Tensor, *, of: tuple[int, int] | None = None) -> Tensor:
    """This process's part of a batch: a stretch of it, none where there are too few to go round.

    ``of`` is another process and how many there are.

    >>> share(torch.arange(3)), share(torch.arange(3), of=(1, 2))
    (tensor([0, 1, 2]), tensor([2]))
    """
    number, processes = of or (rank(), world())
    return values.tensor_split(processes)[number]


@contextmanager
def _peers() -> Iterator[None]:
    """Report that another process is gone; its own message has the reason."""
    try:
        yield
    except RuntimeError as error:
        raise AcclimateError(
            f"process {dist.get_rank()} of {dist.get_world_size()} lost contact with the others; "
            f"one of them failed, see its message ({str(error).splitlines()[0]})"
        ) from error


def summed(tensor: Tensor) -> Tensor:
    """The sum over the processes, without gradients."""
    if not active():
        return tensor
    total = tensor.detach().clone(memory_format=torch.contiguous_format)
    with _peers():
        dist.all_reduce(total)
    return total


class _Sum(torch.autograd.Function):
    """A sum every process gets: each one's gradient is the sum of what all make of it."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return summed(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return summed(gradient)


def stacked(row: Tensor) -> Tensor:
    """The rows of all processes, in order, with gradients.

    >>> stacked(torch.ones(2)).shape
    torch.Size([1, 2])
    """
    if not active():
        return row[None]
    # A sum with zeros: one call forth and one back, the same on every backend.
    empty = torch.zeros_like(row)
    padded = torch.stack([row if r == rank() else empty for r in range(world())])
    rows: Tensor = _Sum.apply(padded)  # type: ignore[no-untyped-call]
    return rows


def gathered(tensor: Tensor, *, total: int | None = None) -> Tensor:
    """All processes' rows, in order; ``total`` is how many, where they were dealt by ``share``."""
    if not active():
        return tensor
    if total is None:
        own = torch.tensor(len(tensor), device=tensor.device)
        sizes = [int(n) for n in stacked(own).tolist()]
    else:
        sizes = [len(part) for part in torch.empty(total).tensor_split(world())]
    padded = tensor.new_zeros(max(*sizes, 1), *tensor.shape[1:])
    padded[: len(tensor)] = tensor.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    with _peers():
        dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def sum_in_place(tensors: Sequence[Tensor]) -> None:
    """Put the sum over the processes in each tensor's place, many tensors in one call."""
    if not active():
        return
    bucket: list[Tensor] = []
    for tensor in tensors:
        full = sum(t.numel() for t in bucket) + tensor.numel() > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            _sum_bucket(bucket)
            bucket = []
        bucket.append(tensor)
    if bucket:
        _sum_bucket(bucket)


def _sum_bucket(bucket: list[Tensor]) -> None:
    flat = summed(torch.cat([tensor.flatten() for tensor in bucket]))
    for tensor, values in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
        tensor.copy_(values.view_as(tensor))


def _everyone(value: T) -> list[T]:
    found: list[Any] = [None] * world()
    with _peers():
        dist.all_gather_object(found, value)
    return found


@contextmanager
def together() -> Iterator[None]:
    """Let all processes fail where one does.

    Nothing inside may wait for another process.
    """
    if not active():
        yield
        return
    try:
        yield
    except Exception as error:
        _everyone(f"{type(error).__name__}: {error}")
        raise
    _raise_first(_everyone(None))


def _raise_first(failures: Sequence[str | None]) -> None:
    for number, failure in enumerate(failures):
        if failure is not None:
            raise PeerError(f"process {number} of {world()} failed: {failure}")


def on_main(work: Callable[[], T]) -> T:
    """Let the main process do the work, and give all of them its value or failure.

    >>> on_main(lambda: 3)
    3
    """
    if not active():
        return work()
    outcome: list[Any] = [None, None]
    try:
        if is_main():
            outcome[0] = work()
    except Exception as error:
        with _peers():
            dist.broadcast_object_list([None, f"{type(error).__name__}: {error}"])
        raise
    with _peers():
        dist.broadcast_object_list(outcome)
    _raise_first([outcome[1]])
    found: T = outcome[0]
    return found


def same(values: Mapping[str, Any], what: str) -> None:
    """Refuse to continue where the processes differ in ``what``; says in which of the values."""
    if not active():
        return
    first, *others = _everyone(dict(values))
    for number, other in enumerate(others, start=1):
        key = next((k for k in {**first, **other} if first.get(k) != other.get(k)), None)
        if key is not None:
            raise AcclimateError(
                f"{what}: in process 0 {key} is {first.get(key)!r}, in process {number} it is "
                f"{other.get(key)!r}"
            )
