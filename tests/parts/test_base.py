"""Every phase of a step, acted in by a small part of the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.base import PARTS, Closure, Step
from acclimate.parts.filters import Filter
from acclimate.parts.objectives import Objective, entropy
from acclimate.parts.optimizers import SGD
from acclimate.parts.regularizers import Regularizer
from acclimate.recipe import Recipe
from acclimate.stream import Stream
from nets import bn_net, images, snapshot

X = images(8)


@pytest.fixture(autouse=True)
def _leave_the_tables_as_they_were() -> Iterator[None]:
    before = {slot: dict(table._entries) for slot, table in PARTS.items()}
    yield
    for slot, table in PARTS.items():
        table._entries = before[slot]


def learner_of(**parts: Any) -> Learner:
    return Learner(bn_net(), Recipe(name="mine", **parts))


def test_a_users_objective_runs_in_adapt_and_in_a_stream() -> None:
    @PARTS["objective"].register("squared")
    @dataclass(frozen=True, kw_only=True)
    class Squared(Objective):
        """1 - Σ p²: entropy's blunt cousin."""

        power: float = 2.0

        def loss(self, state: Any, step: Step) -> Tensor:
            return 1 - (step.student.logits.softmax(dim=1) ** self.power).sum(dim=1)

    options = {"objective": "squared", "optimizer.lr": 0.05}
    net = bn_net()
    x = images(64)
    result = acclimate.adapt(net, x, "ent", options=options, progress=False, guard="off")
    assert not torch.equal(result.model.get_parameter("1.weight"), net.get_parameter("1.weight"))
    assert Recipe.from_dict(result.recipe.to_dict()).objective == Squared()
    assert result.history.epochs[0].before_update.loss == pytest.approx(0.75, abs=0.25)

    stream = Stream(net, "ent", options=options)
    first, second = stream(X), stream(X)
    assert not torch.equal(first, second)


def test_check_refuses_a_model_before_anything_happens_to_it() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Picky(Regularizer):
        def check(self, model: nn.Module) -> None:
            raise AcclimateError("not this one")

    net = bn_net().train()
    with pytest.raises(AcclimateError, match="not this one"):
        Learner(net, Recipe(name="mine", regularizer=Picky()))
    assert net.training
    assert all(p.requires_grad for p in net.parameters())


@dataclass
class Counts:
    epochs: int = 0
    steps: int = 0


def test_start_epoch_and_after_step_keep_their_count_in_a_checkpointed_state() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Counting(Regularizer):
        def prepare(self, learner: Learner) -> Counts:
            return Counts()

        def start_epoch(self, state: Counts, learner: Learner) -> None:
            state.epochs += 1

        def after_step(self, state: Counts, step: Step) -> None:
            state.steps += len(step.images)

    learner = learner_of(regularizer=Counting())
    learner.start_epoch()
    learner.step(X)
    learner.step(X)
    assert learner.states["regularizer"] == Counts(epochs=1, steps=16)
    twin = learner_of(regularizer=Counting())
    twin.load_state_tensors(learner.state_tensors())
    assert twin.states["regularizer"] == Counts(epochs=1, steps=16)


@dataclass
class Memory:
    seen: Tensor


def test_collect_learns_from_a_memory_and_predicts_what_arrived() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Remember(Filter):
        def prepare(self, learner: Learner) -> Memory:
            return Memory(torch.zeros(0, 3, 8, 8))

        def collect(self, state: Memory, images: Tensor) -> Tensor:
            state.seen = torch.cat([state.seen, images])[-12:]
            return state.seen

    learner = learner_of(filter=Remember())
    learned_from = []
    learner.model.register_forward_hook(lambda _, inputs, __: learned_from.append(len(inputs[0])))
    answers = [learner.step(X).logits, learner.step(X[:6]).logits]
    assert [len(a) for a in answers] == [8, 6]
    assert learned_from == [8, 8, 6, 12]  # an answer and a lesson each, the lessons remembered
    twin = learner_of(filter=Remember())
    twin.load_state_tensors(learner.state_tensors())
    assert torch.equal(twin.states["filter"].seen, learner.states["filter"].seen)


