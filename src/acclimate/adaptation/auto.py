"""``recipe="auto"``: which recipe for this model and these images, decided before any learning.

Some of the images are predicted three times: by the unadapted model, with their own batch-norm
statistics, and in mild views. Where the estimated error says that new statistics help, learning
starts from them, else from the source's. What is learnt then is judged after each epoch
(:mod:`acclimate.adaptation.run`), and the best state by the estimate is returned.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from acclimate.adaptation.passes import Passes
from acclimate.adaptation.run import EVALUATION, OBSERVED
from acclimate.data import batch_count, epoch_order
from acclimate.guard.estimate import Interval, estimate_change, estimate_level
from acclimate.guard.evidence import PASSES, Evidence, observe
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.layers import batch_norm_layers
from acclimate.presets import tuned_recipe
from acclimate.reading import read_object
from acclimate.recipe import Recipe
from acclimate.result import RECORD, RunRecord
from acclimate.text import counted

__all__ = ["AUTO", "PATIENCE", "Plan", "make_plan", "stored_plan"]

AUTO = "auto"
"""The name under which users ask for a plan in place of a recipe."""

PATIENCE = 5
"""Learning stops after this many epochs without a lower estimate."""

STEP = 3
"""Forward passes that a step costs: its own, and a backward pass of twice the work."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is going to be done, and why: one line each."""

    recipe: Recipe
    reasons: tuple[str, ...]
    cost: int = 0
    """Forward passes of one image that it took to decide."""

    def __str__(self) -> str:
        return "\n".join(f"plan: {reason}" for reason in self.reasons)


def make_plan(
    passes: Passes,
    *,
    model: nn.Module,
    model_name: str,
    images: int,
    classes: int | None,
    options: Mapping[str, Any],
    estimate: bool = True,
    seed: int = 0,
) -> Plan:
    """Choose statistics, objective, rate and epochs; the model is unchanged afterwards.

    ``options`` are the user's, and are not decided on: statistics are compared only where they
    leave ``normalization`` open.
    """
    given, reasons, forward, cost = dict(options), [], None, 0
    new = bool(batch_norm_layers(model))
    if not new:
        reasons.append("the model keeps no batch-norm statistics: only learning can help")
    elif estimate and not any(key.partition(".")[0] == "normalization" for key in given):
        began = time.perf_counter()
        new, reason, cost = _compare_statistics(model, passes, seed=seed)
        forward = (time.perf_counter() - began) / cost
        reasons.append(reason)
        if not new:
            given["normalization"] = "source"
    # Entropy minimisation gains most from new statistics; robust labels last longer without.
    recipe, _ = tuned_recipe(
        get_recipe("ent" if new else "rpl"),
        given,
        model_name=model_name,
        images=images,
        model=model,
        classes=classes,
    )
    reasons.append(_what_follows(recipe, images, forward))
    return Plan(recipe=recipe, reasons=tuple(reasons), cost=cost)


def _what_follows(recipe: Recipe, images: int, forward: float | None) -> str:
    """The recipe in words, and how long it takes where the seconds of one prediction are known."""
    epochs, steps = counted(recipe.epochs, "epoch"), batch_count(images, recipe.batch_size)
    said = (
        f"recipe {recipe.name}, learning rate {recipe.optimizer.lr:g}, at most {epochs} of "
        f"{counted(steps, 'step')}"
    )
    if forward is not None:
        work = recipe.epochs * ((STEP + 1) * images + PASSES * min(images, OBSERVED)) + 3 * images
        said += f", about {_duration(forward * work)}"
    return f"{said}; the best state by the estimated error is returned"


def stored_plan(
    folder: str | Path, weights: str, images: str, options: Mapping[str, Any]
) -> Plan | None:
    """What an earlier call for this model and these images has decided, to resume from."""
    path = Path(folder) / RECORD
    if not path.is_file():
        return None
    found = read_object(path, "versions", hint="; choose another folder")
    asked = json.loads(json.dumps(dict(options), default=str))
    if not found.get("plan") or (weights, images, asked) != (
        found["weights"],
        found["images"],
        found["options"],
    ):
        return None  # another run's: the folder will be refused with the difference
    record = RunRecord.from_dict(found)
    return Plan(recipe=record.recipe, reasons=tuple(record.plan))


def _compare_statistics(model: nn.Module, passes: Passes, *, seed: int) -> tuple[bool, str, int]:
    """Whether the images' own statistics make fewer errors than the source's; why; the cost."""
    order = epoch_order(len(passes.images), seed=seed, epoch=EVALUATION)[:OBSERVED]
    learner = Learner(model, get_recipe("bn"), batch_size=passes.batch_size, seed=seed)
    statistics = learner.statistics
    own = statistics.buffers()

    def plain(title: str) -> Evidence:
        return observe(learner.forward_plain, passes.sample(title, order))

    try:
        statistics.release()
        before = plain("unadapted model, in several views")
        pool = statistics.pool()
        for images in passes.sample("statistics", order):
            learner.logits(images)
        pool.close()
        shift = statistics.distances(pool)
        statistics.release()
        statistics.write(pool, weight=1.0)
        after = plain("new statistics, in several views")
    finally:
        statistics.load_buffers(own)
        learner.release()
    change = estimate_change(before, after, shift=shift, statistics=True)
    level = estimate_level(before, shift=shift)
    if change is None or level is None:
        usual = "too few images to estimate the error: new statistics, as usual"
        return len(order) > 1, usual, learner.cost
    new = change.value < 0
    reason = (
        f"estimated error {level} unadapted, with new statistics {_signed(change)} points: "
        f"{'new statistics' if new else 'the statistics of training are kept'}"
    )
    return new, reason, learner.cost


def _signed(change: Interval) -> str:
    return f"{change.value:+.0f} (± {(change.high - change.low) / 2:.0f})"


def _duration(seconds: float) -> str:
    """About how long, in the unit people would say it in.

    >>> _duration(40), _duration(400), _duration(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
