"""The page with the state of every published cell is that of the stored results."""

from __future__ import annotations

import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # as when it is run
import measure

PAGE = Path(__file__).parents[2] / "docs" / "published.md"


@pytest.mark.skipif(
    not (find_spec("torchvision") and find_spec("timm")),
    reason="counts the parameters of the paper's networks",
)
def test_the_page_is_that_of_the_stored_results(capsys):
    assert measure.status(Namespace(page=PAGE, write=False)) == 0, capsys.readouterr().out


def test_another_page_is_named_and_written_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "states", lambda: "| all | 2 |")
    page = tmp_path / "published.md"
    page.write_text("# title\n<!-- status -->\nold\n<!-- /status -->\nend\n", encoding="utf-8")
    assert measure.status(Namespace(page=page, write=False)) == 1
    assert "measure.py status --write" in capsys.readouterr().out
    assert measure.status(Namespace(page=page, write=True)) == 0
    assert page.read_text(encoding="utf-8").count("| all | 2 |") == 1
    assert measure.status(Namespace(page=page, write=False)) == 0


def test_what_was_reproduced_alone_counts_as_well():
    found = measure.reproduced()
    assert len(found) == 32
    assert {each.job.dataset for each in found} == {"mnist", "usps"}
    searched = [each for each in found if each.job.options]
    assert {each.job.recipe for each in searched} == {"ent", "rpl"}
    assert all("oracle" in each.record.notes[0] for each in searched)


def test_photos_of_ten_classes_measure_no_number_of_the_paper():
    everything = {each.key for each in measure.everything()}
    kept = {each.key for each in measure.everything(leave_out=measure.TEN_CLASSES)}
    left = {measure.identity(row) for name in measure.TEN_CLASSES for row in measure.exported(name)}
    assert left
    assert everything - kept == left
