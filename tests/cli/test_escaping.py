"""Names come from files of others: what would act in a terminal or on a page is written out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acclimate.bench import Job, Result, Store
from acclimate.cli import main
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.table import Table, number_entry

NAME = "\x1b[2Jm\x9b31m\u202e<script>alert(1)</script>\udcff"
SHOWN = r"\x1b[2Jm\x9b31m\u202e<script>alert(1)</script>\udcff"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    job = Job(model=NAME[:-1], dataset="cifar10", recipe="ent", shift="cifar/fog:1")
    failed = Result.failed(Job(model="m", dataset="cifar10", recipe="ent"), "bad \x1b[31m")
    record = {"errors": {"final": 7.5, "unadapted": 9.0}, "labelled": 10, "images": 10}
    Store(path).add_all([Result(job=job, record=record), failed])
    return path


def test_a_table_in_the_terminal(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    assert main(["results", str(store)]) == 0
    out = capsys.readouterr().out
    assert SHOWN[:-6] in out
    assert r"bad \x1b[31m" in out
    assert not set(out) & set("\x1b\x9b\u202e")
    assert sys.stdout is before


def test_errors_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(tmp_path / "\x1b[2J.db")]) == 2
    assert r"no such store" in (err := capsys.readouterr().err)
    assert r"\x1b[2J.db" in err
    assert "\x1b" not in err


def test_a_page_and_its_tables(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(store), "--out", str(page), "--tables", str(tmp_path / "t")]) == 0
    for file in (page, *(tmp_path / "t").iterdir()):
        text = file.read_text()
        assert NAME[:3] not in text, file
        assert "<script>alert" not in text or file.suffix == ".tex", file


def test_every_form_of_a_table() -> None:
    table = Table([[NAME, number_entry(1)]], header=[NAME, "n"], title=NAME, notes=[NAME])
    for text in (table.text(), table.markdown(), table.latex(), table.html()):
        assert not set(text) & set("\x1b\x9b\u202e\udcff")
    assert "<script" not in table.markdown() + table.html()


@pytest.mark.parametrize("name", ["..", "../..", "/etc", "a/../../b", "\\\\host", "a\0b"])
def test_names_that_would_lead_to_another_folder_are_refused(name: str) -> None:
    with pytest.raises(AcclimateError, match="expected a name as the shift, got the path"):
        Shift(name=name)
    for field in ("dataset", "recipe"):
        with pytest.raises(AcclimateError, match=f"as the {field} of a job, got the path"):
            Job(**{"model": "m", "dataset": "d", "recipe": "r", field: name})
    with pytest.raises(AcclimateError, match=r"expected a (name as the )?shift"):
        Job(model="m", dataset="d", recipe="r", shift=name)
