"""LAME: neighbours of a batch agree on their answers; no parameter moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.learner.learner import Learner
from acclimate.methods.lame import agreed, nearest
from acclimate.methods.registry import get_recipe
from acclimate.stream import Stream
from nets import bn_net, gn_net, images, same_tensors, snapshot, tiny_vit

BATCHES = [images(16, seed=seed) for seed in range(3)]


def by_hand(net: nn.Sequential, x: Tensor, k: int) -> Tensor:
    """Row by row, with an affinity matrix, for more iterations than it takes."""
    with torch.no_grad():
        features = net[:-1](x)
        p = net(x).softmax(dim=1)
    unit = features / features.norm(dim=1, keepdim=True)
    affinity = torch.zeros(len(x), len(x), dtype=x.dtype)
    for i in range(len(x)):
        order = (unit - unit[i]).norm(dim=1).argsort().tolist()
        for j in [j for j in order if j != i][:k]:
            affinity[i, j] = 1
    z = p
    for _ in range(500):
        z = p * (affinity @ z).exp()
        z = z / z.sum(dim=1, keepdim=True)
    return z


@pytest.mark.parametrize("k", [1, 5, 40])
def test_three_batches_equal_the_iteration_by_hand(k: int) -> None:
    net = bn_net().double()
    learner = Learner(bn_net().double(), get_recipe("lame", {"predictor.neighbours": k}))
    for x in BATCHES:
        answer = learner.step(x.double()).logits.exp()
        torch.testing.assert_close(answer, by_hand(net, x.double(), k), atol=1e-5, rtol=0)


def test_the_prediction_is_a_log_probability_and_costs_one_pass() -> None:
    learner = Learner(bn_net(), get_recipe("lame"))
    answer = learner.step(BATCHES[0]).logits
    torch.testing.assert_close(answer.exp().sum(dim=1), torch.ones(16))
    assert (learner.forwards, learner.backwards) == (1, 0)
    assert torch.equal(learner.predict(BATCHES[0]), answer)


def test_one_image_is_predicted_as_the_model_does() -> None:
    answer = Learner(bn_net(), get_recipe("lame")).step(images(1)).logits
    torch.testing.assert_close(answer, bn_net()(images(1)).log_softmax(dim=1).detach())


def test_twins_are_neighbours_of_each_other_and_not_of_themselves() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    assert nearest(x, k=1).flatten().tolist() == [1, 0, 3, 2]


def test_an_image_that_is_not_finite_is_nobodys_neighbour() -> None:
    x = BATCHES[0].clone()
    x[3] = float("nan")
    answer = Learner(bn_net(), get_recipe("lame")).step(x).logits
    sound = torch.arange(len(x)) != 3
    assert torch.isfinite(answer[sound]).all()
    alone = Learner(bn_net(), get_recipe("lame", {"predictor.iterations": 100})).step(x[sound])
    torch.testing.assert_close(answer[sound], alone.logits, atol=1e-4, rtol=1e-4)


def test_adapt_returns_the_source_and_lames_own_predictions() -> None:
    data = torch.cat(BATCHES)
    result = acclimate.adapt(bn_net(), data, "lame", batch_size=16, progress=False, device="cpu")
    assert same_tensors(snapshot(result.model), snapshot(bn_net()))
    learner = Learner(bn_net(), get_recipe("lame"))
    expected = torch.cat([learner.predict(x) for x in BATCHES])
    assert torch.equal(result.predictions, expected.argmax(dim=1))
    torch.testing.assert_close(result.confidence, expected.exp().amax(dim=1))
    assert not torch.equal(result.predictions, bn_net()(data).argmax(dim=1))


@pytest.mark.parametrize("normalization", ["batch", "mixture"])
def test_with_new_statistics_adapt_predicts_as_the_recipe_does(normalization: str) -> None:
    options = {"normalization": normalization}
    result = acclimate.adapt(
        bn_net(), torch.cat(BATCHES), "lame", options=options, batch_size=16, progress=False
    )
    learner = Learner(bn_net(), get_recipe("lame", options))
    expected = torch.cat([learner.predict(x) for x in BATCHES])
    assert torch.equal(result.predictions, expected.argmax(dim=1))


def test_it_streams_and_goes_on_from_a_state() -> None:
    first, second = Stream(bn_net(), "lame"), Stream(bn_net(), "lame")
    answers = [first(x) for x in BATCHES]
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(BATCHES[0]), answers[0])
    assert not first.learns
    assert same_tensors(snapshot(first.model), snapshot(bn_net()))


@pytest.mark.parametrize(("net", "size"), [(gn_net, 8), (tiny_vit, 16)])
def test_any_architecture(net: Any, size: int) -> None:
    answer = Stream(net(), "lame")(images(6, size=size))
    assert answer.shape == (6, 5)
    assert torch.isfinite(answer).all()


def test_it_predicts_for_a_model_that_learns_too() -> None:
    recipe = get_recipe("ent", {"predictor": "lame", "optimizer.lr": 0.05})
    learner = Learner(bn_net(), recipe)
    learner.step(BATCHES[0])
    assert (learner.forwards, learner.backwards) == (1, 1)
    plain = Learner(bn_net(), get_recipe("ent", {"optimizer.lr": 0.05}))
    plain.step(BATCHES[0])
    torch.testing.assert_close(learner.learning, plain.learning)


def test_more_iterations_than_needed_change_nothing() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    neighbours = nearest(logits, k=3)
    few, many = (agreed(logits, neighbours, iterations=n) for n in (100, 1000))
    torch.testing.assert_close(few, many, atol=1e-5, rtol=0)
