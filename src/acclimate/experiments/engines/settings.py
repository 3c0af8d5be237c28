"""What workers are made with, in whatever process they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acclimate.words import Score, Speed

if TYPE_CHECKING:
    from acclimate.experiments.running import Worker

__all__ = ["WorkerSettings"]


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What every worker of a sweep is made with; plain values, to be sent to other processes.

    Attributes:
        roots: where each data set lies.
        device: where to run; None is CUDA when there is one, else the CPU.
        incomplete: go on, with a note in the result, where a data set is not whole.
        cache: bytes of pictures a worker keeps in memory; None is a third of what is free.
        score: answers after all "epochs" of a run, or at its "end" alone.
        speed: as in `acclimate.adapt`; None is "auto" on a GPU and "exact" on a CPU, where "auto"
            takes what a clock finds faster, and the same job may end in other numbers.
        smallest_batch: how far batches are halved when memory runs out.
        progress: show bars on stderr.
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    incomplete: bool = False
    cache: int | None = None
    score: Score = "epochs"
    speed: Speed | None = None
    smallest_batch: int = 8
    progress: bool = False

    def worker(self) -> Worker:
        """A worker made with them, in this process."""
        from acclimate.experiments.running import Worker  # torch: only where jobs run

        return Worker(**vars(self))
