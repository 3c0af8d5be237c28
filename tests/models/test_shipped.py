"""Weights that come with the package, and how they get a name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from acclimate.data.labels import ClassList
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.models import builtin, load, register_builtin
from acclimate.models.networks.depth26 import ResNet26
from acclimate.models.shipped import trained

GREY = Preprocessing(size=(32, 32), mean=(0.1,) * 3, std=(0.3,) * 3)
CLASSES = ClassList(("ant", "bee", "cat"))
NOTES = "trained on three animals, 5.0 % error on 12 images"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "wrn-26-1-bn-animals.safetensors"
    save_file(ResNet26(1, classes=3).half().state_dict(), path)
    return path


def test_half_precision_weights_fill_a_float32_model(file: Path) -> None:
    loaded = trained("wrn-26-1-bn", file, preprocessing=GREY, classes=CLASSES, notes=NOTES)
    torch.manual_seed(0)
    source = ResNet26(1, classes=3)
    weight = loaded.model.get_parameter("conv1.weight")
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight, source.conv1.weight.half().float(), rtol=0, atol=0)
    assert not loaded.model.training
    assert (loaded.name, loaded.preprocessing) == ("acclimate:wrn-26-1-bn-animals", GREY)
    assert loaded.classes == CLASSES
    assert loaded.describe().splitlines()[-1].endswith(NOTES)


def test_it_is_registered_in_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_MAKERS", dict(builtin._MAKERS))
    maker = partial(trained, "wrn-26-1-bn", file, preprocessing=GREY, classes=CLASSES, notes=NOTES)
    assert register_builtin("animals-for-test", maker) is maker
    loaded = load("acclimate:animals-for-test")
    assert (loaded.name, loaded.source) == ("acclimate:animals-for-test", NOTES)
    register_builtin("animals-for-test", maker)  # the same again is no mistake
    with pytest.raises(AcclimateError, match="registered already"):
        register_builtin("animals-for-test", partial(maker))
    with pytest.raises(AcclimateError, match="registered already"):
        register_builtin("wrn-40-2", maker)


def test_a_registered_checkpoint_settles_its_class_count(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "_MAKERS", {})
    register_builtin(
        "three",
        partial(trained, "wrn-26-1-bn", file, preprocessing=GREY, classes=CLASSES, notes=NOTES),
    )
    with pytest.raises(AcclimateError, match="settles its own class count"):
        load("acclimate:three", num_classes=5)


def test_mistakes(file: Path) -> None:
    def fails(architecture: str, file: str | Path, match: str) -> None:
        with pytest.raises(AcclimateError, match=match):
            trained(architecture, file, preprocessing=GREY, classes=CLASSES, notes=NOTES)

    fails("wrn-26-1-bm", file, "unknown architecture.*did you mean 'wrn-26-1-bn'")
    fails("wrn-26-1-bn", "no-such.safetensors", "no-such.safetensors are missing from this")
    fails("wrn-26-1-gn", file, "do not fit this ResNet26.*unknown to the model: .*running_mean")
    fails("wrn-26-2-bn", file, r"do not fit this ResNet26.*of another shape: layer1\.0\.conv1")
    file.write_bytes(file.read_bytes()[:-100])
    fails("wrn-26-1-bn", file, "damaged or cut short")
