"""transformers: tiny models saved to a folder, nothing downloaded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models import load
from acclimate.models.libraries import import_torchvision
from acclimate.models.loading import origin, outline
from acclimate.models.source_hf import preprocessing_from_hf

if importlib.util.find_spec("transformers") is None:
    pytest.skip("needs transformers", allow_module_level=True)


@pytest.fixture(scope="module")
def transformers() -> Any:
    if importlib.util.find_spec("torchvision"):
        import_torchvision()
    return pytest.importorskip("transformers")


def resnet(transformers: Any, *names: str) -> Any:
    labels = {"id2label": dict(enumerate(names))} if names else {"num_labels": 3}
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], **labels
    )
    return transformers.ResNetForImageClassification(config).eval()


def vit_config(transformers: Any, **options: Any) -> Any:
    return transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        **options,
    )


def test_a_folder_gives_the_model_its_classes_and_preprocessing(
    transformers: Any, tmp_path: Path
) -> None:
    source = resnet(transformers, "cat", "dog")
    source.half().save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    loaded = load(f"hf:{tmp_path}")
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert not loaded.model.training
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(loaded.model(images).logits, source.float()(images).logits)
    assert loaded.classes is not None
    assert loaded.classes.names == ("cat", "dog")
    assert loaded.preprocessing == Preprocessing(
        size=(32, 32), resize=32, squash=True, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    )


def test_nothing_is_made_up(transformers: Any, tmp_path: Path) -> None:
    resnet(transformers).save_pretrained(tmp_path)
    loaded = load(f"hf:{tmp_path}")
    assert (loaded.preprocessing, loaded.classes) == (None, None)


def test_a_file_with_its_own_classes(transformers: Any, tmp_path: Path) -> None:
    resnet(transformers, "cat", "dog").save_pretrained(tmp_path)
    source = resnet(transformers, "a", "b", "c", "d")
    save_file(source.state_dict(), tmp_path / "own.safetensors")
    loaded = load(f"hf:{tmp_path}", weights=tmp_path / "own.safetensors", num_classes=4)
    assert loaded.classes is None
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(loaded.model(images).logits, source(images).logits)
    with pytest.raises(AcclimateError, match="num_classes=4"):
        load(f"hf:{tmp_path}", weights=tmp_path / "own.safetensors")
    with pytest.raises(AcclimateError, match="are for 2 classes, got num_classes=4"):
        load(f"hf:{tmp_path}", num_classes=4)


def test_pickled_weights_need_trust(transformers: Any, tmp_path: Path) -> None:
    source = resnet(transformers, "cat", "dog")
    source.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(AcclimateError, match=r"no \*\.safetensors"):
        load(f"hf:{tmp_path}")
    torch.save(source.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(AcclimateError, match="--unsafe-pickle"):
        load(f"hf:{tmp_path}")
    loaded = load(f"hf:{tmp_path}", unsafe_pickle=True)
    images = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(loaded.model(images).logits, source(images).logits)


def test_an_untrained_classifier_is_refused(transformers: Any, tmp_path: Path) -> None:
    transformers.ViTModel(vit_config(transformers)).save_pretrained(tmp_path)
    with pytest.raises(AcclimateError, match=r"lack classifier\.bias"):
        load(f"hf:{tmp_path}")


def test_another_kind_of_model_is_refused(transformers: Any, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(AcclimateError, match="not an image classifier"):
        load(f"hf:{tmp_path}")


def bring_code(config: Path, *, of: str, **plain: str) -> Path:
    """Let a config name code of its own; returns the file that is there once the code ran."""
    ran, code = config.parent / "ran", config.parent / "code_for_test.py"
    code.write_text(f"open({str(ran)!r}, 'w')\nclass Mine: ...\n")
    config.write_text(json.dumps({**plain, "auto_map": {of: "code_for_test.Mine"}}))
    return ran


@pytest.mark.parametrize("read", [load, outline])
@pytest.mark.parametrize(
    ("of", "kind"), [("AutoConfig", "mine"), ("AutoModelForImageClassification", "bert")]
)
def test_code_of_a_repository_is_never_run_nor_asked_about(
    transformers: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Any,
    of: str,
    kind: str,
) -> None:
    resnet(transformers).save_pretrained(tmp_path)
    ran = bring_code(tmp_path / "config.json", of=of, model_type=kind)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(AcclimateError, match=r"code of its own, which is never run.*py:package"):
        read(f"hf:{tmp_path}")
    assert not ran.exists()


def test_code_of_an_image_processor_is_never_run(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resnet(transformers).save_pretrained(tmp_path)
    config = tmp_path / "preprocessor_config.json"
    ran = bring_code(config, of="AutoImageProcessor", image_processor_type="Mine")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.warns(AcclimateWarning, match="image processor of .* is Python code of its own"):
        assert load(f"hf:{tmp_path}").preprocessing is None
    assert not ran.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"model_type": "resnet", "hidden_sizes": "abc"}'),
        ("config.json", '{"model_type": "resnet", "hidden_sizes": []}'),
        ("config.json", '{"model_type": "resnet", "hidden_act": "none such"}'),
        ("config.json", '{"model_type": ["resnet"]}'),
        ("config.json", "[" * 100_000),
        ("preprocessor_config.json", "[]"),
        ("preprocessor_config.json", '{"auto_map": 7}'),
        (
            "preprocessor_config.json",
            '{"image_processor_type": "ViTImageProcessor", "rescale_factor": 0}',
        ),
    ],
)
def test_a_damaged_file_is_named(
    name: str, content: str, transformers: Any, tmp_path: Path
) -> None:
    resnet(transformers).save_pretrained(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(AcclimateError, match=rf"cannot use the {name} of hf:.* it is damaged"):
        load(f"hf:{tmp_path}")


def test_a_folder_or_name_that_is_not_there(
    transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AcclimateError, match=r"config\.json"):
        load(f"hf:{tmp_path}")

    def offline(*_: Any, **__: Any) -> Any:
        raise OSError("We couldn't connect")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", offline)
    monkeypatch.setattr("acclimate.models.source_hf.hub_answers", lambda: True)
    with pytest.raises(AcclimateError, match=r"config\.json.*couldn't connect"):
        load("hf:someone/something")


def test_an_outline_is_made_without_weights(transformers: Any, tmp_path: Path) -> None:
    source = resnet(transformers, "cat", "dog")
    source.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    made = outline(f"hf:{tmp_path}")
    shapes = {name: value.shape for name, value in source.state_dict().items()}
    assert {name: value.shape for name, value in made.model.state_dict().items()} == shapes
    assert all(parameter.is_meta for parameter in made.model.parameters())
    assert made.classes is not None
    assert made.classes.names == ("cat", "dog")
    with pytest.raises(AcclimateError, match="are for 2 classes, got num_classes=4"):
        outline(f"hf:{tmp_path}", num_classes=4)


def test_where_it_would_come_from(transformers: Any, tmp_path: Path) -> None:
    found = origin("hf:someone/something")
    assert found is not None
    assert (found.library, found.hub) == ("transformers", "someone/something")
    assert str(found.place).endswith("/someone/something")
    folder = origin(f"hf:{tmp_path}")
    assert folder is not None
    assert (folder.hub, folder.place) == (None, str(tmp_path.resolve()))


@pytest.mark.parametrize(
    ("processor", "options"),
    [
        ("ViTImageProcessor", {"size": {"height": 64, "width": 64}}),
        ("BitImageProcessor", {}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}}),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 384}}),
        ("LevitImageProcessor", {}),
        ("PoolFormerImageProcessor", {}),
        ("EfficientNetImageProcessor", {}),
        (
            "EfficientNetImageProcessor",
            {"rescale_factor": 1 / 127.5, "rescale_offset": True, "include_top": False},
        ),
    ],
)
def test_preprocessing_agrees_with_the_processor(
    transformers: Any, processor: str, options: dict[str, Any]
) -> None:
    theirs = getattr(transformers, processor)(**options)
    record = preprocessing_from_hf(theirs.to_dict())
    assert record is not None
    ramp = np.linspace(0, 255, 500, dtype=np.float32)
    image = Image.fromarray(
        np.broadcast_to(ramp[None, :, None], (400, 500, 3)).round().astype(np.uint8)
    )
    expected = theirs(image, return_tensors="pt")["pixel_values"][0]
    ours = record.normalize(torch.from_numpy(record.fit(image))[None])[0]
    assert expected.shape == ours.shape
    # A level or two of 255: where a margin is odd the centres lie a pixel apart.
    torch.testing.assert_close(ours, expected, rtol=0, atol=3 / 255 / min(record.std))


def test_swapped_channels_are_not_passed_over(transformers: Any, tmp_path: Path) -> None:
    resnet(transformers, "cat", "dog").save_pretrained(tmp_path)
    transformers.MobileViTImageProcessor().save_pretrained(tmp_path)
    with pytest.warns(AcclimateWarning, match="MobileViTImageProcessor.*cannot be expressed"):
        assert load(f"hf:{tmp_path}").preprocessing is None
