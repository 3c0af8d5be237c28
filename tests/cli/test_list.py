"""``acclimate list``, ``--help`` and ``--version``."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

import acclimate
from acclimate.cli import main
from acclimate.cli.parser import build_parser

NAMED = {"none", "bn", "bn-prior", "ent", "hard", "soft", "rpl", "rpl-epoch", "dino"}


def test_recipes_with_what_they_do(capfd):
    assert main(["list", "recipes"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines())
    assert set(lines) >= NAMED
    assert "robust pseudo-labels" in lines["rpl"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["recipes", "rpl*"], ["rpl", "rpl-epoch"]),
        (["models", "acclimate:dig*"], ["acclimate:digits"]),
        (["models", "dig*"], ["acclimate:digits"]),
        (["models", "wrn-40-2"], ["acclimate:wrn-40-2"]),
        (["models", "torchvision:resnet5?"], ["torchvision:resnet50"]),
        (["datasets", "imagenet-d*"], ["imagenet-d", "imagenet-d-curated"]),
        (["models", "[pt]*:alexnet"], ["paper:alexnet", "torchvision:alexnet"]),
    ],
)
def test_patterns_and_json(words, expected, capfd):
    assert main(["list", *words, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == expected
    assert main(["list", *words]) == 0
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == expected


def test_models_say_how_to_find_more(capfd):
    assert main(["list", "models"]) == 0
    said = capfd.readouterr()
    assert "acclimate:digits" in said.out
    assert all(line.startswith("acclimate:") for line in said.out.splitlines())
    assert "'timm:*'" in said.err
    assert main(["list", "models", "resnet18*"]) == 0
    said = capfd.readouterr()
    assert said.out.splitlines() == ["acclimate:resnet18-cifar"]
    assert "'paper:resnet18*'" in said.err
    assert main(["list", "models", "paper:resnet18*"]) == 0
    assert capfd.readouterr() == ("paper:resnet18\n", "")


def test_nothing_found_is_a_mistake(capfd):
    assert main(["list", "recipes", "zzz*"]) == 2
    assert "no recipes match 'zzz*'; try acclimate list recipes" in capfd.readouterr().err
    assert main(["list", "models", "zzz*"]) == 2
    assert "or models from anywhere: '*:zzz*'" in capfd.readouterr().err
    assert main(["list", "models", "timm:zzz*"]) == 2
    assert "anywhere" not in capfd.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["list", "cakes"])


def test_a_reader_that_has_seen_enough_is_no_error():
    pipe = f"{sys.executable} -m acclimate list models 'torchvision:*' | head -1"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True)
    assert done.stdout.startswith("torchvision:")
    assert done.stderr == ""


@pytest.mark.parametrize("words", [["--help"], ["adapt", "--help"], ["--version"]])
def test_help_is_quick_it_imports_no_torch(words):
    code = (
        "import sys, acclimate.cli\n"
        "try:\n    acclimate.cli.main(sys.argv[1:])\n"
        "except SystemExit as done:\n    assert not done.code\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = acclimate.__version__ if words == ["--version"] else "usage: acclimate"
    assert expected in done.stdout


def test_no_command_is_a_mistake(capfd):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


COMMANDS = [
    "adapt", "evaluate", "bench", "tune", "results", "report", "reproduce", "list", "show",
    "corrupt", "pretrain", "theory",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_its_examples_parse(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) < 80
    examples = text.partition("examples:\n")[2].replace("\\\n", "").splitlines()
    assert any(example.startswith(f"  acclimate {command}") for example in examples)
    for example in examples:
        program, *words = shlex.split(example)
        assert program == "acclimate"
        assert callable(build_parser().parse_args(words).command)
