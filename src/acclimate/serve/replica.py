"""Who predicts: a plain model behind a queue, and the version it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from acclimate.data import Preprocessing
from acclimate.data.labels import ClassList
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import choose_device, copy_model, floating_dtype
from acclimate.models.outputs import checked_logits, logits_of
from acclimate.serve.batching import Batcher, Request, joined
from acclimate.serve.observer import Observer
from acclimate.serve.settings import Settings
from acclimate.serve.versions import Version, now

__all__ = ["Answer", "Replica", "Source"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The probabilities of the images of one request, and which model they are of.

    ``adapted`` is whether anything but the source model gave them, ``calibrated`` whether they are
    divided by a temperature.
    """

    probabilities: Tensor
    version: int
    adapted: bool
    calibrated: bool = False


@dataclass(frozen=True, kw_only=True)
class Source:
    """A copy of the unadapted model on its device, and what is known of it."""

    name: str
    model: nn.Module
    preprocessing: Preprocessing
    classes: ClassList | None
    class_count: int
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(
        cls,
        model: nn.Module | LoadedModel,
        *,
        preprocessing: Preprocessing | None = None,
        device: str | torch.device | None = None,
    ) -> Source:
        """What a user gave, once it has classified an image.

        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
        >>> Source.of(net, preprocessing=Preprocessing(size=(2, 2)), device="cpu").class_count
        3
        """
        loaded = as_loaded(model, preprocessing)
        known = loaded.preprocessing
        if known is None:
            raise AcclimateError(
                f"{loaded.name} has no record of its preprocessing; add --size 224 --resize 256 "
                "--mean ... --std ... (preprocessing=Preprocessing(...))"
            )
        where = choose_device(device)
        own = copy_model(loaded.model).to(where).eval()
        dtype = floating_dtype(own)
        example = torch.zeros(1, *known.shape, device=where).to(dtype)
        return cls(
            name=loaded.name,
            model=own,
            preprocessing=known,
            classes=loaded.classes,
            class_count=checked_logits(own, example).shape[1],
            device=where,
            dtype=dtype,
        )

    @property
    def loaded(self) -> LoadedModel:
        """As other parts of the package take it."""
        return LoadedModel(
            name=self.name,
            model=self.model,
            preprocessing=self.preprocessing,
            classes=self.classes,
        )


class _Serving(NamedTuple):
    """A model and the version it is; replaced as one, so that no batch mixes two."""

    model: nn.Module
    version: Version


class Replica:
    """Predicts in micro-batches with the plain model of one version, image by image.

    What others send in the same moment changes nothing. :meth:`publish` replaces the model from the
    next batch on; a prediction that is not finite is the source model's.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    >>> source = Source.of(net, preprocessing=Preprocessing(size=(2, 2)), device="cpu")
    >>> replica = Replica(source, Settings(mode="frozen"))
    >>> replica.predict(torch.rand(5, 3, 2, 2)).result().probabilities.shape
    torch.Size([5, 3])
    >>> replica.close()
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        *,
        temperature: float | None = None,
        observer: Observer | None = None,
    ) -> None:
        if temperature is not None and not temperature > 0:
            raise AcclimateError(f"expected a temperature > 0, got {temperature:g}")
        self.source, self.settings, self.temperature = source, settings, temperature
        self.observer = observer or Observer()
        start = Version(number=0, cause="start", created=now())
        self._serving = self._candidate = _Serving(source.model, start)
        self._closed = False
        self._batcher: Batcher[Answer] = Batcher(
            self._answer,
            batch_size=settings.batch_size,
            wait_ms=settings.wait_ms,
            queue=settings.queue,
        )

    def publish(self, model: nn.Module, version: Version) -> None:
        """Let a version predict from the next batch on, or in shadow mode only be known."""
        self._candidate = _Serving(model, version)
        if self.settings.mode == "live":
            self._serving = self._candidate
        self.observer.on_version(version)

    def predict(self, images: Tensor, *, client: str = "") -> Future[Answer]:
        """Queue images, as model input (float, N×C×H×W); the future has their answer.

        Raises:
            FullError: when too many images wait already.
            ClosedError: when the server is shutting down.
        """
        shape = self.source.preprocessing.shape
        if images.ndim != 4 or images.shape[1:] != shape or not len(images):
            raise AcclimateError(
                f"expected images as N×{'×'.join(map(str, shape))}, got "
                f"{'×'.join(map(str, images.shape))}"
            )
        return self._batcher.submit(images, client=client)

    @torch.inference_mode()
    def _answer(self, requests: Sequence[Request[Answer]]) -> list[Answer]:
        began = time.perf_counter()
        serving, source = self._serving, self.source
        images = joined(requests).to(source.device, source.dtype)
        logits = logits_of(serving.model(images)).float()
        broken = ~torch.isfinite(logits).all(dim=1)
        adapted = serving.version.adapted
        if adapted and bool(broken.any()):
            logits[broken] = logits_of(source.model(images[broken])).float()
        temperature = self.temperature or serving.version.temperature
        probabilities = (logits / (temperature or 1.0)).softmax(dim=1).cpu()
        parts = probabilities.split([len(request.images) for request in requests])
        self.observer.on_batch(
            images=len(images), requests=len(requests), seconds=time.perf_counter() - began
        )
        self.offer(requests)
        return [
            Answer(
                probabilities=part,
                version=serving.version.number,
                adapted=adapted,
                calibrated=temperature is not None,
            )
            for part in parts
        ]

    def offer(self, requests: Sequence[Request[Answer]]) -> None:
        """Images that were predicted and may be learnt from; here nobody learns."""

    @property
    def version(self) -> Version:
        """The version that predicts."""
        return self._serving.version

    @property
    def candidate(self) -> Version:
        """The newest version; in shadow mode it does not predict."""
        return self._candidate.version

    @property
    def waiting(self) -> int:
        """How many images wait."""
        return self._batcher.waiting

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self._closed

    def close(self) -> None:
        """Refuse new requests, and answer those that wait."""
        self._closed = True
        self._batcher.close()
