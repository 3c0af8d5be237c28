"""What every method that learns must bear in everyday use, on batch norm and on group norm."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateWarning
from acclimate.learner.learner import Learner, StepResult
from acclimate.methods.registry import get_recipe
from nets import bn_net, gn_net, images, same_tensors, tiny_vit
from plain import copied, sure_net

ALL_COUNT = {"optimizer.lr": 0.01, "filter.margin": 1.1}
RECIPES: dict[str, dict[str, Any]] = {
    "adacontrast": {"optimizer.lr": 1e-3, "objective.queue": 20, "objective.neighbours": 3},
    "asr": {**ALL_COUNT, "filter.max_similarity": 1.0, "regularizer.share": 0.21},
    "cmf": {"optimizer.lr": 0.01, "regularizer.noise": 0.9},
    "come": {"optimizer.lr": 0.05},
    "come-sar": ALL_COUNT,
    "conjugate": {"optimizer.lr": 0.05, "objective.trained_with": "poly"},
    "cotta": {"optimizer.lr": 1e-3, "teacher.views_per_image": 2},
    "deyo": {**ALL_COUNT, "filter.min_difference": -1.0},
    "eata": {**ALL_COUNT, "filter.max_similarity": 1.0, "regularizer.samples": 20},
    "eta": {**ALL_COUNT, "filter.max_similarity": 1.0},
    "note": {"filter.capacity": 12},
    "rdumb": {**ALL_COUNT, "filter.max_similarity": 1.0, "regularizer.every": 3},
    "rmt": {"optimizer.lr": 1e-3, "objective.width": 6},
    "roid": {"optimizer.lr": 0.01},
    "rotta": {"filter.capacity": 12},
    "santa": {"optimizer.lr": 0.01, "objective.width": 6},
    "sar": ALL_COUNT,
    "self-ensembling": {"optimizer.lr": 1e-4, "objective.confidence": 0.0, "epochs": 2},
    "slr": {"optimizer.lr": 0.01},
    "spa": {"optimizer.lr": 0.01, "objective.patches": 2},
    "tent": {"optimizer.lr": 0.05},
}
every_recipe = pytest.mark.parametrize("recipe", RECIPES)
every_net = pytest.mark.parametrize("make", [lambda: sure_net().float(), gn_net])
Make = Callable[[], nn.Module]


def steps_equal_after_packing(recipe: str, make: Make, *, size: int) -> None:
    """Two steps, pack, and a new learner takes the same third and fourth step, bit by bit."""
    batches = [images(8, seed=seed, size=size) for seed in range(4)]
    first = Learner(make(), get_recipe(recipe, RECIPES[recipe]), seed=1)
    for batch in batches[:2]:
        first.step(batch)
    packed = copied(first)
    second = Learner(make(), get_recipe(recipe, RECIPES[recipe]), seed=2)
    second.step(images(8, seed=9, size=size))
    second.load_state_tensors(packed)
    for batch in batches[2:]:
        assert torch.equal(first.step(batch).logits, second.step(batch).logits)
    assert same_tensors(first.state_tensors(), second.state_tensors())
    assert not same_tensors(packed, first.state_tensors())


@every_recipe
@every_net
def test_a_learner_resumes_from_its_packed_state(recipe: str, make: Make) -> None:
    steps_equal_after_packing(recipe, make, size=8)


@every_recipe
def test_a_transformer(recipe: str) -> None:
    steps_equal_after_packing(recipe, lambda: tiny_vit(depth=4), size=16)


@every_recipe
@every_net
def test_adapt_repeats_resumes_and_returns_the_plain_model(
    recipe: str, make: Make, tmp_path: Path
) -> None:
    data = images(40)

    def run(**more: Any) -> acclimate.AdaptationResult:
        return acclimate.adapt(
            make(), data, recipe, options=RECIPES[recipe], batch_size=10, guard="observe",
            progress=False, checkpoint_every=0, **more,
        )  # fmt: skip

    whole = run()
    with killed_after(2), pytest.raises(KeyboardInterrupt):
        run(out=tmp_path)
    resumed = run(out=tmp_path)
    assert same_tensors(whole.model.state_dict(), resumed.model.state_dict())
    assert torch.equal(whole.predictions, resumed.predictions)
    assert not same_tensors(whole.model.state_dict(), make().state_dict())
    if whole.recipe.exports:
        with torch.no_grad():
            alone = torch.cat([whole.model.eval()(batch) for batch in data.split(10)])
        assert torch.equal(alone.argmax(dim=1), whole.predictions)


def killed_after(steps: int) -> Any:
    """As if the user had stopped the run."""
    take, taken = Learner.step, 0

    def step(learner: Learner, images: Tensor) -> StepResult:
        nonlocal taken
        if taken == steps:
            raise KeyboardInterrupt
        taken += 1
        return take(learner, images)

    return patch.object(Learner, "step", step)


@every_recipe
@every_net
def test_a_stream_resets_pauses_and_resumes(recipe: str, make: Make) -> None:
    batches = [images(8, seed=seed) for seed in range(3)]

    def stream(**more: Any) -> acclimate.Stream:
        return acclimate.Stream(make(), recipe, options=RECIPES[recipe], guard="off", **more)

    ours, other = stream(), stream(seed=3)
    first = [ours(batch) for batch in batches]
    assert all(torch.isfinite(answer).all() for answer in first)
    ours.reset()
    assert all(torch.equal(ours(x), answer) for x, answer in zip(batches, first, strict=True))
    ours.pause()
    known = copied(ours.learner)
    assert torch.equal(ours(batches[0]), ours(batches[0]))
    assert same_tensors(known, ours.learner.state_tensors())
    ours.resume()
    other.load_state_dict(ours.state_dict())
    assert torch.equal(ours(batches[0]), other(batches[0]))
    assert other.double()(batches[1].double()).dtype == torch.float64
    with torch.inference_mode():
        assert torch.isfinite(ours(batches[1])).all()


@every_recipe
@every_net
def test_the_guard_takes_a_stream_back(recipe: str, make: Make) -> None:
    wary = acclimate.Guard(check_every=2, max_drift=1e-12)
    stream = acclimate.Stream(make(), recipe, options=RECIPES[recipe], guard=wary)
    known = copied(stream.learner)
    stream(images(8))
    with pytest.warns(AcclimateWarning, match=r"moved by .* went back to step 0"):
        stream(images(8, seed=1))
    now = stream.learner.state_tensors()
    names = [name for name in known if not name.startswith("optimizer")]
    assert same_tensors({n: known[n] for n in names}, {n: now[n] for n in names})


@every_recipe
@every_net
def test_a_guarded_stream_bears_broken_and_single_images(recipe: str, make: Make) -> None:
    stream = acclimate.Stream(make(), recipe, options=RECIPES[recipe])
    broken = images(8)
    broken[0] = float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AcclimateWarning)
        assert torch.isfinite(stream(broken)[1:]).all()
        assert torch.isfinite(stream(images(8, seed=1))).all()
        assert torch.isfinite(stream(images(1, seed=2))).all()


class Half(nn.Module):
    """A net that computes in bfloat16 and keeps its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits: Tensor = self.net(x)
        return logits


@every_recipe
def test_half_precision(recipe: str) -> None:
    learner = Learner(Half(), get_recipe(recipe, RECIPES[recipe]))
    for seed in range(3):
        result = learner.step(images(8, seed=seed))
        assert torch.isfinite(result.logits).all()
        assert result.loss is not None
        assert torch.isfinite(result.loss)
    assert {p.dtype for p in learner.learning.values()} == {torch.float32}