@dataclass(frozen=True, kw_only=True)
class Consistency(Objective):
    """Agree with yourself on the mirrored image."""

    def views(self, state: Any, images: Tensor) -> Sequence[Tensor]:
        return [images, images.flip(-1)]

    def loss(self, state: Any, step: Step) -> Tensor:
        one, other = (step.student_of(view).logits for view in step.views)
        return (one - other).square().mean(dim=1)


def test_views_are_seen_once_each_and_the_original_one_is_the_prediction() -> None:
    learner = learner_of(objective=Consistency())
    expected = Learner(bn_net(), get_recipe("bn")).predict(X)
    result = learner.step(X)
    assert learner.forwards == 2
    assert torch.equal(result.logits, expected)
    assert result.loss is not None
    assert result.loss > 0


def test_outputs_of_views_that_are_gone_are_not_mistaken_for_those_of_new_ones() -> None:
    step = Step(learner_of(), X)
    for scale in range(1, 20):  # a freed tensor's id is soon another tensor's
        view = X * scale
        found = step.student_of(view).logits
        assert torch.equal(found, step.learner.forward(view.clone()).logits)
        del view


@dataclass(frozen=True, kw_only=True)
class First(Filter):
    """The first images count, each by its weight."""

    def weights(self, state: Any, step: Step) -> Tensor:
        weights = torch.zeros(len(step.images))
        weights[:2] = torch.tensor([1.0, 0.5])
        return weights


@dataclass(frozen=True, kw_only=True)
class Sum(Objective):
    def loss(self, state: Any, step: Step) -> Tensor:
        return entropy(step.student.logits)


def test_weights_average_the_loss_over_the_images_that_count() -> None:
    learner = learner_of(objective=Sum(), filter=First())
    result = learner.step(X)
    h = entropy(result.logits)
    assert result.loss is not None
    torch.testing.assert_close(result.loss, (h[0] + 0.5 * h[1]) / 2)


def test_weights_of_several_parts_multiply() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Half(Regularizer):
        def weights(self, state: Any, step: Step) -> Tensor:
            return torch.full((len(step.images),), 0.5)

    plain = learner_of(objective=Sum(), filter=First()).step(X).loss
    halved = learner_of(objective=Sum(), filter=First(), regularizer=Half()).step(X).loss
    assert plain is not None
    assert halved is not None
    torch.testing.assert_close(halved, plain / 2)


def test_a_regularisers_scalar_is_added_to_the_loss_as_it_is() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Anchor(Regularizer):
        def loss(self, state: Any, step: Step) -> Tensor:
            pulls = [p.square().sum() for p in step.learner.learning.values()]
            return torch.stack(pulls).sum()

    learner = learner_of(regularizer=Anchor(), filter=First())
    expected = sum(float(p.detach().square().sum()) for p in learner.learning.values())
    plain = learner_of(filter=First()).step(X).loss
    result = learner.step(X)
    assert plain is not None
    assert result.loss is not None
    assert float(result.loss - plain) == pytest.approx(expected, rel=1e-5)


@dataclass(frozen=True, kw_only=True)
class Sharpness(SGD):
    """Foret et al. 2021, as SAR uses it: the gradient at the worst point nearby."""

    rho: float = 0.5

    def update(self, state: Any, learner: Learner, closure: Closure) -> Tensor:
        state.zero_grad()
        closure()
        parameters = list(learner.learning.values())
        norm = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
        with torch.no_grad():
            shifts = [self.rho * p.grad / norm for p in parameters if p.grad is not None]
            torch._foreach_add_(parameters, shifts)
            state.zero_grad()
            with torch.enable_grad():
                loss = closure()
            torch._foreach_sub_(parameters, shifts)
        state.step()
        return loss


