"""The server without HTTP: a replica that predicts, a learner beside it, versions between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from acclimate.adaptation.auto import AUTO
from acclimate.data import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel
from acclimate.recipe import Recipe
from acclimate.serve.background import Background, chosen_recipe, make_background
from acclimate.serve.batching import Request
from acclimate.serve.observer import Observer
from acclimate.serve.replica import Answer, Replica, Source
from acclimate.serve.settings import Settings
from acclimate.serve.versions import Version
from acclimate.text import Speed

__all__ = ["Server"]


class Server(Replica):
    """Predicts with a model while a copy of it adapts to the images that were sent.

    Predictions are those of the plain model, image by image: what others send in the same moment
    changes nothing. Every ``settings.every`` steps of the learner its state becomes a version,
    which is written to ``folder`` and, in live mode, predicts from then on. A server that starts
    with a folder that has versions continues with the newest one. ``reference`` are images that the
    source model is known to work on (a folder, an array, ...): a version that overturns too many of
    its predictions for them is held back.

    >>> from acclimate import data, serve
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    >>> size = data.Preprocessing(size=(2, 2))
    >>> with serve.Server(net, preprocessing=size) as server:
    ...     answer = server.predict(torch.rand(5, 3, 2, 2)).result()
    >>> answer.probabilities.shape, answer.version, answer.adapted
    (torch.Size([5, 3]), 0, False)
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        recipe: str | Recipe = AUTO,
        *,
        options: Mapping[str, Any] | None = None,
        preprocessing: Preprocessing | None = None,
        folder: str | Path | None = None,
        settings: Settings | None = None,
        temperature: float | None = None,
        reference: Any = None,
        observer: Observer | None = None,
        device: str | torch.device | None = None,
        speed: Speed = "auto",
        seed: int = 0,
    ) -> None:
        settings = settings or Settings()
        source = Source.of(model, preprocessing=preprocessing, device=device)
        self.recipe = chosen_recipe(recipe, options, source.model, settings).name
        self.notes: list[str] = []
        self.background: Background | None = None
        super().__init__(source, settings, temperature=temperature, observer=observer)
        if settings.mode == "frozen":
            return
        try:
            self.background, self.notes = make_background(
                source,
                recipe,
                options=options,
                folder=folder,
                settings=settings,
                publish=self.publish,
                observer=self.observer,
                reference=reference,
                seed=seed,
                speed=speed,
            )
        except BaseException:
            super().close()
            raise

    def offer(self, requests: Sequence[Request[Answer]]) -> None:
        """Let the learner have images, while it has room for them."""
        if self.background is not None:
            for request in requests:
                self.background.offer(request.images, request.client)

    # What an operator does.

    def status(self) -> dict[str, Any]:
        """What an operator wants to see, in plain values."""
        return {
            "model": self.source.name,
            "recipe": self.recipe,
            "mode": self.settings.mode,
            "version": self.version.number,
            "candidate": self.candidate.number,
            "waiting": self.waiting,
            **(NEVER if self.background is None else self.background.status()),
        }

    def listed(self) -> list[Version]:
        """The versions that are kept, oldest first."""
        return [self.version] if self.background is None else self.background.versions.list()

    def pause(self) -> None:
        """Predict, and learn nothing until :meth:`resume`, also after a restart."""
        self._operated().pause()

    def resume(self) -> None:
        """Learn again."""
        self._operated().resume()

    def rollback(self, number: int | None = None) -> Version:
        """Go back to a version; None is the one before the newest. It becomes a new version."""
        return self._operated().rollback(number)

    def reset(self) -> Version:
        """Forget everything learnt: the source model, as a new version."""
        return self._operated().reset()

    def _operated(self) -> Background:
        if self.background is None:
            raise AcclimateError("the server is frozen: it does not learn")
        return self.background

    def close(self) -> None:
        """Refuse new requests, answer those that wait, end the learner, let the folder go."""
        super().close()
        if self.background is not None:
            self.background.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


NEVER: Mapping[str, Any] = {
    "learning": "never",
    "not_learning_because": None,
    "contained": False,
    "estimated_error": None,
    "steps": 0,
    "events": [],
}
"""What a frozen server has to report of learning."""
