"""The thread in which a server learns, and what an operator does with it."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.adaptation.auto import AUTO
from acclimate.checkpoint import fingerprint
from acclimate.data import batches, open_images
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard, drift
from acclimate.guard.history import Event
from acclimate.methods.registry import get_recipe
from acclimate.models.layers import batch_norm_layers
from acclimate.recipe import Recipe
from acclimate.serve.learning import Learning
from acclimate.serve.observer import Observer, StepReport
from acclimate.serve.replica import Source
from acclimate.serve.settings import Settings
from acclimate.serve.versions import Cause, Version, Versions
from acclimate.stream import Stream
from acclimate.text import Speed

__all__ = ["Background", "chosen_recipe", "make_background"]

MOST_REFERENCE = 256
"""So many of the reference images are looked at."""


class Background:
    """Learns in a thread of its own from images that are offered, and never makes anyone wait.

    Images are taken while there is room; of one client at most ``client_share`` of a learning step.
    After each step the thread rests, so that it works for ``learn_share`` of the time at most.
    """

    def __init__(self, learning: Learning, settings: Settings, *, observer: Observer) -> None:
        self.learning, self.observer = learning, observer
        self.paused = learning.versions.paused
        self.failure: str | None = None
        self.batch = learning.stream.learner.batch_size
        self._share = settings.learn_share
        self._most_of_one = max(1, math.floor(settings.client_share * self.batch))
        self._offered: list[tuple[Tensor, str]] = []
        self._clients: Counter[str] = Counter()
        self._operating = threading.Lock()
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="acclimate-learner", daemon=True)
        self._thread.start()

    @property
    def versions(self) -> Versions:
        """All that are kept."""
        return self.learning.versions

    @property
    def learns(self) -> bool:
        """Whether it will learn from the next images."""
        return not (self.paused or self.failure or self.learning.stream.paused)

    @property
    def room(self) -> int:
        """How many images it would take now."""
        return self.batch - len(self._offered) if self.learns else 0

    def offer(self, images: Tensor, client: str) -> None:
        """Images that may be learnt from."""
        if not self.learns or self._closing.is_set():
            return
        with self._changed:
            room = min(self.batch - len(self._offered), self._most_of_one - self._clients[client])
            taken = max(0, min(room, len(images)))
            self._offered += [(image, client) for image in images[:taken]]
            self._clients[client] += taken
            if len(self._offered) >= self.batch:
                self._changed.notify_all()
        if taken < len(images):
            self.observer.on_dropped(len(images) - taken)

    def _look(self) -> None:
        """Remember what others may ask for while a step changes it."""
        self._contained = self.learning.stream.contained
        self._estimate = self.learning.stream.estimated_error

    # What an operator does.

    def pause(self) -> None:
        """Learn nothing until :meth:`resume`, from the end of the step at work on."""
        with self._operating:
            self.paused = True
            with self._turn, self._changed:
                self._forget()
            self.versions.remember_paused(True)

    def resume(self) -> None:
        """Learn again, also where the guard had stopped it."""
        with self._operating:
            with self._turn:
                self.learning.stream.resume()
            self.paused, self.failure = False, None
            self.versions.remember_paused(False)

    def rollback(self, number: int | None = None) -> Version:
        """Go back to a version; None is the one before the newest. It becomes a new version."""
        with self._operating:
            if number is None:
                earlier = [version.number for version in self.versions.list()][:-1]
                if not earlier:
                    raise AcclimateError("there is no version before this one")
                number = earlier[-1]
            return self._restore(number, cause="rollback")

    def reset(self) -> Version:
        """Forget everything learnt: the source model, as a new version."""
        with self._operating:
            return self._restore(0, cause="reset")

    def _restore(self, number: int, *, cause: Cause) -> Version:
        """Go back to a version, after the step at work."""
        with self._turn:
            version = self.learning.restore(number, cause=cause)
            self._look()
            with self._changed:
                self._forget()
        return version

    def status(self) -> dict[str, Any]:
        """What an operator wants to see, in plain values."""
        stream, why = self.learning.stream, None
        if not self.learns:
            stopped = "stopped by the guard: resume or roll back"
            why = self.failure or ("paused" if self.paused else stopped)
        return {
            "learning": "yes" if self.learns else "no",
            "not_learning_because": why,
            "contained": self._contained,
            "estimated_error": None if self._estimate is None else str(self._estimate),
            "steps": stream.learner.steps,
            "events": [str(event) for event in stream.events[-10:]],
        }

    def close(self) -> None:
        """End after the step at work; what was learnt since the last version is lost."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        self.versions.close()

    def _forget(self) -> None:
        self._offered.clear()
        self._clients.clear()

    def _run(self) -> None:
        while (images := self._next()) is not None:
            began = time.perf_counter()
            try:
                with self._turn:
                    if not self.learns:
                        continue
                    self.learning.step(images)
                    self._look()
                    report = StepReport(
                        images=len(images),
                        seconds=time.perf_counter() - began,
                        drift=drift(self.learning.stream.learner),
                        estimate=self._estimate,
                        contained=self._contained,
                    )
            except Exception as error:  # predicting goes on with the version there is
                self.failure = f"{type(error).__name__}: {error}"
                step = self.learning.stream.learner.steps
                self.observer.on_event(
                    Event(step=step, trouble=self.failure, action="stopped learning")
                )
                continue
            self.observer.on_step(report)
            self._closing.wait(report.seconds * (1 - self._share) / self._share)

    def _next(self) -> Tensor | None:
        with self._changed:
            while len(self._offered) < self.batch and not self._closing.is_set():
                self._changed.wait()
            if self._closing.is_set():
                return None
            images = torch.stack([image for image, _ in self._offered])
            self._forget()
        return images


