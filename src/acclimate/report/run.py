"""The page of one adaptation: how good it is, what was done and why, and what changed."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from acclimate.data import ImageSource
from acclimate.guard.drift import LayerDrift
from acclimate.report.templates import Bar, rendered
from acclimate.result import AdaptationResult
from acclimate.table import Table, number_entry
from acclimate.text import counted

__all__ = ["run_page", "thumbnail"]

SHOWN = 24
"""Images in the gallery."""

SIDE = 144
"""Pixels of a thumbnail, at most; smaller images are enlarged to about this."""

CHANGES = 10
"""Rows of the table of classes that others became."""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """An image whose prediction changed: ``right`` is whether the new one is, where known."""

    file: str
    image: str
    tiny: bool
    before: str
    after: str
    label: str | None
    right: bool | None


def run_page(
    result: AdaptationResult, images: ImageSource, layers: Sequence[LayerDrift] = ()
) -> str:
    """The page, with its style and images in it.

    ``images`` are those that were adapted to, ``layers`` how far they are from what the model
    knows.
    """
    changed = result.changed
    count = None if changed is None else int(changed.sum())
    order = _most_doubtful(result)
    return rendered(
        "run.html",
        result=result,
        facts=_facts(result),
        errors=_errors(result),
        drift=_drift_bars(layers),
        fell_back=_fell_back(result),
        changed=None if count is None else f"{count:,} of {len(result.predictions):,} predictions",
        gallery=_gallery(result, images, order[:SHOWN]),
        left=max(0, len(order) - SHOWN),
        changes=_changes(result),
        recipe=json.dumps(result.recipe.to_dict(), indent=2),
    )


def thumbnail(image: Tensor) -> str:
    """An image (channels × height × width) as a data URI; float ones are stretched to be seen.

    >>> thumbnail(torch.zeros(3, 8, 8, dtype=torch.uint8))[:23]
    'data:image/jpeg;base64,'
    """
    pixels = image
    if pixels.dtype != torch.uint8:
        low, high = pixels.amin(), pixels.amax()
        pixels = ((pixels - low) / (high - low).clamp_min(1e-6) * 255).to(torch.uint8)
    if len(pixels) not in (1, 3):
        pixels = pixels[:1]
    shown = Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).numpy())
    longer = max(shown.size)
    times = SIDE / longer if longer > SIDE else max(1, SIDE // longer)
    size = tuple(max(1, round(side * times)) for side in shown.size)
    how = Image.Resampling.LANCZOS if times < 1 else Image.Resampling.NEAREST
    written = io.BytesIO()
    shown.resize((size[0], size[1]), how).convert("RGB").save(written, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}"


def _fell_back(result: AdaptationResult) -> bool:
    """Whether the unadapted model was returned; a guard that only observes never does that."""
    return result.record.guard.acts and not result.verdict.returns_adapted


def _facts(result: AdaptationResult) -> list[str]:
    record = result.record
    skipped = f", {result.skipped:,} skipped" if result.skipped else ""
    seen = f"seen through {record.shift}" if record.shift else ""
    facts = [
        counted(len(result.predictions), "image") + skipped,
        seen,
        f"recipe {result.recipe.name}",
        f"preprocessing {record.preprocessing}" if record.preprocessing else "",
        result.history.describe(),
    ]
    return [fact for fact in facts if fact]


def _errors(result: AdaptationResult) -> list[Bar]:
    bars = []
    if (estimate := result.estimated_error) is not None:
        after = "adapted, not returned" if _fell_back(result) else "after"
        for name, ends in (("before", estimate.before), (after, estimate.after)):
            words = f"{ends.value:.0f} % ({ends.low:.0f} to {ends.high:.0f})"
            bars.append(
                Bar(
                    name=f"{name}, estimated",
                    words=words,
                    value=ends.value,
                    low=ends.low,
                    high=ends.high,
                )
            )
    for name, error in (("before", result.error_before), ("after", result.error_after)):
        if error is not None:
            bars.append(Bar(name=f"{name}, by labels", words=f"{error:.1f} %", value=error))
    return bars


def _drift_bars(layers: Sequence[LayerDrift]) -> list[Bar]:
    widest = max((layer.distance for layer in layers), default=0.0) or 1.0
    return [
        Bar(name=each.name, words=f"{each.distance:.2f}", value=100 * each.distance / widest)
        for each in layers
    ]


def _most_doubtful(result: AdaptationResult) -> list[int]:
    """The indices of images whose prediction changed, the least probable prediction first."""
    if result.changed is None:
        return []
    chosen = result.changed.nonzero().squeeze(1)
    order = result.probabilities[chosen].argsort(stable=True)
    indices: list[int] = chosen[order].tolist()
    return indices


def _gallery(
    result: AdaptationResult, images: ImageSource, indices: Sequence[int]
) -> list[Changed]:
    before, probable = result.predictions_before, result.probabilities_before
    if not indices or before is None or probable is None:
        return []
    found = []
    for index, image in zip(indices, images.read(torch.tensor(indices)), strict=True):
        now = int(result.predictions[index])
        label = None
        if images.labels is not None and images.scoring is None and images.labels[index] >= 0:
            label = int(images.labels[index])
        found.append(
            Changed(
                file=result.names[index],
                image=thumbnail(image),
                tiny=max(image.shape[1:]) < SIDE,
                before=f"{_name(result, int(before[index]))} {probable[index]:.0%}",
                after=f"{_name(result, now)} {result.probabilities[index]:.0%}",
                label=None if label is None else _name(result, label),
                right=None if label is None else label == now,
            )
        )
    return found


def _changes(result: AdaptationResult) -> Table | None:
    """Which classes became which, the most frequent first."""
    before, changed = result.predictions_before, result.changed
    if before is None or changed is None or not bool(changed.any()):
        return None
    pairs = Counter(
        zip(before[changed].tolist(), result.predictions[changed].tolist(), strict=True)
    )
    rows = [
        [_name(result, old), _name(result, new), number_entry(images, digits=0)]
        for (old, new), images in pairs.most_common(CHANGES)
    ]
    return Table(rows, header=("before", "after", "images"), title="Classes that others became")


def _name(result: AdaptationResult, index: int) -> str:
    """A class in a word: the first of its synonyms."""
    names = result.class_names
    if names is None or not 0 <= index < len(names):
        return f"class {index}"
    return names[index].split(",")[0]
