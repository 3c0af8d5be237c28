"""``acclimate compare``."""

from __future__ import annotations

import json

import pytest

from acclimate.cli import main
from acclimate.report import templates
from adapt_inputs import LABELS, WORDS, go_to, write_folder

MODEL = ["--model", "py:nets:named"]
RECIPES = ["--recipes", "none", "bn"]


@pytest.fixture(autouse=True)
def photos(tmp_path, monkeypatch):
    go_to(tmp_path, monkeypatch)
    write_folder(tmp_path / "photos", folders=None)
    write_folder(tmp_path / "sorted")
    rows = [f"{index:04}.png,{WORDS[LABELS[index]]}" for index in range(50)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,class", *rows]))


def compare(*words: str) -> int:
    return main(["compare", *MODEL, *RECIPES, *words])


def test_a_table_best_first_and_a_conclusion(capsys):
    assert compare("--images", "photos", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("bn has the lowest estimated error, ")
    names = [line.split()[0] for line in lines if line.startswith(("none ", "bn "))]
    assert names == ["bn", "none", "bn"]
    assert any(line.startswith("recipe  estimated %") for line in lines)


def test_json_with_labels(capsys):
    assert compare("--images", "photos", "--labels", "labels.csv", "--json") == 0
    out, err = capsys.readouterr()
    got = json.loads(out)
    assert (got["best"], got["by"], got["labelled"]) == ("bn", "labels", 50)
    assert got["recipes"][0]["error"]["low"] < got["recipes"][0]["error"]["high"]
    assert "1/2 none" in err


def test_sub_folders_are_labels_unless_told_otherwise(capsys):
    compare("--images", "sorted")
    out, err = capsys.readouterr()
    assert "120 images, 120 labelled" in out
    assert "labels: sub-folders (eight, five, four, ...)" in err
    compare("--images", "sorted", "--no-labels", "--quiet")
    assert "120 images, 0 labelled" in capsys.readouterr().out


def test_a_page_that_needs_nothing_else(tmp_path, capsys):
    assert compare("--images", "sorted", "--out", "compared", "--quiet") == 0
    assert "written to compared: report.html, comparison.json" in capsys.readouterr().out
    page = (tmp_path / "compared/report.html").read_text()
    assert "bn has the lowest error" in page
    assert page.count("<tr>") == 3
    assert "http" not in page.replace("http-equiv", "")
    assert compare("--images", "sorted", "--out", "compared", "--quiet") == 0  # resumes


def test_without_jinja_there_is_no_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(templates, "find_spec", lambda name: None)
    assert compare("--images", "sorted", "--out", "compared", "--quiet") == 0
    out, err = capsys.readouterr()
    assert "note: report.html is left out; pages need jinja2: pip install" in err
    assert "written to compared: comparison.json" in out
    assert not (tmp_path / "compared/report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--images", "nowhere"], "no such folder or file"),
        (["--images", "photos", "--labels", "nowhere.csv"], "check --labels"),
        (["--images", "photos", "--recipes", "rlp"], "did you mean 'rpl'"),
        ([], "add --images PATH"),
    ],
)
def test_mistakes(words, said, capsys):
    assert compare(*words) == 2
    assert said in capsys.readouterr().err
