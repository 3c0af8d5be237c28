"""Training on two domains: real digits, clear with labels and blurred without; DANN's judge."""

from __future__ import annotations

import pytest
import torch

from acclimate.data import open_images
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.errors import AcclimateError
from acclimate.models.networks.digits import digits_network
from acclimate.pretraining import (
    Dann,
    Method,
    Plan,
    SelfEnsembling,
    UdaSs,
    Vanilla,
    load_examples,
    pretrain,
)
from acclimate.pretraining.augment import relit
from acclimate.pretraining.dann import reversal
from acclimate.pretraining.methods import Batch

CLEAR, LABELS = digits("train")
HELD_OUT, TRUTH = digits("held-out")
BLURRED, BLURRED_HELD_OUT = (
    torch.from_numpy(corrupt(part, "gaussian_blur", 4, preset="cifar"))[:, None]
    for part in (CLEAR, HELD_OUT)
)


def target_error(method: Method) -> float:
    torch.manual_seed(0)
    model = digits_network()
    source = open_images(CLEAR, preprocessing=PREPROCESSING, labels=LABELS)
    plan = Plan(epochs=12, batch_size=64, lr=0.05)
    pretrain(model, load_examples(source), method, plan, target=BLURRED, progress=False)
    with torch.no_grad():
        predictions = model(PREPROCESSING.normalize(BLURRED_HELD_OUT)).argmax(dim=1).numpy()
    return 100 * float((predictions != TRUTH).mean())


@pytest.fixture(scope="module")
def vanilla() -> float:
    return target_error(Vanilla(flip=False, margin=1))


@pytest.mark.parametrize(
    ("method", "share"),
    [(Dann(strength=0.3), 0.5), (SelfEnsembling(), 0.4)],
    ids=["dann", "self-ensembling"],
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
        truth = torch.tensor([0] * 8 + [1] * 8)
        torch.nn.functional.cross_entropy(head(torch.cat([given, given])), truth).backward()
        torch.testing.assert_close(features.grad, -expected * given.grad)


def test_the_judge_of_dann_sees_a_shift_of_the_mean():
    draw = torch.Generator().manual_seed(0)
    images = torch.from_numpy(CLEAR[:64])[:, None]
    method = Dann()
    torch.manual_seed(0)
    judge = method.heads(torch.nn.Identity(), 5)
    optimizer = torch.optim.SGD(judge.parameters(), lr=0.1)
    alike = torch.zeros(64, 10)
    for _ in range(100):
        offsets = iter((0.0, 3.0))  # the source is asked first

        def forward(_, offsets=offsets):
            return alike, torch.randn(64, 5, generator=draw) + next(offsets)

        batch = Batch(
            images, torch.zeros(64, dtype=torch.int64), PREPROCESSING.standardize,
            torch.Generator(), target=images,
        )  # fmt: skip
        loss = method.loss(forward, judge, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    of_the_classes = torch.tensor(10.0).log()
    assert loss - of_the_classes < 0.1  # not knowing costs 0.69


def test_domains_of_unequal_counts_are_judged_by_picture():
    images, other = torch.from_numpy(CLEAR[:6])[:, None], torch.from_numpy(CLEAR[:2])[:, None]
    labels = torch.zeros(6, dtype=torch.int64)
    batch = Batch(images, labels, PREPROCESSING.standardize, torch.Generator(), target=other)
    judge = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(judge.weight)
    judge.bias.data = torch.tensor([0.75, 0.25]).log()
    loss = Dann().loss(lambda x: (torch.zeros(len(x), 10), torch.ones(len(x), 3)), judge, batch)
    judged = -(6 * torch.tensor(0.75).log() + 2 * torch.tensor(0.25).log()) / 8
    torch.testing.assert_close(loss, torch.tensor(10.0).log() + judged)


def test_each_channel_in_a_light_of_its_own_is_colour():
    grey = torch.rand(16, 1, 6, 6, generator=torch.Generator().manual_seed(0)).expand(-1, 3, -1, -1)
    whole, apart = (
        relit(grey, torch.Generator().manual_seed(1), channels=channels)
        for channels in (False, True)
    )
    assert torch.equal(whole[:, 0], whole[:, 2])
    assert not torch.equal(apart[:, 0], apart[:, 2])
    alone = relit(grey[:, :1], torch.Generator().manual_seed(1))
    assert torch.equal(relit(grey[:, :1], torch.Generator().manual_seed(1), channels=True), alone)
    assert torch.equal(whole[:, :1], alone)


@pytest.mark.parametrize("kind", [Dann, UdaSs])
def test_colour_reaches_what_the_model_sees(kind):
    images = torch.full((4, 3, 8, 8), 90, dtype=torch.uint8)
    seen = []

    def forward(x):
        seen.append(x)
        return torch.zeros(len(x), 10), torch.zeros(len(x), 5)

    for colour in (False, True):
        method = kind(intensity=True, colour=colour)
        labels = torch.zeros(4, dtype=torch.int64)
        batch = Batch(images, labels, lambda x: x, torch.Generator().manual_seed(0), target=images)
        method.loss(forward, method.heads(torch.nn.Identity(), 5), batch)
        grey = [torch.equal(x[:, 0], x[:, 1]) for x in seen]
        assert not any(grey) if colour else all(grey)
        seen.clear()
    with pytest.raises(AcclimateError, match="expected intensity=true with colour=true"):
        kind(colour=True)