def chosen_recipe(
    recipe: str | Recipe, options: Mapping[str, Any] | None, model: nn.Module, settings: Settings
) -> Recipe:
    """The recipe, ``auto`` being that of a stream; refused where it cannot be served.

    >>> chosen_recipe("auto", None, nn.Linear(2, 3), Settings()).name
    'rpl'
    """
    if recipe == AUTO:
        recipe = "ent" if batch_norm_layers(model) else "rpl"
    chosen = get_recipe(recipe, options)
    if settings.mode == "frozen":
        return chosen
    if not chosen.exports:
        raise AcclimateError(
            f"recipe {chosen.name!r} cannot be served: its predictions depend on the other "
            "images of a batch or are learnt anew for each, which no plain model makes; "
            "choose another (ent, rpl, eata), or --mode frozen"
        )
    if not chosen.steps and not chosen.normalization.adapts:
        raise AcclimateError(
            f"recipe {chosen.name!r} learns nothing; choose another (ent), or --mode frozen"
        )
    return chosen


def make_background(
    source: Source,
    recipe: str | Recipe,
    *,
    options: Mapping[str, Any] | None,
    folder: str | Path | None,
    settings: Settings,
    publish: Callable[[nn.Module, Version], None],
    observer: Observer,
    reference: Any = None,
    seed: int = 0,
    speed: Speed = "auto",
) -> tuple[Background, list[str]]:
    """A learner that continues with the newest version in ``folder``, and notes on its recipe."""
    chosen = chosen_recipe(recipe, options, source.model, settings)
    shown = None if reference is None else _reference(reference, source)
    versions = Versions(
        folder,
        identity={
            "model": source.name,
            "weights": fingerprint(source.model.state_dict()),
            "recipe": {k: v for k, v in chosen.to_dict().items() if k != "summary"},
            "learn_batch": settings.learn_batch or chosen.batch_size,
        },
        keep=settings.keep,
    )
    try:
        stream = Stream(
            source.loaded,
            # By its name where it has one: a stream chooses rates for named recipes.
            chosen.name if recipe == AUTO else recipe,
            options=options,
            batch_size=settings.learn_batch,
            guard=Guard(max_drift=settings.max_drift, check_every=min(10, settings.every)),
            speed=speed,
            seed=seed,
        )
        learning = Learning(
            stream,
            versions,
            source=source.model,
            every=settings.every,
            publish=publish,
            observer=observer,
            reference=shown,
        )
    except BaseException:
        versions.close()
        raise
    notes = list(stream.notes)
    if recipe == AUTO:
        kind = "has" if chosen.name == "ent" else "has no"
        notes.insert(0, f"auto: {chosen.name}, since the model {kind} batch norm")
    return Background(learning, settings, observer=observer), notes


def _reference(images: Any, source: Source) -> Tensor:
    """Some of the reference images, as model input."""
    opened = open_images(images, preprocessing=source.preprocessing, progress=False)
    order = torch.randperm(len(opened), generator=torch.Generator().manual_seed(0))
    first = batches(
        opened, batch_size=MOST_REFERENCE, order=order[:MOST_REFERENCE], device=source.device
    )
    return next(iter(first)).images.to(source.dtype)
