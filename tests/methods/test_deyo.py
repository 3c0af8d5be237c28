"""DeYO against a few lines of plain PyTorch, with the same draws."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from acclimate.learner.learner import Learner
from acclimate.methods.deyo import shuffled_patches
from acclimate.methods.registry import get_recipe
from nets import CLASSES, bn_net, images, tiny_vit
from plain import BATCHES, has_moved, our_run, plain_entropy, plain_model, sure_net

OPTIONS = {"optimizer.lr": 0.01, "filter.min_difference": 0.02}


def plain_shuffle(batch: Tensor, draw: torch.Generator) -> Tensor:
    """Two by two pixels a patch of an image of eight by eight."""
    order = torch.rand(len(batch), 16, generator=draw).argsort(dim=1)
    out = torch.empty_like(batch)
    for i in range(len(batch)):
        for place in range(16):
            row, column = divmod(place, 4)
            y, x = divmod(int(order[i, place]), 4)
            piece = batch[i, :, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
            out[i, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = piece
    return out


def plain_deyo() -> tuple[list[Tensor], dict[str, Tensor], list[tuple[int, int]]]:
    draw = torch.Generator().manual_seed(0)
    net, affine = plain_model(sure_net())
    optimizer = torch.optim.SGD(affine.values(), lr=0.01, momentum=0.9)
    answers, counted = [], []
    for batch in BATCHES:
        logits = net(batch)
        answers.append(logits.detach())
        entropies, p = plain_entropy(logits), logits.detach().softmax(dim=1)
        mixed = plain_shuffle(batch, draw)
        reliable = torch.where(entropies < 0.5 * math.log(CLASSES))[0]
        with torch.no_grad():
            again = net(mixed[reliable]).softmax(dim=1)
        labels = p[reliable].argmax(dim=1)
        rows = torch.arange(len(reliable))
        plpd = p[reliable][rows, labels] - again[rows, labels]
        chosen = plpd > 0.02
        counted.append((len(reliable), int(chosen.sum())))
        some = entropies[reliable][chosen]
        alpha = 1 / torch.exp(some.detach() - 0.4 * math.log(CLASSES))
        alpha = alpha + 1 / torch.exp(-plpd[chosen])
        optimizer.zero_grad()
        (alpha * some).mean().backward()
        optimizer.step()
    return answers, {n: p.detach() for n, p in affine.items()}, counted


def test_six_steps_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("deyo", OPTIONS, model=sure_net())
    expected, affine, counted = plain_deyo()
    assert all(0 < chosen < reliable for reliable, chosen in counted)
    assert any(reliable < 16 for reliable, _ in counted)
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)


def test_a_batch_costs_two_forward_passes_and_one_back() -> None:
    *_, learner = our_run("deyo", OPTIONS, model=sure_net())
    assert (learner.forwards, learner.backwards) == (12, 6)


def test_without_a_reliable_image_nothing_is_shown_twice_or_learnt_from() -> None:
    _, parameters, learner = our_run("deyo", {**OPTIONS, "filter.margin": 0.0}, model=sure_net())
    assert (learner.forwards, learner.backwards) == (6, 0)
    assert not has_moved(parameters, learner, by=0)


def test_without_an_image_bound_to_shapes_there_is_no_backward_pass() -> None:
    options = {**OPTIONS, "filter.min_difference": 1.0}
    *_, learner = our_run("deyo", options, model=sure_net())
    assert (learner.forwards, learner.backwards) == (12, 0)


def test_a_single_reliable_image_is_not_normalised_by_itself() -> None:
    net = sure_net()
    mixed = plain_shuffle(BATCHES[0], torch.Generator().manual_seed(0))
    with torch.no_grad():
        before, after = (plain_model(net)[0](x) for x in (BATCHES[0], mixed))
    entropies = plain_entropy(before)
    (lowest, next_one), (one, _) = entropies.topk(2, largest=False)
    label = before[one].argmax()
    plpd = before[one].softmax(dim=0)[label] - after[one].softmax(dim=0)[label]
    margin = float(lowest + next_one) / 2 / math.log(CLASSES)
    options = {"filter.margin": margin, "filter.min_difference": -1.0}
    loss = Learner(net, get_recipe("deyo", options)).step(BATCHES[0]).loss
    expected = (torch.exp(0.4 * math.log(CLASSES) - lowest) + torch.exp(plpd)) * lowest
    torch.testing.assert_close(loss, expected)  # and no warning of a batch of one


# Patches


def test_every_image_gets_an_order_of_its_own_from_the_generator() -> None:
    x = images(1).expand(3, -1, -1, -1)
    one, two = (
        shuffled_patches(x, 4, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one[0], one[1])
    torch.testing.assert_close(one.flatten(2).sort().values, x.flatten(2).sort().values)
    torch.testing.assert_close(one, plain_shuffle(x, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("shape", [(8, 8), (9, 10), (2, 3), (1, 1), (5, 32)])
def test_patches_of_any_size_of_image(shape: tuple[int, int]) -> None:
    mixed = shuffled_patches(torch.rand(2, 1, *shape), 4, generator=torch.Generator())
    assert mixed.shape == (2, 1, *shape)


def test_one_patch_is_the_image() -> None:
    x = images(2)
    assert torch.equal(shuffled_patches(x, 1, generator=torch.Generator()), x)


# The rest


def test_layer_norm() -> None:
    learner = Learner(
        tiny_vit(), get_recipe("deyo", {"filter.margin": 1.1, "filter.min_difference": -1.0})
    )
    learner.step(images(4, size=16))
    assert (learner.forwards, learner.backwards) == (2, 1)


def test_what_is_not_a_number_reaches_the_guard() -> None:
    loss = Learner(bn_net(), get_recipe("deyo")).step(images(8) * float("nan")).loss
    assert loss is not None
    assert not torch.isfinite(loss)
