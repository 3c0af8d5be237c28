"""Work on a GPU that is the same every time: captured once as a CUDA graph, and replayed.

A step of a small network is hundreds of kernels of a few microseconds, and Python takes longer to
launch each than the device to run it. A replay launches all at once.
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

__all__ = ["GraphMemory", "GraphedWork"]

Work: TypeAlias = Callable[[Tensor], tuple[Tensor, ...]]
_Kind: TypeAlias = tuple[torch.Size, torch.dtype]

_WARM_UP = 3
"""How often work is run before it is captured: optimisers make their moments, libraries
choose their kernels, and a batch size that comes once is not worth a graph."""
_AT_MOST = 4
_FREE: dict[torch.device, list[Any]] = {}
"""Streams that are used no more. Libraries keep memory to work in for each they have ever seen."""


class GraphedWork:
    """Does work on batches; after a few of one shape it replays a captured graph of it.

    The work must do the same on the device every time, and read nothing back from it. All that it
    remembers must be changed in place; where a tensor is replaced by another, make another
    ``GraphedWork``. Those that never run at one time may share their ``memory``.
    """

    def __init__(self, work: Work, *, memory: GraphMemory | None = None) -> None:
        self._work = work
        self.memory = GraphMemory() if memory is None else memory
        self._seen: Counter[_Kind] = Counter()
        self._graphs: dict[_Kind, _Graph] = {}
        self._gave_up = False

    def __call__(self, images: Tensor) -> tuple[tuple[Tensor, ...], bool]:
        """What the work gives for a batch, and whether that came from a replay alone."""
        kind = images.shape, images.dtype
        graph = self._graphs.get(kind)
        if graph is not None:
            return graph.replay(images), True
        self._seen[kind] += 1
        if self._gave_up or self._seen[kind] <= _WARM_UP or len(self._graphs) == _AT_MOST:
            return self._run(images), False
        graph = self._capture(images)
        if graph is None:
            return self._run(images), False
        self._graphs[kind] = graph
        return graph.replay(images), False

    def _capture(self, images: Tensor) -> _Graph | None:
        try:
            return _Graph(self._work, images, self.memory)
        except RuntimeError as error:
            self._gave_up = True
            # It still takes itself for part of the graph, and would refuse to draw again.
            generator = torch.cuda.default_generators[images.device.index]
            generator.graphsafe_set_state(generator.clone_state())
            warnings.warn(
                f"a step could not be captured, so it runs without a graph: {error}".splitlines()[
                    0
                ],
                AcclimateWarning,
                stacklevel=3,
            )
            return None

    def _run(self, images: Tensor) -> tuple[Tensor, ...]:
        """Work on a stream of its own, as the capture will: autograd remembers streams."""
        here, stream = torch.cuda.current_stream(images.device), self.memory.stream(images.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            results = self._work(images)
        here.wait_stream(stream)
        for tensor in results:
            tensor.record_stream(here)
        images.record_stream(stream)
        return results


class GraphMemory:
    """A stream and a pool of memory on a GPU, made when first used; a copy makes its own."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._pool: Any = None
        self._graphs: WeakSet[_Graph] = WeakSet()

    def __reduce__(self) -> tuple[type[GraphMemory], tuple[()]]:
        return GraphMemory, ()

    def stream(self, device: torch.device) -> Any:
        """The stream. Another's only where more are in use at one time than torch has (32)."""
        if self._stream is None or self._stream.device != device:
            free = _FREE.setdefault(device, [])
            try:
                self._stream = free.pop()
                torch.cuda.synchronize(device)  # what was captured there may still be replayed
            except IndexError:
                self._stream = torch.cuda.Stream(device)
            finalize(self, free.append, self._stream).atexit = False
        return self._stream

    def pool(self, graph: _Graph) -> Any:
        """The memory of all graphs, for one more of them."""
        if not self._graphs:  # with its last graph a pool is closed
            self._pool = torch.cuda.graph_pool_handle()
        self._graphs.add(graph)
        return self._pool


class _Graph:
    def __init__(self, work: Work, like: Tensor, place: GraphMemory) -> None:
        self._images = like.clone()
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(like.device)
        with torch.cuda.stream(place.stream(like.device)):
            # Another thread reads images ahead, and may allocate what it likes.
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
