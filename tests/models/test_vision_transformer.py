"""The package's own vision transformer: timm's numbers, other sizes, and what adaptation needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models import load, norm_layers
from acclimate.models.libraries import import_torchvision
from acclimate.models.networks.vision_transformer import VisionTransformer
from acclimate.models.outputs import find_classifier
from acclimate.parts.adapters import transformer_sublayers


def net(**options: Any) -> VisionTransformer:
    torch.manual_seed(0)
    shape = {"size": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "classes": 5} | options
    model = VisionTransformer(**shape).eval()
    with torch.no_grad():  # fresh biases and scales are 0 and 1, whoever uses them
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def timms(**options: Any) -> nn.Module:
    import_torchvision()
    timm = pytest.importorskip("timm")
    model: nn.Module = timm.models.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=5, **options
    )
    return model.eval()


@pytest.mark.parametrize("sides", [(16, 16), (8, 8), (12, 24)])
def test_it_is_timms_with_timms_names(sides: tuple[int, int]) -> None:
    ours, theirs = net(), timms(dynamic_img_size=True)
    theirs.load_state_dict(ours.state_dict())
    images = torch.rand(3, 3, *sides)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


def test_timms_weights_load() -> None:
    ours, theirs = net(), timms()
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(3, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


def test_grey_pictures() -> None:
    assert net(channels=1)(torch.rand(2, 1, 16, 16)).shape == (2, 5)


def test_where_a_patch_lies_matters() -> None:
    model, image = net(), torch.rand(1, 3, 16, 16)
    moved = image.roll(4, dims=3)  # the same patches, elsewhere
    with torch.no_grad():
        assert not torch.allclose(model(image), model(moved), atol=1e-3)
        model.pos_embed.zero_()
        torch.testing.assert_close(model(image), model(moved))


def test_the_classifier_sees_the_features() -> None:
    model, images = net(), torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(model.head(model.features(images)), model(images))
    assert find_classifier(model) == ("head", model.head)


def test_the_one_for_cifar_is_small_enough_to_come_along() -> None:
    loaded = load("acclimate:vit-cifar")
    assert 2 * sum(p.numel() for p in loaded.model.parameters()) < 5_900_000  # half precision
    assert norm_layers(loaded.model) == {"LayerNorm": 13}
    assert len(transformer_sublayers(loaded.model)) == 12
    assert loaded.model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_mistakes() -> None:
    with pytest.raises(AcclimateError, match=r"sides 4 divides, got 16×18"):
        net()(torch.rand(1, 3, 16, 18))
    with pytest.raises(AcclimateError, match="patch 5"):
        net(patch=5)
    with pytest.raises(AcclimateError, match="heads 5"):
        net(heads=5)
