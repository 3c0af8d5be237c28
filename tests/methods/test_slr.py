"""SLR and HLR against a few lines of plain PyTorch, with and without the module at the input."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.slr import (
    InputModule,
    InputTransformation,
    LikelihoodRatio,
    log_odds,
)
from acclimate.result import AdaptationResult
from nets import CLASSES, bn_net, images, snapshot, tiny_vit
from plain import BATCHES, has_moved, our_run, plain_model

LR = {"optimizer.lr": 0.01}
PLAIN = {**LR, "selector": "early-affine"}


def plain_confidence(o: Tensor, labels: str) -> Tensor:
    losses = []
    for row in o:
        ratios = [
            row[c] - torch.cat([row[:c], row[c + 1 :]]).exp().sum().log() for c in range(len(row))
        ]
        if labels == "hard":
            losses.append(-ratios[int(row.argmax())])
        else:
            losses.append(-(row.softmax(dim=0) * torch.stack(ratios)).sum())
    return torch.stack(losses).mean()


def plain_slr(
    labels: str, module: dict[str, Tensor] | None
) -> tuple[list[Tensor], dict[str, Tensor]]:
    net, affine = plain_model(bn_net().double())
    learning: dict[str, Tensor] = dict(affine)
    module = {k: v.clone().requires_grad_() for k, v in (module or {}).items()}
    learning |= {f"selector:{name}": tensor for name, tensor in module.items()}
    optimizer = torch.optim.Adam(learning.values(), lr=0.01)
    shares = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    answers = []
    for batch in BATCHES:
        shown = plain_transformation(batch, module) if module else batch
        logits = net(shown)
        answers.append(logits.detach())
        shares = 0.9 * shares.detach() + 0.1 * logits.softmax(dim=1).mean(dim=0)
        diversity = (shares * (shares / (1 / CLASSES)).log()).sum()
        optimizer.zero_grad()
        (diversity + 0.025 * plain_confidence(logits, labels)).backward()
        optimizer.step()
    return answers, {name: tensor.detach() for name, tensor in learning.items()}


def plain_transformation(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    r = F.conv2d(x, w["restored.0.weight"], padding=1)
    r = F.relu(F.group_norm(r, 4, w["restored.1.weight"], w["restored.1.bias"]))
    r = F.conv2d(r, w["restored.3.weight"], padding=1)
    r = F.relu(F.group_norm(r, 4, w["restored.4.weight"], w["restored.4.bias"]))
    r = F.conv2d(r, w["restored.6.weight"], padding=1)
    tau = w["mixing"]
    return w["scale"] * (tau * x + (1 - tau) * r) + w["shift"]


@pytest.mark.parametrize("labels", ["soft", "hard"])
@pytest.mark.parametrize("with_module", [False, True])
def test_six_steps_equal_plain_pytorch(labels: str, with_module: bool) -> None:
    options = {**(LR if with_module else PLAIN), "objective.labels": labels}
    answers, parameters, learner = our_run("slr", options)
    start = {k[9:]: v for k, v in learner.source.items() if k.startswith("selector:")}
    assert bool(start) == with_module
    expected, theirs = plain_slr(labels, start)
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-8, rtol=0)
    torch.testing.assert_close(parameters, theirs, atol=1e-8, rtol=0)


@pytest.mark.parametrize("options", [LR, PLAIN, {**PLAIN, "objective.labels": "hard"}])
def test_a_batch_costs_one_forward_and_one_backward_pass(options: dict[str, Any]) -> None:
    *_, learner = our_run("slr", options)
    assert (learner.forwards, learner.backwards) == (len(BATCHES), len(BATCHES))


# The losses


def test_log_odds_keep_their_digits_and_their_gradients_for_confident_predictions() -> None:
    o = torch.tensor([[90.0, 0.0, -3.0], [0.0, 0.0, 0.0], [0.0, 700.0, -700.0]], requires_grad=True)
    odds = log_odds(o)
    expected = torch.tensor(90 - math.log1p(math.exp(-3)))
    torch.testing.assert_close(odds[0, 0], expected)
    torch.testing.assert_close(odds[1], torch.full((3,), -math.log(2)))
    odds[:, :2].sum().backward()
    assert o.grad is not None
    assert torch.isfinite(o.grad).all()


def test_a_sure_image_pulls_as_hard_as_any_other() -> None:
    """What it is for: the gradient of entropy vanishes there."""
    o = torch.tensor([[40.0, 0.0, 0.0]], requires_grad=True)
    step = type("Step", (), {"student": type("Outputs", (), {"logits": o})})
    LikelihoodRatio(labels="hard", weight=1.0).loss(None, step).sum().backward()  # type: ignore[arg-type]
    assert o.grad is not None
    assert float(o.grad[0, 0]) == pytest.approx(-1.0)


def test_the_running_estimate_starts_with_all_classes_alike() -> None:
    learner = Learner(bn_net(), get_recipe("slr", PLAIN))
    answer = learner.step(images(8)).logits
    expected = 0.9 / CLASSES + 0.1 * answer.softmax(dim=1).mean(dim=0)
    torch.testing.assert_close(learner.states["regularizer"].probability, expected)


# The module at the input


def test_to_begin_with_the_predictions_are_those_without_a_module() -> None:
    batch = images(8)
    with_module = Learner(bn_net(), get_recipe("slr")).step(batch).logits
    without = Learner(bn_net(), get_recipe("slr", {"selector": "early-affine"})).step(batch).logits
    assert torch.equal(with_module, without)


def test_the_source_predicts_without_what_the_module_has_learnt() -> None:
    model = bn_net()
    expected = model(images(8)).detach()
    learner = Learner(model, get_recipe("slr", LR))
    for seed in range(3):
        learner.step(images(8, seed=seed))
    torch.testing.assert_close(learner.source_forward(images(8)).logits, expected)


def unguarded(model: nn.Module, **options: Any) -> AdaptationResult:
    data = torch.cat([images(16, seed=seed) for seed in range(4)])
    return acclimate.adapt(
        model, data, "slr", options=LR, batch_size=16, guard="off", progress=False, **options
    )


def test_the_model_returned_has_the_module_and_keeps_its_own_keys() -> None:
    result = unguarded(bn_net())
    new = {key for key in result.model.state_dict() if key not in bn_net().state_dict()}
    assert new
    assert all("acclimate_adapter." in key for key in new)
    assert any("acclimate_adapter" in note for note in result.notes)
    again = copy.deepcopy(result.model)
    x = images(4, seed=9)
    torch.testing.assert_close(again(x), result.model(x))
    (module,) = [m for m in again.modules() if isinstance(m, InputTransformation)]
    plain = bn_net()
    plain.load_state_dict({k: v for k, v in again.state_dict().items() if k not in new})
    torch.testing.assert_close(plain(module(x)), again(x))
    assert not torch.allclose(plain(x), again(x))


def test_a_saved_result_loads_into_the_plain_model(tmp_path: Path) -> None:
    result = unguarded(bn_net(), out=tmp_path / "run")
    loaded = AdaptationResult.load(tmp_path / "run", bn_net())
    torch.testing.assert_close(loaded.model(images(4)), result.model(images(4)))


def test_adapting_again_goes_on_with_the_module_there_is() -> None:
    once = unguarded(bn_net()).model
    learner = Learner(copy.deepcopy(once), get_recipe("slr", LR))
    torch.testing.assert_close(learner.source_forward(images(4)).logits, once(images(4)))
    twice = unguarded(once).model
    assert twice.state_dict().keys() == once.state_dict().keys()
    assert sum(len(m._forward_pre_hooks) for m in twice.modules()) == 1


def test_a_refused_adaptation_hands_the_plain_model_back() -> None:
    data = torch.cat([images(16, seed=seed) for seed in range(4)])
    result = acclimate.adapt(
        bn_net(), data, "slr", options={"optimizer.lr": 30.0}, batch_size=16, progress=False,
        guard=Guard(action="stop", check_every=1),
    )  # fmt: skip
    assert result.verdict.word == "refused"
    assert not any(m._forward_pre_hooks for m in result.model.modules())
    now, then = snapshot(result.model), snapshot(bn_net())
    assert now.keys() == then.keys()
    assert all(torch.equal(now[k], v) for k, v in then.items())


def test_the_last_stages_stay_lest_the_logits_only_grow() -> None:
    model = tiny_vit(depth=4)
    learner = Learner(copy.deepcopy(model), get_recipe("slr"))
    norms = {name for name in learner.learning if not name.startswith("selector:")}
    assert norms == {f"blocks.{i}.norm{j}.{p}" for i in range(3) for j in (1, 2)
                     for p in ("weight", "bias")}  # fmt: skip
    before = InputModule().names(model)
    InputModule().extend(model, torch.Generator())
    after = InputModule().names(model)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert all("acclimate_adapter." in name for name in after[len(before) :])
    (hook,) = model._forward_pre_hooks.values()  # counting has left the module where it was
    assert hook.__name__ == "_adapt_input"


def test_a_model_called_by_keyword_is_shown_the_same() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = bn_net()

        def forward(self, pixel_values: Tensor) -> Tensor:
            logits: Tensor = self.net(pixel_values)
            return logits

    model = unguarded(Keyword()).model
    torch.testing.assert_close(model(pixel_values=images(4)), model(images(4)))


def test_grey_images_and_models_without_a_convolution_or_a_norm() -> None:
    grey = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    learner = Learner(grey, get_recipe("slr"))
    learner.step(images(4)[:, :1])
    assert learner.states["selector"].module.scale.shape == (1, 1, 1)
    assert all(name.startswith("selector:") for name in learner.learning)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    with pytest.raises(AcclimateError, match=r"say it with selector\.channels"):
        Learner(flat, get_recipe("slr"))
    Learner(flat, get_recipe("slr", {"selector.channels": 3})).step(images(4))


# The rest


def test_layer_norm() -> None:
    learner = Learner(tiny_vit(), get_recipe("slr"))
    assert torch.isfinite(learner.step(images(4, size=16)).logits).all()


def test_an_unknown_kind_of_labels_is_refused() -> None:
    with pytest.raises(AcclimateError, match="unknown kind of labels 'sort'; did you mean"):
        LikelihoodRatio(labels="sort")
