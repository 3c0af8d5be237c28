"""SPA, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import acclimate
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.spa import noised, without_low_frequencies
from acclimate.methods.views import generator_on
from nets import bn_net, images, snapshot, tiny_vit
from plain import BATCHES, has_moved, our_run, plain_model, sure_net

LR, RATE, NOISE = 0.02, 3.0, 0.3
OPTIONS: dict[str, Any] = {
    "optimizer.lr": LR, "objective.rate": RATE, "objective.noise": NOISE, "objective.patches": 2,
    "objective.frequencies": 0.5,
}  # fmt: skip


class Plain:
    """Three optimisers: of the affines, of the map behind the features, of the adversaries."""

    def __init__(self) -> None:
        self.draw = torch.Generator().manual_seed(0)
        self.net, self.affine = plain_model(sure_net())
        self.map = torch.eye(8).double().requires_grad_()
        self.alpha = torch.full((2, 2), NOISE**0.5, dtype=torch.float64).requires_grad_()
        self.optimizers = [
            torch.optim.SGD(self.affine.values(), lr=LR, momentum=0.9),
            torch.optim.SGD([self.map], lr=LR * RATE, momentum=0.9),
            torch.optim.SGD([self.alpha], lr=1.0, momentum=0.9, maximize=True),
        ]
        self.counted: list[int] = []

    def step(self, x: Tensor) -> Tensor:
        draw = generator_on(torch.device("cpu"), seeded_by=self.draw)
        logits = self.net(x).detach()
        confidence, loss = logits.softmax(dim=1).amax(dim=1), torch.zeros(())
        views = [without_low_frequencies(x, 0.5, draw=draw), noised(x, self.alpha**2, draw=draw)]
        for view in views:
            seen = self.net[-1](self.net[:-1](view) @ self.map.T)  # type: ignore[index]
            counts = confidence > seen.softmax(dim=1).amax(dim=1)
            self.counted.append(int(counts.sum()))
            log_q, p = seen[counts].log_softmax(dim=1), logits[counts].softmax(dim=1)
            loss = loss + F.kl_div(log_q, p, reduction="batchmean")
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            self.alpha /= ((self.alpha**2).mean() / NOISE).sqrt()
            self.alpha.clamp_(-1, 1)
        return logits


def test_six_steps_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("spa", OPTIONS, model=sure_net())
    plain = Plain()
    expected = [plain.step(batch) for batch in BATCHES]
    assert all(0 < n < 16 for n in plain.counted)
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    state = learner.states["objective"]
    own = torch.eye(8) + RATE**0.5 * state.change.weight.detach()
    torch.testing.assert_close(own, plain.map.detach(), atol=1e-9, rtol=0)
    torch.testing.assert_close(state.alpha, plain.alpha.detach(), atol=1e-9, rtol=0)
    assert float(state.alpha.std()) > 1e-3
    affine = {name: p.detach() for name, p in plain.affine.items()}
    ours = {name: p for name, p in parameters.items() if name in affine}
    torch.testing.assert_close(ours, affine, atol=1e-9, rtol=0)
    assert (learner.forwards, learner.backwards) == (3 * len(BATCHES), len(BATCHES))


@pytest.mark.parametrize("size", [(16, 16), (15, 9), (14, 11)])
def test_only_low_frequencies_go_and_a_share_of_them(size: tuple[int, int]) -> None:
    x = torch.randn(200, 3, *size, generator=torch.Generator().manual_seed(0)).double()
    draw = torch.Generator().manual_seed(1)
    less = without_low_frequencies(x, 0.4, draw=draw)
    before, after = (torch.fft.fftshift(torch.fft.fft2(each), dim=(2, 3)) for each in (x, less))
    gone = (after.abs() < 1e-9).double().mean(dim=(0, 1))
    rows, columns = (gone > 0).any(dim=1).nonzero(), (gone > 0).any(dim=0).nonzero()
    assert len(rows) <= size[0] * 0.2 + 1
    assert len(columns) <= size[1] * 0.2 + 1
    assert 0.3 < float(gone[size[0] // 2, size[1] // 2]) < 0.5, "the mean of the image is one"
    stays = after.abs() > 1e-9
    torch.testing.assert_close(after[stays], before[stays])


def test_noise_is_the_same_for_all_and_within_their_range() -> None:
    x = torch.rand(5, 3, 10, 10)
    parts = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    seen = noised(x, parts, draw=torch.Generator().manual_seed(0))
    assert torch.equal(seen[:, :, 5:], x[:, :, 5:])
    assert torch.equal(seen[:, :, :, :5], x[:, :, :, :5])
    assert torch.equal(seen[:1, :, :5, 5:].expand(5, -1, -1, -1), seen[:, :, :5, 5:])
    assert seen.min() >= x.min()
    assert seen.max() <= x.max()


@pytest.mark.parametrize(("net", "size"), [(bn_net, 8), (lambda: tiny_vit(depth=4), 16)])
def test_the_model_returned_has_no_map(net: Any, size: int) -> None:
    data = images(24, size=size)
    result = acclimate.adapt(
        net(), data, "spa", options=OPTIONS, batch_size=8, guard="observe", progress=False,
    )  # fmt: skip
    assert snapshot(result.model).keys() == snapshot(net()).keys()
    assert len(result.predictions) == len(data)


def test_where_no_image_counts_nothing_moves() -> None:
    sure = bn_net().double()
    with torch.no_grad():
        sure[-1].bias[0] = 500.0  # of everything, about everything
    learner = Learner(sure, get_recipe("spa", OPTIONS))
    for batch in BATCHES[:2]:
        learner.step(batch)
    now = {name: p.detach() for name, p in learner.learning.items()}
    assert not has_moved(now, learner, by=0)
    assert torch.isfinite(learner.states["objective"].alpha).all()
