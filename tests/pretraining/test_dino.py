"""DINO as a way to train: its views, its loss, its teacher, its probe, and adaptation after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from acclimate.data import open_images
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.learner.learner import Learner
from acclimate.methods.dino import distillation
from acclimate.methods.registry import get_recipe
from acclimate.models.networks.vision_transformer import VisionTransformer
from acclimate.pretraining import Dino, Examples, Plan, load_examples, pretrain
from acclimate.pretraining.augment import recoloured
from acclimate.pretraining.dino import DinoParts
from acclimate.pretraining.methods import Batch

SMALL = {"local_crops": 2, "hidden": 32, "bottleneck": 16, "prototypes": 64}
PLAN = Plan(epochs=3, batch_size=32, lr=1e-3, optimizer="adam", weight_decay=0.05)


def net(seed: int = 0) -> VisionTransformer:
    torch.manual_seed(seed)
    return VisionTransformer(size=8, patch=2, width=24, depth=2, heads=2, channels=1)


def examples(count: int = 96) -> Examples:
    images, labels = digits("train")
    return load_examples(
        open_images(images[:count], preprocessing=PREPROCESSING, labels=labels[:count])
    )


def batch(count: int = 16, *, progress: float = 0.5) -> Batch:
    some = examples(count)
    draw = torch.Generator().manual_seed(0)
    return Batch(some.images, some.labels, PREPROCESSING.standardize, draw, progress=progress)


def parts(method: Dino, model: nn.Module) -> DinoParts:
    made = method.heads(model, 24)
    assert isinstance(made, DinoParts)
    return made


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())


# What the student and the teacher see


def test_the_student_sees_all_crops_in_two_passes_and_the_teacher_the_large_ones() -> None:
    method, model = Dino(**SMALL), net()
    heads, student, teacher = parts(method, model), [], []
    heads.backbone.register_forward_pre_hook(lambda m, x: teacher.append(tuple(x[0].shape)))

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        student.append(tuple(x.shape))
        return model(x), model.features(x)

    method.loss(forward, heads, batch(16))
    assert student == [(32, 1, 8, 8), (32, 1, 4, 4)]
    assert teacher == [(48, 1, 8, 8)]  # and the images that the probe is asked about
    student.clear()
    Dino(**{**SMALL, "local_crops": 0}).loss(forward, heads, batch(16))
    assert student == [(32, 1, 8, 8)]


def test_new_light_keeps_the_picture_and_takes_the_colour_of_some() -> None:
    images = torch.rand(400, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    lit = recoloured(images, torch.Generator().manual_seed(0))
    assert torch.equal(lit, recoloured(images, torch.Generator().manual_seed(0)))
    grey = (lit - lit.mean(dim=1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-3
    assert 0.1 < grey.float().mean() < 0.3
    alike = (lit - images).abs().amax(dim=(1, 2, 3)) < 1e-3
    assert 0.08 < alike.float().mean() < 0.26  # 0.2 unchanged, of which 0.8 keep their colour
    still = recoloured(images, torch.Generator(), often=0, grey=0)
    torch.testing.assert_close(still, images, atol=1e-4, rtol=0)
    brightness = lit.mean(dim=(1, 2, 3)) / images.mean(dim=(1, 2, 3))
    assert 0.55 < brightness.min() < 0.7
    assert 1.2 < brightness.max() < 1.45


def test_grey_images_change_in_brightness_alone() -> None:
    images = torch.rand(8, 1, 6, 6)
    lit = recoloured(images, torch.Generator().manual_seed(0), jitter=0.3, often=1)
    for before, after in zip(images, lit, strict=True):
        inside = (after > 0) & (after < 1)
        pair = torch.stack([before[inside], after[inside]])
        assert torch.corrcoef(pair)[0, 1] > 0.999


# The loss


def test_the_loss_is_distillation_plus_that_of_the_probe(monkeypatch: Any) -> None:
    method, model = Dino(**SMALL), net()
    heads = parts(method, model)
    nn.init.zeros_(heads.probe.weight)
    nn.init.zeros_(heads.probe.bias)
    seen = {}

    def spy(students: Any, teachers: Any, centre: Tensor, **temperatures: float) -> Tensor:
        seen["centre"] = centre.clone()
        seen["loss"] = distillation(students, teachers, centre, **temperatures)
        seen["mean"] = torch.cat(list(teachers)).mean(dim=0)
        seen["counts"] = len(students), len(teachers)
        # Weights are alike at first: on its own large crop the student says what the teacher does.
        torch.testing.assert_close(students[0], teachers[0])
        return seen["loss"]

    monkeypatch.setattr("acclimate.pretraining.dino.distillation", spy)
    loss = method.loss(lambda x: (model(x), model.features(x)), heads, batch())
    assert seen["counts"] == (4, 2)
    uninformed = torch.tensor(10.0).log()
    torch.testing.assert_close(loss, seen["loss"].mean() + uninformed)
    assert not seen["centre"].any()
    torch.testing.assert_close(heads.centre, 0.1 * seen["mean"])


def test_the_centre_begins_with_the_first_batch() -> None:
    method, model = Dino(**SMALL), net()
    heads = parts(method, model)
    forward = lambda x: (model(x), model.features(x))  # noqa: E731
    method.loss(forward, heads, batch(progress=0.0))
    first = heads.centre.clone()
    other = parts(method, model)
    other.load_state_dict({**heads.state_dict(), "centre": torch.zeros(64)})
    method.loss(forward, other, batch(progress=0.5))  # the same draws, later
    torch.testing.assert_close(other.centre, 0.1 * first)


def test_labels_teach_the_probe_and_nothing_else() -> None:
    models = []
    for turn in (0, 1):
        some, model = examples(), net()
        labels = some.labels.roll(turn)
        pretrain(
            model,
            Examples(some.images, labels, some.preprocessing),
            Dino(**SMALL),
            PLAN,
            progress=False,
        )
        models.append(model.state_dict())
    one, other = models
    assert {key for key in one if not torch.equal(one[key], other[key])} == {
        "head.weight",
        "head.bias",
    }


# The teacher


def test_the_teacher_follows_ever_more_slowly() -> None:
    method, model = Dino(**SMALL, momentum=0.9), net()
    heads = parts(method, model)
    assert not any(
        p.requires_grad for p in (*heads.backbone.parameters(), *heads.teacher.parameters())
    )
    key = "blocks.0.mlp.fc1.weight"
    for progress, share in ((0.0, 0.1), (0.5, 0.05), (1.0, 0.0)):
        before = heads.backbone.state_dict()[key].clone()
        head = heads.teacher.prototypes.clone()
        with torch.no_grad():
            model.state_dict()[key].copy_(before + 1)
            heads.student.prototypes.copy_(head + 1)
        method.after_step(model, heads, progress=progress)
        torch.testing.assert_close(heads.backbone.state_dict()[key], before + share)
        torch.testing.assert_close(heads.teacher.prototypes.data, head + share)


def test_teacher_and_probe_are_handed_back_and_the_head_beside_them() -> None:
    method, model = Dino(**SMALL), net()
    heads = parts(method, net(seed=1))
    method.finish(model, heads)
    state = model.state_dict()
    assert all(torch.equal(state[k], v) for k, v in heads.backbone.state_dict().items())
    assert torch.equal(model.head.weight, heads.probe.weight)
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(model(images), heads.probe(heads.backbone(images)))
    (name, kept), *others = method.files(heads).items()
    assert (name, others) == ("head.safetensors", [])
    torch.testing.assert_close(kept, dict(heads.teacher.state_dict()))


# The whole


def test_the_student_learns_to_agree_with_a_teacher_that_stays(monkeypatch: Any) -> None:
    # One that moves makes the task harder as it goes, so its loss says little.
    plan = Plan(epochs=12, batch_size=64, lr=1e-3, optimizer="adam", weight_decay=0.05)
    method = Dino(**{**SMALL, "local_crops": 0}, momentum=1.0)
    own, other = [], []

    def spy(students: Any, teachers: Any, centre: Tensor, **temperatures: float) -> Tensor:
        loss = distillation(students, teachers, centre, **temperatures)
        strangers = [teacher.roll(1, dims=0) for teacher in teachers]
        own.append(loss.detach().mean())
        with torch.no_grad():
            other.append(distillation(students, strangers, centre, **temperatures).mean())
        return loss

    monkeypatch.setattr("acclimate.pretraining.dino.distillation", spy)
    pretrain(net(), examples(512), method, plan, progress=False)
    first, last = (torch.stack(own[part]).mean() for part in (slice(8), slice(-24, None)))
    assert last < first - 1
    # It is the same image's projections that it agrees with, more than any image's.
    assert last < torch.stack(other[-24:]).mean() - 0.005


@pytest.mark.parametrize("selector", ["affine", "adapters", "linear", "all"])
def test_adaptation_goes_on_from_model_and_head(selector: str, tmp_path: Path) -> None:
    model = net()
    trained = pretrain(model, examples(), Dino(**SMALL), PLAN, progress=False)
    save_file(trained.files["head.safetensors"], tmp_path / "head.safetensors")
    changes = {f"objective.{key}": value for key, value in SMALL.items()}
    changes |= {"objective.local_size": 4, "objective.head": str(tmp_path / "head.safetensors")}
    recipe = get_recipe("dino", {**changes, "selector": selector, "optimizer.lr": 1e-3})
    learner = Learner(model, recipe)
    head = learner.states["objective"].head.state_dict()
    assert all(torch.equal(head[k], v) for k, v in trained.files["head.safetensors"].items())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for start in (0, 16, 32):
        loss = learner.step(PREPROCESSING.normalize(examples().images[start : start + 16])).loss
        assert loss is not None
        assert torch.isfinite(loss)
    moved = {k for k, v in model.state_dict().items() if not torch.equal(v, before[k])}
    assert moved
    assert moved <= set(learner.learning)
    assert not {"head.weight", "head.bias"} & moved
