"""The benchmark of a step: what it compares is the same work, and what fails is reported."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.models.libraries import import_torchvision

SIDES = ["eager", "exact", "auto", "max", "inference", "inference, auto"]


@pytest.fixture
def step(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    monkeypatch.delitem(sys.modules, "step", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    return importlib.import_module("step")


def small():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


@pytest.fixture
def quick(step, monkeypatch):
    """The benchmark with a network of a few milliseconds under a known name."""
    case = replace(step.CASES["wrn-40-2"], make=small, size=8, batch=4)
    monkeypatch.setitem(step.CASES, "wrn-40-2", case)
    return step


@pytest.mark.parametrize("selector", ["affine", "all"])
def test_the_reference_takes_the_step_that_ours_takes(step, selector):
    case = replace(step.CASES["wrn-40-2"], make=small, selector=selector)
    images = torch.randn(16, 3, 8, 8)
    plain, _ = step.eager_step(case.build(), case, images)
    ours, how = step.ours("exact")(case.build(), case, images)
    logits = [(plain(images), ours(images)) for _ in range(10)]
    assert how == "exact"
    assert not torch.equal(logits[0][0], logits[-1][0])
    for theirs, own in logits:
        torch.testing.assert_close(own, theirs)


def test_inference_of_ours_is_that_of_the_model(step):
    case = replace(step.CASES["wrn-40-2"], make=small)
    images = torch.randn(16, 3, 8, 8)
    plain, _ = step.inference(case.build(), case, images)
    ours, _ = step.ours("exact", "none")(case.build(), case, images)
    torch.testing.assert_close(ours(images), plain(images))
    torch.testing.assert_close(ours(images), plain(images))


def test_a_row_for_every_side(quick):
    rows = quick.measure("wrn-40-2", "cpu", rounds=2, batch=1000)
    assert [row["what"] for row in rows] == SIDES
    eager = rows[0]
    assert (eager["ratio_to_eager"], eager["batch"], eager["size"]) == (1.0, 1000, 8)
    for row in rows:
        expected = row["images_per_second"] / eager["images_per_second"]
        assert row["ratio_to_eager"] == pytest.approx(expected, abs=0.01)
        assert row["start_seconds"] >= 0
        assert "skipped" not in row
    memory = {row["what"]: row["step_mebibytes"] for row in rows}
    assert memory["eager"] > memory["inference"] > 0


def test_a_side_without_memory_is_left_out_and_the_rest_continues(quick, monkeypatch):
    def greedy(*_):
        def step(_):
            raise torch.OutOfMemoryError("tried to allocate 1 TiB")

        return step, "greedy"

    monkeypatch.setattr(quick, "inference", greedy)
    rows = {row["what"]: row for row in quick.measure("wrn-40-2", "cpu", rounds=1)}
    assert rows["inference"]["skipped"] == "out of memory"
    assert "images_per_second" not in rows["inference"]
    assert all("images_per_second" in rows[which] for which in SIDES if which != "inference")
    assert "left out: out of memory" in quick.line(rows["inference"])


def test_a_side_may_fail_later_even_the_reference(quick, monkeypatch):
    done = []

    def frail(*_):
        def step(images):
            done.append(1)
            if len(done) > 4:  # the first steps and the look at the memory go well
                raise RuntimeError("no more\nand a long story")
            return images

        return step, "frail"

    monkeypatch.setattr(quick, "eager_step", frail)
    eager, exact, *_ = quick.measure("wrn-40-2", "cpu", rounds=3)
    assert eager["skipped"] == "RuntimeError: no more"
    assert exact["images_per_second"] > 0
    assert exact["ratio_to_eager"] is None
    assert "–" in quick.line(exact)


def test_a_model_that_cannot_be_built_is_reported_in_one_row(quick, monkeypatch):
    def missing():
        raise AcclimateError("torchvision is not installed")

    monkeypatch.setitem(quick.CASES, "resnet50", replace(quick.CASES["resnet50"], make=missing))
    (row,) = quick.measure("resnet50", "cpu", rounds=1)
    assert (row["model"], row["skipped"]) == ("resnet50", "torchvision is not installed")
    assert "torchvision is not installed" in quick.line(row)


def test_the_cost_of_a_step_in_compiled_inferences(step):
    side = step.Side(torch.relu, "any", 1.0, 2048.0, 1024.0, ["slow"])
    running = {"eager": side, "auto": side, step.COMPILED: side}
    rates = {"eager": 100.0, "auto": 400.0, step.COMPILED: 800.0}
    row = step.figures("auto", running, rates)
    assert (row["ratio_to_eager"], row["cost_in_compiled_inference"]) == (4.0, 2.0)
    assert (row["peak_mebibytes"], row["step_mebibytes"]) == (2048.0, 1024.0)
    assert row["warned"] == ["slow"]
    assert "cost_in_compiled_inference" not in step.figures(step.COMPILED, running, rates)


def test_printed_and_written(quick, tmp_path, capsys):
    out = tmp_path / "step.json"
    asked = ["--device", "cpu", "--rounds", "1", "--batch", "3", "--out", str(out)]
    assert quick.main([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(out.read_text())
    assert {"date", "machine", "torch", "step"} <= printed.keys()
    assert [row["batch"] for row in printed["rows"]] == [3] * len(SIDES)
    assert quick.main(asked) == 0
    table = capsys.readouterr().out
    assert all(f"  {which} " in table for which in SIDES)


def test_other_models_of_an_earlier_run_are_kept_if_it_was_alike(quick, tmp_path, capsys):
    out = tmp_path / "step.json"
    asked = ["--device", "cpu", "--rounds", "1", "--batch", "3", "--json", "--out", str(out)]
    assert quick.main(asked) == 0
    stored = json.loads(out.read_text())
    stored["rows"].append({**stored["rows"][0], "model": "another"})
    out.write_text(json.dumps(stored))
    assert quick.main([*asked, "--add"]) == 0
    models = [row["model"] for row in json.loads(out.read_text())["rows"]]
    assert models == ["another"] + [stored["rows"][0]["model"]] * len(SIDES)
    out.write_text(json.dumps({**stored, "machine": "a large one"}))
    with pytest.raises(SystemExit, match="another run"):
        quick.main([*asked, "--add"])


def test_compiled_inference_is_refused_without_a_gpu(quick, capsys):
    with pytest.raises(SystemExit):
        quick.main(["--device", "cpu", "--compiled"])
    assert "--compiled is for a GPU" in capsys.readouterr().err


def test_the_models_have_the_published_sizes(step):
    import_torchvision()
    published = {
        "resnet50": 25_557_032,
        "wrn-28-10": 36_479_194,
        "densenet161": 28_681_000,
        "resnext101": 88_791_336,
        "efficientnet-b0": 5_288_548,
        "efficientnet-l2": 480_309_308,
        "vit-s16": 22_050_664,
    }
    for name, parameters in published.items():
        with torch.device("meta"):
            model = step.CASES[name].build()
        assert sum(p.numel() for p in model.parameters()) == parameters, name
