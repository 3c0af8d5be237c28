"""What docs/serving.md shows runs, and names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from acclimate.cli.parser import build_parser
from acclimate.serve.metrics import Metrics
from acclimate.serve.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = BLOCKS
    exec(compile(source, "docs/serving.md", "exec"), {})
    assert capsys.readouterr().out


def test_every_metric_that_is_named_exists() -> None:
    there = Metrics(Settings()).text().decode()
    named = set(re.findall(r"`(acclimate_\w+)`", PAGE))
    assert len(named) >= 14
    assert all(f"# HELP {name.removesuffix('_total')}" in there for name in named)


def test_defaults_are_those_of_the_settings() -> None:
    given = re.findall(r"`--([a-z-]+)` \((\d[\d.]*)\)", PAGE)
    assert len(given) >= 6
    for option, value in given:
        assert getattr(Settings(), option.replace("-", "_")) == float(value), option


def test_every_option_that_is_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    known = ""
    for command in ("serve", "adapt"):
        with pytest.raises(SystemExit):
            build_parser().parse_args([command, "--help"])
        known += capsys.readouterr().out
    for option in set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", PAGE)):
        assert option in known, option
