"""NEO: features less their mean so far, and a bias that does the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.stream import Stream
from nets import bn_net, gn_net, images, same_tensors, snapshot, tiny_vit
from plain import copied

BATCHES = [images(n, seed=n, shift=0.1 * n) for n in (12, 5, 1, 9)]


def by_hand(*, momentum: float | None) -> tuple[list[Tensor], Tensor]:
    net = bn_net().double()
    seen, mean, answers = torch.zeros(0, 8).double(), torch.zeros(8).double(), []
    with torch.no_grad():
        for x in BATCHES:
            features = net[:-1](x.double())
            seen = torch.cat([seen, features])
            if momentum is None:
                mean = seen.mean(dim=0)
            else:
                mean = (1 - momentum) * mean + momentum * features.mean(dim=0)
            answers.append(net[-1](features - mean))
    return answers, mean


@pytest.mark.parametrize("momentum", [None, 0.1, 1.0])
def test_four_batches_equal_the_mean_by_hand(momentum: float | None) -> None:
    neo = Learner(bn_net().double(), get_recipe("neo", {"predictor.momentum": momentum}))
    answers = [neo.step(x.double()).logits for x in BATCHES]
    expected, mean = by_hand(momentum=momentum)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(neo.states["predictor"].mean, mean)
    assert (neo.forwards, neo.backwards) == (len(BATCHES), 0)


def test_predicting_moves_no_mean_and_the_state_resumes_elsewhere() -> None:
    first, second = (Learner(bn_net(), get_recipe("neo")) for _ in range(2))
    for x in BATCHES[:2]:
        first.step(x)
    known = copied(first)
    first.predict(BATCHES[2])
    assert same_tensors(known, copied(first))
    second.step(BATCHES[3])
    second.load_state_tensors(known)
    for x in BATCHES[2:]:
        assert torch.equal(first.step(x).logits, second.step(x).logits)


@pytest.mark.parametrize(("net", "size"), [(bn_net, 8), (gn_net, 8), (tiny_vit, 16)])
def test_the_model_returned_has_another_bias_and_predicts_the_same(net: Any, size: int) -> None:
    data = images(40, size=size)
    result = acclimate.adapt(net(), data, "neo", batch_size=10, progress=False, guard="observe")
    before, after = snapshot(net()), snapshot(result.model)
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(changed) == 1
    assert changed[0].endswith("bias")
    assert torch.equal(result.model(data).argmax(dim=1), result.predictions)


def test_a_stream_resets_pauses_and_bears_images_that_are_not_finite() -> None:
    stream = Stream(bn_net(), "neo", guard="off")
    first = [stream(x) for x in BATCHES]
    stream.pause()
    assert torch.equal(stream(BATCHES[0]), stream(BATCHES[0]))
    stream.resume()
    stream.reset()
    assert all(torch.equal(a, stream(x)) for a, x in zip(first, BATCHES, strict=True))
    broken = BATCHES[0].clone()
    broken[2] = float("nan")
    stream(broken)
    assert torch.isfinite(stream(BATCHES[1])).all()
    assert stream.double()(BATCHES[1].double()).dtype == torch.float64


def test_a_classifier_without_a_bias_or_over_many_positions_is_refused() -> None:
    net = bn_net()
    net[-1].bias = None
    with pytest.raises(AcclimateError, match=r"expected a classifier with a bias, .*choose t3a"):
        Stream(net, "neo")
    head = nn.Conv2d(8, 5, 1)
    wide = nn.Sequential(*net[:6], nn.AdaptiveAvgPool2d(2), head, nn.AdaptiveAvgPool2d(1))
    with pytest.raises(AcclimateError, match=r"expected 8 features, .* got 32; NEO needs a linear"):
        Stream(nn.Sequential(*wide, nn.Flatten()), "neo")(BATCHES[0])
