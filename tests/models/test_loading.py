"""The door itself: prefixes, built-ins, the user's own functions, listing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models import LoadedModel, builtin, list_models, load, norm_layers, register_builtin
from acclimate.models.libraries import import_optional
from acclimate.models.networks.digits import load_digits_model
from acclimate.registry import Registry


@pytest.fixture
def builtins(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry("acclimate model")
    registry.add("digits", load_digits_model)
    monkeypatch.setattr(builtin, "_MODELS", registry)


USER_MODULE = """
from torch import nn
from acclimate.data.preprocessing import Preprocessing
from acclimate.models import LoadedModel

def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).half().train()

def record():
    return LoadedModel(name="x", model=net(), preprocessing=Preprocessing(size=(8, 8)))

def needs(size):
    return nn.Linear(size, size)

def nothing():
    return None

def lazy():
    return nn.Sequential(nn.Conv2d(3, 2, 1), nn.LazyBatchNorm2d(affine=False), nn.LazyLinear(2))

instance = nn.Linear(2, 2)
"""


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models_for_test.py").write_text(USER_MODULE)
    yield "my_models_for_test"
    sys.modules.pop("my_models_for_test", None)


@pytest.mark.parametrize("spec", ["resnet50", "", ":", "timm:"])
def test_no_prefix_or_no_name_lists_the_prefixes(spec: str) -> None:
    with pytest.raises(AcclimateError, match=r"timm:NAME.*py:package\.module:function|prefix ''"):
        load(spec)


def test_an_unknown_prefix_suggests_the_nearest() -> None:
    with pytest.raises(AcclimateError, match="did you mean 'torchvision'"):
        load("torch-vision:resnet18")


def test_num_classes_is_checked() -> None:
    with pytest.raises(AcclimateError, match="expected num_classes >= 1, got 0"):
        load("acclimate:digits", num_classes=0)


def test_a_function_gives_a_module(user_module: str) -> None:
    path = list(sys.path)
    loaded = load(f"py:{user_module}:net")
    assert loaded.name == f"py:{user_module}:net"
    assert not loaded.model.training
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert (loaded.preprocessing, loaded.classes) == (None, None)
    assert sys.path == path


def test_a_function_gives_a_record(user_module: str) -> None:
    loaded = load(f"py:{user_module}:record")
    assert loaded.preprocessing == Preprocessing(size=(8, 8))
    assert loaded.name == f"py:{user_module}:record"


def test_a_function_with_weights(user_module: str, tmp_path: Path) -> None:
    source = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(nn.DataParallel(source).state_dict(), tmp_path / "w.pth")
    loaded = load(f"py:{user_module}:net", weights=tmp_path / "w.pth")
    assert loaded.source == str(tmp_path / "w.pth")
    assert torch.equal(loaded.model[0].weight, source[0].weight)  # not rounded: net() is in half


def test_weights_for_other_classes_than_a_function_settles(
    user_module: str, tmp_path: Path
) -> None:
    source = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5))
    torch.save(source.state_dict(), tmp_path / "w.pth")
    with pytest.raises(
        AcclimateError, match="for 5 classes, the model has 3 and takes no"
    ) as refused:
        load(f"py:{user_module}:net", weights=tmp_path / "w.pth")
    assert "num_classes" not in str(refused.value)  # it would be refused


def test_a_path_from_the_home_folder(
    user_module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict(), tmp_path / "w.pth")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(f"py:{user_module}:net", weights="~/w.pth").source == str(tmp_path / "w.pth")


@pytest.mark.parametrize("weights", [False, True])
def test_shapes_that_wait_for_pictures_are_refused(
    user_module: str, tmp_path: Path, weights: bool
) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pth")
    with pytest.raises(AcclimateError, match=r"got LazyBatchNorm2d as 1, .* pass a batch through"):
        load(f"py:{user_module}:lazy", weights=tmp_path / "w.pth" if weights else None)


def test_mistakes_in_py_specs(user_module: str, tmp_path: Path) -> None:
    def fails(name: str, match: str) -> None:
        with pytest.raises(AcclimateError, match=match):
            load(name)

    fails(f"py:{user_module}", "expected py:package.module:function")
    fails("py:no_such_module_here:net", "no module 'no_such_module_here'; expected it in")
    fails("py:no_such.sub.module:net", r"no module 'no_such\.sub\.module'")
    fails(f"py:{user_module}:nett", "did you mean 'net'")
    fails(f"py:{user_module}:needs", r"called without arguments, failed: TypeError.*size")
    fails(f"py:{user_module}:nothing", "expected a torch.nn.Module.*got NoneType")
    fails(f"py:{user_module}:instance", "expected a function at py:.*instance.*got a Linear")
    (tmp_path / "broken_for_test.py").write_text("import no_such_dependency")
    fails("py:broken_for_test:net", "could not be imported.*no_such_dependency")
    (tmp_path / "raising_for_test.py").write_text("1 / 0")
    fails("py:raising_for_test:net", "could not be imported: ZeroDivisionError")
    with pytest.raises(AcclimateError, match="settles its own class count"):
        load(f"py:{user_module}:net", num_classes=3)


@pytest.mark.usefixtures("builtins")
def test_builtins_are_registered_listed_and_loaded() -> None:
    @register_builtin("tiny-for-test")
    def tiny() -> LoadedModel:
        return LoadedModel(name="acclimate:tiny-for-test", model=nn.Linear(2, 2).train())

    assert list_models() == ["acclimate:digits", "acclimate:tiny-for-test"]
    assert list_models("*tiny*") == list_models("tin*") == ["acclimate:tiny-for-test"]
    assert not load("acclimate:tiny-for-test").model.training
    with pytest.raises(AcclimateError, match="did you mean 'tiny-for-test'"):
        load("acclimate:tiny-for-tset")
    with pytest.warns(AcclimateWarning, match="was registered before"):
        register_builtin("tiny-for-test")(lambda: load("acclimate:digits"))


def test_what_cannot_be_listed_says_so() -> None:
    with pytest.raises(AcclimateError, match="hf: models cannot be listed"):
        list_models("hf:*")
    with pytest.raises(AcclimateError, match="unknown model prefix 'tim'; did you mean 'timm'"):
        list_models("tim:resnet*")
    assert list_models("[hp]*:*dino") == ["paper:vit-s16-dino"]  # hf and py are passed over


def test_describe_says_what_was_found() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4))
    text = LoadedModel(
        name="py:a:b", model=model, preprocessing=Preprocessing(size=(8, 8)), source="w.pth"
    ).describe()
    assert "Sequential, 56 parameters" in text
    assert "1 BatchNorm, 1 GroupNorm" in text
    assert "8×8" in text
    assert text.splitlines()[-1].split() == ["weights", "w.pth"]


def test_norm_layers_knows_lookalikes_but_not_blocks() -> None:
    class FrozenBatchNorm2d(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(2))

    class LayerNormBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(2)

    class Custom(nn.InstanceNorm2d):
        pass

    model = nn.Sequential(FrozenBatchNorm2d(), LayerNormBlock(), Custom(3), nn.SyncBatchNorm(3))
    assert norm_layers(model) == {"BatchNorm": 2, "LayerNorm": 1, "InstanceNorm": 1}


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(AcclimateError, match=r"pip install 'acclimate\[hf\]'"):
        import_optional("no_such_package.part", extra="hf")


def test_importing_the_room_imports_no_model_library() -> None:
    code = (
        "import sys, acclimate.models as m; m.list_models('*');"
        "print([p for p in ('timm', 'torchvision', 'transformers', 'sklearn') if p in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
