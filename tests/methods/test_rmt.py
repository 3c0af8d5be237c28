"""RMT, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import same_tensors
from plain import BATCHES, copied, plain, sure_net
from plain_contrast import LR, PlainContrast, projector_like

OPTIONS = {"optimizer.lr": LR, "objective.width": 6, "teacher.momentum": 0.9}


class PlainRMT(PlainContrast):
    def __init__(self, learner: Learner) -> None:
        draw = torch.Generator()
        draw.set_state(learner.generator.get_state())
        net = plain(sure_net())
        assert isinstance(net, torch.nn.Sequential)
        projector = projector_like(learner.learning)
        super().__init__(net, dict(net.named_parameters()), projector, None, draw)
        self.teacher = copy.deepcopy(net)

    @torch.no_grad()
    def answer(self, x: Tensor, logits: Tensor) -> Tensor:
        return logits + self.teacher(x)

    def training(self, x: Tensor, logits: Tensor, seen: Tensor) -> Tensor:
        label = self.teacher(x).detach()
        terms = []
        for z in (logits, seen):
            there = -(label.softmax(dim=1) * z.log_softmax(dim=1)).sum(dim=1)
            back = -(z.softmax(dim=1) * label.log_softmax(dim=1)).sum(dim=1)
            terms.append((there + back) / 2)
        return ((terms[0] + terms[1]) / 2).mean()

    @torch.no_grad()
    def moved(self) -> None:
        both = zip(self.teacher.parameters(), self.net.parameters(), strict=True)
        for slow, fast in both:
            slow.copy_(0.9 * slow + 0.1 * fast)


def test_six_steps_equal_plain_pytorch() -> None:
    learner = Learner(sure_net(), get_recipe("rmt", OPTIONS))
    by_hand = PlainRMT(learner)
    answers = [learner.step(x).logits for x in BATCHES]
    expected = [by_hand.step(x) for x in BATCHES]
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    for ours, theirs in zip(learner.learning.values(), by_hand.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
    assert (learner.forwards, learner.backwards) == (3 * len(BATCHES), len(BATCHES))


def test_predicting_asks_both_and_draws_nothing() -> None:
    learner = Learner(sure_net(), get_recipe("rmt", OPTIONS))
    learner.step(BATCHES[0])
    before, passes = copied(learner), learner.forwards
    answer = learner.predict(BATCHES[1])
    assert learner.forwards == passes + 2
    assert same_tensors(before, copied(learner))
    both = learner.forward(BATCHES[1], learning=False).logits.detach()
    teacher = learner.states["teacher"].tensors
    with torch.no_grad():
        slow = learner.forward(BATCHES[1], weights=teacher, learning=False).logits
    torch.testing.assert_close(answer, both + slow)
