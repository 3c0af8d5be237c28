"""Who answers: parts that speak in the student's place, with or without a memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import acclimate
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.base import PARTS
from acclimate.parts.predictors import Predictor, Student
from acclimate.recipe import Recipe
from acclimate.stream import Stream
from nets import CLASSES, bn_net, gn_net, images, same_tensors, snapshot
from processes import in_processes

BATCHES = [images(16, seed=seed) for seed in range(3)]
DATA = torch.cat(BATCHES)
QUIET: dict[str, Any] = {"progress": False, "device": "cpu", "batch_size": 16}


@dataclass(frozen=True, kw_only=True)
class Opposite(Predictor):
    """Says the contrary, which no plain model could."""

    exports: ClassVar[bool] = False

    def predict(self, state: None, step: Any) -> Tensor:
        return -step.student.logits


@dataclass
class Seen:
    classes: Tensor


@dataclass(frozen=True, kw_only=True)
class Prior(Predictor):
    """Favours the classes it saw most often: a gatherer whose answers fit into the bias."""

    gathers: ClassVar[bool] = True
    strength: float = 1.0

    def prepare(self, learner: Learner) -> Seen:
        return Seen(torch.ones(CLASSES))

    def _bias(self, state: Seen) -> Tensor:
        return self.strength * (state.classes / state.classes.sum()).log()

    def predict(self, state: Seen, step: Any) -> Tensor:
        logits = step.student.logits
        if step.learning:
            state.classes = state.classes + logits.argmax(dim=1).bincount(minlength=CLASSES)
        return logits + self._bias(state)

    def export(self, state: Seen, learner: Learner) -> None:
        learner.overwrite("9.bias", learner.model[9].bias + self._bias(state))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registry = PARTS["predictor"]
    for name, kind in (("opposite", Opposite), ("prior", Prior)):
        registry.register(name)(kind)
    yield
    for name in ("opposite", "prior"):
        registry._entries.pop(name)


def opposite(**options: Any) -> Recipe:
    return get_recipe("none", {"name": "opposite", "predictor": Opposite(), **options})


def prior(**options: Any) -> Recipe:
    return get_recipe("none", {"name": "prior", "predictor": Prior(), **options})


def test_the_student_predicts_unless_a_recipe_says_otherwise() -> None:
    recipe = get_recipe("ent")
    assert recipe.predictor == Student()
    assert recipe.exports
    changed = recipe.with_options({"predictor": "prior", "predictor.strength": "0.5"})
    assert changed.predictor == Prior(strength=0.5)
    assert Recipe.from_dict(changed.to_dict()) == changed


def test_its_prediction_is_given_wherever_the_students_would_be() -> None:
    expected = -bn_net()(BATCHES[0]).detach()
    learner = Learner(bn_net(), opposite())
    assert torch.equal(learner.step(BATCHES[0]).logits, expected)
    assert torch.equal(learner.predict(BATCHES[0]), expected)
    assert torch.equal(Stream(bn_net(), opposite())(BATCHES[0]), expected)
    assert (learner.forwards, learner.backwards) == (2, 0)


def test_it_changes_nothing_about_what_is_learnt() -> None:
    options = {"optimizer.lr": 0.05}
    ours = Learner(bn_net(), get_recipe("ent", {**options, "predictor": "opposite"}))
    plain = Learner(bn_net(), get_recipe("ent", options))
    for x in BATCHES:
        torch.testing.assert_close(ours.step(x).logits, -plain.step(x).logits)
    torch.testing.assert_close(ours.learning, plain.learning)
    assert (ours.forwards, ours.backwards) == (3, 3)


def test_predictions_carry_no_gradient() -> None:
    learner = Learner(bn_net(), get_recipe("ent", {"predictor": "opposite"}))
    assert not learner.step(BATCHES[0]).logits.requires_grad


def test_a_recipe_that_only_changes_predictions_needs_no_batch_norm() -> None:
    recipe = opposite(normalization="batch")
    assert Stream(gn_net(), recipe)(BATCHES[0]).shape == (16, CLASSES)
    with pytest.raises(AcclimateError, match="only changes batch-norm statistics"):
        Stream(gn_net(), get_recipe("bn"))


# Answers that no plain model can give


def test_adapt_takes_the_predictions_from_the_recipe_and_returns_the_source() -> None:
    result = acclimate.adapt(bn_net(), DATA, opposite(), guard="observe", **QUIET)
    assert torch.equal(result.predictions, bn_net()(DATA).argmin(dim=1))
    assert same_tensors(snapshot(result.model), snapshot(bn_net()))
    assert result.history.epochs == []  # there was nothing to go through the images for
    assert result.history.final is not None
    assert result.history.final.images == len(DATA)


def test_after_learning_too_the_predictions_are_the_recipes() -> None:
    recipe = get_recipe("ent", {"predictor": "opposite", "optimizer.lr": 0.01})
    result = acclimate.adapt(bn_net(), DATA, recipe, guard="observe", **QUIET)
    plain = acclimate.adapt(
        bn_net(), DATA, "ent", options={"optimizer.lr": 0.01}, guard="observe", **QUIET
    )
    torch.testing.assert_close(snapshot(result.model), snapshot(plain.model))
    assert not torch.equal(result.predictions, plain.predictions)


# A memory without gradients


def by_hand(batches: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    counts, answers = torch.ones(CLASSES), []
    for x in batches:
        logits = bn_net()(x).detach()
        for winner in logits.argmax(dim=1):
            counts[winner] += 1
        answers.append(logits + (counts / counts.sum()).log())
    return answers, (counts / counts.sum()).log()


def test_a_gatherer_learns_from_every_batch_and_not_from_a_question() -> None:
    learner = Learner(bn_net(), prior())
    expected, _ = by_hand(BATCHES)
    for x, answer in zip(BATCHES, expected, strict=True):
        torch.testing.assert_close(learner.step(x).logits, answer)
        learner.predict(x)


def test_adapt_goes_through_the_images_and_writes_what_was_gathered() -> None:
    assert prior().steps
    assert not opposite().steps
    result = acclimate.adapt(bn_net(), DATA, prior(), guard="observe", **QUIET)
    assert [epoch.before_update.images for epoch in result.history.epochs] == [len(DATA)]
    _, bias = by_hand(BATCHES)
    torch.testing.assert_close(result.model[9].bias.detach(), bn_net()[9].bias.detach() + bias)
    assert torch.equal(result.predictions, result.model(DATA).argmax(dim=1))


def test_what_was_gathered_is_resumed_and_reset() -> None:
    first, second = Stream(bn_net(), prior()), Stream(bn_net(), prior())
    answers = [first(x) for x in BATCHES]
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(BATCHES[0]), second(BATCHES[0]))
    first.reset()
    assert all(torch.equal(first(x), a) for x, a in zip(BATCHES, answers, strict=True))


def test_a_killed_run_goes_on_with_what_it_gathered(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class Dying(torch.nn.Sequential):
        left = 8

        def forward(self, x: Tensor) -> Tensor:
            type(self).left -= 1
            if type(self).left < 0:
                raise Killed
            return super().forward(x)

    settings = {**QUIET, "out": tmp_path, "checkpoint_every": 0}
    with pytest.raises(Killed):
        acclimate.adapt(Dying(*bn_net()).eval(), DATA, prior(), **settings)
    Dying.left = 10_000
    gone_on = acclimate.adapt(Dying(*bn_net()).eval(), DATA, prior(), **settings)
    whole = acclimate.adapt(bn_net(), DATA, prior(), **QUIET)
    assert same_tensors(snapshot(gone_on.model), snapshot(whole.model))
    assert gone_on.history.to_dict() == whole.history.to_dict()


def test_a_refused_run_takes_back_what_was_written() -> None:
    refusing = Guard(check_every=1, min_diversity=5.0, action="stop")
    result = acclimate.adapt(bn_net(), DATA, prior(), guard=refusing, **QUIET)
    assert result.verdict.word == "refused"
    assert same_tensors(snapshot(result.model), snapshot(bn_net()))
    source = bn_net()(DATA).argmax(dim=1)
    assert torch.equal(result.predictions, source)


def test_the_guard_of_a_stream_watches_a_gatherer() -> None:
    stream = Stream(bn_net(), prior(), guard=Guard(check_every=2, min_diversity=5.0))
    with pytest.warns(UserWarning, match="went back to step 0"):
        _ = [stream(x) for x in BATCHES[:2]]
    assert torch.equal(stream.learner.states["predictor"].classes, torch.ones(CLASSES))


def test_a_recipe_that_keeps_nothing_is_not_watched() -> None:
    stream = Stream(bn_net(), opposite(), guard=Guard(check_every=1, min_diversity=5.0))
    for x in BATCHES:
        stream(x)
    assert stream.events == []
    assert stream.learner.forwards == len(BATCHES)


# Several processes


def learner_of_two(recipe: Recipe) -> None:
    Learner(bn_net(), recipe)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        ("prior", "the predictor of recipe 'prior' draws views of each image, keeps images or"),
        (
            "episode",
            "recipe 'ent' forgets after each batch, which 2 processes would do differently",
        ),
    ],
)
def test_processes_that_share_batches_refuse_it(recipe: str, reason: str) -> None:
    chosen = prior() if recipe == "prior" else get_recipe("ent", {"episode": "batch"})
    for answer in in_processes(2, learner_of_two, chosen):
        assert reason in str(answer)
