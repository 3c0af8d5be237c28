"""T3A: centroids of confident images take the classifier's place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.stream import Stream
from nets import CLASSES, bn_net, gn_net, images, same_tensors, snapshot, tiny_vit

BATCHES = [images(12, seed=seed, shift=0.1 * seed) for seed in range(5)]


def learner(**options: Any) -> Learner:
    changes = {f"predictor.{name}": value for name, value in options.items()}
    return Learner(bn_net().double(), get_recipe("t3a", changes))


def by_hand(batches: list[Tensor], m: int | None) -> tuple[list[Tensor], Tensor]:
    """Lists of (entropy, unit vector) by class, sorted and cut."""
    net = bn_net().double()

    def unsure(z: Tensor) -> float:
        p = z.softmax(dim=0)
        return float(-(p * p.log()).sum())

    answers = []
    with torch.no_grad():
        sets = [[(unsure(net[-1](w)), w / w.norm())] for w in net[-1].weight]
        for x in batches:
            features = net[:-1](x.double())
            for f in features:
                z = net[-1](f)
                sets[int(z.argmax())].append((unsure(z), f / f.norm()))
            sets = [sorted(each, key=lambda pair: pair[0])[:m] for each in sets]
            means = [torch.stack([v for _, v in each]).mean(dim=0) for each in sets]
            centroids = torch.stack([mean / mean.norm() for mean in means])
            answers.append(features @ centroids.T)
    return answers, centroids


@pytest.mark.parametrize("m", [1, 3, 20, None])
def test_five_batches_equal_the_sets_by_hand(m: int | None) -> None:
    t3a = learner(supports=m)
    answers = [t3a.step(x.double()).logits for x in BATCHES]
    expected, centroids = by_hand(BATCHES, m)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    state = t3a.states["predictor"]
    torch.testing.assert_close(state.centroids(), centroids, atol=1e-9, rtol=0)
    assert m is None or int(state.classes.bincount().max()) <= m


def test_each_set_starts_with_its_row_and_how_sure_the_classifier_is_of_it() -> None:
    state, last = learner().states["predictor"], bn_net().double()[-1]
    p = last(last.weight).softmax(dim=1).detach()
    torch.testing.assert_close(state.entropies, -(p * p.log()).sum(dim=1))
    assert state.classes.tolist() == list(range(CLASSES))


def test_a_batch_costs_one_pass_and_no_gradient() -> None:
    t3a = learner()
    for x in BATCHES:
        t3a.step(x.double())
    assert (t3a.forwards, t3a.backwards) == (len(BATCHES), 0)


def test_asking_adds_no_support() -> None:
    t3a = learner()
    t3a.step(BATCHES[0].double())
    before = {k: v.clone() for k, v in t3a.state_tensors().items()}
    t3a.predict(BATCHES[1].double())
    assert same_tensors(t3a.state_tensors(), before)


def test_the_state_goes_on_elsewhere_however_many_supports_it_has() -> None:
    first, second = learner(), learner()
    for x in BATCHES[:3]:
        first.step(x.double())
    second.step(BATCHES[4].double())
    second.load_state_tensors(first.state_tensors())
    for x in BATCHES[3:]:
        assert torch.equal(first.step(x.double()).logits, second.step(x.double()).logits)


def test_the_model_returned_predicts_alone() -> None:
    data = torch.cat(BATCHES)
    result = acclimate.adapt(bn_net(), data, "t3a", batch_size=12, progress=False, device="cpu")
    assert result.history.epochs[0].before_update.images == len(data)
    before, after = snapshot(bn_net()), snapshot(result.model)
    assert {k for k in before if not torch.equal(before[k], after[k])} == {"9.weight", "9.bias"}
    assert not after["9.bias"].any()
    assert torch.equal(result.model(data).argmax(dim=1), result.predictions)
    assert all(p.requires_grad for p in result.model.parameters())


def test_a_refused_run_hands_the_sources_classifier_back() -> None:
    refusing = Guard(check_every=1, min_diversity=3.0, action="stop")
    result = acclimate.adapt(
        bn_net(), torch.cat(BATCHES), "t3a", batch_size=12, progress=False, guard=refusing
    )
    assert result.verdict.word == "refused"
    assert same_tensors(snapshot(result.model), snapshot(bn_net()))


def test_the_guard_of_a_stream_takes_supports_back() -> None:
    guard = Guard(check_every=2, min_diversity=3.0)
    stream = Stream(bn_net(), "t3a", guard=guard)
    with pytest.warns(UserWarning, match="went back to step 0"):
        _ = [stream(x) for x in BATCHES[:2]]
    assert len(stream.learner.states["predictor"].classes) == CLASSES


def test_a_stream_pauses_resets_and_goes_on_from_its_state() -> None:
    stream, other = Stream(bn_net(), "t3a"), Stream(bn_net(seed=3), "t3a")
    first = [stream(x) for x in BATCHES]
    stream.pause()
    kept = len(stream.learner.states["predictor"].classes)
    stream(BATCHES[0])
    assert len(stream.learner.states["predictor"].classes) == kept
    other.load_state_dict(stream.state_dict())
    assert torch.equal(other(BATCHES[1]), stream(BATCHES[1]))
    stream.reset()
    assert all(torch.equal(a, stream(x)) for a, x in zip(first, BATCHES, strict=True))


def test_an_image_that_is_not_finite_joins_no_set() -> None:
    x = BATCHES[0].clone()
    x[2] = float("nan")
    stream = Stream(bn_net(), "t3a")
    stream(x)
    assert len(stream.learner.states["predictor"].classes) == CLASSES + len(x) - 1
    assert torch.isfinite(stream(BATCHES[1])).all()


class ConvNet(nn.Sequential):
    """Its classifier is a convolution over one position, and has no bias."""

    def __init__(self, *, pooled: bool = True) -> None:
        body = list(bn_net())[:6]
        pool = nn.AdaptiveAvgPool2d(1 if pooled else 2)
        head = nn.Conv2d(8, CLASSES, 1, bias=False)
        super().__init__(*body, pool, head, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(("net", "size"), [(gn_net, 8), (tiny_vit, 16), (ConvNet, 8)])
def test_any_architecture(net: Any, size: int) -> None:
    torch.manual_seed(0)
    model = net().eval()
    data = images(60, size=size)
    result = acclimate.adapt(model, data, "t3a", progress=False, guard="observe", device="cpu")
    assert torch.equal(result.model(data).argmax(dim=1), result.predictions)


def test_a_classifier_over_many_positions_is_refused() -> None:
    with pytest.raises(AcclimateError, match=r"expected 8 features, .* got 32; T3A needs a linear"):
        Stream(ConvNet(pooled=False), "t3a")(BATCHES[0])
