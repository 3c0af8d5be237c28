"""Episodes: learn from images, answer, and forget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import acclimate
from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.objectives import Objective, entropy
from acclimate.parts.optimizers import SGD
from acclimate.presets import scaling_note
from acclimate.recipe import Recipe
from nets import bn_net, gn_net, images, same_tensors, snapshot

LR = 0.05
BATCHES = [images(16, seed=seed) for seed in range(6)]


def episodes(recipe: str = "ent", **options: Any) -> Learner:
    changes = {"optimizer.lr": LR, "episode": "batch"}
    return Learner(bn_net(), get_recipe(recipe, changes | options))


@pytest.mark.parametrize("steps", [1, 3])
def test_an_episode_learns_from_its_batch_and_then_predicts(steps: int) -> None:
    learner = episodes(epochs=steps)
    for batch in BATCHES[:3]:
        by_hand = Learner(bn_net(), get_recipe("ent", {"optimizer.lr": LR}))
        losses = [by_hand.step(batch).loss for _ in range(steps)]
        result = learner.step(batch)
        torch.testing.assert_close(result.logits, by_hand.predict(batch))
        torch.testing.assert_close(result.loss, losses[0])
    assert learner.backwards == 3 * steps


def test_an_episode_per_image_learns_from_each_alone() -> None:
    learner = episodes(episode="image", normalization="mixture")
    alone = [
        Learner(bn_net(), get_recipe("ent", {"optimizer.lr": LR, "normalization": "mixture"}))
        for _ in range(3)
    ]
    expected = []
    for single, image in zip(alone, BATCHES[0][:3].split(1), strict=True):
        single.step(image)
        expected.append(single.predict(image))
    torch.testing.assert_close(learner.step(BATCHES[0][:3]).logits, torch.cat(expected))
    assert learner.backwards == 3


@pytest.mark.parametrize("episode", ["batch", "image"])
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"normalization": "running"},
        {"objective.stop_gradient": True, "teacher": "moving-average", "teacher.momentum": 0.5},
    ],
)
def test_nothing_is_left_of_an_episode(episode: str, options: dict[str, Any]) -> None:
    chosen = {"normalization": "mixture", "epochs": 2, "episode": episode, **options}
    learner = episodes(**chosen)
    before = {k: v.clone() for k, v in learner.state_tensors().items()}
    model = snapshot(learner.model)
    first = learner.step(BATCHES[0]).logits
    after = learner.state_tensors()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(torch.equal(v, model[k]) for k, v in learner.model.state_dict().items())
    learner.step(BATCHES[1])
    assert torch.equal(learner.step(BATCHES[0]).logits, first)


def test_predicting_with_episodes_is_a_step_that_is_forgotten() -> None:
    learner = episodes()
    with torch.no_grad():
        asked = learner.predict(BATCHES[0])
    torch.testing.assert_close(asked, learner.step(BATCHES[0]).logits)
    known = Learner(bn_net(), get_recipe("bn")).predict(BATCHES[0])
    torch.testing.assert_close(learner.logits(BATCHES[0]), known)


@pytest.mark.parametrize("normalization", ["batch", "mixture"])
def test_adapt_with_episodes_gives_their_predictions_and_returns_the_source(
    normalization: str,
) -> None:
    options = {"episode": "batch", "epochs": 2, "normalization": normalization}
    result = acclimate.adapt(
        bn_net(),
        torch.cat(BATCHES[:3]),
        "ent",
        options={"optimizer.lr": LR, **options},
        batch_size=16,
        progress=False,
        device="cpu",
    )
    learner = Learner(bn_net(), result.recipe, batch_size=16)
    expected = torch.cat([learner.predict(batch) for batch in BATCHES[:3]])
    assert torch.equal(result.predictions, expected.argmax(dim=1))
    torch.testing.assert_close(result.confidence, expected.softmax(dim=1).amax(dim=1))
    assert same_tensors(snapshot(result.model), snapshot(bn_net()))
    assert result.history.epochs == []


@dataclass(frozen=True, kw_only=True)
class Noisy(Objective):
    """Entropy of noisy images: something that draws."""

    def prepare(self, learner: Learner) -> Any:
        return None

    def loss(self, state: Any, step: Any) -> Tensor:
        draw = step.learner.generator
        noise = torch.randn(step.images.shape, generator=draw)
        return entropy(step.student_of(step.images + noise).logits)


def test_an_episode_forgets_what_it_learnt_but_draws_on() -> None:
    recipe = Recipe(name="noisy", objective=Noisy(), optimizer=SGD(lr=LR), episode="batch")
    learner = Learner(bn_net(), recipe)
    start = learner.generator.get_state()
    first, second = learner.step(BATCHES[0]).logits, learner.step(BATCHES[0]).logits
    assert not torch.equal(first, second)
    draw = torch.Generator()
    draw.set_state(start)
    for _ in range(2):
        torch.randn(BATCHES[0].shape, generator=draw)
    assert torch.equal(learner.generator.get_state(), draw.get_state())
    again = Learner(bn_net(), recipe)
    assert torch.equal(
        torch.stack([first, second]), torch.stack([again.step(BATCHES[0]).logits for _ in range(2)])
    )


def test_the_rate_of_single_images_does_not_follow_the_batch_size() -> None:
    recipe = get_recipe("ent", {"episode": "image", "optimizer.lr": LR, "batch_size": 64})
    learner = Learner(gn_net(), recipe, batch_size=8)
    assert learner.lr == LR
    assert scaling_note(learner) == []
    assert Learner(gn_net(), replace(recipe, episode="batch"), batch_size=8).lr == LR / 8


def test_an_unknown_episode_is_refused() -> None:
    with pytest.raises(AcclimateError, match="unknown episode 'epoch'"):
        get_recipe("ent", {"episode": "epoch"})
