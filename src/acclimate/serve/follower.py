"""A replica whose learner is elsewhere: it fetches versions, and sends a sample of its images."""

from __future__ import annotations

import copy
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.serve.batching import Request
from acclimate.serve.metrics import Metrics
from acclimate.serve.replica import Answer, Replica, Source
from acclimate.serve.settings import Settings
from acclimate.serve.versions import NoVersionError, Version

__all__ = ["Call", "Follower", "News", "SharedMetrics", "UnreachableError", "with_tensors"]

Call = Callable[..., Any]
"""``call(method, *arguments)`` of the learner; anything raised means that it cannot be reached."""

SYNC_SECONDS = 0.25
"""A replica asks for news this often, or sooner once it has the images that are wanted."""

SOONEST = 0.02


class UnreachableError(AcclimateError):
    """The learner is not there: it is being restarted, or started."""


@dataclass(frozen=True)
class News:
    """What a learner tells a replica: another version, if there is one, and what it wants to see.

    ``tensors`` are those that differ from the source model's; ``wanted`` is how many images to send
    with the next question.
    """

    wanted: int
    version: Version | None = None
    tensors: Mapping[str, NDArray[Any]] | None = None


def with_tensors(source: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the source model with some tensors of its state replaced."""
    model = copy.deepcopy(source)
    model.load_state_dict({**source.state_dict(), **tensors})
    return model.eval()


class Follower(Replica):
    """Predicts with the newest version of a learner in another process.

    A thread asks for news all the time: a version that differs from its own is served from the next
    batch on, whoever was restarted in between. With each question go images, a uniform sample of
    those predicted since the last, as many as the learner wants. While it cannot be reached this
    replica predicts with the version it has. Of versions come only the tensors that differ from the
    source model, so the model cannot have other layers.
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        call: Call,
        *,
        recipe: str,
        name: str | None = None,
        temperature: float | None = None,
        metrics: SharedMetrics | None = None,
    ) -> None:
        self.recipe, self.name = recipe, name or f"{os.getpid()}"
        self.reached = False
        self._call_learner, self._metrics = call, metrics
        self._sample: list[tuple[Tensor, str]] = []
        self._passed = self._wanted = 0
        self._chance = random.Random(self.name)
        self._sampling, self._syncing = threading.Lock(), threading.Lock()
        self._full, self._ending = threading.Event(), threading.Event()
        super().__init__(source, settings, temperature=temperature, observer=metrics)
        self.sync()
        self._thread = threading.Thread(target=self._follow, name="acclimate-follow", daemon=True)
        self._thread.start()

    def offer(self, requests: Sequence[Request[Answer]]) -> None:
        """Keep a uniform sample of the images since the last question."""
        with self._sampling:
            for request in requests:
                for image in request.images if self._wanted else ():
                    self._passed += 1
                    if len(self._sample) < self._wanted:
                        self._sample.append((image, request.client))
                    elif (place := self._chance.randrange(self._passed)) < self._wanted:
                        self._sample[place] = image, request.client
            if self._wanted and len(self._sample) >= self._wanted:
                self._full.set()

    def _follow(self) -> None:
        while not self._ending.is_set():
            self._full.wait(SYNC_SECONDS)
            self._full.clear()
            self.sync()
            self._ending.wait(SOONEST)

    def sync(self) -> None:
        """Ask for news, once, and serve what has come."""
        import torch

        with self._syncing:
            with self._sampling:
                sample, self._sample, self._passed = self._sample, [], 0
            images = torch.stack([image for image, _ in sample]).cpu().numpy() if sample else None
            clients = [client for _, client in sample]
            known = self.candidate
            try:
                news: News = self._call_learner(
                    "news",
                    self.name,
                    (known.number, known.created),
                    images,
                    clients,
                    None if self._metrics is None else self._metrics.families(),
                )
            except Exception:  # whatever a network may do; the next question is asked anyway
                self.reached, self._wanted = False, 0
                return
            self.reached, self._wanted = True, news.wanted
            if news.version is not None and news.tensors is not None:
                tensors = {name: torch.tensor(np.array(t)) for name, t in news.tensors.items()}
                self.publish(with_tensors(self.source.model, tensors), news.version)

    # What an operator does; the learner does it.

    def status(self) -> dict[str, Any]:
        """What an operator wants to see, in plain values."""
        try:
            learner: dict[str, Any] = self._asked("status")
        except UnreachableError as error:
            learner = {
                "learning": "no",
                "not_learning_because": str(error),
                "contained": False,
                "estimated_error": None,
                "steps": self.candidate.step,
                "events": [],
                "replicas": {},
            }
        return {
            "model": self.source.name,
            "recipe": self.recipe,
            "mode": self.settings.mode,
            "version": self.version.number,
            "candidate": self.candidate.number,
            "waiting": self.waiting,
            **learner,
        }

    def listed(self) -> list[Version]:
        """The versions that are kept, oldest first; one's own while nobody can be asked."""
        try:
            found: list[Version] = self._asked("listed")
        except UnreachableError:
            return [self.candidate]
        return found

    def pause(self) -> None:
        """Predict, and learn nothing until :meth:`resume`."""
        self._operate("pause")

    def resume(self) -> None:
        """Learn again."""
        self._operate("resume")

    def rollback(self, number: int | None = None) -> None:
        """Go back to a version; None is the one before the newest."""
        self._operate("rollback", number)

    def reset(self) -> None:
        """Forget everything learnt."""
        self._operate("reset")

    def _operate(self, action: str, *arguments: Any) -> None:
        kind, words = self._asked("operate", action, *arguments)
        if words is not None:
            raise (NoVersionError if kind == NoVersionError.__name__ else AcclimateError)(words)
        self.sync()

    def _asked(self, method: str, *arguments: Any) -> Any:
        try:
            return self._call_learner(method, *arguments)
        except Exception as error:
            raise UnreachableError(
                "the learner cannot be reached; it is restarted by itself: try again in a moment"
            ) from error

    def close(self) -> None:
        """Refuse new requests, answer those that wait, and ask no more."""
        self._ending.set()
        self._full.set()
        super().close()


class SharedMetrics(Metrics):
    """Metrics of one replica, whose text is that of all replicas and the learner."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.everyone: Callable[[], bytes] | None = None

    def families(self) -> list[Any]:
        """What was measured here, to be sent to the learner."""
        return list(self.registry.collect())

    def text(self) -> bytes:
        """What /metrics returns: of this replica alone while the learner cannot be reached."""
        if self.everyone is not None:
            try:
                return self.everyone()
            except Exception:  # as in sync
                pass
        return super().text()
