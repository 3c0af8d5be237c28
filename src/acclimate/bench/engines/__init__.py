"""Where jobs run: in this process, or in several on this machine."""

from acclimate.bench.engines.base import Engine, WorkerSettings
from acclimate.bench.engines.processes import InlineEngine, ProcessEngine

__all__ = ["Engine", "InlineEngine", "ProcessEngine", "WorkerSettings"]
