"""SANTA, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.santa import agreement
from nets import CLASSES, images
from plain import BATCHES, plain_model, sure_net
from plain_contrast import LR, PlainContrast, contrast, projector_like

OPTIONS: dict[str, Any] = {"optimizer.lr": LR, "objective.width": 6}


class PlainSANTA(PlainContrast):
    def training(self, x: Tensor, logits: Tensor, seen: Tensor) -> Tensor:
        anchor = self.source(x).detach().log_softmax(dim=1)
        own, view = (-(z.softmax(dim=1) * anchor).sum(dim=1) for z in (logits, seen))
        return ((own + view) / 2).mean()


def started(learner: Learner, prototypes: Tensor | None) -> PlainSANTA:
    """With the learner's projector, and to draw what it will."""
    draw = torch.Generator()
    draw.set_state(learner.generator.get_state())
    net, affine = plain_model(sure_net())
    assert isinstance(net, torch.nn.Sequential)
    projector = projector_like(learner.learning)
    return PlainSANTA(net, affine, projector, prototypes, draw)


def compare(learner: Learner, plain: PlainSANTA) -> None:
    before = (learner.forwards, learner.backwards)
    answers = [learner.step(x).logits for x in BATCHES]
    expected = [plain.step(x) for x in BATCHES]
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    for ours, theirs in zip(learner.learning.values(), plain.parameters, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
    spent = (learner.forwards - before[0], learner.backwards - before[1])
    assert spent == (3 * len(BATCHES), len(BATCHES))


def test_six_steps_without_source_images_equal_plain_pytorch() -> None:
    learner = Learner(sure_net(), get_recipe("santa", OPTIONS))
    compare(learner, started(learner, None))
    assert (learner.learning["objective:0.weight"] != learner.source["objective:0.weight"]).any()


@pytest.mark.parametrize("labelled", [True, False])
def test_six_steps_with_prototypes_of_source_images_equal_plain_pytorch(
    tmp_path: Path, labelled: bool
) -> None:
    source = images(30, seed=7, shift=0.0)
    net, _ = plain_model(sure_net())
    with torch.no_grad():
        features = net[:-1](source.double())  # type: ignore[index]
        labels = net[-1](features).argmax(dim=1)  # type: ignore[index]
    if labelled:
        labels = torch.arange(30) % CLASSES
    path = tmp_path / ("source.npz" if labelled else "source.npy")
    if labelled:
        np.savez(path, images=source.numpy(), labels=labels.numpy())
    else:
        np.save(path, source.numpy())
    learner = Learner(sure_net(), get_recipe("santa", {**OPTIONS, "objective.images": str(path)}))
    learner.start_epoch()  # all in one batch: their order does not matter
    learner.start_epoch()  # once is enough
    assert learner.states["objective"].counts.sum() == 30
    groups = [features[labels == c] for c in range(CLASSES) if (labels == c).any()]
    prototypes = torch.stack([each.mean(dim=0) for each in groups])
    compare(learner, started(learner, prototypes))


def test_the_contrast_is_the_supervised_one() -> None:
    draw = torch.Generator().manual_seed(0)
    groups = [torch.randn(4, 3, generator=draw) for _ in range(3)]
    found = agreement(groups, temperature=0.1).mean()
    torch.testing.assert_close(found, contrast(groups, torch.nn.Identity()))


def test_source_images_that_are_not_there_are_refused(tmp_path: Path) -> None:
    missing = {"objective.images": str(tmp_path / "nowhere")}
    learner = Learner(sure_net(), get_recipe("santa", missing))
    with pytest.raises(AcclimateError, match="nowhere"):
        learner.start_epoch()
