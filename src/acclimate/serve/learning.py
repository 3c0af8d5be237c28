"""What a server learns: a stream, and the versions of the plain model made of it."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from acclimate.callbacks import Callback
from acclimate.guard.evidence import VIEWS, summarise
from acclimate.guard.guard import drift
from acclimate.guard.history import Event
from acclimate.learner.state import under
from acclimate.metrics.scores import effective_classes
from acclimate.models.outputs import logits_of
from acclimate.serve.observer import Observer
from acclimate.serve.versions import Cause, Version, Versions, now
from acclimate.stream import Stream

__all__ = ["Learning"]

RECENT = 256
"""So many of the images learnt from give a version its statistics, and show what it changes."""

FIRST = 64
"""So many of the first images learnt from are remembered: a version must not collapse on them."""

_STREAM, _PLAIN = "stream/", "plain/"


class _Events(Callback):
    """Passes on what the guard saw; a stream with callbacks does not warn."""

    def __init__(self, record: Callable[[Event], None]) -> None:
        self._record = record

    def on_event(self, event: Event) -> None:
        self._record(event)


@dataclass(frozen=True)
class Candidate:
    """A plain model made of what the stream learnt, and what is known of it."""

    model: nn.Module
    statistics_shift: float | None
    changed: float | None
    objection: str | None
    temperature: float | None


class Learning:
    """A stream that learns from batches, and makes a version of the plain model every few steps.

    A version is made only where the guard has just looked at the stream and found nothing, and its
    own predictions are finite and not collapsing on recent images, nor on the first ones that came:
    statistics of noise would be right for noise alone. On ``reference`` images, which the source
    model is known to work on, it may overturn at most ``guard.max_flips`` of the predictions. While
    the stream lets the unadapted model predict, since adapting is estimated to do harm, version 0
    is served.
    ``publish`` is called with a version. Not for several threads.
    """

    def __init__(
        self,
        stream: Stream,
        versions: Versions,
        *,
        source: nn.Module,
        every: int,
        publish: Callable[[nn.Module, Version], None],
        observer: Observer,
        reference: Tensor | None = None,
    ) -> None:
        self.reference = reference
        self.stream, self.versions, self.source = stream, versions, source
        self.every, self.publish, self.observer = every, publish, observer
        stream.callbacks = (*stream.callbacks, _Events(self.record))
        self.images = 0
        self._since = 0
        self._recent: deque[Tensor] = deque()
        self._first: list[Tensor] = []
        self._start()

    def _start(self) -> None:
        """Serve the newest version that can be read, or write version 0."""
        while (newest := self.versions.newest) is not None:
            try:
                model = self._load(newest.number)
            except Exception as error:  # whatever a damaged file may hold
                self.versions.forget(newest.number)
                trouble = f"version {newest.number}: {error}"
                self.record(Event(step=0, trouble=trouble, action="left out"))
                continue
            self.images = newest.images
            self.publish(model, newest)
            return
        self._add(self.plain().model, cause="start")

    def step(self, images: Tensor) -> None:
        """Learn from a batch of model input; a version where one is due, or the guard went back."""
        before, seen = self.stream.learner.steps, self.stream.event_count
        self.stream(images)
        self.images += len(images)
        self._since += 1
        self._recent.append(images)
        if (room := FIRST - sum(map(len, self._first))) > 0:
            self._first.append(images[:room])
        while len(self._recent) > 1 and sum(map(len, self._recent)) > RECENT:
            self._recent.popleft()
        if self.stream.contained:
            self._since = 0
            if (newest := self.versions.newest) is not None and newest.adapted:
                self._fall_back(str(self.stream.events[-1]), self.versions.check(0))
        elif self.stream.event_count > seen:
            self._since = 0
            step = self.stream.learner.steps
            if step <= before:
                good = [v for v in self.versions.list() if v.step <= step]
                of = good[-1] if good else self.versions.check(0)
                self._fall_back(str(self.stream.events[-1]), of)
        elif self._since >= self.every and self.stream.checked:
            self.make_version()

    def make_version(self) -> bool:
        """Publish what was learnt, unless there is an objection to it."""
        self._since = 0
        candidate = self.plain()
        if candidate.objection is not None:
            step, action = self.stream.learner.steps, "held the version back"
            self.record(Event(step=step, trouble=candidate.objection, action=action))
            return False
        self._add(
            candidate.model,
            cause="learning",
            statistics_shift=candidate.statistics_shift,
            changed=candidate.changed,
            temperature=candidate.temperature,
        )
        return True

    def record(self, event: Event) -> None:
        """Report and log what the guard saw."""
        self.versions.log("event", **asdict(event))
        self.observer.on_event(event)

    def restore(self, number: int, *, cause: Cause) -> Version:
        """Go back to a version: stream and server continue from it."""
        of = self.versions.check(number)
        model = self._load(number)
        self.images = of.images
        self._since = 0
        self._recent.clear()
        return self._add(model, cause=cause, of=of)

    @torch.no_grad()
    def plain(self) -> Candidate:
        """The plain model of what the stream has learnt, with statistics of recent images."""
        learner = copy.deepcopy(self.stream.learner)
        statistics, recent = learner.statistics, list(self._recent)
        normalization, shift = learner.recipe.normalization, None
        if recent and normalization.adapts and statistics.layers:
            pool = statistics.pool()
            try:
                for batch in recent:
                    learner.predict(batch)
            finally:
                pool.close()
            distances = statistics.distances(pool)
            shift = sum(distances) / len(distances) if distances else None
            statistics.write(pool, weight=normalization.export_weight(learner.batch_size))
        model = learner.release().eval()
        changed, objection = None, None
        for name, images in (
            ("recent", recent),
            ("the first", self._first),
            ("the reference", [] if self.reference is None else [self.reference]),
        ):
            if images:
                share, trouble = self._compare(model, torch.cat(images), name=name)
                changed = share if name == "recent" else changed
                objection = objection or trouble
        temperature = self._temperature(model, torch.cat(recent)) if recent else None
        return Candidate(model, shift, changed, objection, temperature)

    def _temperature(self, model: nn.Module, images: Tensor) -> float | None:
        """At which the mean confidence on recent images is what the estimated error leaves."""
        estimate = self.stream.estimated_error
        if estimate is None:
            return None
        logits = logits_of(model(images.to(next(model.parameters(), images).device)))
        evidence = summarise(logits, dict.fromkeys(VIEWS, logits))
        return evidence.temperature(1 - estimate.after.value / 100)

    def _compare(
        self, model: nn.Module, images: Tensor, *, name: str
    ) -> tuple[float | None, str | None]:
        """Which share of some images is predicted otherwise, and what speaks against a model."""
        images = images.to(next(model.parameters(), images).device)
        own, source = (
            logits_of(each(images)).float().softmax(dim=1) for each in (model, self.source)
        )
        if not bool(torch.isfinite(own).all()):
            return None, f"its predictions for {name} images are not finite"
        classes, before = own.argmax(dim=1), source.argmax(dim=1)
        changed = float((classes != before).double().mean())
        guard = self.stream.guard
        if not guard.acts:
            return changed, None
        used, needed = (
            float(effective_classes(each.bincount().double() / len(each)))
            for each in (classes, before)
        )
        needed *= guard.min_diversity
        if used < needed:
            return changed, (
                f"its predictions for {len(images)} of {name} images use {used:.1f} classes in "
                f"effect, expected at least {needed:.1f}: the classes are collapsing"
            )
        if name == "the reference" and changed > guard.max_flips:
            return changed, (
                f"{changed:.0%} of the predictions for the reference images are overturned, "
                f"expected at most {guard.max_flips:.0%}"
            )
        return changed, None

    def _fall_back(self, reason: str, of: Version) -> None:
        """The guard took the stream back: the server must not be ahead of it."""
        self._recent.clear()  # what it went wrong on gives no statistics
        self._add(self._model(of.number), cause="guard", of=of, reason=reason)

    def _add(
        self,
        model: nn.Module,
        *,
        cause: Cause,
        of: Version | None = None,
        statistics_shift: float | None = None,
        changed: float | None = None,
        temperature: float | None = None,
        reason: str | None = None,
    ) -> Version:
        """Write a version, new or ``of`` an earlier one again, and serve it."""
        if of is not None:
            statistics_shift, changed = of.statistics_shift, of.changed
            temperature = of.temperature
        estimate = self.stream.estimated_error
        source = self.source.state_dict()
        own = {
            name: tensor
            for name, tensor in model.state_dict().items()
            if isinstance(tensor, Tensor)
            and (name not in source or not torch.equal(tensor, source[name]))
        }
        version = Version(
            number=self.versions.next_number,
            cause=cause,
            created=now(),
            step=self.stream.learner.steps,
            images=self.images,
            drift=_plain_number(drift(self.stream.learner)),
            statistics_shift=statistics_shift,
            changed=changed,
            error_before=None if estimate is None else estimate.before.value,
            error_after=None if estimate is None else estimate.after.value,
            temperature=temperature,
            adapted=bool(own),
            restored_from=None if of is None else of.number,
            reason=reason,
        )
        state = self.stream.get_extra_state()
        self.versions.add(
            version,
            {f"{_STREAM}{k}": v for k, v in state.items()}
            | {f"{_PLAIN}{k}": v for k, v in own.items()},
        )
        if of is not None:
            self.versions.log("version", **version.to_dict())
        self.publish(model, version)
        return version

    def _load(self, number: int) -> nn.Module:
        """Put the stream into the state of a version; its plain model."""
        paused = self.stream.paused
        tensors = self.versions.read(number)
        self.stream.set_extra_state(under(_STREAM, tensors))
        self.stream.paused = paused
        return self._plain_of(tensors)

    def _model(self, number: int) -> nn.Module:
        """The plain model of a version; the stream is left alone."""
        return self._plain_of(self.versions.read(number))

    def _plain_of(self, tensors: dict[str, Tensor]) -> nn.Module:
        model = copy.deepcopy(self.stream.learner).release().eval()
        # Layers that a recipe added have no source.
        state = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
        state |= self.source.state_dict()
        model.load_state_dict({**state, **under(_PLAIN, tensors)})
        return model


def _plain_number(value: float) -> float:
    """JSON has no NaN."""
    return value if math.isfinite(value) else -1.0
