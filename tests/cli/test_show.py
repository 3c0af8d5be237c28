"""``acclimate show``: nothing is downloaded, everything known is printed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from acclimate.cli import main
from acclimate.methods.registry import get_recipe
from acclimate.models.checkpoints import checkpoints
from acclimate.models.libraries import import_torchvision
from acclimate.models.networks.depth26 import ResNet26
from acclimate.recipe import Recipe
from torch_free import run_without_torch

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints/acclimate_checkpoints"

needs_models = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="needs timm and torchvision"
)


def show(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", "model", *words]) == 0
    return capfd.readouterr().out


def rows(text: str) -> dict[str, str]:
    """The indented lines, by their first word."""
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  ")]
    return {line[0]: line[1] for line in lines}


@needs_models
def test_a_resnet50_has_more_affines_than_the_paper_prints(capfd):
    text = show(capfd, "paper:resnet50")
    found = rows(text)
    assert found["affine"] == "53,120"
    assert found["all"] == "25,557,032"
    assert found["last-layer"] == "2,049,000"
    assert "prints 5.3k affine parameters" in text
    assert found["normalisation"] == "53 BatchNorm"
    assert "not loaded: this is the architecture alone" in text
    assert found["rpl"] == "learning rate 0.001  batches of 128  5 epoch(s)"
    assert found["checksum"] == "sha256 begins with 0676ba61 or 19c8e357"
    assert found["clean"] == "error   23.9 % of ImageNet validation (tbl:table-10 of the paper)"
    assert found["licence"].startswith("BSD-3-Clause")


@needs_models
def test_the_same_as_json(capfd):
    facts = json.loads(show(capfd, "paper:resnet50-augmix", "--json"))
    assert facts["normalisation"] == {"BatchNorm": 53}
    assert facts["parameters"] == facts["selectors"]["all"]["parameters"] == 25_557_032
    assert facts["selectors"]["affine"] == {"parameters": 53_120, "added": 0}
    assert [preset["recipe"] for preset in facts["presets"]] == ["ent", "rpl"]
    assert facts["record"]["clean_error"] == 22.47
    assert facts["record"]["weights"] == "file"
    assert len(facts["notes"]) == 1


@needs_models
def test_what_cannot_learn_says_why(capfd):
    text = show(capfd, "paper:alexnet")
    assert "0           AlexNet has no normalisation layers with scale and shift to adapt" in text
    assert "found no transformer blocks" in text
    assert "none; rates and epochs are chosen by the number of images" in text
    assert "Note:" not in text


@needs_models
def test_adapters_are_counted_as_added(capfd):
    facts = json.loads(show(capfd, "paper:vit-s16-dino", "--json"))
    adapters = facts["selectors"]["adapters"]
    # 24 sublayers, each 384 → 64 → 384 with biases; the layer norms learn beside them.
    assert adapters["added"] == 24 * (384 * 64 + 64 + 64 * 384 + 384)
    assert adapters["parameters"] == adapters["added"] + facts["selectors"]["affine"]["parameters"]
    assert facts["parameters"] == facts["selectors"]["all"]["parameters"]
    text = show(capfd, "paper:vit-s16-dino")
    assert f"{facts['parameters']:,} parameters" in text
    assert "of which 1,190,400 are added" in text


@needs_models
def test_a_given_file_is_tried(capfd, tmp_path: Path):
    torch.save(import_torchvision().models.resnet18().state_dict(), tmp_path / "w.pth")
    assert "not the published file" in show(
        capfd, "paper:resnet18", "--weights", str(tmp_path / "w.pth")
    )
    assert main(["show", "model", "paper:resnet50", "--weights", str(tmp_path / "w.pth")]) == 2
    assert "do not fit this ResNet" in capfd.readouterr().err
    assert main(["show", "model", "paper:resnet18", "--weights", "no.pth"]) == 2
    assert "no weights file no.pth" in capfd.readouterr().err


def test_models_without_a_record(capfd):
    text = show(capfd, "acclimate:digits")
    assert rows(text)["affine"] == "256"
    assert "Record" not in text
    assert "Where the weights come from" not in text


@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_a_network_of_this_package_shows_its_record(name, capfd):
    record = checkpoints()[name]
    facts = json.loads(show(capfd, f"acclimate:{name}", "--json"))
    assert facts["record"] == asdict(record)
    assert facts["origin"] is None
    text = show(capfd, f"acclimate:{name}")
    found = rows(text[text.index("\nRecord\n") :])
    assert found["architecture"] == f"acclimate:{record.architecture}"
    assert found["trained"] == f"on    {record.trained_on}"
    assert found["error"].startswith(f"{record.error:g} % of {record.images:,} images")
    assert found["command"] == record.command
    assert found["checksum"] == f"sha256 {record.sha256}"
    file = CHECKPOINTS / f"{name}.safetensors"
    assert found["file"] == f"{file.name}, {file.stat().st_size:,} bytes, half precision"


def test_a_users_own_weights_do_not_have_that_record(capfd):
    weights = str(CHECKPOINTS / "wrn-26-2-uda-ss-mnist-m.safetensors")
    text = show(capfd, "acclimate:wrn-26-2-bn-cifar10", "--weights", weights)
    assert "Record" not in text
    assert weights in rows(text)["weights"]


def test_class_names_are_in_the_json(capfd):
    facts = json.loads(show(capfd, "acclimate:wrn-26-2-bn-cifar10", "--json"))
    assert facts["classes"][0] == "airplane"
    assert len(facts["classes"]) == 10
    facts = json.loads(show(capfd, "acclimate:wrn-26-1-bn", "--num-classes", "7", "--json"))
    assert facts["classes"] is None


@needs_models
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("timm:test_resnet", {"library": "timm", "hub": "timm/test_resnet.r160_in1k"}),
        ("timm:test_resnet", {"licence": "apache-2.0"}),
        (
            "torchvision:resnet18",
            {
                "library": "torchvision",
                "place": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
            },
        ),
    ],
)
def test_where_a_library_fetches_weights_from(name, expected, capfd):
    text = show(capfd, name)
    assert rows(text[text.index("Where the weights come from") :]).items() >= expected.items()
    facts = json.loads(show(capfd, name, "--json"))
    assert facts["origin"].items() >= expected.items()
    assert facts["record"] is None


@needs_models
def test_given_weights_are_not_fetched(capfd, tmp_path: Path):
    torch.save(import_torchvision().models.resnet18().state_dict(), tmp_path / "w.pth")
    text = show(capfd, "torchvision:resnet18", "--weights", str(tmp_path / "w.pth"))
    assert "Where the weights come from" not in text


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
def test_a_model_on_the_hub_is_not_fetched(capfd):
    assert main(["show", "model", "hf:no-such-one/no-such-model"]) == 2
    err = capfd.readouterr().err
    assert "nothing is downloaded for this" in err
    assert "Retrying" not in err


def test_layers_that_wait_for_images(capfd, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "from torch import nn\ndef net():\n    return nn.Sequential(nn.LazyConv2d(2, 3))\n"
    (tmp_path / "lazy_for_show.py").write_text(code)
    assert main(["show", "model", "py:lazy_for_show:net"]) == 2
    assert "LazyConv2d as 0, which waits for its first images" in capfd.readouterr().err


def test_another_class_count(capfd, tmp_path: Path):
    torch.save(ResNet26(1, classes=7).state_dict(), tmp_path / "w.pth")
    words = ["acclimate:wrn-26-1-bn", "--weights", str(tmp_path / "w.pth")]
    assert rows(show(capfd, *words, "--num-classes", "7"))["last-layer"] == "455"
    assert main(["show", "model", *words]) == 2
    assert "--num-classes 7" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["paper:resnet-50"], "did you mean 'resnet50"),
        (["resnet50"], "expected a model with a prefix"),
        pytest.param(["timm:resnet-50"], "did you mean 'resnet50'", marks=needs_models),
        pytest.param(["torchvision:resnet-50"], "did you mean 'resnet50'", marks=needs_models),
    ],
)
def test_mistakes(words, message, capfd):
    assert main(["show", "model", *words]) == 2
    assert message in capfd.readouterr().err


def test_a_kind_that_cannot_be_shown():
    with pytest.raises(SystemExit, match="2"):
        main(["show", "cake", "x"])


def test_help_imports_no_torch():
    done = run_without_torch(["show", "--help"])
    assert "acclimate show model paper:resnet50" in done.stdout


def test_it_works_in_a_process_that_has_loaded_nothing_else():
    words = [sys.executable, "-m", "acclimate", "show", "model", "acclimate:wrn-26-2-gn-cifar10"]
    shown = subprocess.run(words, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "early-affine" in shown.stdout


def test_a_recipe_is_shown_in_the_words_of_set(capfd):
    assert main(["show", "recipe", "rpl"]) == 0
    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) < 80
    options, _, alternatives = out.partition("Alternatives")
    shown = dict(line.split(maxsplit=1) for line in options.splitlines()[4:] if line)
    assert shown["objective.q"] == "0.8"
    assert shown["teacher"] == "instant"
    assert "moving-average" in alternatives
    assert "instant" not in alternatives
    recipe = get_recipe("rpl")
    changed = {name: word for name, word in shown.items() if name in ("epochs", "objective.q")}
    assert recipe.with_options(changed) == recipe


def test_a_recipe_without_an_objective_has_no_optimizer(capfd):
    assert main(["show", "recipe", "bn"]) == 0
    assert "optimizer" not in capfd.readouterr().out
    assert main(["show", "recipe", "bn", "--json"]) == 0
    assert Recipe.from_dict(json.loads(capfd.readouterr().out)) == get_recipe("bn")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "recipe", "rlp"], "did you mean 'rpl'?"),
        (["show", "recipe", "rpl", "--num-classes", "3"], "--num-classes is for show model"),
        (["list"], "expected acclimate list recipes, models, datasets or corruptions"),
    ],
)
def test_what_cannot_be_shown_or_listed(words, said, capfd):
    assert main(words) == 2
    assert said in capfd.readouterr().err
