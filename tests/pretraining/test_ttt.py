"""Classes and turns learnt together, and test-time training with the head that is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from acclimate.cli import main
from acclimate.data import open_images
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.ttt import turned
from acclimate.models.networks.digits import digits_network
from acclimate.pretraining import METHODS, Plan, load_examples, pretrain
from acclimate.pretraining.methods import Batch
from acclimate.pretraining.ttt import Ttt

IMAGES, LABELS = digits("train")
HELD_OUT, TRUTH = digits("held-out")


def test_the_loss_is_the_classes_plus_the_turns() -> None:
    images = torch.from_numpy(IMAGES[:8])[:, None]
    seen: list[Tensor] = []

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        seen.extend(x.split(8))
        flat = x.flatten(1)
        return flat[:, :10], flat[:, 10:14]

    labels = torch.from_numpy(LABELS[:8])
    batch = Batch(images, labels, PREPROCESSING.standardize, torch.Generator().manual_seed(0))
    head = nn.Linear(4, 4)
    method = Ttt(rotation=0.5, margin=0, flip=False)
    loss = method.loss(forward, head, batch)
    upright = PREPROCESSING.normalize(images)
    torch.testing.assert_close(seen[0], upright)
    turns = torch.stack([turned(upright, torch.full((8,), k)) for k in range(4)])
    quarters = (turns - seen[1]).flatten(2).abs().sum(dim=2).argmin(dim=0)
    assert len(quarters.unique()) > 1
    cross_entropy = nn.functional.cross_entropy
    expected = cross_entropy(seen[0].flatten(1)[:, :10], labels) + 0.5 * cross_entropy(
        head(seen[1].flatten(1)[:, 10:14]), quarters
    )
    torch.testing.assert_close(loss, expected)


def test_both_are_learnt_and_the_head_goes_on_teaching(tmp_path: Path) -> None:
    assert METHODS["ttt"] is Ttt
    torch.manual_seed(0)
    model = digits_network()
    source = open_images(IMAGES, preprocessing=PREPROCESSING, labels=LABELS)
    plan = Plan(epochs=6, batch_size=64, lr=0.05)
    trained = pretrain(
        model, load_examples(source), Ttt(flip=False, margin=1), plan, progress=False
    )
    held_out = PREPROCESSING.normalize(torch.from_numpy(HELD_OUT)[:, None])
    with torch.no_grad():
        predictions = model(held_out).argmax(dim=1).numpy()
    assert (predictions == TRUTH).mean() > 0.8

    path = tmp_path / "head.safetensors"
    save_file(trained.files["head.safetensors"], path)
    options = {"objective.head": str(path), "objective.copies": 4, "episode": "none"}
    learner = Learner(model, get_recipe("ttt", options))
    step = learner.step(held_out[:64])
    assert step.loss is not None
    assert float(step.loss) < 1.0  # chance is 1.39


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_the_commands_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        images = rng.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
        np.savez(f"cifar10-{split}.npz", images=images, labels=np.arange(20) % 10)
    net = ["--model", "acclimate:wrn-26-1-bn"]
    quiet = ["--quiet", "--device", "cpu"]
    how = ["--method", "ttt", "--epochs", "1", "--batch-size", "10", "--incomplete"]
    assert main(["pretrain", *net, *how, "--root", ".", "--out", "run", *quiet]) == 0
    assert "head.safetensors" in capfd.readouterr().out

    adapt = ["adapt", *net, "--weights", "run/model.safetensors", "--images", "cifar10-test.npz"]
    adapt += ["--recipe", "ttt", "--out", "adapted", *quiet]
    assert main(adapt) == 2
    assert "objective.head=FILE" in capfd.readouterr().err
    small = ["objective.copies=2", "epochs=1"]
    words = [each for word in small for each in ("--set", word)]
    assert main([*adapt, "--set", "objective.head=run/head.safetensors", *words]) == 0
    assert (tmp_path / "adapted" / "predictions.csv").is_file()
