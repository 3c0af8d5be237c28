"""A data set is refused by a model whose numbers mean other classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acclimate.bench.job import Job
from acclimate.bench.worker import Worker
from acclimate.cli import main
from acclimate.data import ClassList, Preprocessing
from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks import check_classes_fit, find_dataset, open_dataset
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.stl10 import STL10_CLASSES
from acclimate.data.labels import imagenet_classes
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.metrics import Scoring

# Four images are not the ten thousand that are published.
pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")

PIXELS = np.zeros((4, 3, 32, 32), np.uint8)
DIGITS = tuple("0123456789")
NAMES, WORDNET = imagenet_classes().names, imagenet_classes().ids


def named_images(names) -> ArraySource:
    return ArraySource(
        PIXELS,
        labels=torch.arange(4),
        class_names=names,
        preprocessing=Preprocessing(size=(32, 32)),
    )


@pytest.fixture
def cifar10(tmp_path):
    np.savez(tmp_path / "cifar10-test.npz", images=PIXELS.transpose(0, 2, 3, 1), labels=range(4))
    return tmp_path


@pytest.mark.parametrize(
    ("dataset", "names", "classes", "message"),
    [
        ("cifar10", CIFAR10_CLASSES, imagenet_classes(), "10 classes and 1,000"),
        ("stl10", STL10_CLASSES, ClassList(CIFAR10_CLASSES), "class 1 is 'bird', in the model"),
        ("imagenet", WORDNET, ClassList(NAMES[::-1], ids=WORDNET[::-1]), "class 0 is 'n01440764'"),
        ("mnist", DIGITS, imagenet_classes(), "10 classes and 1,000"),
    ],
)
def test_other_classes_are_refused(dataset, names, classes, message):
    with pytest.raises(AcclimateError, match=message) as caught:
        check_classes_fit(find_dataset(dataset), named_images(names), classes)
    assert f"choose a model for {dataset}" in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "names", "classes"),
    [
        ("cifar10", CIFAR10_CLASSES, ClassList(CIFAR10_CLASSES)),
        ("cifar10", CIFAR10_CLASSES, ClassList(("plane", "car", *CIFAR10_CLASSES[2:]))),
        ("cifar10", CIFAR10_CLASSES, ClassList(tuple(f"LABEL_{n}" for n in range(10)))),
        ("cifar10", CIFAR10_CLASSES, None),
        ("imagenet", ("n01440764", "n02102040"), imagenet_classes()),  # only some of them are there
        ("imagenet", WORDNET, ClassList(tuple(f"{name} (n.)" for name in NAMES))),
        ("imagenetv2", None, imagenet_classes()),
        ("mnist", DIGITS, ClassList(DIGITS)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_the_same_classes_are_taken_and_what_nobody_knows(dataset, names, classes):
    check_classes_fit(find_dataset(dataset), named_images(names), classes)


@pytest.mark.parametrize(
    ("dataset", "names", "classes"),
    [
        ("svhn", DIGITS, ClassList(CIFAR10_CLASSES)),
        ("cifar10", CIFAR10_CLASSES, ClassList(tuple(f"{name}s" for name in CIFAR10_CLASSES))),
        ("imagenet", WORDNET[:3], ClassList(NAMES, ids=tuple(f"x{each}" for each in WORDNET))),
    ],
)
def test_names_that_have_nothing_in_common_are_a_warning(dataset, names, classes):
    with pytest.warns(AcclimateWarning, match=f"no class of {dataset} .* is known to the model"):
        check_classes_fit(find_dataset(dataset), named_images(names), classes)


def test_a_map_has_its_own_check():
    images = named_images(("a", "b"))
    images.scoring = Scoring(label_of=torch.zeros(1000, dtype=torch.int64))
    check_classes_fit(find_dataset("imagenet-r"), images, imagenet_classes())


def test_a_data_set_is_opened_for_a_model_of_its_classes(cifar10):
    opened = open_dataset("cifar10", cifar10, classes=ClassList(CIFAR10_CLASSES), incomplete=True)
    assert len(opened) == 4
    with pytest.raises(AcclimateError, match="not the model's"):
        open_dataset("cifar10", cifar10, classes=imagenet_classes(), incomplete=True)


def test_commands_and_jobs_refuse_it(cifar10, capfd, monkeypatch):
    monkeypatch.syspath_prepend(str(cifar10))
    (cifar10 / "fitting_models.py").write_text(STL10)
    words = ["--dataset", "cifar10", "--root", str(cifar10), "--incomplete", "--quiet"]
    assert main(["evaluate", "--model", "acclimate:wrn-26-2-bn-cifar10", *words]) == 0
    capfd.readouterr()
    for command in ("evaluate", "adapt"):
        assert main([command, "--model", "py:fitting_models:stl10", *words]) == 2
        assert "class 2 is 'bird', in the model 'car'" in capfd.readouterr().err
    worker = Worker({"cifar10": cifar10}, device="cpu", incomplete=True)
    result = worker.run(Job(model="py:fitting_models:stl10", dataset="cifar10", recipe="none"))
    assert (result.status, "choose a model for cifar10" in result.message) == ("failed", True)
    result = worker.run(Job(model="py:fitting_models:others", dataset="cifar10", recipe="none"))
    assert result.status == "done"
    assert any("no class of cifar10" in note for note in result.record.notes)


STL10 = """
from torch import nn
from acclimate.data import ClassList, Preprocessing
from acclimate.data.benchmarks.stl10 import STL10_CLASSES
from acclimate.models import LoadedModel


def loaded(names):
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3072, 10))
    size = Preprocessing(size=(32, 32))
    return LoadedModel(name="m", model=model.eval(), preprocessing=size, classes=ClassList(names))


def stl10():
    return loaded(STL10_CLASSES)


def others():
    return loaded(tuple("abcdefghij"))
"""
