"""DINO as test-time adaptation, on a vision transformer small enough to test."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.dino import Dino, DinoHead
from acclimate.methods.registry import get_recipe
from acclimate.methods.views import random_crops
from acclimate.models import load
from acclimate.models.libraries import import_torchvision
from acclimate.parts.base import Step

SMALL = {
    "objective.hidden": 8,
    "objective.bottleneck": 4,
    "objective.prototypes": 16,
    "objective.local_crops": 2,
    "optimizer.lr": 1e-3,
}


def vit(**options: Any) -> nn.Module:
    import_torchvision()
    import timm

    torch.manual_seed(0)
    net: nn.Module = timm.models.VisionTransformer(
        img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=5, **options
    )
    return net


def batch(n: int = 6) -> Tensor:
    return torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def learner(model: nn.Module | None = None, **options: Any) -> Learner:
    changes = {**SMALL, **{k.replace("__", "."): v for k, v in options.items()}}
    return Learner(vit() if model is None else model, get_recipe("dino", changes))


# Crops


def test_crops_have_the_size_asked_for_or_the_images_own() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(5, 1, 12, 20)
    assert random_crops(x, (0.4, 1.0), generator=draw).shape == (5, 1, 12, 20)
    assert random_crops(x, (0.05, 0.4), generator=draw, size=8).shape == (5, 1, 8, 8)


def test_crops_are_drawn_from_the_generator_and_differ_between_images() -> None:
    x = batch(1).expand(4, -1, -1, -1)
    one, two = (
        random_crops(x, (0.2, 0.5), generator=torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(one, two)
    assert not torch.allclose(one[0], one[1])


def test_crops_show_the_share_of_the_image_they_were_asked_for() -> None:
    size, n = 64, 200
    ramp = torch.linspace(0, 1, size)
    x = torch.stack([ramp.expand(size, size), ramp[:, None].expand(size, size)])
    crops = random_crops(
        x.expand(n, -1, -1, -1), (0.2, 0.5), generator=torch.Generator().manual_seed(0)
    )
    spread = crops.amax(dim=(2, 3)) - crops.amin(dim=(2, 3))
    area = spread.prod(dim=1)
    assert 0.15 < float(area.min()) < 0.25
    assert 0.42 < float(area.max()) < 0.52
    mirrored = (crops[:, 0, 0, -1] < crops[:, 0, 0, 0]).float().mean()
    assert 0.35 < float(mirrored) < 0.65


def test_views_are_two_large_crops_and_some_small_ones() -> None:
    dino = learner(objective__local_size=8, objective__local_crops=3)
    views = dino.recipe.parts()["objective"].views(dino.states["objective"], batch())
    assert views is not None
    assert [v.shape[-1] for v in views] == [16, 16, 8, 8, 8]
    own = learner(objective__local_crops=0)
    views = own.recipe.parts()["objective"].views(own.states["objective"], batch())
    assert views is not None
    assert [tuple(v.shape) for v in views] == [(6, 3, 16, 16)] * 2


# The objective


def test_the_head_predicts_with_cosine_similarities() -> None:
    head = DinoHead(16, hidden=8, bottleneck=4, out=10).reset(torch.Generator().manual_seed(0))
    x = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    out = head(x)
    assert out.shape == (7, 10)
    assert 0.1 < out.abs().max() <= 1 + 1e-6
    with torch.no_grad():
        head.prototypes.mul_(5.0)  # a prototype's length says nothing
    torch.testing.assert_close(head(x), out)


def test_the_loss_is_the_cross_entropy_between_different_crops() -> None:
    dino = learner(objective__local_crops=1)
    objective, state = dino.recipe.objective, dino.states["objective"]
    assert isinstance(objective, Dino)
    state.centre = torch.linspace(-0.1, 0.1, 16)
    step = Step(dino, batch(), views=objective.views(state, batch()))
    expected = []
    with torch.no_grad():
        projections = [dino.forward(v).projections for v in step.views]
        for t in (0, 1):
            target = ((projections[t] - state.centre) / 0.04).softmax(dim=1)
            for s in (0, 1, 2):
                if s != t:
                    log_p = (projections[s] / 0.1).log_softmax(dim=1)
                    expected.append(-(target * log_p).sum(dim=1))
    torch.testing.assert_close(objective.loss(state, step), torch.stack(expected).mean(dim=0))


def test_every_crop_passes_once_and_the_large_ones_by_the_teacher_too() -> None:
    dino = learner()
    dino.step(batch())
    assert dino.forwards == 1 + 4 + 2  # the answer, the student's crops, the teacher's
    assert dino.backwards == 1


def test_the_prediction_is_the_classifiers_on_the_images_themselves() -> None:
    with torch.no_grad():
        expected = vit().eval()(batch())
    torch.testing.assert_close(learner().step(batch()).logits, expected)


def test_the_centre_moves_towards_the_teachers_mean_projection() -> None:
    dino = learner()
    objective = dino.recipe.objective
    assert isinstance(objective, Dino)
    views = objective.views(dino.states["objective"], batch())
    step = Step(dino, batch(), views=views)
    seen = torch.cat([dino.forward(v).projections for v in views[:2]])
    objective.after_step(dino.states["objective"], step)
    expected = 0.1 * seen.detach().mean(dim=0)
    torch.testing.assert_close(dino.states["objective"].centre, expected)
    assert expected.abs().max() > 0


def test_the_head_learns_and_the_classifier_does_not() -> None:
    net = vit()
    dino = learner(net)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    head = {k: v.clone() for k, v in dino.states["objective"].head.state_dict().items()}
    for _ in range(3):
        dino.step(batch())
    assert torch.equal(net.state_dict()["head.weight"], before["head.weight"])
    assert torch.equal(net.state_dict()["head.bias"], before["head.bias"])
    assert not torch.equal(
        net.state_dict()["patch_embed.proj.weight"], before["patch_embed.proj.weight"]
    )
    now = dino.states["objective"].head.state_dict()
    assert all(not torch.equal(now[k], head[k]) for k in head)


def test_the_teacher_is_a_moving_average_of_network_and_head() -> None:
    dino = learner(teacher__momentum=0.5)
    average = {n: p.detach().clone() for n, p in dino.learning.items()}
    assert "objective:prototypes" in average
    for _ in range(3):
        dino.step(batch())
        for name, p in dino.learning.items():
            average[name] = 0.5 * average[name] + 0.5 * p.detach()
    torch.testing.assert_close(dino.states["teacher"].tensors, average)


@pytest.mark.parametrize("selector", ["affine", "adapters", "linear", "all"])
def test_the_four_choices_of_table_5(selector: str) -> None:
    net = vit(drop_path_rate=0.5)
    dino = learner(net, selector=selector)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    losses = [dino.step(batch()).loss for _ in range(3)]
    assert all(loss is not None and torch.isfinite(loss) for loss in losses)
    moved = {k for k, v in net.state_dict().items() if not torch.equal(v, before[k])}
    assert moved
    assert moved <= set(dino.learning)
    assert not {"head.weight", "head.bias"} & moved


def test_it_learns_what_it_is_asked_to() -> None:
    # From a teacher that stays as it is; one that moves may lead the loss anywhere.
    fixed = {"teacher__momentum": 1.0, "objective__centre_momentum": 1.0}
    dino = learner(optimizer__lr=1e-2, **fixed)
    losses = [float(dino.step(batch(16)).loss or 0) for _ in range(40)]
    assert sum(losses[-5:]) < sum(losses[:5])


# A pretrained head


def test_a_pretrained_head_is_read_from_its_file(tmp_path: Path) -> None:
    head = DinoHead(16, hidden=8, bottleneck=4, out=16).reset(torch.Generator().manual_seed(9))
    path = tmp_path / "head.safetensors"
    save_file(head.state_dict(), path)
    dino = learner(objective__head=str(path))
    own = dino.states["objective"].head.state_dict()
    assert all(torch.equal(own[k], v) for k, v in head.state_dict().items())


def test_the_sizes_of_a_pretrained_head_are_its_own(tmp_path: Path) -> None:
    head = DinoHead(16, hidden=9, bottleneck=5, out=7).reset(torch.Generator().manual_seed(9))
    path = tmp_path / "head.safetensors"
    save_file({key: tensor.half() for key, tensor in head.state_dict().items()}, path)
    dino = learner(objective__head=str(path))
    state = dino.states["objective"]
    assert state.centre.shape == (7,)
    assert {p.dtype for p in state.head.parameters()} == {torch.float32}
    torch.testing.assert_close(state.head.prototypes, head.prototypes.half().float())
    dino.step(batch())


def test_a_head_that_comes_with_the_package_is_found_by_its_models_name() -> None:
    loaded = load("acclimate:vit-dino-cifar10")
    dino = Learner(
        loaded.model,
        get_recipe("dino", {"objective.head": loaded.name, "objective.local_crops": 1}),
    )
    assert len(dino.states["objective"].head.prototypes) == 2048
    with pytest.raises(AcclimateError, match="no DINO head comes with 'acclimate:digits'"):
        learner(objective__head="acclimate:digits")


def test_a_head_for_other_features_or_no_file_at_all_is_refused(tmp_path: Path) -> None:
    wrong = DinoHead(17, hidden=8, bottleneck=4, out=16).reset(torch.Generator())
    path = tmp_path / "head.safetensors"
    save_file(wrong.state_dict(), path)
    with pytest.raises(
        AcclimateError, match=r"no weights for a DINO head on 16 features: .*size mismatch"
    ):
        learner(objective__head=str(path))
    save_file({"other": torch.zeros(2)}, path)
    with pytest.raises(AcclimateError, match="no weights for a DINO head on 16 features"):
        learner(objective__head=str(path))
    with pytest.raises(AcclimateError, match="no weights file"):
        learner(objective__head=str(tmp_path / "none.safetensors"))
    path.write_text("not tensors")
    with pytest.raises(AcclimateError, match="could not read"):
        learner(objective__head=str(path))


class PublishedHead(nn.Module):
    """A head with the layers and names of DINO's authors: weight-normalised, without a bias."""

    def __init__(self, norm: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        layers = [nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU()]
        self.mlp = nn.Sequential(*layers, nn.Linear(8, 4))
        self.last_layer = norm(nn.Linear(4, 32, bias=False))

    def forward(self, features: Tensor) -> Tensor:
        found: Tensor = self.last_layer(nn.functional.normalize(self.mlp(features), dim=-1))
        return found


def old_weight_norm(layer: nn.Module) -> nn.Module:
    """As torch had it when the files were published: weight_g and weight_v."""
    weight = layer.weight.detach()
    layer.weight_g = nn.Parameter(torch.rand(len(weight), 1) + 0.5)
    layer.weight_v = nn.Parameter(weight)
    del layer.weight
    layer.forward = lambda x: nn.functional.linear(
        x, layer.weight_g * nn.functional.normalize(layer.weight_v, dim=1)
    )
    return layer


@pytest.mark.parametrize("norm", [old_weight_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.parametrize("prefix", ["head.", "module.head."])
def test_the_head_in_a_full_checkpoint_of_dinos_authors(
    tmp_path: Path, norm: Callable[[nn.Module], nn.Module], prefix: str
) -> None:
    torch.manual_seed(0)
    student, teacher = PublishedHead(norm), PublishedHead(norm)

    def named(head: nn.Module) -> dict[str, Tensor]:
        backbone = {
            "cls_token": torch.zeros(1, 1, 16), "blocks.0.mlp.fc1.weight": torch.zeros(64, 16)
        }  # fmt: skip
        own = {f"{prefix}{name}": value for name, value in head.state_dict().items()}
        return {prefix.replace("head", "backbone") + k: v for k, v in backbone.items()} | own

    path = tmp_path / "dino_deitsmall16_pretrain_full_checkpoint.pth"
    torch.save(
        {
            "student": named(student), "teacher": named(teacher), "epoch": 800,
            "optimizer": {"state": {}, "param_groups": []}, "args": argparse.Namespace(arch="vit"),
            "dino_loss": {"center": torch.zeros(1, 32)},
        },
        path,
    )  # fmt: skip
    dino = learner(objective__head=str(path))
    head, features = dino.states["objective"].head, torch.randn(5, 16)
    torch.testing.assert_close(head(features), teacher(features))
    assert len(dict(head.named_parameters())) == 8  # the factors learn as well
    dino.step(batch())


def test_a_checkpoint_of_the_backbone_alone_has_no_head(tmp_path: Path) -> None:
    path = tmp_path / "dino_deitsmall16_pretrain.pth"
    torch.save({"blocks.0.mlp.fc1.weight": torch.zeros(64, 16)}, path)
    with pytest.raises(AcclimateError, match="no weights for a DINO head on 16 features"):
        learner(objective__head=str(path))
