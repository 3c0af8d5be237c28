"""AdaContrast, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.adacontrast import AdaContrast, contrastive, votes
from acclimate.methods.registry import get_recipe
from nets import bn_net, images
from plain import plain

LR = 0.02
BATCHES = [images(8, seed=seed).double() for seed in range(5)]
SMALL = {"objective.queue": 20, "objective.neighbours": 3, "optimizer.lr": LR}


def learner(**options: Any) -> Learner:
    changes = {**SMALL, **{key.replace("__", "."): value for key, value in options.items()}}
    return Learner(bn_net().double(), get_recipe("adacontrast", changes))


def unit(features: Tensor) -> Tensor:
    return features / features.norm(dim=1, keepdim=True)


def written_out(*, momentum: float) -> Any:
    """Image by image, with lists for queues; views as a part with the same seed draws them."""
    objective, draw = AdaContrast(), learner().states["objective"]
    net = plain(bn_net().double())
    slow = copy.deepcopy(net)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=LR, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    bank: list[tuple[Tensor, Tensor]] = []
    queue: list[tuple[Tensor, int]] = []
    answers, seen_labels = [], []
    for x in BATCHES:
        weak, query, key = objective.views(draw, x)
        with torch.no_grad():
            answers.append(net(x))
            features = unit(net[:-1](weak))
            labels = []
            for feature, logits in zip(features, net(weak), strict=True):
                by_nearness = sorted(bank, key=lambda e: -float(e[0] @ feature))
                said = [p for _, p in by_nearness[:3]] or [logits]
                labels.append(int(torch.stack(said).mean(dim=0).argmax()))
            keys = unit(slow[:-1](key))
            slow_features, slow_p = unit(slow[:-1](weak)), slow(weak).softmax(dim=1)
        queries, logits = unit(net[:-1](query)), net(query)
        contrasted = []
        for q, k, label in zip(queries, keys, labels, strict=True):
            others = [(q @ other / 0.07).exp() for other, its in queue if its != label]
            own = (q @ k / 0.07).exp()
            contrasted.append(-(own / (own + sum(others))).log())
        mean = logits.softmax(dim=1).mean(dim=0)
        loss = (
            F.cross_entropy(logits, torch.tensor(labels))
            + torch.stack(contrasted).mean()
            + (mean * mean.log()).sum()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bank = [*bank, *zip(slow_features, slow_p, strict=True)][-20:]
        queue = [*queue, *zip(keys, labels, strict=True)][-20:]
        seen_labels += labels
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters(), strict=True):
                old.copy_(momentum * old + (1 - momentum) * new)
    return answers, net, bank, queue, seen_labels


def test_five_steps_equal_plain_pytorch() -> None:
    ours = learner(teacher__momentum=0.9)
    answers = [ours.step(x).logits for x in BATCHES]
    expected, net, bank, queue, labels = written_out(momentum=0.9)
    torch.testing.assert_close(answers, expected, atol=1e-7, rtol=0)
    parameters = dict(net.named_parameters())
    torch.testing.assert_close(dict(ours.learning), parameters, atol=1e-7, rtol=0)
    assert (parameters["0.weight"] - bn_net().double()[0].weight).abs().max() > 1e-3
    assert len(set(labels)) > 1, "one class alone would have no negatives to leave out"
    queues = ours.states["objective"]
    torch.testing.assert_close(queues.features, torch.stack([f for f, _ in bank]))
    torch.testing.assert_close(queues.probabilities, torch.stack([p for _, p in bank]))
    torch.testing.assert_close(queues.keys, torch.stack([k for k, _ in queue]))
    assert queues.labels.tolist() == [label for _, label in queue]


def test_the_prediction_and_two_looks_each_for_student_and_teacher() -> None:
    ours = learner()
    for x in BATCHES:
        ours.step(x)
    assert (ours.forwards, ours.backwards) == (5 * 5, 5)


def test_neighbours_vote_with_their_predictions() -> None:
    bank = F.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), dim=1)
    near = F.normalize(torch.tensor([[5.0, 0.1]]), dim=1)
    said = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.1, 0.9]])
    torch.testing.assert_close(votes(near, bank, said, neighbours=2), torch.tensor([[0.6, 0.4]]))
    all_of_them = votes(near, bank, said, neighbours=9)
    torch.testing.assert_close(all_of_them, said.mean(dim=0, keepdim=True))


def test_an_image_of_the_same_class_is_no_negative_and_an_empty_queue_no_contrast() -> None:
    q = F.normalize(images(3).flatten(1), dim=1)
    nothing = contrastive(q, q, q[:0], torch.zeros(3, 0, dtype=torch.bool), temperature=0.1)
    assert torch.equal(nothing, torch.zeros(3))
    alike = contrastive(q, q, q, torch.ones(3, 3, dtype=torch.bool), temperature=0.1)
    assert torch.equal(alike, torch.zeros(3))
    assert (contrastive(q, q, q, torch.eye(3) > 2, temperature=0.1) > 0.5).all()


def test_views_are_one_weak_and_two_strong() -> None:
    ramp = torch.linspace(0, 1, 28).expand(100, 1, 28, 28)
    weak, query, key = AdaContrast().views(learner().states["objective"], ramp)
    assert weak.shape == query.shape == key.shape == ramp.shape
    assert not torch.allclose(query, key)
    rises = weak[:, 0, 14, 20] > weak[:, 0, 14, 8]
    assert 35 < int(rises.sum()) < 65
    seen = torch.where(rises[:, None], weak[:, 0, 14], weak[:, 0, 14].flip(1))
    moved = (seen[:, 14] - ramp[:, 0, 14, 14]).abs()
    assert 0.04 < float(moved.max()) < 0.12  # a fourteenth of the side, and half a pixel
    # The narrowest crop of a fifth of the area spans 0.39 of the ramp, at 0.6 of its contrast.
    rows = torch.cat([query, key])[:, 0, 14]
    assert 0.2 < float((rows.amax(dim=1) - rows.amin(dim=1)).min()) < 0.36


def test_a_model_without_a_classifier_is_refused() -> None:
    pool = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(AcclimateError, match="found no linear layer"):
        Learner(pool, get_recipe("adacontrast"))
