"""torchvision: with random weights in a file, nothing downloaded."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.models import imagenet_classes, list_models, load
from acclimate.models.libraries import import_torchvision
from acclimate.models.loading import origin, outline
from acclimate.models.source_torchvision import _options
from acclimate.models.sources import Origin

if importlib.util.find_spec("torchvision") is None:
    pytest.skip("needs torchvision", allow_module_level=True)


@pytest.fixture(scope="module")
def models() -> Any:
    return import_torchvision().models


def write(path: Path, model: nn.Module) -> Path:
    torch.save(model.state_dict(), path)
    return path


def test_a_file_gives_the_same_model_and_its_record(models: Any, tmp_path: Path) -> None:
    source = models.resnet18().eval()
    loaded = load("torchvision:resnet18", weights=write(tmp_path / "w.pth", source))
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(loaded.model(images), source(images), rtol=0, atol=0)
    assert loaded.preprocessing == Preprocessing(size=(224, 224), resize=256)
    assert loaded.classes is not None
    assert loaded.classes.ids == imagenet_classes().ids
    assert loaded.classes.names[134] == "crane bird"
    assert "20 BatchNorm" in loaded.describe()


def test_named_weights_bring_their_own_preprocessing(models: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "w.pth", models.resnet50())
    first = load("torchvision:resnet50@IMAGENET1K_V1", weights=path).preprocessing
    second = load("torchvision:resnet50", weights=path).preprocessing
    assert first is not None
    assert second is not None
    assert (first.resize, second.resize) == (256, 232)
    with pytest.raises(AcclimateError, match="Known: DEFAULT, IMAGENET1K_V1, IMAGENET1K_V2"):
        load("torchvision:resnet50@IMAGENET1K_V3")


def test_own_classes(models: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "w.pth", models.mobilenet_v2(num_classes=7))
    loaded = load("torchvision:mobilenet_v2", weights=path, num_classes=7)
    assert loaded.classes is None
    assert loaded.model(torch.zeros(1, 3, 32, 32)).shape == (1, 7)
    with pytest.raises(AcclimateError, match=r"for 7 classes, the model has 1000.*num_classes=7"):
        load("torchvision:mobilenet_v2", weights=path)
    with pytest.raises(AcclimateError, match="are for 1000 classes, got num_classes=7"):
        load("torchvision:mobilenet_v2", num_classes=7)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_files_are_fed_as_the_published_weights_are(models: Any, tmp_path: Path, name: str) -> None:
    source = models.get_model(name, init_weights=False, aux_logits=True)
    loaded = load(f"torchvision:{name}", weights=write(tmp_path / "w.pth", source))
    assert loaded.model.transform_input is True
    assert isinstance(loaded.model(torch.zeros(1, 3, 96, 96)), Tensor)


def test_the_published_densenet_file_layout(models: Any, tmp_path: Path) -> None:
    source = models.densenet121()
    old = {
        key.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): value
        for key, value in source.state_dict().items()
    }
    torch.save(old, tmp_path / "w.pth")
    loaded = load("torchvision:densenet121", weights=tmp_path / "w.pth")
    for key, value in source.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[key], value)


def test_vit_files_are_taken_at_the_size_of_their_record(models: Any) -> None:
    entries = models.get_model_weights("vit_b_16")
    assert _options("vit_b_16", entries.IMAGENET1K_V1, {}) == {"image_size": 224}
    assert _options("vit_b_16", entries.IMAGENET1K_SWAG_E2E_V1, {}) == {"image_size": 384}


def test_an_unknown_name_suggests_only_near_ones() -> None:
    with pytest.raises(AcclimateError, match="did you mean 'resnet50'") as caught:
        load("torchvision:resnet-50")
    assert len(str(caught.value)) < 300
    with pytest.raises(AcclimateError, match=r"acclimate list models 'torchvision:\*'"):
        load("torchvision:qqqq")


def test_without_a_network_the_file_is_the_way(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise URLError("Name or service not known")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(AcclimateError, match=r"ResNet18_Weights.IMAGENET1K_V1.*--weights FILE"):
        load("torchvision:resnet18")


def test_classifiers_are_listed_by_prefix() -> None:
    found = list_models("torchvision:resnet*")
    assert "torchvision:resnet18" in found
    assert all(name.startswith("torchvision:resnet") for name in found)
    assert not any("rcnn" in name for name in list_models("torchvision:*"))
    assert not any(name.startswith("torchvision:") for name in list_models("*"))


def test_where_published_weights_come_from() -> None:
    for tag, digest in {"": "11ad3fa6", "@IMAGENET1K_V1": "0676ba61"}.items():
        place = f"https://download.pytorch.org/models/resnet50-{digest}.pth"
        assert origin(f"torchvision:resnet50{tag}") == Origin(library="torchvision", place=place)


def test_an_outline_is_of_the_published_class_count() -> None:
    with pytest.raises(AcclimateError, match="are for 1000 classes, got num_classes=7"):
        outline("torchvision:resnet18", num_classes=7)
