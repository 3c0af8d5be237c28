"""EATA's anchor against a few lines of plain PyTorch; its images from a file, or the target."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import acclimate
from acclimate.data.digits import digits
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models import LoadedModel, load
from nets import bn_net, gn_net, images, tiny_vit
from plain import BATCHES, has_moved, our_run, plain_entropy, plain_model
from processes import in_processes

# Every image counts, so that what is new here, the anchor, stands alone.
OPTIONS = {
    "optimizer.lr": 0.05,
    "filter.margin": 1.1,
    "filter.max_similarity": 1.0,
    "regularizer.weight": 20.0,
    "regularizer.samples": 40,
}


def plain_importance_by_image(model: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """As the text has it: the mean over images of the squared gradient of each."""
    net, affine = plain_model(model)
    total = {name: torch.zeros_like(p) for name, p in affine.items()}
    for i in range(len(batch)):
        log_p = net(batch)[i].log_softmax(dim=0)
        gradients = torch.autograd.grad(-log_p[log_p.argmax()], affine.values())
        for name, gradient in zip(affine, gradients, strict=True):
            total[name] += gradient**2 / len(batch)
    return total


def plain_importance(model: nn.Module, batches: Sequence[Tensor]) -> dict[str, Tensor]:
    net, affine = plain_model(model)
    total = {name: torch.zeros_like(p) for name, p in affine.items()}
    for batch in batches:
        logits = net(batch)
        loss = F.cross_entropy(logits, logits.argmax(dim=1))
        gradients = torch.autograd.grad(loss, affine.values())
        for name, gradient in zip(affine, gradients, strict=True):
            total[name] += gradient**2 / len(batches)
    return total


def plain_eata(importances: list[dict[str, Tensor]]) -> tuple[list[Tensor], dict[str, Tensor]]:
    net, affine = plain_model(bn_net().double())
    start = {n: p.detach().clone() for n, p in affine.items()}
    optimizer = torch.optim.SGD(affine.values(), lr=0.05, momentum=0.9)
    margin = 1.1 * torch.log(torch.tensor(5.0, dtype=torch.float64))
    answers = []
    for batch, importance in zip(BATCHES, importances, strict=True):
        logits = net(batch)
        answers.append(logits.detach())
        entropies = plain_entropy(logits)
        loss = (torch.exp(margin - entropies.detach()) * entropies).mean()
        for name, omega in importance.items():
            loss = loss + 20 * (omega * (affine[name] - start[name]) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return answers, {n: p.detach() for n, p in affine.items()}


def test_six_steps_with_the_targets_first_images_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("eata", OPTIONS)
    # Known when a batch is learnt from: those before it, as many as it takes for 40 images.
    known = [BATCHES[:t] for t in (1, 2, 3, 3, 3)]
    importances = [plain_importance(bn_net().double(), batches) for batches in known]
    expected, affine = plain_eata([{}, *importances])
    assert learner.states["regularizer"].seen == 48
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)
    without, *_ = our_run("eata", {**OPTIONS, "regularizer.weight": 0.0})
    assert not torch.allclose(without[-1], answers[-1], atol=1e-4), "the anchor must hold something"


def test_six_steps_with_images_from_a_file_equal_plain_pytorch(tmp_path: Path) -> None:
    samples = images(48, seed=9, shift=0.0)
    path = tmp_path / "source.npy"
    np.save(path, samples.numpy())
    options = {**OPTIONS, "regularizer.images": str(path)}
    answers, parameters, learner = our_run("eata", options)
    # All in one batch of 64, the recipe's own size: their order does not matter.
    draw = torch.randperm(48, generator=torch.Generator().manual_seed(0))[:40]
    importance = plain_importance(bn_net().double(), [samples[draw].double()])
    expected, affine = plain_eata([importance] * len(BATCHES))
    assert learner.states["regularizer"].seen == 40
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)


def test_six_steps_with_the_importance_of_the_text_equal_plain_pytorch(tmp_path: Path) -> None:
    samples = images(12, seed=9, shift=0.0)
    np.save(tmp_path / "source.npy", samples.numpy())
    options = {
        **OPTIONS,
        "regularizer.images": str(tmp_path / "source.npy"),
        "regularizer.per_image": True,
    }
    answers, parameters, learner = our_run("eata", options)
    importance = plain_importance_by_image(bn_net().double(), samples.double())
    expected, affine = plain_eata([importance] * len(BATCHES))
    assert (learner.forwards, learner.backwards) == (6 + 1, 6 + 12)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)


def test_importance_is_asked_for_where_gradients_are_off() -> None:
    found = []
    for grad in (True, False):
        learner = Learner(bn_net(), get_recipe("eata", {"regularizer.per_image": True}))
        with torch.set_grad_enabled(grad):
            learner.step(images(8))
        found.append(learner.states["regularizer"].squares["1.weight"])
    assert found[0].any()
    assert torch.equal(*found)


def test_a_batch_costs_one_forward_and_one_backward_once_the_images_are_gathered() -> None:
    *_, learner = our_run("eata", OPTIONS)
    gathering = 3  # of 16 a batch until there are 40
    assert (learner.forwards, learner.backwards) == (6 + gathering, 6 + gathering)


def test_images_from_a_file_cost_no_pass_later_and_filtered_images_no_backward(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "source.npy", images(8).numpy())
    options = {"regularizer.images": str(tmp_path / "source.npy"), "filter.margin": 0.0}
    learner = Learner(bn_net(), get_recipe("eata", options))
    learner.start_epoch()
    before = learner.forwards, learner.backwards
    for seed in range(3):
        learner.step(images(8, seed=seed))
    assert (learner.forwards - before[0], learner.backwards - before[1]) == (3, 0)


def test_a_file_is_gone_through_once_and_drawn_from_by_seed(tmp_path: Path) -> None:
    np.save(tmp_path / "source.npy", images(30).numpy())
    options = {
        "regularizer.images": str(tmp_path / "source.npy"),
        "regularizer.samples": 10,
        "batch_size": 4,
    }
    found = []
    for seed in (0, 0, 1):
        learner = Learner(bn_net(), get_recipe("eata", options), seed=seed)
        for _ in range(2):
            learner.start_epoch()
        assert learner.states["regularizer"].seen == 10
        assert learner.backwards == 3
        found.append(learner.states["regularizer"].squares["1.weight"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("by_record", [True, False])
def test_images_are_preprocessed_as_the_caller_says(tmp_path: Path, by_record: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "source.npy", pixels)
    how = Preprocessing(size=(8, 8), mean=(0.3, 0.4, 0.5), std=(0.2, 0.1, 0.3))
    options = {**OPTIONS, "regularizer.images": str(tmp_path / "source.npy")}
    model: Any = bn_net()
    if by_record:
        model, said = LoadedModel(name="mine", model=model, preprocessing=how), None
    else:
        said = how
    stream = acclimate.Stream(model, "eata", options=options, preprocessing=said, guard="off")
    expected = plain_importance(bn_net(), [how.normalize(torch.from_numpy(pixels))])
    state = stream.learner.states["regularizer"]
    ours = {name: squares / state.seen for name, squares in state.squares.items()}
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)


def test_asking_for_importance_leaves_a_running_estimate_alone() -> None:
    options = {**OPTIONS, "normalization": "running"}
    _, _, ours = our_run("eata", options)
    _, _, plain = our_run("eta", {k: v for k, v in options.items() if "regularizer" not in k})
    first = "1.mean"  # what enters the first layer hangs on no parameter that learns
    assert torch.equal(ours.statistics.running[first], plain.statistics.running[first])


@pytest.mark.parametrize("make", [gn_net, lambda: tiny_vit(img_size=8, patch_size=4)])
def test_importance_of_other_architectures(make: Any) -> None:
    model = make().double()
    learner = Learner(copy.deepcopy(model), get_recipe("eata"))
    batch = images(8).double()
    learner.step(batch)
    state = learner.states["regularizer"]
    ours = {name: squares / state.seen for name, squares in state.squares.items()}
    torch.testing.assert_close(ours, plain_importance(model, [batch]))


def test_on_the_digits_of_this_package_the_printed_weight_holds_and_does_not_shake() -> None:
    shifted, labels = digits("held-out", shifted=True)
    model = load("acclimate:digits")
    options = {"optimizer.lr": 0.01, "epochs": 3}
    result = acclimate.adapt(
        model, shifted[:400], "eata", options=options, labels=labels[:400], progress=False
    )
    assert result.history.events == []
    assert result.history.final is not None
    assert result.history.start is not None
    assert result.history.final.error <= result.history.start.error


def test_processes_that_share_batches_refuse_it_before_anything_is_learnt() -> None:
    for answer in in_processes(2, lambda: Learner(bn_net(), get_recipe("eata"))):
        assert "neither of which several processes can share" in str(answer)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    missing = {"regularizer.images": str(tmp_path / "nowhere")}
    with pytest.raises(AcclimateError, match="nowhere"):
        acclimate.Stream(bn_net(), "eata", options=missing)
