"""Weights that this package wrote load with the classes and preprocessing they were made with."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from acclimate.checkpoint import tensors_writer
from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.models import LoadedModel, load
from acclimate.models.libraries import import_torchvision
from acclimate.models.record import Metadata, model_metadata, read_metadata
from acclimate.models.weights import load_weights

PETS = ClassList(("ant", "bee", "cat", "dog", "eel"), ids=("n1", "n2", "n3", "n4", "n5"))
FED = Preprocessing(
    size=(32, 24),
    resize=40,
    squash=True,
    interpolation="bicubic",
    mean=(0.1, 0.2, 0.3),
    std=(1,) * 3,
)


def write(path: Path, loaded: LoadedModel) -> Path:
    tensors_writer(loaded.model.state_dict(), model_metadata(loaded))(path)
    return path


@pytest.fixture
def trained() -> LoadedModel:
    made = load("acclimate:wrn-26-1-bn", num_classes=5)
    return replace(made, classes=PETS, preprocessing=FED)


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    code = "from torch import nn\ndef net():\n    return nn.Linear(2, 5)\n"
    (tmp_path / "written_for_test.py").write_text(code)
    yield "py:written_for_test:net"
    sys.modules.pop("written_for_test", None)


def test_what_is_written_is_read_back(tmp_path: Path, trained: LoadedModel) -> None:
    path = write(tmp_path / "model.safetensors", trained)
    expected = Metadata(name="acclimate:wrn-26-1-bn", classes=PETS, preprocessing=FED)
    assert read_metadata(path) == expected


def test_unknown_stays_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", LoadedModel(name="py:a:b", model=nn.Linear(2, 2)))
    assert read_metadata(path) == Metadata(name="py:a:b")


def test_an_architecture_gets_the_files_classes_and_their_count(
    tmp_path: Path, trained: LoadedModel
) -> None:
    path = write(tmp_path / "model.safetensors", trained)
    loaded = load("acclimate:wrn-26-1-bn", weights=path)
    assert (loaded.classes, loaded.preprocessing) == (PETS, FED)
    assert loaded.source == f"{path}, with its classes and its preprocessing"
    weights = {"fc.weight", "layer1.0.bn1.running_mean"}
    for name in weights:
        assert loaded.model.state_dict()[name].equal(trained.model.state_dict()[name])


def test_so_does_a_users_own_model(tmp_path: Path, user_module: str) -> None:
    bare = load(user_module)
    path = write(tmp_path / "model.safetensors", replace(bare, classes=PETS, preprocessing=FED))
    loaded = load(user_module, weights=path)
    assert (loaded.classes, loaded.preprocessing) == (PETS, FED)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="needs torchvision")
def test_so_do_the_models_of_libraries(tmp_path: Path) -> None:
    model = import_torchvision().models.squeezenet1_1(num_classes=5)
    spec = "torchvision:squeezenet1_1"
    made = LoadedModel(name=spec, model=model, classes=PETS)
    loaded = load(spec, weights=write(tmp_path / "model.safetensors", made))
    assert loaded.classes == PETS
    assert loaded.preprocessing is not None
    assert loaded.preprocessing.size == (224, 224)  # the file does not know: torchvision's stays


def test_a_class_count_that_contradicts_the_file(tmp_path: Path, trained: LoadedModel) -> None:
    path = write(tmp_path / "model.safetensors", trained)
    assert load("acclimate:wrn-26-1-bn", weights=path, num_classes=5).classes == PETS
    with pytest.raises(AcclimateError, match=r"is for 5 classes by its record, got num_classes=7"):
        load("acclimate:wrn-26-1-bn", weights=path, num_classes=7)


def test_another_architecture_says_which_it_is_for(tmp_path: Path, trained: LoadedModel) -> None:
    path = write(tmp_path / "model.safetensors", trained)
    with pytest.raises(AcclimateError, match=r"do not fit.*it is for acclimate:wrn-26-1-bn"):
        load("acclimate:wrn-26-2-bn", weights=path)


@pytest.mark.parametrize("record", [None, {}, {"epoch": 3}, {"model": "acclimate:wrn-40-2"}, [1]])
def test_files_without_our_record(tmp_path: Path, record: Any) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata={"record": json.dumps(record)})
    assert read_metadata(path) is None
    assert load_weights(path)["weight"].tolist() == [0.0, 0.0]


def test_files_that_cannot_have_one_or_be_read(tmp_path: Path, trained: LoadedModel) -> None:
    path = write(tmp_path / "model.safetensors", trained)
    path.write_bytes(path.read_bytes()[:-100])
    missing, pickled = tmp_path / "none.safetensors", tmp_path / "model.pth"
    torch.save({}, pickled)
    assert [read_metadata(each) for each in (path, missing, pickled, tmp_path)] == [None] * 4
    with pytest.raises(AcclimateError, match="damaged or cut short"):
        load("acclimate:wrn-26-1-bn", weights=path)


WHOLE = {
    "name": "acclimate:wrn-26-1-bn",
    "classes": {"names": ["ant", "bee"], "ids": None},
    "preprocessing": {"size": [8, 8], "mean": [0.5], "std": [0.5]},
}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "acclimate:wrn-26-1-bn",
        {"name": "acclimate:wrn-26-1-bn"},
        WHOLE | {"name": 3},
        WHOLE | {"classes": {"names": "ant"}},
        WHOLE | {"classes": {"names": [], "ids": None}},
        WHOLE | {"classes": {"names": [1, 2], "ids": None}},
        WHOLE | {"classes": {"names": ["ant", "bee"], "ids": ["n1"]}},
        WHOLE | {"preprocessing": {"size": [8, 8], "mean": [0.5], "std": [0]}},
        WHOLE | {"preprocessing": {"size": [8, 8], "mean": [float("nan")], "std": [1]}},
        WHOLE | {"preprocessing": {"size": [8, 8], "mean": ["grey"], "std": [1]}},
        WHOLE | {"preprocessing": {"mean": [0.5], "std": [1]}},
        WHOLE | {"preprocessing": {"size": [8, 8], "mean": [0.5], "std": [1], "hue": 3}},
    ],
)
def test_a_damaged_record_is_said_to_be_so(tmp_path: Path, entry: Any) -> None:
    path = tmp_path / "model.safetensors"
    tensors_writer({"weight": torch.zeros(2)}, {"loads_as": entry})(path)
    with pytest.raises(AcclimateError, match=r"record .* in .*model\.safetensors is damaged"):
        read_metadata(path)


def test_the_whole_of_what_is_damaged_above_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors_writer({"weight": torch.zeros(2)}, {"loads_as": WHOLE})(path)
    assert read_metadata(path) == Metadata(
        name="acclimate:wrn-26-1-bn",
        classes=ClassList(("ant", "bee")),
        preprocessing=Preprocessing(size=(8, 8), mean=(0.5,), std=(0.5,)),
    )


def test_text_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata={"record": "cake"})
    with pytest.raises(AcclimateError, match=r"record .* in .*model\.safetensors is damaged"):
        read_metadata(path)
