"""The adapted plain model in a file: what other programs get is what PyTorch predicts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.cli import main
from acclimate.data import ClassList
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.errors import AcclimateError
from acclimate.exporting import Format, export
from acclimate.models import LoadedModel, load
from acclimate.models.networks.digits import load_digits_model
from acclimate.result import AdaptationResult
from nets import bn_net, gn_net, images, tiny_vit

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

FOGGY = digits("held-out", shifted=True)[0][:150]
QUICK = {"optimizer.lr": 1e-2}
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FORMATS: tuple[Format, ...] = ("onnx", "torch-export", "safetensors")


def adapt(model: Any, data: Any, recipe: str = "ent", **options: Any) -> AdaptationResult:
    return acclimate.adapt(model, data, recipe, batch_size=32, progress=False, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the embedded digits, whose classes have names."""
    folder: Path = tmp_path_factory.mktemp("runs") / "run"
    named = load_digits_model()
    model = LoadedModel(
        name="acclimate:digits",
        model=named.model,
        preprocessing=named.preprocessing,
        classes=ClassList(WORDS),
    )
    adapt(model, FOGGY, options=QUICK, out=folder)
    return folder


def expected(run: Path, batch: Tensor) -> Tensor:
    model = load_digits_model().model
    AdaptationResult.load(run, model)
    with torch.no_grad():
        logits: Tensor = model(batch)
    return logits


def in_onnx(path: Path, batch: Tensor) -> Tensor:
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": batch.numpy()})[0])


def in_torch(path: Path, batch: Tensor) -> Tensor:
    logits: Tensor = torch.export.load(path).module()(batch).detach()
    return logits


