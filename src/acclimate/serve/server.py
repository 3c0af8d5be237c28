"""The server without HTTP: a replica that answers, a learner beside it, versions between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from acclimate.checkpoint import fingerprint
from acclimate.data import Preprocessing, batches, open_images
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.methods.registry import get_recipe
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import choose_device, copy_model, floating_dtype
from acclimate.models.outputs import checked_logits, logits_of
from acclimate.recipe import Recipe
from acclimate.serve.batching import Batcher, Request, joined
from acclimate.serve.learning import Background, Learning
from acclimate.serve.observer import Observer
from acclimate.serve.settings import Settings
from acclimate.serve.versions import Version, Versions, now
from acclimate.stream import Stream
from acclimate.text import Speed

__all__ = ["Answer", "Server"]

MOST_REFERENCE = 256
"""So many of the reference images are looked at."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The probabilities of the images of one request, and which model they are of.

    ``adapted`` is whether anything but the source model gave them.
    """

    probabilities: Tensor
    version: int
    adapted: bool


class _Serving(NamedTuple):
    """A model and the version it is; replaced as one, so that no batch mixes two."""

    model: nn.Module
    version: Version


class Server:
    """Answers with a model while a copy of it adapts to the images that were sent.

    Answers come from the plain model, image by image: what others send in the same moment changes
    nothing. Every ``settings.every`` steps of the learner its state becomes a version, which is
    written to ``folder`` and, in live mode, answers from then on. A server that starts with a
    folder that has versions continues with the newest one. ``reference`` are images that the source
    model is known to work on (a folder, an array, ...): a version that overturns too many of its
    predictions for them is held back.

    >>> from acclimate import data, serve
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    >>> size = data.Preprocessing(size=(2, 2))
    >>> with serve.Server(net, "ent", preprocessing=size) as server:
    ...     answer = server.predict(torch.rand(5, 3, 2, 2)).result()
    >>> answer.probabilities.shape, answer.version, answer.adapted
    (torch.Size([5, 3]), 0, False)
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        recipe: str | Recipe = "ent",
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
        loaded = as_loaded(model, preprocessing)
        if loaded.preprocessing is None:
            raise AcclimateError(
                f"{loaded.name} has no record of its preprocessing; add --size 224 --resize 256 "
                "--mean ... --std ... (preprocessing=Preprocessing(...))"
            )
        if temperature is not None and not temperature > 0:
            raise AcclimateError(f"expected a temperature > 0, got {temperature:g}")
        chosen = get_recipe(recipe, options)
        self.settings = settings or Settings()
        self.observer = observer or Observer()
        self.name, self.classes = loaded.name, loaded.classes
        self.preprocessing, self.temperature = loaded.preprocessing, temperature
        self.recipe = chosen.name
        self.notes: list[str] = []
        self.device = choose_device(device)
        self._source = copy_model(loaded.model).to(self.device).eval()
        example = torch.zeros(1, *self.preprocessing.shape, device=self.device)
        self._dtype = floating_dtype(self._source)
        self.class_count = checked_logits(self._source, example.to(self._dtype)).shape[1]
        self._refuse(chosen)
        start = Version(number=0, cause="start", created=now())
        self._serving = self._candidate = _Serving(self._source, start)
        self._lock = threading.Lock()
        self._closed = False
        self.background: Background | None = None
        self.versions = Versions(
            None if self.settings.mode == "frozen" else folder,
            identity={
                "model": loaded.name,
                "weights": fingerprint(self._source.state_dict()),
                "recipe": {k: v for k, v in chosen.to_dict().items() if k != "summary"},
                "learn_batch": self.settings.learn_batch or chosen.batch_size,
            },
            keep=self.settings.keep,
        )
        try:
            if self.settings.mode != "frozen":
                self.background = self._learner(
                    loaded,
                    recipe,
                    options,
                    reference=self._reference(reference),
                    seed=seed,
                    speed=speed,
                )
        except BaseException:
            self.versions.close()
            raise
        self._batcher: Batcher[Answer] = Batcher(
            self._answer,
            batch_size=self.settings.batch_size,
            wait_ms=self.settings.wait_ms,
            queue=self.settings.queue,
        )

    def _refuse(self, recipe: Recipe) -> None:
        if self.settings.mode == "frozen":
            return
        if not recipe.exports:
            raise AcclimateError(
                f"recipe {recipe.name!r} cannot be served: its predictions depend on the other "
                "images of a batch or are learnt anew for each, which no plain model makes; "
                "choose another (ent, rpl, eata), or --mode frozen"
            )
        if not recipe.steps and not recipe.normalization.adapts:
            raise AcclimateError(
                f"recipe {recipe.name!r} learns nothing; choose another (ent), or --mode frozen"
            )

    def _reference(self, images: Any) -> Tensor | None:
        """Some of the reference images, as model input."""
        if images is None:
            return None
        source = open_images(images, preprocessing=self.preprocessing, progress=False)
        some = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))
        return next(
            iter(
                batches(
                    source,
                    batch_size=MOST_REFERENCE,
                    order=some[:MOST_REFERENCE],
                    device=self.device,
                )
            )
        ).images.to(self._dtype)

    def _learner(
        self,
        loaded: LoadedModel,
        recipe: str | Recipe,
        options: Mapping[str, Any] | None,
        *,
        reference: Tensor | None,
        seed: int,
        speed: Speed,
    ) -> Background:
        settings = self.settings
        own = LoadedModel(
            name=loaded.name,
            model=self._source,
            preprocessing=self.preprocessing,
            classes=self.classes,
        )
        stream = Stream(
            own,
            recipe,
            options=options,
            batch_size=settings.learn_batch,
            guard=Guard(max_drift=settings.max_drift, check_every=min(10, settings.every)),
            speed=speed,
            seed=seed,
        )
        self.notes += stream.notes
        learning = Learning(
            stream,
            self.versions,
            source=self._source,
            every=settings.every,
            publish=self._publish,
            observer=self.observer,
            reference=reference,
        )
        return Background(
            learning,
            batch=stream.learner.batch_size,
            share=settings.learn_share,
            client_share=settings.client_share,
            observer=self.observer,
            paused=self.versions.paused,
        )

    def _publish(self, model: nn.Module, version: Version) -> None:
        """Let a version answer from the next batch on, or in shadow mode only be known."""
        self._candidate = _Serving(model, version)
        if self.settings.mode == "live":
            self._serving = self._candidate
        self.observer.on_version(version)

    # Answering.

    def predict(self, images: Tensor, *, client: str = "") -> Future[Answer]:
        """Queue images, as model input (float, N×C×H×W); the future has their answer.

        Raises:
            FullError: when too many images wait already.
            ClosedError: when the server is shutting down.
        """
        shape = self.preprocessing.shape
        if images.ndim != 4 or images.shape[1:] != shape or not len(images):
            raise AcclimateError(
                f"expected images as N×{'×'.join(map(str, shape))}, got "
                f"{'×'.join(map(str, images.shape))}"
            )
        return self._batcher.submit(images, client=client)

    @torch.inference_mode()
    def _answer(self, requests: Sequence[Request[Answer]]) -> list[Answer]:
        began = time.perf_counter()
        serving = self._serving
        images = joined(requests).to(self.device, self._dtype)
        logits = logits_of(serving.model(images)).float()
        broken = ~torch.isfinite(logits).all(dim=1)
        adapted = serving.version.adapted
        if adapted and bool(broken.any()):
            logits[broken] = logits_of(self._source(images[broken])).float()
        probabilities = (logits / (self.temperature or 1.0)).softmax(dim=1).cpu()
        parts = probabilities.split([len(request.images) for request in requests])
        self.observer.on_batch(
            images=len(images), requests=len(requests), seconds=time.perf_counter() - began
        )
        if self.background is not None:
            for request in requests:
                self.background.offer(request.images, request.client)
        number = serving.version.number
        return [Answer(probabilities=part, version=number, adapted=adapted) for part in parts]

    # What an operator does.

    @property
    def version(self) -> Version:
        """The version that answers."""
        return self._serving.version

    @property
    def candidate(self) -> Version:
        """The newest version; in shadow mode it does not answer."""
        return self._candidate.version

    @property
    def waiting(self) -> int:
        """How many images wait."""
        return self._batcher.waiting

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self._closed

    def status(self) -> dict[str, Any]:
        """What an operator wants to see, in plain values."""
        background = self.background
        stream = None if background is None else background.learning.stream
        learning = "never" if background is None else "yes" if background.learns else "no"
        why = None
        if background is not None and stream is not None and not background.learns:
            why = background.failure or (
                "paused" if background.paused else "stopped by the guard: resume or roll back"
            )
        return {
            "model": self.name,
            "recipe": self.recipe,
            "mode": self.settings.mode,
            "version": self.version.number,
            "candidate": self.candidate.number,
            "learning": learning,
            "not_learning_because": why,
            "steps": 0 if stream is None else stream.learner.steps,
            "events": [] if stream is None else [str(event) for event in stream.events[-10:]],
            "waiting": self.waiting,
        }

    def pause(self) -> None:
        """Answer, and learn nothing until :meth:`resume`, also after a restart."""
        with self._lock:
            self._operated().pause()
            self.versions.remember_paused(True)

    def resume(self) -> None:
        """Learn again."""
        with self._lock:
            self._operated().resume()
            self.versions.remember_paused(False)

    def rollback(self, number: int | None = None) -> Version:
        """Go back to a version; None is the one before the newest. It becomes a new version."""
        with self._lock:
            background = self._operated()
            if number is None:
                earlier = [v.number for v in self.versions.list()][:-1]
                if not earlier:
                    raise AcclimateError("there is no version before this one")
                number = earlier[-1]
            return background.restore(number, cause="rollback")

    def reset(self) -> Version:
        """Forget everything learnt: the source model, as a new version."""
        with self._lock:
            return self._operated().restore(0, cause="reset")

    def _operated(self) -> Background:
        if self.background is None:
            raise AcclimateError("the server is frozen: it does not learn")
        return self.background

    def close(self) -> None:
        """Refuse new requests, answer those that wait, end the learner, let the folder go."""
        self._closed = True
        self._batcher.close()
        if self.background is not None:
            self.background.close()
        self.versions.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
