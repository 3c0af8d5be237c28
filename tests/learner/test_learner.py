"""One step, against the same thing written out in plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.base import Step
from acclimate.parts.objectives import CrossEntropy
from nets import bn_net, images, snapshot

LR = 0.05
BATCHES = [images(16, seed=seed) for seed in range(6)]


def plain_model(model: nn.Module) -> tuple[nn.Module, list[nn.Parameter]]:
    """Batch statistics without running ones; gradients for γ and β of the batch norms only."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    affine = []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
            affine += [module.weight.requires_grad_(), module.bias.requires_grad_()]
    return model, affine


def plain_run(
    model: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    *,
    threshold: float = 0.0,
    teacher_every: int | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    student, affine = plain_model(model)
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.SGD(affine, lr=LR, momentum=0.9)
    answers = []
    for i, batch in enumerate(BATCHES):
        if teacher_every and i % teacher_every == 0:
            teacher = copy.deepcopy(student)
        logits = student(batch)
        with torch.no_grad():
            target = teacher(batch) if teacher_every else logits
        answers.append(logits.detach())
        counts = target.softmax(dim=1).amax(dim=1) > threshold
        if counts.any():
            optimizer.zero_grad()
            # Entropy has no stop-gradient: there the loss sees the student's logits twice.
            loss_of(logits, target.detach())[counts].mean().backward()
            optimizer.step()
    return answers, [p.detach() for p in affine]


def our_run(
    model: nn.Module, recipe: str, options: dict[str, Any], *, epoch_every: int = 100
) -> tuple[list[Tensor], list[Tensor], Learner]:
    chosen = get_recipe(recipe, {"optimizer.lr": LR, **options})
    learner = Learner(copy.deepcopy(model), chosen)
    answers = []
    for i, batch in enumerate(BATCHES):
        if i % epoch_every == 0:
            learner.start_epoch()
        answers.append(learner.step(batch).logits)
    return answers, [p.detach() for p in learner.learning.values()], learner


def entropy(student: Tensor, teacher: Tensor) -> Tensor:
    p = student.softmax(dim=1)
    return -(p * p.log()).sum(dim=1)


def gce(student: Tensor, teacher: Tensor) -> Tensor:
    p = student.softmax(dim=1).gather(1, teacher.argmax(dim=1, keepdim=True)).squeeze(1)
    return (1 - p**0.8) / 0.8


def hard(student: Tensor, teacher: Tensor) -> Tensor:
    return F.cross_entropy(student, teacher.argmax(dim=1), reduction="none")


def soft(student: Tensor, teacher: Tensor) -> Tensor:
    return F.cross_entropy(student, (teacher / 0.5).softmax(dim=1), reduction="none")


@pytest.mark.parametrize("threshold", [0.0, 0.26])
@pytest.mark.parametrize(
    ("recipe", "options", "loss", "teacher_every"),
    [
        ("ent", {}, entropy, None),
        ("rpl", {}, gce, None),
        ("hard", {}, hard, 3),
        ("soft", {"objective.teacher_temperature": 0.5}, soft, 3),
        ("rpl-epoch", {}, gce, 3),
    ],
)
def test_six_steps_equal_plain_pytorch(
    recipe: str,
    options: dict[str, Any],
    loss: Callable[[Tensor, Tensor], Tensor],
    teacher_every: int | None,
    threshold: float,
) -> None:
    model = bn_net()
    if threshold:
        options = {**options, "filter": "confidence", "filter.threshold": threshold}
    ours, our_affine, _ = our_run(model, recipe, options, epoch_every=3)
    plain, plain_affine = plain_run(model, loss, threshold=threshold, teacher_every=teacher_every)
    start = [p for n, p in model.named_parameters() if n.split(".")[0] in "14"]
    moved = [(a - b).abs().max() for a, b in zip(our_affine, start, strict=True)]
    assert max(moved) > 1e-3, "nothing was learnt, so equality would prove nothing"
    torch.testing.assert_close(ours, plain, atol=1e-6, rtol=0)
    torch.testing.assert_close(our_affine, plain_affine, atol=1e-6, rtol=0)


def test_a_threshold_lets_only_the_sure_images_count() -> None:
    with_all, *_ = our_run(bn_net(), "ent", {})
    with_some, *_ = our_run(bn_net(), "ent", {"filter": "confidence", "filter.threshold": 0.26})
    assert not torch.allclose(with_all[-1], with_some[-1])


def test_no_image_above_the_threshold_means_no_move_and_no_loss() -> None:
    learner = Learner(bn_net(), get_recipe("ent", {"filter": "confidence", "filter.threshold": 1}))
    before = {k: v.clone() for k, v in learner.state_tensors().items() if "learning" in k}
    assert learner.step(BATCHES[0]).loss is None
    after = learner.state_tensors()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert learner.backwards == 0


@pytest.mark.parametrize(
    ("recipe", "forwards", "backwards"),
    [
        ("ent", 1, 1),
        ("rpl", 1, 1),
        ("hard", 2, 1),
        ("soft", 2, 1),
        ("rpl-epoch", 2, 1),
        ("bn", 1, 0),
    ],
)
def test_passes_per_step(recipe: str, forwards: int, backwards: int) -> None:
    learner = Learner(bn_net(), get_recipe(recipe))
    calls = []
    learner.model.register_forward_hook(lambda *_: calls.append(1))
    for batch in BATCHES[:3]:
        learner.step(batch)
    assert (learner.forwards, learner.backwards) == (3 * forwards, 3 * backwards)
    assert len(calls) == learner.forwards


def test_a_confidence_filter_costs_no_pass() -> None:
    learner = Learner(bn_net(), get_recipe("rpl", {"filter": "confidence"}))
    learner.step(BATCHES[0])
    assert learner.forwards == 1


@pytest.mark.parametrize("recipe", ["ent", "rpl", "hard"])
def test_only_what_learns_has_a_gradient_or_changes(recipe: str) -> None:
    model = bn_net()
    before = snapshot(model)
    learner = Learner(model, get_recipe(recipe, {"optimizer.lr": LR}))
    learner.step(BATCHES[0])
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == (name in learner.learning)
        assert parameter.requires_grad == (name in learner.learning)
    changed = {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"1.weight", "1.bias", "4.weight", "4.bias"}


def test_nothing_is_copied_or_piles_up_step_by_step() -> None:
    learner = Learner(bn_net(), get_recipe("rpl"))
    learner.step(BATCHES[0])
    addresses = [p.data_ptr() for p in learner.model.parameters()]
    names = learner.state_tensors().keys()
    for batch in BATCHES:
        learner.step(batch)
    assert [p.data_ptr() for p in learner.model.parameters()] == addresses
    assert learner.state_tensors().keys() == names
    hooks = [h for m in learner.model.modules() for h in m._forward_pre_hooks]
    assert hooks == []


def test_the_prediction_is_the_one_before_the_update() -> None:
    model = bn_net()
    untouched = Learner(bn_net(), get_recipe("bn")).step(BATCHES[0]).logits
    learner = Learner(model, get_recipe("ent", {"optimizer.lr": 1.0}))
    answer = learner.step(BATCHES[0]).logits
    torch.testing.assert_close(answer, untouched)
    assert not torch.allclose(learner.predict(BATCHES[0]), answer)


def test_predicting_learns_nothing() -> None:
    learner = Learner(bn_net(), get_recipe("ent", {"normalization": "running"}))
    before = {k: v.clone() for k, v in learner.state_tensors().items()}
    learner.predict(BATCHES[0])
    assert all(torch.equal(v, before[k]) for k, v in learner.state_tensors().items())


def test_the_source_predicts_as_the_untouched_model_does_at_any_time() -> None:
    model = bn_net()
    expected = model(BATCHES[0]).detach()
    learner = Learner(model, get_recipe("ent", {"optimizer.lr": 0.5}))
    for batch in BATCHES[:3]:
        assert torch.equal(learner.source_forward(BATCHES[0]).logits, expected)
        learner.step(batch)
    assert not torch.allclose(learner.predict(BATCHES[0]), expected)


def test_the_learning_rate_follows_the_batch_size() -> None:
    recipe = get_recipe("ent", {"optimizer.lr": 0.01, "batch_size": 64})
    assert Learner(bn_net(), recipe).lr == pytest.approx(0.01)
    learner = Learner(bn_net(), recipe, batch_size=16)
    assert learner.lr == pytest.approx(0.0025)
    assert learner.states["optimizer"].param_groups[0]["lr"] == pytest.approx(0.0025)


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(AcclimateError, match="expected batch_size >= 1, got 0"):
        Learner(bn_net(), get_recipe("ent"), batch_size=0)


def test_release_gives_the_plain_model_back() -> None:
    model = bn_net()
    asked = {n: n.startswith("0") for n, _ in model.named_parameters()}
    for name, p in model.named_parameters():
        p.requires_grad_(asked[name])
    recipe = get_recipe("ent", {"normalization": "mixture", "optimizer.lr": LR})
    learner = Learner(model, recipe)
    learner.step(BATCHES[0])
    assert learner.release() is model
    assert {n: p.requires_grad for n, p in model.named_parameters()} == asked
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert not any(m.training for m in model.modules())
    assert all(m.track_running_stats for m in model.modules() if isinstance(m, nn.BatchNorm2d))


def test_a_state_of_another_model_is_refused() -> None:
    state = Learner(bn_net(), get_recipe("ent")).state_tensors()
    other = Learner(bn_net(), get_recipe("ent", {"selector": "last-layer"}))
    with pytest.raises(AcclimateError, match=r"another model or recipe: expected '9\.weight'"):
        other.load_state_tensors(state)


def test_soft_labels_at_equal_temperatures_have_no_gradient_to_follow() -> None:
    """The paper: "the two-point learning dynamics vanish for soft pseudo-labeling with τs = τt"."""
    learner = Learner(bn_net(), get_recipe("soft", {"optimizer.lr": 1.0}))
    learner.start_epoch()
    start = {n: p.detach().clone() for n, p in learner.learning.items()}
    for batch in BATCHES:
        learner.step(batch)
    now = {n: p.detach() for n, p in learner.learning.items()}
    torch.testing.assert_close(now, start, atol=1e-5, rtol=0)


# What the model is shown


@dataclass
class Offset:
    offset: nn.Parameter


@dataclass(frozen=True, kw_only=True)
class Shifted(CrossEntropy):
    """Shows the model images that are moved by a value it learns."""

    def prepare(self, learner: Learner) -> Offset:
        return Offset(nn.Parameter(torch.zeros(1, 3, 1, 1)))

    def parameters(self, state: Offset) -> dict[str, nn.Parameter]:
        return {"offset": state.offset}

    def transform(self, state: Offset, images: Tensor, weights: Any) -> Tensor:
        return images + (state.offset if weights is None else weights["offset"])


def shifted(**options: Any) -> Learner:
    objective = Shifted(stop_gradient="teacher" in options)
    recipe = replace(get_recipe("ent", {"optimizer.lr": LR}), objective=objective)
    return Learner(bn_net(), recipe.with_options(options))


def test_a_part_may_change_what_the_model_is_shown_and_learn_how() -> None:
    learner = shifted()
    student, affine = plain_model(bn_net())
    offset = torch.zeros(1, 3, 1, 1, requires_grad=True)
    optimizer = torch.optim.SGD([*affine, offset], lr=LR, momentum=0.9)
    for batch in BATCHES:
        logits = student(batch + offset)
        torch.testing.assert_close(learner.step(batch).logits, logits.detach())
        optimizer.zero_grad()
        entropy(logits, logits).mean().backward()
        optimizer.step()
    ours = learner.learning["objective:offset"].detach()
    torch.testing.assert_close(ours, offset.detach(), atol=1e-6, rtol=0)
    assert float(ours.abs().max()) > 1e-4


def test_source_and_teacher_are_shown_images_in_their_own_way() -> None:
    learner = shifted(teacher="frozen")
    with torch.no_grad():
        learner.learning["objective:offset"].add_(1.0)
    learner.steps = 1
    source = learner.source_forward(BATCHES[0]).logits
    torch.testing.assert_close(source, bn_net()(BATCHES[0]).detach())
    teacher = learner.teacher_forward(Step(learner, BATCHES[0]), BATCHES[0]).logits
    torch.testing.assert_close(teacher, Learner(bn_net(), get_recipe("bn")).predict(BATCHES[0]))
    student = learner.forward(BATCHES[0]).logits.detach()
    moved = Learner(bn_net(), get_recipe("bn")).predict(BATCHES[0] + 1)
    torch.testing.assert_close(student, moved)


class Closed(nn.Module):
    """A model that turns gradients off."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits


def test_a_model_that_turns_gradients_off_is_refused() -> None:
    learner = Learner(Closed(), get_recipe("ent"))
    with pytest.raises(AcclimateError, match="do not depend on what is to learn"):
        learner.step(images())


def test_a_replayed_step_counts_like_one_that_python_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replays:
        """Runs the work twice (a capture that failed, and again), and replays after that."""

        def __init__(self, work: Any, *, memory: Any) -> None:
            self.work, self.memory, self.results = work, memory, None

        def __call__(self, images: Tensor) -> tuple[Any, bool]:
            if self.results is None:
                self.work(images)
                self.results = self.work(images)
                return self.results, False
            return self.results, True

    monkeypatch.setattr("acclimate.learner.learner.GraphedWork", Replays)
    x = images(8)
    learner, plain = (Learner(bn_net(), get_recipe("ent")) for _ in range(2))
    for _ in range(3):
        learner._replayed(x)
        plain.step(x)
    assert (learner.steps, learner.forwards, learner.backwards) == (3, 3, 3)
    assert (plain.steps, plain.forwards, plain.backwards) == (3, 3, 3)
    assert copy.deepcopy(learner)._graphed is None
