"""ROID and CMF written out in plain PyTorch, which their tests share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.methods.views import jittered
from nets import CLASSES
from plain import plain_entropy, plain_model, sure_net

LR = 0.01


def scaled(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


class PlainROID:
    """The loss and the answer, one line of the paper after the other."""

    def __init__(self) -> None:
        self.draw = torch.Generator().manual_seed(0)
        self.average = torch.full((CLASSES,), 1 / CLASSES).double()
        self.net, self.affine = plain_model(sure_net())
        self.source = {n: p.detach().clone() for n, p in self.affine.items()}
        self.optimizer = torch.optim.SGD(self.affine.values(), lr=LR, momentum=0.9)
        self.counted: list[int] = []

    def step(self, x: Tensor) -> Tensor:
        logits = self.net(x)
        p = logits.softmax(dim=1)
        with torch.no_grad():
            diverse = scaled(1 - F.cosine_similarity(self.average[None], p, dim=1))
            certain = scaled(-plain_entropy(logits))
            counts = diverse >= diverse.mean()
            weights = torch.exp(3 * diverse * certain)[counts]
            self.average = 0.9 * self.average + 0.1 * p.mean(dim=0)
        self.counted.append(int(counts.sum()))
        q = p[counts].clamp(max=0.99)
        ratio = -(q * torch.log(q / (1 - q) + 1e-5)).sum(dim=1)
        seen = self.net(jittered(x[counts], self.draw, noise=0.0))
        there = -(p[counts] * seen.log_softmax(dim=1)).sum(dim=1)
        back = -(seen.softmax(dim=1) * logits[counts].log_softmax(dim=1)).sum(dim=1)
        loss = (weights * (ratio + (there + back) / 2)).sum() / len(x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.anchor()
        share = p.detach().mean(dim=0)
        smooth = max(1 / len(x), 1 / CLASSES) / share.max()
        return logits.detach() * (share + smooth) / (1 + smooth * CLASSES)

    @torch.no_grad()
    def anchor(self) -> None:
        for name, parameter in self.affine.items():
            parameter.copy_(0.99 * parameter + 0.01 * self.source[name])
