"""CMF: ROID's loss, and a Kalman filter between parameters and source."""

from __future__ import annotations

import math

import pytest
import torch

from nets import CLASSES
from plain import BATCHES, has_moved, our_run, sure_net
from plain_roid import LR, PlainROID


class Filtered(PlainROID):
    """ROID with the filter in the anchor's place."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.hidden = {n: s.clone() for n, s in self.source.items()}
        self.variance = 0.0
        self.noise = noise * sum(p.numel() for p in self.affine.values()) / 38400
        self.gains: list[float] = []

    @torch.no_grad()
    def anchor(self) -> None:
        predicted = 0.99**2 * self.variance + self.noise
        gain = min(max((1 - self.noise) / (predicted + 1 - self.noise), 0.89), 1.0)
        gain = 1.0 if gain >= 0.9999 else gain
        self.variance = gain * predicted
        self.gains.append(gain)
        for name, parameter in self.affine.items():
            recovered = 0.99 * self.hidden[name] + 0.01 * self.source[name]
            self.hidden[name] = gain * recovered + (1 - gain) * parameter
            parameter.copy_(0.99 * parameter + 0.01 * self.hidden[name])


# With the few values of a small net the published noise is none; 100 is more than is let through.
@pytest.mark.parametrize("noise", [0.005, 0.9, 50 / CLASSES])
def test_six_steps_equal_plain_pytorch(noise: float) -> None:
    noise = min(noise, 0.99)
    options = {"optimizer.lr": LR, "regularizer.noise": noise}
    answers, parameters, learner = our_run("cmf", options, model=sure_net())
    plain = Filtered(noise)
    expected = [plain.step(batch) for batch in BATCHES]
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, {n: p.detach() for n, p in plain.affine.items()})
    assert learner.states["regularizer"].variance == pytest.approx(plain.variance)
    assert (learner.forwards, learner.backwards) == (12, 6)


def test_as_many_values_as_a_vision_transformers_give_the_published_gains() -> None:
    variance, gains = 0.0, []
    for _ in range(200):
        predicted = 0.99**2 * variance + 0.005
        gains.append(0.995 / (predicted + 0.995))
        variance = gains[-1] * predicted
    assert math.isclose(gains[0], 0.995)
    assert 0.93 < gains[-1] < 0.95, "so that a fifteenth of what was learnt enters the estimate"
