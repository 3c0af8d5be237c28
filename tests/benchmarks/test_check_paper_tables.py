"""Our tables against a .tex file: all that is printed in its place, and what is not named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acclimate.paper.tables import Table, find_table, tables

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # as when it is run
import check_paper_tables as check

SWAPPED = "tbl:detailed-corruptions-cifarc"
# As in the paper: a row under the wrong heads, fog last.
PRINTED = r"""
 & mean & gauss & \dots \\ \midrule
Baseline~\cite{me} & 50.8 & 46.9 & 39.3 & 15.9 & 44.2 & 20.8 & 18.8 & 14.9 & 17.8 & 4.8 & 13.6
 & 20.4 & 19.0 & 25.0 & 10.0 & $\best{24.2}$ \\
"""


def word(number: float | None) -> str:
    return r"\divg" if number is None else f"{number:.10g}"


def as_tex(table: Table) -> str:
    rows = [numbers for _, numbers in check.expected(table)]
    if table.transposed:
        rows = [list(column) for column in zip(*rows, strict=True)]
    lines = [" & ".join(["row", *map(word, row)]) + r" \\" for row in rows]
    label = "" if table.unlabelled else rf"\label{{{table.label}}}"
    body = "\n".join(lines)
    return (
        rf"\begin{{table}}\caption{{A}}{label}"
        "\n"
        rf"\begin{{tabular}}{{l}}{body}\end{{tabular}}\end{{table}}"
    )


@pytest.fixture
def tex(tmp_path: Path) -> Path:
    parts = [as_tex(table) for table in tables() if table.kind == "table"]
    parts += [rf"\label{{{table.label}}}" for table in tables() if table.kind == "figure"]
    file = tmp_path / "paper.tex"
    file.write_text("\n".join(parts), encoding="utf-8")
    return file


def test_every_table_is_compared(tex, capsys):
    assert check.main(["--tex", str(tex)]) == 0
    out = capsys.readouterr().out
    cells = sum(len(table.cells) for table in tables() if table.kind == "table")
    assert "all as printed" in out
    assert f"{cells:,} numbers compared, 0 problems".replace(",", "", 1) in out


def test_a_number_that_is_printed_otherwise_is_named(tex, capsys):
    text = tex.read_text(encoding="utf-8")
    assert text.count("76.7 & 50.5 & 51.6") == 1
    tex.write_text(text.replace("76.7 & 50.5 & 51.6", "76.7 & 50.6 & 51.6"), encoding="utf-8")
    assert check.main(["--tex", str(tex)]) == 1
    assert "tbl:table-1: row 'ResNet50 vanilla' is not printed" in capsys.readouterr().out


def test_a_table_or_figure_of_one_of_the_two_is_named(tex, capsys):
    text = tex.read_text(encoding="utf-8").replace(r"\label{fig:online}", r"\label{fig:new}")
    tex.write_text(text.replace(r"\label{tbl:ece}", r"\label{tbl:other}"), encoding="utf-8")
    assert check.main(["--tex", str(tex)]) == 1
    out = capsys.readouterr().out
    assert "tbl:other: not in our data" in out
    assert "tbl:ece: not in the .tex file" in out
    assert "fig:new: in one of the two only" in out


def test_a_row_under_the_wrong_heads_is_compared_in_the_order_of_the_print():
    wanted = dict(check.expected(find_table(SWAPPED)))["WRN-26-16 vanilla, baseline"]
    assert check.rows_of(PRINTED) == [wanted]
