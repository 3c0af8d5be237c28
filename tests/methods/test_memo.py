"""MEMO: one image, many copies, one step, one answer, and all is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.learner.learner import Learner
from acclimate.methods.memo import SingleImage, mixed
from acclimate.methods.registry import get_recipe
from acclimate.methods.views import random_crops
from acclimate.stream import Stream
from nets import bn_net, gn_net, images, same_tensors, snapshot, tiny_vit

COPIES = 6
SMALL = {"objective.augmentations": COPIES, "optimizer.lr": 0.05}


class SixteenToOne(nn.Module):
    """Batch norm whose statistics are 16 parts the source's and one the batch's.

    The latter are those that PyTorch's own batch norm would remember: without a gradient.
    """

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        own = nn.BatchNorm2d(layer.num_features, momentum=1.0).to(x)
        own(x)
        mean = (16 * layer.running_mean + own.running_mean) / 17
        var = (16 * layer.running_var + own.running_var) / 17
        unit = (x.movedim(1, -1) - mean) / (var + layer.eps).sqrt()
        return (unit * layer.weight + layer.bias).movedim(-1, 1)


def by_hand(x: Tensor, *, steps: int = 1, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    answers = []
    for image in x:
        net = bn_net().double()
        net[1], net[4] = SixteenToOne(net[1]), SixteenToOne(net[4])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(steps):
            copies = torch.stack([image] * COPIES)
            views = mixed(random_crops(copies, (0.08, 1.0), generator=draw), draw)
            p = net(views).softmax(dim=1).mean(dim=0)
            optimizer.zero_grad()
            (-(p * p.log()).sum()).backward()
            optimizer.step()
        answers.append(net(image[None])[0].detach())
    return torch.stack(answers)


@pytest.mark.parametrize("steps", [1, 3])
def test_four_images_equal_plain_pytorch(steps: int) -> None:
    x = images(4).double()
    learner = Learner(bn_net().double(), get_recipe("memo", {**SMALL, "epochs": steps}))
    answer = learner.step(x).logits
    torch.testing.assert_close(answer, by_hand(x, steps=steps), atol=1e-9, rtol=0)
    still = {**SMALL, "optimizer.lr": 0.0}
    before = Learner(bn_net().double(), get_recipe("memo", still)).step(x).logits
    assert float((answer - before).abs().max()) > 1e-3


def test_an_image_costs_one_pass_of_its_copies_and_one_gradient() -> None:
    learner = Learner(bn_net(), get_recipe("memo", SMALL))
    seen = []
    learner.model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    learner.step(images(2))
    assert seen == [COPIES, 1] * 2  # its copies, and what it says after
    assert learner.backwards == 2


def test_every_image_starts_from_the_source_and_has_copies_of_its_own() -> None:
    learner = Learner(bn_net(), get_recipe("memo", SMALL))
    start = snapshot(learner.model)
    x = images(1)
    first, second = learner.step(x).logits, learner.step(x).logits
    assert same_tensors(snapshot(learner.model), start)
    assert not torch.equal(first, second)  # other copies
    again = Learner(bn_net(), get_recipe("memo", SMALL))
    assert torch.equal(again.step(torch.cat([x, x])).logits, torch.cat([first, second]))


def test_how_many_images_come_together_makes_no_difference() -> None:
    x = images(6)
    whole = Learner(bn_net(), get_recipe("memo", SMALL), batch_size=6)
    parts = Learner(bn_net(), get_recipe("memo", SMALL), batch_size=2)
    together = torch.cat([parts.step(each).logits for each in x.split(2)])
    torch.testing.assert_close(whole.step(x).logits, together)
    assert whole.lr == parts.lr


def test_adapt_gives_its_predictions_and_returns_the_source() -> None:
    x = images(5)
    result = acclimate.adapt(
        bn_net(), x, "memo", options=SMALL, batch_size=2, progress=False, device="cpu"
    )
    expected = Learner(bn_net(), get_recipe("memo", SMALL), batch_size=2).step(x).logits
    assert torch.equal(result.predictions, expected.argmax(dim=1))
    assert same_tensors(snapshot(result.model), snapshot(bn_net()))
    assert result.history.epochs == []
    assert result.notes == []


@pytest.mark.parametrize(("net", "size"), [(gn_net, 8), (tiny_vit, 16)])
def test_it_streams_on_any_architecture_and_goes_on_from_its_state(net: Any, size: int) -> None:
    x = images(2, size=size)
    first, second = Stream(net(), "memo", options=SMALL), Stream(net(seed=2), "memo", options=SMALL)
    first(x)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert same_tensors(snapshot(first.model), snapshot(net()))


def test_an_image_that_is_not_finite_is_predicted_by_the_source() -> None:
    x = images(2)
    x[0] = float("nan")
    stream = Stream(bn_net(), "memo", options=SMALL)
    torch.testing.assert_close(stream(x)[1], bn_net()(x)[1].detach())
    assert torch.isfinite(stream(images(2))).all()


def test_copies_follow_the_generator_and_the_range_of_the_image() -> None:
    x = images(3, size=12)
    one, two = (mixed(x, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.allclose(one, mixed(x, torch.Generator().manual_seed(5)))
    # Whatever the picture's mean and unit, the copy is the same picture.
    scaled = mixed(7 * x - 3, torch.Generator().manual_seed(4))
    torch.testing.assert_close(scaled, 7 * one - 3, atol=1e-3, rtol=1e-4)


def test_copies_are_moved_as_far_as_augmix_moves_them() -> None:
    ramp = torch.linspace(-1, 1, 33).expand(300, 1, 33, 33)
    centre = mixed(ramp, torch.Generator().manual_seed(0))[:, 0, 16, 16].abs()
    # A tenth of the side at most by each operation, three of them, of three chains, half mixed in.
    assert 0.08 < float(centre.max()) < 0.25


def test_copies_count_as_one_image_in_the_statistics() -> None:
    assert SingleImage(prior=16).batch_weight(64) == SingleImage(prior=16).batch_weight(1) == 1 / 17
