"""Conjugate pseudo-labels against the paper's formulas, solved and written out in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.conjugate import Conjugate, poly_conjugate
from acclimate.methods.registry import get_recipe
from nets import bn_net, images, tiny_vit
from plain import BATCHES, has_moved, our_run, plain_entropy, plain_model


def plain_poly(h: Tensor) -> Tensor:
    z = h.softmax(dim=1)
    matrix = torch.eye(h.shape[1], dtype=h.dtype) + 6 * (
        torch.diag_embed(z) - z[:, :, None] * z[:, None, :]
    )
    y = torch.linalg.solve(matrix, z)
    return torch.logsumexp(h, dim=1) - (y * h).sum(dim=1) + 6 * (y * (1 - z)).sum(dim=1)


def plain_squared(h: Tensor) -> Tensor:
    return -0.5 * (h * h).sum(dim=1)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize(
    ("loss", "conjugate"),
    [("cross-entropy", plain_entropy), ("poly", plain_poly), ("squared", plain_squared)],
)
def test_six_steps_equal_plain_pytorch(
    loss: str, conjugate: Callable[[Tensor], Tensor], temperature: float
) -> None:
    options = {
        "optimizer.lr": 0.02,
        "objective.trained_with": loss,
        "objective.epsilon": 6,
        "objective.temperature": temperature,
    }
    answers, parameters, learner = our_run("conjugate", options)
    net, affine = plain_model(bn_net().double())
    optimizer = torch.optim.SGD(affine.values(), lr=0.02, momentum=0.9)
    expected = []
    for batch in BATCHES:
        logits = net(batch)
        expected.append(logits.detach())
        optimizer.zero_grad()
        conjugate(logits / temperature).mean().backward()
        optimizer.step()
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    affines = {n: p.detach() for n, p in affine.items()}
    torch.testing.assert_close(parameters, affines, atol=1e-9, rtol=0)


@pytest.mark.parametrize("loss", ["cross-entropy", "poly", "squared"])
def test_at_its_label_the_training_loss_is_stationary(loss: str) -> None:
    """What makes a label conjugate: with it held fixed, no logit wants to move."""
    h = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    p = h.softmax(dim=1)
    if loss == "cross-entropy":
        training = torch.logsumexp(h, dim=1) - (p.detach() * h).sum(dim=1)
    elif loss == "poly":
        y = (p / (1 + 6 * p)).detach()
        y = y / y.sum(dim=1, keepdim=True)
        training = torch.logsumexp(h, dim=1) - (y * h).sum(dim=1) + 6 * (y * (1 - p)).sum(dim=1)
        torch.testing.assert_close(training, poly_conjugate(h, epsilon=6))
    else:
        training = 0.5 * (h - h.detach()).square().sum(dim=1)
    (gradient,) = torch.autograd.grad(training.sum(), h)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


def test_for_cross_entropy_it_is_tent() -> None:
    ours, mine, _ = our_run("conjugate", {"optimizer.lr": 0.05})
    tent, theirs, _ = our_run("tent", {"optimizer.lr": 0.05})
    torch.testing.assert_close(ours, tent, atol=1e-12, rtol=0)
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("loss", ["cross-entropy", "poly", "squared"])
def test_a_batch_costs_one_forward_and_one_backward_pass(loss: str) -> None:
    *_, learner = our_run("conjugate", {"objective.trained_with": loss})
    assert (learner.forwards, learner.backwards) == (len(BATCHES), len(BATCHES))


def test_extreme_logits_give_finite_losses_and_gradients() -> None:
    h = torch.tensor([[300.0, -300.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    loss = poly_conjugate(h, epsilon=8.0)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert h.grad is not None
    assert torch.isfinite(h.grad).all()


def test_layer_norm_and_two_classes() -> None:
    options = {"objective.trained_with": "poly"}
    learner = Learner(tiny_vit(num_classes=2), get_recipe("conjugate", options))
    assert torch.isfinite(learner.step(images(4, size=16)).logits).all()


def test_an_unknown_training_loss_is_refused() -> None:
    with pytest.raises(AcclimateError, match="unknown training loss 'pole'; did you mean 'poly'"):
        Conjugate(trained_with="pole")
