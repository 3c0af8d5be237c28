"""Training: the loop, its checkpoint, AugMix, and the usual augmentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import nn

from acclimate.data import open_images
from acclimate.errors import AcclimateError
from acclimate.methods.ttt import turned
from acclimate.pretraining import (
    METHODS,
    AugMix,
    Dann,
    Plan,
    SelfEnsembling,
    UdaSs,
    Vanilla,
    learning_rate,
    load_examples,
    pretrain,
)
from acclimate.pretraining.augment import crop_and_flip
from acclimate.pretraining.augmix import OPERATIONS, _operated, augmix
from acclimate.pretraining.methods import Batch
from acclimate.pretraining.uda_ss import quarter, upside_down
from coloured import RECORD, examples, net, same


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# The loop.


@pytest.mark.parametrize("method", [Vanilla(), AugMix()])
def test_it_learns(method):
    data, model = examples(), net()
    trained = pretrain(model, data, method, Plan(epochs=8, batch_size=32, lr=0.2), progress=False)
    assert len(trained.losses) == 8
    assert trained.losses[-1] < 0.6 * trained.losses[0]
    with torch.no_grad():
        predictions = model(RECORD.normalize(data.images)).argmax(dim=1)
    assert (predictions == data.labels).double().mean() > 0.9


def test_same_seed_same_model():
    first, again, other = net(), net(), net()
    plan = {"epochs": 2, "batch_size": 32, "lr": 0.1}
    for model, seed in ((first, 0), (again, 0), (other, 1)):
        pretrain(model, examples(), Vanilla(), Plan(**plan, seed=seed), progress=False)
    assert same(first, again)
    assert not same(first, other)


def test_a_loss_that_runs_away_is_named():
    with pytest.raises(AcclimateError, match="use a smaller lr"):
        pretrain(net(), examples(), Vanilla(), Plan(epochs=5, lr=1e30), progress=False)


def test_a_model_for_other_channels():
    grey = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 3))
    with pytest.raises(AcclimateError, match=r"failed on images of shape .* expected 1 channels"):
        pretrain(grey, examples(), Vanilla(), Plan(epochs=1), progress=False)


def test_a_model_with_too_few_outputs():
    with pytest.raises(AcclimateError, match="at least 3 outputs for these labels, got 2"):
        pretrain(
            nn.Sequential(nn.Flatten(), nn.Linear(192, 2)),
            examples(),
            Vanilla(),
            Plan(epochs=1),
            progress=False,
        )


def test_images_without_labels_cannot_be_trained_on():
    images = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(AcclimateError, match="label for every image"):
        load_examples(open_images(images, preprocessing=RECORD, labels=[0, 1, -1, 0]))
    with pytest.raises(AcclimateError, match="expected uint8"):
        load_examples(open_images(torch.rand(4, 3, 8, 8), labels=[0] * 4))


def test_the_rate_rises_and_falls():
    rates = [learning_rate(step, steps=100, peak=2.0) for step in range(101)]
    assert max(rates) == rates[20] == 2.0
    assert rates[:21] == sorted(rates[:21])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[100] == pytest.approx(0)
    assert set(METHODS) >= {"vanilla", "augmix"}


# Two domains.


def target(count: int = 96) -> torch.Tensor:
    """The same images in other colours."""
    return 255 - examples(count).images


@pytest.mark.parametrize("method", [Dann(), UdaSs()])
def test_two_domains_are_learnt_together(method):
    plan, model = Plan(epochs=3, batch_size=32, lr=0.05), net()
    trained = pretrain(model, examples(), method, plan, target=target(), progress=False)
    assert trained.losses[-1] < trained.losses[0]


def test_the_loss_of_self_ensembling_by_hand():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    method = SelfEnsembling(augmentation="none", confidence=0.5)
    teacher = method.heads(model, 192)
    nn.init.normal_(teacher[1].weight, std=0.2)
    images, labels = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8), torch.arange(6) % 3
    other = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8)
    batch = Batch(images, labels, lambda x: x, generator(), target=other)
    loss = method.loss(lambda x: (model(x), x), teacher, batch)
    s, t = (m(other / 255).softmax(dim=1) for m in (model, teacher))
    sure = (t.max(dim=1).values > 0.5).float()
    assert 0 < sure.sum() < 6
    entropy = nn.functional.cross_entropy(model(images / 255), labels)
    agreement = (((s - t) ** 2).mean(dim=1) * sure).mean()
    mean = s.mean(dim=0)
    # The mean over classes times their number, as in the code of French et al.
    balance = -(mean.log() / 3 + (1 - mean).log() * 2 / 3).mean() * 3
    want = entropy + 3 * (agreement + 0.005 * sure.mean() * balance)
    assert loss.item() == pytest.approx(want.item(), rel=1e-5)


def test_the_teacher_is_the_moving_average_and_is_handed_back():
    method, model = SelfEnsembling(momentum=0.9), net()
    teacher = method.heads(model, 8)
    before = {k: v.clone() for k, v in teacher.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    method.after_step(model, teacher, progress=0.5)
    weight = "0.weight"
    assert torch.allclose(teacher.state_dict()[weight], before[weight] + 0.1)
    assert not any(p.requires_grad for p in teacher.parameters())
    method.finish(model, teacher)
    assert same(model, teacher)


def test_what_the_ramp_counts():
    teacher = torch.tensor([[0.9, 0.1], [0.6, 0.4]])
    sure, share = SelfEnsembling(confidence=0.8)._counting(teacher, 0.0)
    assert sure.tolist() == [1, 0]
    assert share == 0.5
    levels = [
        SelfEnsembling(confidence=None)._counting(teacher, p)[1].item() for p in (0, 0.25, 0.5, 1)
    ]
    assert levels[0] < 0.01 < levels[1] < levels[2] == levels[3] == 1
    with pytest.raises(AcclimateError, match="none, tf or tfa"):
        SelfEnsembling(augmentation="all")


def test_a_method_of_two_domains_wants_the_other_one():
    with pytest.raises(AcclimateError, match="Dann learns from images of a target"):
        pretrain(net(), examples(), Dann(), Plan(epochs=1), progress=False)


def test_the_tasks_are_what_they_say():
    images = torch.rand(4, 3, 8, 8)
    on_their_sides = turned(images, torch.tensor([0, 1, 2, 3]))
    for k in range(4):
        assert torch.equal(on_their_sides[k], images[k].rot90(k, dims=(1, 2)))
    upside = upside_down(images, torch.tensor([0, 1, 0, 1]))
    assert torch.equal(upside[0], images[0])
    assert torch.equal(upside[1], images[1].flip(1))
    quarters = quarter(images, torch.tensor([0, 1, 2, 3]))
    assert torch.equal(quarters[1], images[1][:, :4, 4:])
    assert torch.equal(quarters[2], images[2][:, 4:, :4])
    with pytest.raises(AcclimateError, match=r"expected square \w+ to turn, got 8×6"):
        turned(images[..., :6], torch.zeros(4, dtype=torch.int64))


# Augmentation.


def test_crops_are_pieces_of_the_reflected_picture():
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    out = crop_and_flip(images, generator())
    assert out.dtype == torch.uint8
    mirrored = 0
    for before, after in zip(images, out, strict=True):
        padded = np.pad(before.numpy(), ((0, 0), (4, 4), (4, 4)), mode="reflect")
        pieces = [padded[:, y : y + 8, x : x + 8] for y in range(9) for x in range(9)]
        straight = any(np.array_equal(after, piece) for piece in pieces)
        flipped = any(np.array_equal(after, piece[:, :, ::-1]) for piece in pieces)
        assert straight or flipped
        mirrored += not straight
    assert 10 < mirrored < 40


def operated(image: np.ndarray, name: str, strength: float) -> np.ndarray:
    tensor = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    which = torch.tensor([OPERATIONS.index(name)])
    out = _operated(tensor, which, torch.tensor([strength]), torch.tensor([1.0]))
    return (out[0].permute(1, 2, 0) * 255).round().numpy().astype(int)


@pytest.mark.parametrize(
    ("name", "pillow"),
    [
        ("autocontrast", ImageOps.autocontrast),
        ("equalize", ImageOps.equalize),
        ("posterize", lambda image: ImageOps.posterize(image, 3)),
        ("solarize", lambda image: ImageOps.solarize(image, 256 - 76)),
    ],
)
def test_tonal_operations_are_pillows(name, pillow):
    smooth = np.linspace(30, 220, 32 * 32 * 3).reshape(32, 32, 3)
    noise = np.random.default_rng(0).normal(0, 20, smooth.shape)
    image = np.clip(smooth + noise, 5, 250).astype(np.uint8)
    want = np.asarray(pillow(Image.fromarray(image))).astype(int)
    apart = np.abs(operated(image, name, 0.3) - want)
    assert np.percentile(apart, 99) <= 2


def test_geometric_operations_move_the_picture():
    image = np.zeros((33, 33, 3), np.uint8)
    image[16, 16] = 255
    image[4, 20] = 255
    still = operated(image, "rotate", 0.0)
    assert np.array_equal(still, image)
    for name in ("rotate", "shear_x", "translate_x", "translate_y", "shear_y"):
        assert not np.array_equal(operated(image, name, 0.3), image)
    # Turned and sheared about the middle, which stays.
    for name in ("rotate", "shear_x", "shear_y"):
        assert operated(image, name, 0.3)[16, 16].min() == 255
    assert np.argwhere(operated(image, "translate_x", 0.3)[..., 0] > 100)[:, 0].tolist() == [4, 16]


def test_mixtures_stay_near_the_picture_and_in_range():
    images = torch.rand(64, 3, 16, 16, generator=generator())
    mixed = augmix(images, generator(1))
    assert mixed.min() >= 0
    assert mixed.max() <= 1
    assert not torch.equal(mixed, images)
    assert torch.equal(mixed, augmix(images, generator(1)))
    within = torch.corrcoef(torch.stack([mixed.flatten(), images.flatten()]))[0, 1]
    assert within > 0.5


def test_the_loss_of_augmix_by_hand():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    seen = []

    def watched(x):
        seen.append(model(x))
        return seen[-1], seen[-1]

    batch = Batch(images, labels, lambda x: x, generator())
    loss = AugMix().loss(watched, nn.Module(), batch)
    p = [part.softmax(dim=1) for part in seen[0].chunk(3)]
    mean = (p[0] + p[1] + p[2]) / 3
    divergence = sum((q * (q / mean).log()).sum(dim=1).mean() for q in p) / 3
    entropy = -seen[0][:6].log_softmax(dim=1)[torch.arange(6), labels].mean()
    assert loss.item() == pytest.approx((entropy + 12 * divergence).item(), rel=1e-5)
