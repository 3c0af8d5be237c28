"""Data sets that are not here, run from end to end on small files in their published layouts."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from acclimate.bench import Store
from acclimate.cli import main
from acclimate.models.libraries import import_torchvision
from published_layouts import write_camelyon17, write_fmow, write_rxrx1, write_stl10, write_svhn

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")

ONCE = {"optimizer.lr": 1e-3, "epochs": 1}
WILDS = {
    "camelyon17": (write_camelyon17, "densenet121", 2, (3, 96, 96)),
    "rxrx1": (write_rxrx1, "resnet50", 1139, (3, 256, 256)),
    "fmow": (write_fmow, "densenet121", 62, (3, 224, 224)),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choice.json").write_text(json.dumps({"ent": ONCE, "rpl": ONCE}))
    return tmp_path


def reproduce(*words: str, capfd: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The rows of a table that is run here; nothing may fail."""
    call = ["reproduce", *words, "--incomplete", "--choice", "choice.json", "--device", "cpu"]
    assert main([*call, "--quiet", "--json"]) == 0, capfd.readouterr().err
    shown = json.loads(capfd.readouterr().out)
    assert shown["ran"]["failed"] == []
    return [row for table in shown["tables"] for row in table["rows"]]


def wilds_weights(path: Path, name: str, classes: int) -> None:
    """A file as WILDS's training script writes it, of an untrained network."""
    import_torchvision()
    from torchvision import models

    torch.manual_seed(0)
    net = models.get_model(name, num_classes=classes)
    state = {f"model.{key}": value for key, value in net.state_dict().items()}
    torch.save({"algorithm": state, "epoch": 0, "best_val_metric": 0.5}, path)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="the networks are torchvision's")
@pytest.mark.parametrize("name", WILDS)
def test_wilds(name: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write, net, classes, shape = WILDS[name]
    write(here / "data")
    wilds_weights(here / "best_model.pth", net, classes)
    recipes = {"Baseline": "none", "ENT": "ent"}
    recipes |= {"BN adapt": "bn", "RPL": "rpl"} if name == "camelyon17" else {}  # the small one
    rows = reproduce(
        "tbl:wilds", "--columns", "test (OOD)", "--root", f"{name}=data", "--weights",
        f"{name},*=best_model.pth", "--rows", *(f"{name}, {row}" for row in recipes), capfd=capfd,
    )  # fmt: skip
    assert [row["status"] for row in rows] == ["measured"] * len(recipes)
    assert all(0 <= row["measured"] <= 100 for row in rows)
    results = Store("results.db").results()
    assert {result.job.recipe for result in results} == set(recipes.values())
    # As WILDS feeds its networks: at the size of its images, RxRx1's standardised one by one.
    size = f"{shape[1]}×{shape[2]}"
    fed = {result.record.preprocessing for result in results}
    assert fed == {None} if name == "rxrx1" else all(size in words for words in fed)


def test_stl10_in_the_classes_of_cifar10(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_stl10(here / "data" / "stl10_binary")
    rows = reproduce(
        "tbl:detailed-uda-results", "--rows", "*UDA-SS, CIFAR10*", "--root",
        "stl10-cifar10=data", "--model", "acclimate:wrn-26-16-bn=acclimate:wrn-26-2-bn-cifar10",
        capfd=capfd,
    )  # fmt: skip
    assert [row["status"] for row in rows] == ["measured"] * 4
    assert {row["images"] for row in rows} == {9}  # monkeys are left out
    assert all("in place of acclimate:wrn-26-16-bn" in str(row["notes"]) for row in rows)


def test_svhn_as_target_of_self_ensembling(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Trained from MNIST with SVHN's unlabelled images, as the paper's row is, and adapted."""
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 256, (20, 28, 28), dtype=np.uint8)
    for split in ("train", "test"):
        np.savez(here / f"mnist-{split}.npz", images=digits, labels=np.arange(20) % 10)
        write_svhn(here / f"{split}_32x32.mat")
    trained = [
        "pretrain", "--model", "acclimate:wrn-26-1-bn", "--method", "self-ensembling", "--dataset",
        "mnist", "--target", "svhn", "--set", "augmentation=tf", "--set", "confidence=none",
        "--root", ".", "--epochs", "1", "--batch-size", "4", "--incomplete", "--quiet", "--device",
        "cpu", "--out", "run",
    ]  # fmt: skip
    assert main(trained) == 0, capfd.readouterr().err
    capfd.readouterr()
    rows = reproduce(
        "tbl:self-ensembling", "--rows", "MNIST→SVHN, MT+TF", "--columns", "baseline",
        "BN adapt", "ENT", "RPL", "--root", "svhn=.", "--weights",
        "MNIST→SVHN, MT+TF=run/model.safetensors", capfd=capfd,
    )  # fmt: skip
    assert [row["status"] for row in rows] == ["measured"] * 4
    assert {row["images"] for row in rows} == {4}
