"""The figures of docs/gallery.md are of the stored results."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_figures_are_of_the_stored_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gallery = importlib.import_module("gallery")
    assert gallery.main(["--check"]) == 0, capsys.readouterr().out
    for name in gallery.FIGURE:
        text = (DOCS / "figures" / f"{name}.svg").read_text()
        (tmp_path / f"{name}.svg").write_text(re.sub(r"(<desc>\D*)\d", r"\g<1>0.", text, count=1))
    monkeypatch.setattr(gallery, "FIGURES", tmp_path)
    assert gallery.main(["--check"]) == 1
    assert capsys.readouterr().out.count("is of other results") == len(gallery.FIGURE)


def test_the_page_shows_all_of_them() -> None:
    page = (DOCS / "gallery.md").read_text()
    shown = re.findall(r"\]\(figures/([\w-]+)\.svg\)", page)
    assert set(importlib.import_module("gallery").FIGURE) < set(shown)
    assert all((DOCS / "figures" / f"{name}.svg").is_file() for name in shown)
