"""``acclimate drift``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from acclimate.cli import main
from acclimate.data.digits import digits

MODEL = ["--model", "acclimate:digits"]


@pytest.fixture(autouse=True)
def images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, shifted in (("clean", False), ("foggy", True)):
        images, labels = digits("held-out", shifted=shifted)
        np.savez(tmp_path / f"{name}.npz", images=images[:200], labels=labels[:200])


def test_a_table_and_one_line_of_advice(capsys):
    assert main(["drift", *MODEL, "--images", "foggy.npz", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "acclimate:digits, 200 images" in out
    assert "mean distance" in out
    assert "estimated error" in out
    assert out.splitlines()[-1].endswith("adapt (acclimate adapt --model ... --images ...)")


def test_json_with_a_reference(capsys):
    words = ["drift", *MODEL, "--images", "foggy.npz", "--reference", "clean.npz", "--json"]
    assert main([*words, "--most", "100"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["images"] == 100
    assert got["estimated_error"]["value"] > got["reference_error"]["value"] + 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--images", "foggy.npz"], "add --model SPEC"),
        (MODEL, "add --images PATH"),
        ([*MODEL, "--images", "nowhere"], "no such folder or file"),
        ([*MODEL, "--images", "foggy.npz", "--reference", "nowhere"], "--reference"),
        ([*MODEL, "--images", "foggy.npz", "--most", "0"], "expected most >= 1"),
    ],
)
def test_mistakes(words, said, capsys):
    assert main(["drift", *words]) == 2
    assert said in capsys.readouterr().err
