"""``acclimate corrupt``: what it writes, prints and refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from acclimate.cli import main

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("clean.npz", images=IMAGES, labels=np.arange(6))
    np.save("grey.npy", IMAGES[..., 0])
    for index, image in enumerate(IMAGES):
        folder = tmp_path / "photos" / f"class{index % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((300, 280)).save(folder / f"{index}.png")
    return tmp_path


def corrupt(*words: str) -> int:
    return main(["corrupt", *words, "--quiet"])


def test_an_array_in_the_layout_of_cifar(here, capfd):
    assert corrupt("clean.npz", "out", "--preset", "cifar", "--shift", "dev") == 0
    assert "120 images written to out" in capfd.readouterr().out
    assert np.load("out/spatter.npy").shape == (30, 32, 32, 3)
    assert corrupt("clean.npz", "out", "--preset", "cifar", "--shift", "dev", "--json") == 0
    assert json.loads(capfd.readouterr().out) == {
        "out": "out",
        "made": 0,
        "kept": 120,
        "skipped": 0,
    }


def test_grey_images_stay_grey(here):
    assert corrupt("grey.npy", "out", "--preset", "cifar", "--shift", "fog") == 0
    assert np.load("out/fog.npy").shape == (30, 32, 32, 1)
    assert corrupt("grey.npy", "jpeg", "--preset", "imagenet", "--shift", "fog:1") == 0
    assert Image.open("jpeg/fog/1/0.JPEG").mode == "L"


def test_a_folder_in_the_layout_of_imagenet(here):
    assert corrupt("photos", "out", "--preset", "imagenet", "--shift", "fog:3") == 0
    assert Image.open("out/fog/3/class1/5.JPEG").size == (224, 224)
    assert (
        corrupt("photos", "small", "--preset", "imagenet", "--shift", "fog:3", "--size", "64") == 0
    )
    assert Image.open("small/fog/3/class1/5.JPEG").size == (64, 64)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nowhere out --preset cifar", "no such folder or file: nowhere; check SRC"),
        ("clean.npz out --preset cifar --shift fob", "did you mean 'fog'"),
        ("clean.npz out --preset cifar --shift fog:7", "got 'fog:7'"),
        ("clean.npz out --preset cifar --size 64", "--size is for folders"),
        ("clean.npz out --preset cifar --seed -1", "seed >= 0"),
        ("clean.npz out --preset cifar --workers 0", "workers >= 1"),
        ("clean.npz photos --preset cifar", "not empty and has no manifest"),
        ("photos out --preset imagenet --size 0", "expected size"),
    ],
)
def test_mistakes(words, message, here, capfd):
    before = sorted(here.rglob("*"))
    assert corrupt(*words.split()) == 2
    assert message in capfd.readouterr().err.splitlines()[-1]
    assert sorted(here.rglob("*")) == before


def test_killed_and_resumed(here):
    np.savez("many.npz", images=np.tile(IMAGES, (700, 1, 1, 1)))
    words = ["corrupt", "many.npz", "out", "--preset", "cifar", "--shift", "glass_blur", "--quiet"]
    command = [sys.executable, "-m", "acclimate", *words]
    process = subprocess.Popen(command)
    part = here / "out" / ".glass_blur.npy.rows"
    while process.poll() is None and not (part.exists() and any(part.read_bytes()[128:])):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (here / "out" / "glass_blur.npy").exists()
    assert main(words) == 0
    assert main([w if w != "out" else "whole" for w in words]) == 0
    np.testing.assert_array_equal(np.load("out/glass_blur.npy"), np.load("whole/glass_blur.npy"))
