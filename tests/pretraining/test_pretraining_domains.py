"""Training on two domains, on real digits: clear ones with labels, blurred ones without."""

from __future__ import annotations

import pytest
import torch

from acclimate.data import open_images
from acclimate.data.corruptions import corrupt
from acclimate.demo.digits import PREPROCESSING, digits
from acclimate.demo.model import build_network
from acclimate.pretraining import (
    Dann,
    Method,
    Plan,
    SelfEnsembling,
    Vanilla,
    load_examples,
    pretrain,
)

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
