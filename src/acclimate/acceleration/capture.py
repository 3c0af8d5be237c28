"""Work on a GPU that is the same every time: recorded once as a CUDA graph, and replayed.

A step of a small network is hundreds of kernels of a few microseconds, and Python takes longer to
ask for each than the device to run it. A replay asks once.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakSet, finalize

import torch
from torch import Tensor

from acclimate.errors import AcclimateWarning

__all__ = ["Aside", "Recorder"]

Work: TypeAlias = Callable[[Tensor], tuple[Tensor, ...]]
_Kind: TypeAlias = tuple[torch.Size, torch.dtype]

_WARM_UP = 3
"""How often work is done as it is before it is recorded: optimisers make their moments, libraries
choose their kernels, and a batch size that comes once is not worth a recording."""
_AT_MOST = 4
_FREE: dict[torch.device, list[Any]] = {}
"""Streams that are used no more. Libraries keep memory to work in for each they have ever seen."""


class Recorder:
    """Does work on batches; after a few of one shape it replays a recording of it.

    The work must do the same on the device every time, and read nothing back from it. All that it
    remembers must be changed in place; where a tensor is replaced by another, make another
    recorder. Recorders that never work at one time may share an ``aside``, and with it memory.
    """

    def __init__(self, work: Work, *, aside: Aside | None = None) -> None:
        self._work = work
        self.aside = Aside() if aside is None else aside
        self._seen: Counter[_Kind] = Counter()
        self._recordings: dict[_Kind, _Recording] = {}
        self._gave_up = False

    def __call__(self, images: Tensor) -> tuple[tuple[Tensor, ...], bool]:
        """What the work gives for a batch, and whether that came from a recording alone."""
        kind = images.shape, images.dtype
        recording = self._recordings.get(kind)
        if recording is not None:
            return recording.replay(images), True
        self._seen[kind] += 1
        if self._gave_up or self._seen[kind] <= _WARM_UP or len(self._recordings) == _AT_MOST:
            return self._aside(images), False
        recording = self._record(images)
        if recording is None:
            return self._aside(images), False
        self._recordings[kind] = recording
        return recording.replay(images), False

    def _record(self, images: Tensor) -> _Recording | None:
        try:
            return _Recording(self._work, images, self.aside)
        except RuntimeError as error:
            self._gave_up = True
            # It still takes itself for part of the recording, and would refuse to draw again.
            generator = torch.cuda.default_generators[images.device.index]
            generator.graphsafe_set_state(generator.clone_state())
            warnings.warn(
                f"a step could not be recorded, so it runs as it is: {error}".splitlines()[0],
                AcclimateWarning,
                stacklevel=3,
            )
            return None

    def _aside(self, images: Tensor) -> tuple[Tensor, ...]:
        """Work on a stream of its own, as the recording will: autograd remembers streams."""
        here, stream = torch.cuda.current_stream(images.device), self.aside.stream(images.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            results = self._work(images)
        here.wait_stream(stream)
        for tensor in results:
            tensor.record_stream(here)
        images.record_stream(stream)
        return results


class Aside:
    """A stream and a pool of memory on a GPU, made when first asked for; a copy makes its own."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._pool: Any = None
        self._recordings: WeakSet[_Recording] = WeakSet()

    def __reduce__(self) -> tuple[type[Aside], tuple[()]]:
        return Aside, ()

    def stream(self, device: torch.device) -> Any:
        """The stream. Another's only where more are in use at one time than torch has (32)."""
        if self._stream is None or self._stream.device != device:
            free = _FREE.setdefault(device, [])
            try:
                self._stream = free.pop()
                torch.cuda.synchronize(device)  # what was recorded there may replay elsewhere still
            except IndexError:
                self._stream = torch.cuda.Stream(device)
            finalize(self, free.append, self._stream).atexit = False
        return self._stream

    def pool(self, recording: _Recording) -> Any:
        """The memory of recordings, for one more of them."""
        if not self._recordings:  # with its last recording a pool is closed
            self._pool = torch.cuda.graph_pool_handle()
        self._recordings.add(recording)
        return self._pool


class _Recording:
    def __init__(self, work: Work, like: Tensor, place: Aside) -> None:
        self._images = like.clone()
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(like.device)
        with torch.cuda.stream(place.stream(like.device)):
            # Another thread reads pictures ahead, and may allocate what it likes.
            self._graph.capture_begin(pool=place.pool(self), capture_error_mode="thread_local")
            try:
                self._results = work(self._images)
            finally:
                self._graph.capture_end()
        torch.cuda.synchronize(like.device)

    def replay(self, images: Tensor) -> tuple[Tensor, ...]:
        self._images.copy_(images)
        self._graph.replay()
        # The next replay writes over them.
        return tuple(tensor.clone() for tensor in self._results)