def in_weights(path: Path, batch: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = load("acclimate:digits", weights=path).model(batch)
    return logits


@pytest.mark.parametrize(
    ("name", "predict"),
    [("m.onnx", in_onnx), ("m.pt2", in_torch), ("m.safetensors", in_weights)],
)
def test_a_file_predicts_what_the_adapted_model_predicts_for_any_number_of_images(
    run: Path, tmp_path: Path, name: str, predict: Any
) -> None:
    exported = export(run, tmp_path / name)
    assert exported.difference < 1e-4
    assert exported.path.stat().st_size == exported.bytes
    for count in (1, 3, 64):
        batch = PREPROCESSING.normalize(torch.from_numpy(FOGGY[:count])[:, None])
        torch.testing.assert_close(
            predict(tmp_path / name, batch), expected(run, batch), rtol=1e-4, atol=1e-4
        )
    assert [path.name for path in tmp_path.iterdir()] == [name]


def check_record(record: dict[str, Any]) -> None:
    assert record["loads_as"]["classes"]["names"] == list(WORDS)
    assert record["loads_as"]["preprocessing"]["size"] == [8, 8]
    assert record["loads_as"]["preprocessing"]["mean"] == [0.3]
    assert (record["model"], record["recipe"]) == ("acclimate:digits", "ent")
    assert record["adapted"] in (True, False)
    assert record["temperature"] > 0


def test_preprocessing_classes_and_temperature_are_in_the_metadata(
    run: Path, tmp_path: Path
) -> None:
    export(run, tmp_path / "m.onnx")
    properties = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    check_record(json.loads(properties["acclimate"]))
    export(run, tmp_path / "m.pt2")
    extra = {"acclimate.json": ""}
    torch.export.load(tmp_path / "m.pt2", extra_files=extra)
    check_record(json.loads(extra["acclimate.json"]))
    export(run, tmp_path / "m.safetensors")
    again = load("acclimate:digits", weights=tmp_path / "m.safetensors")
    assert again.classes == ClassList(WORDS)
    assert again.preprocessing == PREPROCESSING


def test_a_run_itself_loads_back_with_its_classes(run: Path) -> None:
    again = load("acclimate:digits", weights=run / "model.safetensors")
    assert again.classes == ClassList(WORDS)


def test_the_names_of_the_axes_say_that_any_number_of_images_fits(
    run: Path, tmp_path: Path
) -> None:
    export(run, tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    for value in (*graph.input, *graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch", value.name


class Record(nn.Module):
    """Returns what transformers' models return: an object with logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return {"logits": self.net(x), "features": x}


NETS = {
    "batch norm": bn_net,
    "group norm": gn_net,
    "transformer": tiny_vit,
    "logits in a dictionary": lambda: Record(bn_net()),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", NETS)
def test_networks_of_all_kinds_are_exported(name: str, format: Format, tmp_path: Path) -> None:
    size = 16 if name == "transformer" else 8
    result = adapt(NETS[name](), images(96, size=size), options=QUICK)
    done = export(result, tmp_path / "file", format=format, image_shape=(3, size, size))
    assert done.difference < 1e-4
    assert len(done.notes) >= 2  # neither preprocessing nor classes are known


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_layers_that_a_recipe_added_are_exported(tmp_path: Path, format: Format) -> None:
    options = {"selector": "adapters", "optimizer.lr": 0.05, "epochs": 2}
    source = tiny_vit()
    result = adapt(source, images(96, size=16), options=options, guard="off")
    batch = images(4, size=16)
    with torch.no_grad():
        assert not torch.allclose(result.model(batch), source(batch), atol=1e-3)
        assert export(result, tmp_path / "f", format=format, image_shape=(3, 16, 16)).bytes


def test_the_model_itself_is_left_as_it_was(tmp_path: Path) -> None:
    result = adapt(bn_net(), images(96), options=QUICK)
    before = {k: v.clone() for k, v in result.model.state_dict().items()}
    export(result, tmp_path / "m.onnx", image_shape=(3, 8, 8))
    after = result.model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_what_the_guard_refused_is_named_as_the_source_model(tmp_path: Path) -> None:
    few = digits("held-out")
    two = few[0][np.isin(few[1], (3, 8))]
    result = adapt(load_digits_model(), two, "bn")
    assert result.verdict.word == "refused"
    done = export(result, tmp_path / "m.safetensors")
    assert any(note.startswith("this is the source model") for note in done.notes)
    assert main(["export", str(tmp_path), "--out", str(tmp_path / "x.onnx")]) == 2


# What cannot be exported, and why.


class FixedBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits if len(x) == 2 else logits * 1.0


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits if float(x.sum()) > 0 else -logits


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits + torch.rand_like(logits)


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (FixedBatch, "for any number of images"),
        (ByValue, "must not branch on the values of its input"),
        (Random, "predicts something else"),
    ],
)
def test_what_cannot_be_exported_is_explained_and_nothing_is_written(
    tmp_path: Path, model: type[nn.Module], words: str, format: Format
) -> None:
    result = adapt(model(), images(96), options=QUICK, speed="exact")
    (tmp_path / "m").write_text("the previous one")
    with pytest.raises(AcclimateError, match=words):
        export(result, tmp_path / "m", format=format, image_shape=(3, 8, 8))
    assert (tmp_path / "m").read_text() == "the previous one"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("recipe", "words"), [("lame", "its predictor"), ("memo", "learns anew for each image")]
)
def test_a_recipe_without_a_plain_model_is_refused(recipe: str, words: str, tmp_path: Path) -> None:
    net = LoadedModel(name="digits", model=load_digits_model().model, preprocessing=PREPROCESSING)
    result = adapt(net, FOGGY[:32], recipe)
    with pytest.raises(AcclimateError, match=words):
        export(result, tmp_path / "m.onnx")


def test_mistakes_are_explained(run: Path, tmp_path: Path) -> None:
    with pytest.raises(AcclimateError, match=r"ends in \.onnx, \.pt2, \.safetensors"):
        export(run, tmp_path / "m.bin")
    with pytest.raises(AcclimateError, match="unknown format 'onx'; did you mean 'onnx'"):
        export(run, tmp_path / "m", format="onx")
    with pytest.raises(AcclimateError, match="acclimate adapt --out"):
        export(tmp_path, tmp_path / "m.onnx")
    result = adapt(bn_net(), images(96))
    with pytest.raises(AcclimateError, match="--image-shape 3 224 224"):
        export(result, tmp_path / "m.onnx")
    with pytest.raises(AcclimateError, match="failed on images of shape 2 × 1 × 8 × 8"):
        export(result, tmp_path / "m.onnx", image_shape=(1, 8, 8))
    with pytest.raises(AcclimateError, match="a result has its model"):
        export(result, tmp_path / "m.onnx", model=bn_net())
    with pytest.raises(AcclimateError, match="got the folder"):
        export(run, tmp_path, format="safetensors")


def test_a_run_of_a_module_without_a_name_takes_the_module(tmp_path: Path) -> None:
    adapt(bn_net(), images(96), options=QUICK, out=tmp_path / "run")
    with pytest.raises(AcclimateError, match=r"--model py:package\.module:function"):
        export(tmp_path / "run", tmp_path / "m.onnx")
    done = export(tmp_path / "run", tmp_path / "m.onnx", model=bn_net(), image_shape=(3, 8, 8))
    assert done.checker.startswith("onnxruntime")


def test_a_damaged_run_is_refused(run: Path, tmp_path: Path) -> None:
    for file in run.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    history = tmp_path / "history.json"
    history.write_text(history.read_text() + " ")
    with pytest.raises(AcclimateError, match="expected the sha256"):
        export(tmp_path, tmp_path / "m.safetensors")


def test_without_onnxruntime_the_reference_of_onnx_checks(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = export(run, tmp_path / "m.onnx")
    assert done.checker.startswith("the reference of onnx")
    assert done.difference < 1e-4


def test_without_the_extra_the_error_names_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(AcclimateError, match=r"pip install 'acclimate\[export\]'"):
        export(run, tmp_path / "m.onnx")


def test_the_command_prints_how_the_file_was_checked(run: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acclimate", "export", run, "--out", tmp_path / "m.onnx", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    printed = json.loads(done.stdout)
    assert printed["format"] == "onnx"
    assert printed["checker"].startswith("onnxruntime")
