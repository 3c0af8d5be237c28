"""Models, pictures and the call that tests of ``acclimate adapt`` share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from acclimate.cli import main
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits

CLEAN, LABELS = digits("held-out")
BLURRED = corrupt(CLEAN, "gaussian_blur", 4, preset="cifar", seed=0)
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

NETS = """
import time, torch
from torch import nn
from acclimate.data import ClassList
from acclimate.data.digits import PREPROCESSING
from acclimate.models.networks.digits import digits_network, load_digits_model
from acclimate.models import LoadedModel

def named():
    print("hello from the user's own code")
    words = "zero one two three four five six seven eight nine".split()
    model = load_digits_model().model
    names = ClassList(tuple(words))
    return LoadedModel(name="", model=model, preprocessing=PREPROCESSING, classes=names)

def unnamed():
    return LoadedModel(name="", model=load_digits_model().model, preprocessing=PREPROCESSING)

def blank():
    torch.manual_seed(0)
    return LoadedModel(name="", model=digits_network(), preprocessing=PREPROCESSING)

def recordless():
    return load_digits_model().model

def bare():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = load_digits_model().model
    def forward(self, x):
        time.sleep(0.02)
        return self.net(x)

def slow():
    return LoadedModel(name="", model=Slow(), preprocessing=PREPROCESSING)
"""


def go_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a folder of the user's own, with his models in a module."""
    (folder / "nets.py").write_text(NETS)
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "nets", raising=False)


def write_folder(root: Path, images=BLURRED, labels=LABELS, *, folders=WORDS, count=120) -> Path:
    for index in range(count):
        folder = root / folders[labels[index]] if folders else root
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[index]).save(folder / f"{index:04}.png")
    return root


def write_npz(path: Path, images=BLURRED, labels=None, count=200) -> str:
    known = {} if labels is None else {"labels": labels[:count]}
    np.savez(path, images=images[:count], **known)
    return str(path)


def call(*words: str) -> int:
    return main(["adapt", *map(str, words)])