def test_update_may_look_twice_and_the_second_look_sees_the_moved_parameters() -> None:
    learner = learner_of(objective=Sum(), optimizer=Sharpness(lr=0.1, momentum=0.0))
    result = learner.step(X)
    assert (learner.forwards, learner.backwards) == (2, 2)

    net = bn_net()
    twin = Learner(net, Recipe(name="twin", objective=Sum(), optimizer=SGD(lr=0.1, momentum=0.0)))
    affine = list(twin.learning.values())
    start = [p.detach().clone() for p in affine]

    def gradient() -> tuple[Tensor, list[Tensor]]:
        loss = entropy(twin.forward(X).logits).mean()
        return loss.detach(), list(torch.autograd.grad(loss, affine))

    _, first = gradient()
    norm = torch.stack([g.norm() for g in first]).norm()
    with torch.no_grad():
        for p, g in zip(affine, first, strict=True):
            p.add_(0.5 * g / norm)
    worst, second = gradient()
    expected = [s - 0.1 * g for s, g in zip(start, second, strict=True)]
    assert result.loss is not None
    torch.testing.assert_close(result.loss, worst)
    torch.testing.assert_close([p.detach() for p in learner.learning.values()], expected)
    # It climbs first: entropy at the worst point is above that of the answer.
    assert result.loss > entropy(result.logits).mean()


def test_predict_replaces_the_prediction_in_steps_streams_and_pauses() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Opposite(Filter):
        def predict(self, state: Any, step: Step) -> Tensor:
            return -step.student.logits

    recipe = Recipe(name="mine", filter=Opposite())
    expected = -Learner(bn_net(), get_recipe("bn")).predict(X)
    learner = Learner(bn_net(), recipe)
    assert torch.equal(learner.predict(X), expected)
    answer = learner.step(X).logits
    assert torch.equal(answer, expected)
    assert not answer.requires_grad
    assert learner.forwards == 2  # one each: the answer's pass is the lesson's too
    stream = Stream(bn_net(), recipe, options={"optimizer.lr": 0.0})
    assert torch.equal(stream(X), expected)
    stream.pause()
    assert torch.equal(stream(X), expected)


def test_parameters_of_a_part_learn_beside_the_models() -> None:
    @dataclass
    class Gate:
        module: nn.Linear

    @dataclass(frozen=True, kw_only=True)
    class Gated(Objective):
        def prepare(self, learner: Learner) -> Gate:
            torch.manual_seed(0)
            return Gate(nn.Linear(5, 5))

        def parameters(self, state: Gate) -> dict[str, nn.Parameter]:
            return dict(state.module.named_parameters())

        def loss(self, state: Gate, step: Step) -> Tensor:
            return entropy(state.module(step.student.logits))

    learner = learner_of(objective=Gated(), optimizer=SGD(lr=0.1))
    before = snapshot(learner.states["objective"].module)
    assert "objective:weight" in learner.learning
    learner.step(X)
    assert not torch.equal(before["weight"], learner.states["objective"].module.weight)
    twin = learner_of(objective=Gated(), optimizer=SGD(lr=0.1))
    twin.load_state_tensors(learner.state_tensors())
    assert torch.equal(twin.step(X).logits, learner.step(X).logits)


def test_features_are_what_the_classifier_is_fed_where_a_part_needs_them() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Feature(Objective):
        needs = frozenset({"features"})

        def loss(self, state: Any, step: Step) -> Tensor:
            features = step.student.features
            assert features is not None
            head = step.learner.model.get_submodule("9")
            torch.testing.assert_close(head(features), step.student.logits)
            return features.square().mean(dim=1)

    learner = learner_of(objective=Feature())
    assert learner.step(X).loss is not None
    learner.release()
    assert not learner.model.get_submodule("9")._forward_pre_hooks
    assert Step(learner_of(), X).student.features is None


def test_export_is_called_when_the_plain_model_is_returned() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mark(Regularizer):
        def export(self, state: Any, learner: Learner) -> None:
            learner.model.get_parameter("9.bias").data.fill_(7.0)

    learner = learner_of(regularizer=Mark())
    assert learner.release().get_parameter("9.bias").eq(7.0).all()


def test_the_source_model_is_available_in_every_step() -> None:
    expected = bn_net()(X).detach()

    @dataclass(frozen=True, kw_only=True)
    class StayClose(Regularizer):
        def loss(self, state: Any, step: Step) -> Tensor:
            torch.testing.assert_close(step.source.logits, expected)
            assert step.source is step.source
            return (step.student.logits - step.source.logits).square().mean(dim=1)

    learner = learner_of(regularizer=StayClose(), optimizer=SGD(lr=0.1))
    for _ in range(3):
        learner.step(X)
    assert learner.forwards == 6
