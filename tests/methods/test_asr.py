"""ASR on ETA's loss, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from nets import CLASSES
from plain import BATCHES, has_moved, our_run, plain_entropy, plain_model, sure_net

# Every image counts, so that what is new here stands alone; and a bound that is soon crossed.
OPTIONS = {
    "optimizer.lr": 0.05,
    "filter.margin": 1.1,
    "filter.max_similarity": 1.0,
    "regularizer.share": 0.26,
    "regularizer.slope": 2.0,
    "regularizer.weight": 200.0,
}
Named = dict[str, Tensor]


class Plain:
    """The reset and the pull, line by line."""

    def __init__(self) -> None:
        self.net, self.affine = plain_model(sure_net())
        self.source_net, _ = plain_model(sure_net())
        self.source = {n: p.detach().clone() for n, p in self.affine.items()}
        self.bound, self.pull = math.log(CLASSES * 0.26), 0.0
        self.squares: list[Named] = []
        self.values: list[Named] = []
        self.known: tuple[Named, Named] | None = None
        self.kept: list[int] = []
        self.start()

    def start(self) -> None:
        self.optimizer = torch.optim.SGD(self.affine.values(), lr=0.05, momentum=0.9)
        self.squares, self.values = [], []

    def step(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        entropies = plain_entropy(logits)
        loss = (torch.exp(1.1 * math.log(CLASSES) - entropies.detach()) * entropies).mean()
        names, parameters = list(self.affine), list(self.affine.values())
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
        self.squares.append(dict(zip(names, [g**2 for g in gradients], strict=True)))
        self.values.append({n: p.detach().clone() for n, p in self.affine.items()})
        if self.known is not None:
            for name, parameter in self.affine.items():
                away = parameter - self.known[1][name]
                loss = loss + self.pull * (self.known[0][name] * away**2).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.look(x, logits.detach())
        return logits.detach()

    @torch.no_grad()
    def look(self, x: Tensor, logits: Tensor) -> None:
        changed = (self.source_net(x).argmax(dim=1) != logits.argmax(dim=1)).double().mean().item()
        now = plain_entropy(logits.mean(dim=0)[None]).item()
        self.pull = 200 * changed**2
        if now >= self.bound:
            rate = 0.15 * changed + 0.85
            self.bound = rate * self.bound + (1 - rate) * now
            return
        means = [
            {n: torch.stack([each[n] for each in seen]).mean(dim=0) for n in self.affine}
            for seen in (self.squares, self.values)
        ]
        if self.known is not None:
            means = [
                {n: 0.9 * old[n] + 0.1 * new[n] for n in new}
                for old, new in zip(self.known, means, strict=True)
            ]
        self.known = means[0], means[1]
        scope = max(0.5 - 2 * (self.bound - now), 0)
        self.kept.append(sum(i < scope * len(self.affine) for i in range(len(self.affine))))
        for name in list(self.affine)[self.kept[-1] :]:
            self.affine[name].copy_(self.source[name])
        self.bound = math.log(CLASSES * 0.26)
        self.start()


def run(plain: Plain, batches: list[Tensor]) -> list[Tensor]:
    return [plain.step(batch) for batch in batches]


def test_twelve_steps_equal_plain_pytorch() -> None:
    batches = BATCHES * 2
    answers, parameters, learner = our_run("asr", OPTIONS, model=sure_net(), batches=batches)
    plain = Plain()
    expected = run(plain, batches)
    assert 1 < len(plain.kept) < len(batches), "some steps must reset, and some not"
    assert len(set(plain.kept)) > 1, "and not all as far as one another"
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, {n: p.detach() for n, p in plain.affine.items()})
    assert learner.states["regularizer"].resets == len(plain.kept)
    assert (learner.forwards, learner.backwards) == (2 * len(batches), len(batches))


def test_the_pull_and_the_reset_matter() -> None:
    batches = BATCHES * 2
    whole, *_ = our_run("asr", OPTIONS, model=sure_net(), batches=batches)
    changes: list[dict[str, Any]] = [
        {"regularizer.weight": 0.0},
        {"regularizer.slope": 1000.0},
        {"regularizer.share": 0.01},
    ]
    for change in changes:
        less, *_ = our_run("asr", {**OPTIONS, **change}, model=sure_net(), batches=batches)
        assert not torch.allclose(whole[-1], less[-1], atol=1e-6), change


def test_where_no_image_counts_it_still_sees_whether_the_model_collapses() -> None:
    options = {**OPTIONS, "filter.margin": 0.0, "regularizer.share": 1.0}
    _, parameters, learner = our_run("asr", options, model=sure_net())
    assert not has_moved(parameters, learner, by=0)
    assert learner.states["regularizer"].resets == len(BATCHES)
    assert (learner.forwards, learner.backwards) == (2 * len(BATCHES), 0)
