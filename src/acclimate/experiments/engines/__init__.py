"""Where jobs run: in this process, or in several on this machine."""

from acclimate.experiments.engines.base import Engine, OnResult, grouped
from acclimate.experiments.engines.inline import InlineEngine
from acclimate.experiments.engines.processes import ProcessEngine
from acclimate.experiments.engines.settings import WorkerSettings

__all__ = ["Engine", "InlineEngine", "OnResult", "ProcessEngine", "WorkerSettings", "grouped"]
