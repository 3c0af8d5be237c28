"""A step: clipped gradients, and the model behind torch.compile."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from acclimate.pretraining import Dann, Plan, SelfEnsembling, UdaSs, Vanilla, pretrain
from acclimate.pretraining.stepping import Stepper
from coloured import examples, net


def gradient_norm(stepper: Stepper) -> float:
    norms = [p.grad.norm() for p in stepper.together.parameters() if p.grad is not None]
    return float(torch.stack(norms).norm())


def test_gradients_are_scaled_down_to_the_norm_asked_for_and_not_up():
    data, norms = examples(), []
    for clip in (None, 0.01, 1e6):
        plan = Plan(epochs=1, batch_size=32, clip=clip)
        stepper = Stepper(net(), data, Dann(), plan, target=255 - data.images, compiled=False)
        stepper.generator.manual_seed(0)
        stepper.step(torch.arange(32), 0, steps=1)
        norms.append(gradient_norm(stepper))
    plain, clipped, loose = norms
    assert plain == loose > 0.1
    assert clipped == pytest.approx(0.01, rel=1e-3)


def test_clipping_holds_a_training_that_would_run_away():
    model = net()
    plan = Plan(epochs=3, batch_size=32, lr=0.1, clip=1.0)
    with torch.no_grad():
        model[-1].weight.mul_(1e4)
    before = model[-1].weight.detach().clone()
    pretrain(model, examples(), Vanilla(), plan, progress=False)
    # Nine steps with a momentum of 0.9, none of a gradient longer than 1.
    assert (model[-1].weight - before).norm() < 9 * 0.1 * 10 + 0.01 * before.norm()


@pytest.mark.parametrize("method", [Vanilla(), Dann(), UdaSs(), SelfEnsembling()])
def test_a_compiled_model_learns_the_same(method, tmp_path):
    data, plan = examples(), Plan(epochs=2, batch_size=32, lr=0.05)
    plain = net()
    first = pretrain(plain, data, method, plan, target=255 - data.images, progress=False)
    for _ in ("from the start", "from its checkpoint"):
        torch._dynamo.reset()
        model = net()
        trained = pretrain(
            model, data, method, plan, target=255 - data.images, out=tmp_path,
            compiled="eager", progress=False,
        )  # fmt: skip
        assert trained.losses == pytest.approx(first.losses, rel=1e-4)
        for key, value in model.state_dict().items():  # no prefix of the compiler's in it
            torch.testing.assert_close(value, plain.state_dict()[key], atol=1e-4, rtol=1e-3)
        assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_model_is_really_called_through_the_compiler(monkeypatch):
    seen = []

    def spy(model: nn.Module, **options: str) -> nn.Module:
        seen.append(options)
        return model

    monkeypatch.setattr(torch, "compile", spy)
    for compiled in (False, True, "aot_eager"):
        plan = Plan(epochs=1, batch_size=48)
        pretrain(net(), examples(), Vanilla(), plan, compiled=compiled, progress=False)
    assert seen == [{}, {"backend": "aot_eager"}]
