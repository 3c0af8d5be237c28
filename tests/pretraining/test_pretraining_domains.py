"""Training on two domains, on real digits: clear ones with labels, blurred ones without."""

from __future__ import annotations

import pytest
import torch

from acclimate.data import open_images
from acclimate.data.corruptions import corrupt
from acclimate.demo.digits import PREPROCESSING, digits
from acclimate.demo.model import build_network
from acclimate.errors import AcclimateError
from acclimate.pretraining import (
    Dann,
    Method,
    Plan,
    SelfEnsembling,
    Vanilla,
    load_examples,
    pretrain,
)
from acclimate.pretraining.domains import reversal
from acclimate.pretraining.methods import Batch

CLEAR, LABELS = digits("train")
HELD_OUT, TRUTH = digits("held-out")
BLURRED, BLURRED_HELD_OUT = (
    torch.from_numpy(corrupt(part, "gaussian_blur", 4, preset="cifar"))[:, None]
    for part in (CLEAR, HELD_OUT)
)


def target_error(method: Method) -> float:
    torch.manual_seed(0)
    model = build_network()
    source = open_images(CLEAR, preprocessing=PREPROCESSING, labels=LABELS)
    plan = Plan(epochs=12, batch_size=64, lr=0.05)
    pretrain(model, load_examples(source), method, plan, target=BLURRED, progress=False)
    with torch.no_grad():
        answers = model(PREPROCESSING.normalize(BLURRED_HELD_OUT)).argmax(dim=1).numpy()
    return 100 * float((answers != TRUTH).mean())


@pytest.fixture(scope="module")
def vanilla() -> float:
    return target_error(Vanilla(flip=False, margin=1))


@pytest.mark.parametrize(
    ("method", "share"), [(Dann(), 0.7), (SelfEnsembling(), 0.4)], ids=["dann", "self-ensembling"]
)
def test_the_target_gains_by_it(method, share, vanilla):
    assert vanilla > 50
    assert target_error(method) < share * vanilla


def test_the_gradient_is_turned_as_strongly_as_asked_and_no_earlier():
    images = torch.from_numpy(CLEAR[:8])[:, None]
    for progress, expected in ((0.2, 0.0), (0.5, 0.0), (0.75, 0.3 * reversal(0.5))):
        features = torch.ones(8, 3, requires_grad=True)
        head = torch.nn.Linear(3, 2)
        batch = Batch(
            images, torch.zeros(8, dtype=torch.int64), PREPROCESSING.standardize,
            torch.Generator(), target=images, progress=progress,
        )  # fmt: skip
        method = Dann(strength=0.3, delay=0.5)
        method.loss(lambda _, f=features: (torch.zeros(8, 10), f), head, batch).backward()
        given = torch.ones(8, 3, requires_grad=True)
        sum(
            torch.nn.functional.cross_entropy(head(given), torch.full((8,), domain))
            for domain in (0, 1)
        ).backward()
        torch.testing.assert_close(features.grad, -expected * given.grad)


@pytest.mark.parametrize("options", [{"strength": -1.0}, {"delay": 1.0}])
def test_absurd_options_of_dann(options):
    with pytest.raises(AcclimateError, match=f"expected a {next(iter(options))}"):
        Dann(**options)
