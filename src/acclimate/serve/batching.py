"""Micro-batching: single requests wait a few milliseconds for others, and are answered together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["Batcher", "ClosedError", "FullError", "Request"]

T = TypeVar("T")


class FullError(AcclimateError):
    """The queue is full: try again later."""


class ClosedError(AcclimateError):
    """The server is shutting down."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request(Generic[T]):
    """Images that wait for their answer, and who sent them."""

    images: Tensor
    client: str
    future: Future[T] = field(default_factory=Future)


class Batcher(Generic[T]):
    """Answers requests in batches, in a thread of its own.

    A batch is closed when it has ``batch_size`` images, or when its first request has waited for
    ``wait_ms``. More than ``queue`` waiting images are refused with :class:`FullError`. ``answer``
    gets the requests of a batch and returns a result for each of them.

    >>> batcher = Batcher(lambda requests: [len(r.images) for r in requests], batch_size=8)
    >>> batcher.submit(torch.zeros(3, 1, 2, 2)).result()
    3
    >>> batcher.close()
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Request[T]]], Sequence[T]],
        *,
        batch_size: int,
        wait_ms: float = 5.0,
        queue: int = 256,
    ) -> None:
        self._answer = answer
        self._batch_size, self._wait, self._most = batch_size, wait_ms / 1000, queue
        self._waiting: deque[tuple[float, Request[T]]] = deque()
        self._images = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="acclimate-answers", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many images wait."""
        return self._images

    def submit(self, images: Tensor, *, client: str = "") -> Future[T]:
        """Queue the images of one request."""
        request: Request[T] = Request(images=images, client=client)
        with self._changed:
            if self._closed:
                raise ClosedError("the server is shutting down; send the request to another one")
            if self._images + len(images) > self._most:
                raise FullError(
                    f"the queue is full: {self._images} images wait, and at most {self._most} may; "
                    "try again in a moment"
                )
            self._waiting.append((time.monotonic(), request))
            self._images += len(images)
            self._changed.notify_all()
        return request.future

    def close(self, timeout: float | None = None) -> None:
        """Refuse new requests, answer those that wait, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _run(self) -> None:
        while batch := self._next():
            try:
                results = self._answer(batch)
                for request, result in zip(batch, results, strict=True):
                    request.future.set_result(result)
            except BaseException as error:
                for request in batch:
                    if not request.future.done():
                        request.future.set_exception(error)

    def _next(self) -> list[Request[T]]:
        """The next batch, none once closed and empty; requests that were given up are left out."""
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return []
                until = self._waiting[0][0] + self._wait
                while self._images < self._batch_size and not self._closed:
                    left = until - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        break
                batch = self._take()
                if batch:
                    return batch

    def _take(self) -> list[Request[T]]:
        batch: list[Request[T]] = []
        images = 0
        while self._waiting:
            request = self._waiting[0][1]
            if batch and images + len(request.images) > self._batch_size:
                break
            self._waiting.popleft()
            self._images -= len(request.images)
            if request.future.set_running_or_notify_cancel():
                batch.append(request)
                images += len(request.images)
        return batch


def joined(requests: Sequence[Request[T]]) -> Tensor:
    """The images of all requests.

    >>> joined([Request(images=torch.zeros(2, 1), client="a")]).shape
    torch.Size([2, 1])
    """
    return torch.cat([request.images for request in requests])
