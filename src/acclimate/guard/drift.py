"""How far images are from what a model knows, layer by layer, without learning anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from acclimate.data import (
    ImageSource,
    Preprocessing,
    batch_count,
    batches,
    epoch_order,
    open_images,
)
from acclimate.data.labels import NO_LABELS
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.guard.estimate import LATE, Interval, estimate_level, lateness
from acclimate.guard.evidence import Evidence, observe
from acclimate.metrics.scores import effective_classes
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import choose_device, copy_model, floating_dtype
from acclimate.models.layers import norm_kind
from acclimate.models.outputs import logits_of
from acclimate.table import Table

__all__ = ["DriftReport", "LayerDrift", "drift", "layer_drift"]

MOST_IMAGES = 1000
NEAR, FAR = 0.1, 0.3
"""Mean distances below which images count as like the source's, and above which as shifted: on the
dev half of the bank, clean sets of all classes lie below the first, and severity 5 above the other.
"""

FEW_CLASSES = 0.5
"""Classes in use, as a share of those that so many images could show."""


@dataclass(frozen=True, kw_only=True)
class LayerDrift:
    """How far the input of a normalisation layer is from the source's or the reference's.

    ``distance`` is the root mean square over channels of the differences in mean and in standard
    deviation, in units of the standard deviation it is compared with.
    """

    name: str
    kind: str
    distance: float


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """What :func:`drift` found.

    ``layers`` are in the order of the model, empty where it keeps no statistics to compare with
    (group and layer norm) and no reference was given. ``estimated_error`` is the model's, in
    percent, and ``reference_error`` that on the reference images; None where too few to tell.
    """

    model: str
    images: int
    layers: tuple[LayerDrift, ...]
    estimated_error: Interval | None
    reference_error: Interval | None
    confidence: float
    classes_in_use: float
    classes: int
    advice: str

    @property
    def distance(self) -> float | None:
        """The mean over layers."""
        return fmean(layer.distance for layer in self.layers) if self.layers else None

    def __str__(self) -> str:
        lines = [f"{self.model}, {self.images:,} images"]
        if self.layers:
            widest = max(layer.distance for layer in self.layers) or 1.0
            rows = [
                [
                    each.name,
                    each.kind,
                    f"{each.distance:.2f}",
                    "#" * round(30 * each.distance / widest),
                ]
                for each in self.layers
            ]
            lines += ["", Table(rows, header=["layer", "norm", "distance", ""]).text(), ""]
        if self.distance is not None:
            lines.append(f"mean distance {self.distance:.2f} standard deviations")
        if self.estimated_error is not None:
            reference = (
                "" if self.reference_error is None else f", reference {self.reference_error}"
            )
            lines.append(f"estimated error {self.estimated_error}{reference}")
        lines.append(
            f"mean confidence {self.confidence:.2f}, {self.classes_in_use:.1f} of "
            f"{self.classes:,} classes in use"
        )
        return "\n".join([*lines, self.advice])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "distance": self.distance}


def drift(
    model: nn.Module | LoadedModel,
    images: Any,
    *,
    reference: Any = None,
    preprocessing: Preprocessing | None = None,
    shift: str | Shift | None = None,
    most: int = MOST_IMAGES,
    batch_size: int = 64,
    device: str | torch.device | None = None,
    seed: int = 0,
    progress: bool = True,
) -> DriftReport:
    """Compare images with what the model was trained on, or with reference images; learns nothing.

    Args:
        model: as in :func:`acclimate.adapt`.
        images: a folder, array, tensor or Dataset, as in :func:`acclimate.adapt`.
        reference: images the model is known to work on, likewise; without, the statistics that
            batch norm stores stand for them.
        preprocessing: how the model wants uint8 images; taken from its own record when it has one.
        shift: a corruption to see clean images through, ``"imagenet/fog:3"``.
        most: of more images a random sample of so many is looked at.
        batch_size: images per forward pass.
        device: where to run; CUDA when there is one, else the CPU.
        seed: of the sample.
        progress: show progress bars on stderr.

    Costs four forward passes over the images, and as many over the reference.

    >>> import acclimate
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1),
    ...                     nn.Flatten(), nn.Linear(8, 3))
    >>> report = acclimate.drift(net, torch.rand(64, 3, 8, 8), progress=False)
    >>> [layer.name for layer in report.layers], report.images
    (['1'], 64)
    """
    if most < 1 or batch_size < 1:
        raise AcclimateError(
            f"expected most >= 1 and batch_size >= 1, got most={most} and batch_size={batch_size}"
        )
    loaded, where = as_loaded(model, preprocessing), choose_device(device)
    module = copy_model(loaded.model).to(where).eval()

    def looked_at(data: Any, title: str, seen_through: str | Shift | None) -> _Seen:
        source = open_images(
            data,
            preprocessing=loaded.preprocessing,
            labels=None if isinstance(data, ImageSource) else NO_LABELS,
            shift=seen_through,
            device=where,
            progress=progress,
        )
        order = epoch_order(len(source), seed=seed, epoch=0)[:most]
        return _look(module, source, order, title, where, batch_size, progress)

    found = looked_at(images, "images", shift)
    known = None if reference is None else looked_at(reference, "reference", None)
    distances = _distances(module, found.moments, None if known is None else known.moments)
    seen = found.evidence
    shares = seen.predicted.bincount(minlength=seen.classes).double() / len(seen)
    report = DriftReport(
        model=loaded.name,
        images=len(seen),
        layers=tuple(distances),
        estimated_error=estimate_level(seen),
        reference_error=None if known is None else estimate_level(known.evidence),
        confidence=float(seen.confidence.mean()),
        classes_in_use=float(effective_classes(shares)),
        classes=seen.classes,
        advice="",
    )
    return DriftReport(**{**vars(report), "advice": advice(report)})


def layer_drift(
    model: nn.Module,
    images: ImageSource,
    *,
    most: int = MOST_IMAGES,
    batch_size: int = 64,
    device: str | torch.device | None = None,
    seed: int = 0,
) -> list[LayerDrift]:
    """The distances alone, from what batch norm stores, in one forward pass over the images.

    >>> from acclimate.data import open_images
    >>> net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 3))
    >>> [layer.name for layer in layer_drift(net, open_images(torch.rand(64, 3, 2, 2)))]
    ['1']
    """
    where = choose_device(device)
    module = copy_model(model).to(where).eval()
    order = epoch_order(len(images), seed=seed, epoch=0)[:most]
    moments: dict[str, _Moments] = {}
    for batch in batches(images, batch_size=batch_size, order=order, device=where):
        with _gathering(module, moments), torch.no_grad():
            module(batch.images.to(floating_dtype(module)))
    return list(_distances(module, moments, None))


def advice(report: DriftReport) -> str:
    """One line: what to do about it."""
    if report.distance is None:
        return (
            "this model stores no statistics to compare with: name images it works on "
            "(--reference DIR, reference=)"
        )
    few = report.classes_in_use < FEW_CLASSES * min(report.classes, report.images)
    late = lateness([layer.distance for layer in report.layers]) > LATE
    if report.distance < NEAR:
        return "these images look like those the model knows: there is little to adapt to"
    if few and late:
        return (
            "the last layers differ most: likely a few of the classes rather than another "
            "appearance; adapt with --set normalization=source"
        )
    if report.distance < FAR:
        return "a mild shift: adapting may help; acclimate adapt says whether it did"
    return "a clear shift of appearance: adapt (acclimate adapt --model ... --images ...)"


@dataclass(frozen=True)
class _Moments:
    """Count, sum and sum of squares by channel of what entered a layer."""

    count: int
    first: Tensor
    second: Tensor

    def add(self, x: Tensor) -> _Moments:
        rows = x.double().reshape(-1, x.shape[-1])
        return _Moments(
            self.count + len(rows), self.first + rows.sum(0), self.second + rows.square().sum(0)
        )

    @property
    def mean(self) -> Tensor:
        return self.first / self.count

    @property
    def var(self) -> Tensor:
        return (self.second / self.count - self.mean.square()).clamp_min(0)


@dataclass(frozen=True)
class _Seen:
    evidence: Evidence
    moments: Mapping[str, _Moments]


def _look(
    model: nn.Module,
    source: ImageSource,
    order: Tensor,
    title: str,
    device: torch.device,
    batch_size: int,
    progress: bool,
) -> _Seen:
    moments: dict[str, _Moments] = {}

    def forward(images: Tensor) -> Tensor:
        return logits_of(model(images.to(floating_dtype(model))))

    def watched() -> Iterator[Tensor]:
        read = batches(source, batch_size=batch_size, order=order, device=device)
        total = batch_count(len(order), batch_size)
        for batch in tqdm(read, desc=title, total=total, disable=not progress, leave=False):
            with _gathering(model, moments), torch.no_grad():
                forward(batch.images)
            yield batch.images

    return _Seen(observe(forward, watched()), moments)


@contextmanager
def _gathering(model: nn.Module, moments: dict[str, _Moments]) -> Iterator[None]:
    """Within this, what enters the normalisation layers is added up."""
    handles = []
    for name, module in model.named_modules():
        if norm_kind(module) is None:
            continue

        def gather(layer: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
            x = _channels_last(layer, inputs[0])
            zero = x.new_zeros(x.shape[-1], dtype=torch.float64)
            moments[name] = moments.get(name, _Moments(0, zero, zero)).add(x)

        handles.append(module.register_forward_pre_hook(gather))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _channels_last(layer: nn.Module, x: Tensor) -> Tensor:
    """Layer norm of tokens has its channels last already, all others have them second."""
    weight = getattr(layer, "weight", None)
    tokens = norm_kind(layer) in ("LayerNorm", "RMSNorm") and (
        weight is None or x.shape[-1] == weight.numel()
    )
    return x if tokens or x.ndim == 2 else x.movedim(1, -1)


def _distances(
    model: nn.Module, found: Mapping[str, _Moments], known: Mapping[str, _Moments] | None
) -> Iterator[LayerDrift]:
    for name, now in found.items():
        layer = model.get_submodule(name)
        if known is not None:
            mean, var = known[name].mean, known[name].var
        elif isinstance(stored := getattr(layer, "running_mean", None), Tensor):
            running_var = layer.running_var
            assert isinstance(running_var, Tensor)
            mean, var = stored.double(), running_var.double()
        else:
            continue
        eps = float(getattr(layer, "eps", 1e-5))
        unit = (var + eps).sqrt()
        location, scale = (now.mean - mean) / unit, (now.var + eps).sqrt() / unit - 1
        distance = float((location.square() + scale.square()).mean().sqrt())
        kind = norm_kind(layer)
        assert kind is not None
        if math.isfinite(distance):
            yield LayerDrift(name=name, kind=kind, distance=distance)
