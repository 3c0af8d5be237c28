"""SAR against a few lines of plain PyTorch; which affines learn; when it goes back."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.sar import EarlyAffine, norm_stages
from acclimate.models.libraries import import_torchvision
from acclimate.parts.selectors import NormAffine
from nets import CLASSES, bn_net, gn_net, images, tiny_vit
from plain import (
    BATCHES,
    check_shared,
    has_moved,
    our_run,
    plain_entropy,
    plain_model,
    sure_net,
)

OPTIONS = {"optimizer.lr": 0.01, "optimizer.rho": 0.3}


def plain_sar(
    *, floor: float, margin: float = 0.4, rho: float = 0.3
) -> tuple[list[Tensor], dict[str, Tensor], list[tuple[int, int]], list[int]]:
    net, affine = plain_model(sure_net())
    source = {n: p.detach().clone() for n, p in affine.items()}
    optimizer = torch.optim.SGD(affine.values(), lr=0.01, momentum=0.9)
    answers, counted, resets = [], [], []
    average = None
    for number, batch in enumerate(BATCHES):
        logits = net(batch)
        answers.append(logits.detach())
        entropies = plain_entropy(logits)
        reliable = entropies.detach() < margin * math.log(CLASSES)
        gradients = torch.autograd.grad(entropies[reliable].mean(), affine.values())
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        here = [p.detach().clone() for p in affine.values()]
        with torch.no_grad():
            for parameter, gradient in zip(affine.values(), gradients, strict=True):
                parameter += rho * gradient / norm
        optimizer.zero_grad()
        again = plain_entropy(net(batch))[reliable]
        still = again.detach() < margin * math.log(CLASSES)
        counted.append((int(reliable.sum()), int(still.sum())))
        loss = again[still].mean()
        loss.backward()
        with torch.no_grad():
            for parameter, value in zip(affine.values(), here, strict=True):
                parameter.copy_(value)
        optimizer.step()
        low = loss.item()
        if still.any():
            average = low if average is None else 0.9 * average + 0.1 * low
        if average is not None and average < floor:
            resets.append(number)
            average = None
            with torch.no_grad():
                for name, parameter in affine.items():
                    parameter.copy_(source[name])
            optimizer = torch.optim.SGD(affine.values(), lr=0.01, momentum=0.9)
    return answers, {n: p.detach() for n, p in affine.items()}, counted, resets


def test_six_steps_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("sar", OPTIONS, model=sure_net())
    expected, affine, counted, _ = plain_sar(floor=0.0)
    assert all(0 < n < 16 for n, _ in counted), "the filter must have something to decide"
    assert any(again < n for n, again in counted), "and so must the second"
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)
    flat, *_ = our_run("sar", {**OPTIONS, "optimizer.rho": 0.0}, model=sure_net())
    assert not torch.allclose(flat[-1], answers[-1], atol=1e-4), "looking around must matter"


def test_where_nothing_is_reliable_any_more_only_momentum_moves() -> None:
    far = {**OPTIONS, "optimizer.rho": 0.5, "filter.margin": 0.2}
    answers, parameters, learner = our_run("sar", far, model=sure_net())
    expected, affine, counted, _ = plain_sar(floor=0.0, margin=0.2, rho=0.5)
    assert any(again == 0 for _, again in counted)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)
    assert math.isfinite(learner.states["regularizer"].value)


def test_a_loss_too_low_to_be_true_leads_back_to_the_source() -> None:
    floor = 0.67  # with which an average that went on after a reset would lead to another
    options = {
        **OPTIONS, "filter.margin": 0.6, "regularizer.floor": floor / math.log(CLASSES)
    }  # fmt: skip
    answers, parameters, _ = our_run("sar", options, model=sure_net())
    expected, affine, _, resets = plain_sar(floor=floor, margin=0.6)
    assert resets, "a reset must have happened"
    assert len(resets) < len(BATCHES)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)


def test_a_batch_costs_two_passes_each_way_and_one_forward_when_none_is_reliable() -> None:
    *_, learner = our_run("sar", OPTIONS, model=sure_net())
    assert (learner.forwards, learner.backwards) == (12, 12)
    *_, learner = our_run("sar", {**OPTIONS, "filter.margin": 0.0}, model=sure_net())
    assert (learner.forwards, learner.backwards) == (6, 0)


def left_out(model: nn.Module) -> list[str]:
    chosen = EarlyAffine().names(model)
    return [name for name in NormAffine().names(model) if name not in chosen]


def timm_model(name: str) -> nn.Module:
    import_torchvision()
    import timm

    with torch.device("meta"):
        model: nn.Module = timm.create_model(name)
    return model


def test_the_last_stage_of_a_resnet_stays() -> None:
    frozen = left_out(timm_model("resnet50"))
    assert {name.split(".")[0] for name in frozen} == {"layer4"}
    assert len(frozen) == 20


def test_the_last_three_blocks_of_a_transformer_stay_and_the_norm_behind_them() -> None:
    frozen = left_out(timm_model("vit_base_patch16_224"))
    assert {".".join(name.split(".")[:2]) for name in frozen} == {
        "blocks.9", "blocks.10", "blocks.11", "norm.weight", "norm.bias",
    }  # fmt: skip
    assert len(frozen) == 14


def test_small_and_bare_models_keep_something_to_learn() -> None:
    assert left_out(bn_net()) == []
    assert left_out(gn_net()) == []
    chain = nn.Sequential(*[nn.BatchNorm2d(3) for _ in range(4)])
    assert left_out(chain) == ["3.weight", "3.bias"]
    assert left_out(chain[:3]) == []  # a quarter of three is none
    assert EarlyAffine(frozen=0.99).names(chain) == ["0.weight", "0.bias"]
    assert EarlyAffine(frozen=0.0).names(chain) == NormAffine().names(chain)
    with pytest.raises(AcclimateError, match="no normalisation layers"):
        EarlyAffine().check(nn.Linear(2, 2))


def test_a_wrapped_model_has_the_stages_of_what_it_wraps() -> None:
    net = tiny_vit(depth=4)
    wrapped = nn.Sequential(nn.Identity(), nn.Sequential(net))
    assert [len(s) for s in norm_stages(wrapped)] == [len(s) for s in norm_stages(net)]
    assert [len(s) for s in norm_stages(net)] == [2, 2, 2, 3]


def test_several_processes_step_as_one() -> None:
    check_shared("sar", OPTIONS, sure_net())


def test_layer_norm() -> None:
    learner = Learner(tiny_vit(depth=4), get_recipe("sar", {"filter.margin": 1.1}))
    learner.step(images(4, size=16))
    assert "blocks.0.norm1.weight" in learner.learning
    assert "blocks.3.norm1.weight" not in learner.learning
