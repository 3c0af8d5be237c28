"""SANTA and RMT written out in plain PyTorch, which their tests share."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.methods.views import jittered

LR = 0.01


def projector_like(learning: dict[str, nn.Parameter]) -> nn.Module:
    """The projector a learner drew."""
    first, second = (learning[f"objective:{at}.weight"] for at in (0, 2))
    made = nn.Sequential(
        nn.Linear(first.shape[1], len(first)), nn.ReLU(), nn.Linear(len(first), len(second))
    ).double()
    own = {name.partition(":")[2]: p for name, p in learning.items() if ":" in name}
    made.load_state_dict({name: p.detach() for name, p in own.items()})
    return made


def contrast(groups: list[Tensor], projector: nn.Module) -> Tensor:
    """Each member against all others: the others of its image are to be found."""
    members = F.normalize(torch.cat([projector(each) for each in groups]), dim=1)
    images, losses = len(groups[0]), []
    for i in range(len(members)):
        others = [j for j in range(len(members)) if j != i]
        similar = {j: members[i] @ members[j] / 0.1 for j in others}
        everything = torch.stack(list(similar.values())).logsumexp(dim=0)
        losses += [everything - similar[j] for j in others if j % images == i % images]
    return torch.stack(losses).mean()


class PlainContrast:
    """What both have in common."""

    def __init__(
        self,
        net: nn.Sequential,
        learning: dict[str, nn.Parameter],
        projector: nn.Module,
        prototypes: Tensor | None,
        draw: torch.Generator,
    ) -> None:
        self.net, self.projector, self.draw = net, projector, draw
        self.source, self.prototypes = copy.deepcopy(net), prototypes
        self.parameters = [*learning.values(), *projector.parameters()]
        self.optimizer = torch.optim.SGD(self.parameters, lr=LR, momentum=0.9)

    def step(self, x: Tensor) -> Tensor:
        features, seen = self.net[:-1](x), self.net[:-1](jittered(x, self.draw))
        logits, logits_seen = self.net[-1](features), self.net[-1](seen)
        protos = self.prototypes
        if protos is None:
            rows = self.net[-1].weight.detach()
            length = features.detach().norm(dim=1).mean()
            protos = length * rows / rows.norm(dim=1, keepdim=True)
        alike = F.cosine_similarity(features.detach()[:, None], protos[None], dim=2)
        chosen = protos[alike.argmax(dim=1)]
        answer = self.answer(x, logits.detach())
        loss = self.training(x, logits, logits_seen)
        loss = loss + contrast([chosen, features, seen], self.projector)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.moved()
        return answer

    def answer(self, x: Tensor, logits: Tensor) -> Tensor:
        return logits

    def training(self, x: Tensor, logits: Tensor, seen: Tensor) -> Tensor:
        raise NotImplementedError

    def moved(self) -> None:
        """After a step."""
