"""CMF: ROID's loss, and a Kalman filter between parameters and source."""

from __future__ import annotations

import pytest
import torch

from acclimate.methods import cmf
from plain import BATCHES, has_moved, our_run, sure_net
from plain_roid import LR, PlainROID


class Filtered(PlainROID):
    """ROID with the filter in the anchor's place."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.hidden = {n: s.clone() for n, s in self.source.items()}
        self.variance, self.noise = 0.0, noise
        self.gains: list[float] = []

    @torch.no_grad()
    def anchor(self) -> None:
        predicted = 0.99**2 * self.variance + self.noise
        gain = max((1 - self.noise) / (predicted + 1 - self.noise), 0.89)
        gain = 1.0 if gain >= 0.9999 else gain
        self.variance = gain * predicted
        self.gains.append(gain)
        for name, parameter in self.affine.items():
            recovered = 0.99 * self.hidden[name] + 0.01 * self.source[name]
            self.hidden[name] = gain * recovered + (1 - gain) * parameter
            parameter.copy_(0.99 * parameter + 0.01 * self.hidden[name])


# Of the 28 values that learn here: as published, for so many, for ever more than is let through.
@pytest.mark.parametrize(
    ("values", "noise", "gains"),
    [(38_400, 0.005, {1.0}), (28, 0.02, None), (28, 0.5, {0.89})],
)
def test_six_steps_equal_plain_pytorch(
    values: int, noise: float, gains: set[float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmf, "VALUES", values)
    options = {"optimizer.lr": LR, "regularizer.noise": noise}
    answers, parameters, learner = our_run("cmf", options, model=sure_net())
    assert sum(p.numel() for p in parameters.values()) == 28
    plain = Filtered(noise * 28 / values)
    expected = [plain.step(batch) for batch in BATCHES]
    assert set(plain.gains) == gains if gains else len(set(plain.gains)) == len(BATCHES)
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, {n: p.detach() for n, p in plain.affine.items()})
    assert learner.states["regularizer"].variance == pytest.approx(plain.variance)
    assert (learner.forwards, learner.backwards) == (12, 6)


def test_the_filter_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cmf, "VALUES", 28)
    options = {"optimizer.lr": 5 * LR, "regularizer.memory": 0.9, "regularizer.momentum": 0.5}
    runs = [
        our_run("cmf", {**options, "regularizer.noise": noise}, model=sure_net())[0][-1]
        for noise in (0.0, 0.1)
    ]
    assert not torch.allclose(*runs, atol=1e-4)
