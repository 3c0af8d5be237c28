"""timm: with random weights in a file, nothing downloaded."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models import imagenet_classes, list_models, load, norm_layers, preprocessing_of
from acclimate.models.libraries import import_torchvision
from acclimate.models.loading import origin, outline
from acclimate.models.source_timm import preprocessing_from_timm
from acclimate.models.sources import Origin

if importlib.util.find_spec("timm") is None:
    pytest.skip("needs timm", allow_module_level=True)


@pytest.fixture(scope="module")
def timm() -> Any:
    import_torchvision()
    return pytest.importorskip("timm")


def write(path: Path, model: nn.Module) -> Path:
    save_file(model.state_dict(), path)
    return path


def test_a_file_gives_the_same_model_and_its_record(timm: Any, tmp_path: Path) -> None:
    source = timm.create_model("resnet18").eval()
    path = write(tmp_path / "w.safetensors", source)
    loaded = load("timm:resnet18", weights=path)
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(loaded.model(images), source(images), rtol=0, atol=0)
    assert loaded.preprocessing == preprocessing_of(source)
    assert loaded.preprocessing == Preprocessing(
        size=(224, 224), resize=235, interpolation="bicubic"
    )
    assert loaded.classes == imagenet_classes()
    assert loaded.source == str(path)


def test_own_classes(timm: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "w.safetensors", timm.create_model("test_resnet", num_classes=7))
    loaded = load("timm:test_resnet", weights=path, num_classes=7)
    assert loaded.classes is None
    assert loaded.model(torch.zeros(1, 3, 64, 64)).shape == (1, 7)
    with pytest.raises(AcclimateError, match=r"for 7 classes, the model has 1000.*num_classes=7"):
        load("timm:test_resnet", weights=path)
    with pytest.raises(AcclimateError, match="are for 1000 classes, got num_classes=7"):
        load("timm:test_resnet", num_classes=7)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("test_efficientnet", "BatchNorm"),
        ("test_efficientnet_gn", "GroupNorm"),
        ("test_convnext", "LayerNorm"),
        ("test_vit", "LayerNorm"),
    ],
)
def test_norm_layers_of_all_kinds_are_found(timm: Any, name: str, kind: str) -> None:
    model = timm.create_model(name)
    assert next(iter(norm_layers(model))) == kind


@pytest.mark.parametrize("name", ["resnet18", "test_vit", "vit_base_patch16_siglip_224"])
def test_preprocessing_agrees_with_timms_own(timm: Any, name: str) -> None:
    config = timm.get_pretrained_cfg(name)
    data = timm.data.resolve_data_config(pretrained_cfg=config.to_dict())
    ramp = np.linspace(0, 255, 420, dtype=np.float32)
    image = Image.fromarray(
        np.broadcast_to(ramp[None, :, None], (300, 420, 3)).round().astype(np.uint8)
    )
    theirs = timm.data.create_transform(**data, is_training=False)(image)
    record = preprocessing_from_timm(data)
    assert record is not None
    ours = record.normalize(torch.from_numpy(record.fit(image))[None])[0]
    # A level or two of 255: where a margin is odd the centres lie a pixel apart.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=3 / 255 / min(record.std))


def test_squashing_and_what_cannot_be_expressed() -> None:
    config = {
        "input_size": (3, 384, 384),
        "crop_pct": 1.0,
        "crop_mode": "squash",
        "interpolation": "bicubic",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
    }
    found = preprocessing_from_timm(config)
    assert found is not None
    assert (found.squash, found.resize) == (True, 384)
    with pytest.warns(AcclimateWarning, match="crop mode 'border'"):
        assert preprocessing_from_timm({**config, "crop_mode": "border"}) is None


def test_unknown_names_and_tags_suggest_only_near_ones(timm: Any) -> None:
    with pytest.raises(AcclimateError, match="did you mean 'resnet50'") as caught:
        load("timm:resnet-50")
    assert len(str(caught.value)) < 300
    with pytest.raises(AcclimateError, match=r"did you mean 'resnet50\.a1_in1k'"):
        load("timm:resnet50.a1in1k")


def test_no_published_weights(timm: Any) -> None:
    bare = next(n for n in timm.list_models() if not timm.get_pretrained_cfg(n).has_weights)
    with pytest.raises(AcclimateError, match=r"publishes no weights.*--weights FILE"):
        load(f"timm:{bare}")
    assert origin(f"timm:{bare}") is None


def test_where_published_weights_come_from(timm: Any) -> None:
    assert origin("timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k") == Origin(
        library="timm",
        hub="timm/resnext101_32x8d.fb_wsl_ig1b_ft_in1k",
        place="https://download.pytorch.org/models/ig_resnext101_32x8-c38310e5.pth",
        licence="cc-by-nc-4.0",
    )
    with pytest.raises(AcclimateError, match="did you mean 'resnet50'"):
        origin("timm:resnet-50")


def test_an_outline_is_of_the_published_class_count(timm: Any) -> None:
    assert outline("timm:test_resnet", num_classes=1000).classes == imagenet_classes()
    with pytest.raises(AcclimateError, match="are for 1000 classes, got num_classes=7"):
        outline("timm:test_resnet", num_classes=7)


def test_without_a_network_the_file_is_the_way(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise OSError("Name or service not known")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_url", offline)
    with pytest.raises(AcclimateError, match=r"weights resnet18\.a1_in1k for.*--weights FILE"):
        load("timm:resnet18")


def test_names_are_listed_by_prefix(timm: Any) -> None:
    found = list_models("timm:resnet50*")
    assert {"timm:resnet50", "timm:resnet50.a1_in1k"} <= set(found)
    assert not any(name.startswith("timm:") for name in list_models("*"))


def test_a_folder_that_timm_wrote_gives_its_model(timm: Any, tmp_path: Path) -> None:
    from timm.models import save_for_hf

    names = [f"class {index}" for index in range(7)]
    source = timm.create_model("resnet10t", num_classes=7).eval()
    source.pretrained_cfg["input_size"] = (3, 64, 64)
    settings = {"label_names": names}
    save_for_hf(source, tmp_path / "own", settings, safe_serialization=True)
    loaded = load(f"timm:{tmp_path / 'own'}")
    assert loaded.preprocessing is not None
    assert loaded.preprocessing.size == (64, 64)
    assert loaded.classes is not None
    assert list(loaded.classes.names) == names
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(images), source(images))

    other = write(tmp_path / "other.safetensors", timm.create_model("resnet10t", num_classes=7))
    weights = load(f"timm:{tmp_path / 'own'}", weights=other).model.state_dict()
    assert not torch.equal(weights["fc.weight"], source.state_dict()["fc.weight"])
    (tmp_path / "own" / "model.safetensors").unlink()
    with pytest.raises(AcclimateError, match="safe_serialization=True"):
        load(f"timm:{tmp_path / 'own'}")
    (tmp_path / "own" / "config.json").write_text('{"architecture": "resnot", "num_classes": 7}')
    with pytest.raises(AcclimateError, match="to name an architecture of timm"):
        load(f"timm:{tmp_path / 'own'}")
