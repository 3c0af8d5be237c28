"""``--num-classes``, and what a weights file says of itself, on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acclimate.checkpoint import tensors_writer
from acclimate.cli import main
from acclimate.data.labels import ClassList
from acclimate.models import load
from acclimate.models.record import model_metadata

SPEC = "acclimate:wrn-26-1-bn"
CLASSES = ClassList(("ant", "bee", "cat"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    path = tmp_path / "images.npz"
    np.savez(path, images=pixels, labels=np.array([0, 1, 2, 0, 1, 2]))
    return path


def commands(images: Path) -> list[list[str]]:
    own = ["--images", str(images), "--json", "--quiet", "--device", "cpu"]
    return [["adapt", "--recipe", "none", *own], ["evaluate", *own]]


@pytest.mark.parametrize("command", [0, 1])
def test_a_file_of_another_class_count(command, images, tmp_path: Path, capfd):
    file = tmp_path / "bare.safetensors"
    tensors_writer(load(SPEC, num_classes=3).model.state_dict())(file)
    words = [*commands(images)[command], "--model", SPEC, "--weights", str(file)]
    assert main(words) == 2
    assert "are for 3 classes, the model has 10" in capfd.readouterr().err
    assert main([*words, "--num-classes", "3"]) == 0
    assert json.loads(capfd.readouterr().out)
    assert main([*words, "--num-classes", "0"]) == 2
    assert "expected num_classes >= 1, got 0" in capfd.readouterr().err


@pytest.mark.parametrize("command", [0, 1])
def test_a_file_that_knows_needs_no_telling(command, images, tmp_path: Path, capfd):
    file, loaded = tmp_path / "knows.safetensors", load(SPEC, num_classes=3)
    record = model_metadata(replace(loaded, classes=CLASSES))
    tensors_writer(loaded.model.state_dict(), record)(file)
    words = [*commands(images)[command], "--model", SPEC, "--weights", str(file)]
    assert main(words) == 0
    assert json.loads(capfd.readouterr().out)


def test_alone_it_is_a_mistake(capfd):
    assert main(["adapt", "--num-classes", "3"]) == 2
    assert "--num-classes needs --model and --images" in capfd.readouterr().err
