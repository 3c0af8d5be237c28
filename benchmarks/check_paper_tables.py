"""Are the paper's tables, as data, what its .tex file prints?

python benchmarks/check_paper_tables.py --tex self-learning.tex

Every number of a row must be printed in the table of that label, in one row, in that order, and the
rows in their order. Rows that the paper has under the wrong heads are compared in its order.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from acclimate.paper.tables import Cell, Table, tables

WITHOUT_NUMBERS = {"tbl:hparams_summary": "ticks", "tbl:app-model-checkpoints": "links"}
SCHEMATIC = {"fig:main"}
NUMBER = re.compile(r"(?<![\w.^{])[-+]?\d+(?:\.\d+)?(?:e-?\d+)?[Mk]?(?![\w%])")
SUFFIX = {"M": 1e6, "k": 1e3}
Row = list[float | None]
FLOATS = (r"\begin{table", r"\begin{figure", r"\end{figure")
DIVERGED = None


def printed_tables(tex: str) -> dict[str, list[Row]]:
    """The rows of every tabular, by the first of its labels; ``unlabelled`` where it has none."""
    found: dict[str, list[Row]] = {}
    end = 0
    for match in re.finditer(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", tex, re.DOTALL):
        before = tex[end : match.start()]
        before = before[max(0, *(before.rfind(word) for word in FLOATS)) :]
        after = re.split(
            r"\\end\{(?:table|figure)|\\begin\{tabular", tex[match.end() :], maxsplit=1
        )
        caption = before.rfind(r"\caption")
        labels = re.findall(r"\\label\{(.*?)\}", before[caption:]) if caption >= 0 else []
        if not labels and (caption < 0 or r"\caption" not in after[0]):
            labels = re.findall(r"\\label\{(.*?)\}", after[0])
        found[labels[0] if labels else "unlabelled"] = rows_of(match.group(1))
        end = match.end()
    return found


def rows_of(tabular: str) -> list[Row]:
    return [row for line in re.split(r"\\\\", tabular) if (row := numbers_of(line))]


def numbers_of(line: str) -> Row:
    """The numbers of a line without its head; None for what diverged."""
    line = re.sub(r"\\cite[pt]?\{.*?\}", "", line)
    line = line.replace(r"\divg", "div")
    line = re.sub(r"\\(?:best|textbf|num|textcolor\{gray\})\{(.*?)\}", r"\1", line)
    line = re.sub(r"(\d(?:\.\d+)?)\\times10\^(\d)", r"\1e\2", line).replace("$", " ")
    words = [word for cell in line.split("&")[1:] for word in re.split(r"[\s()]", cell)]
    return [number for word in words if word for number in _number(word)]


def _number(word: str) -> Row:
    if word == "div":
        return [DIVERGED]
    match = NUMBER.fullmatch(word.removeprefix(r"\pm"))
    if match is None:
        return []
    text = match.group(0)
    return [float(text.rstrip("Mk")) * SUFFIX.get(text[-1], 1)]


def transposed(rows: list[Row]) -> list[Row]:
    whole = [row for row in rows if len(row) == len(rows[-1])]
    return [list(column) for column in zip(*whole, strict=True)]


def expected(table: Table) -> list[tuple[str, Row]]:
    """Our rows, as the paper has them."""
    stored = json.loads((files("acclimate.metrics") / "paper_corruptions.json").read_text())
    swapped: list[str] = stored["swapped"]
    rows = []
    for name, group in groupby(table.cells, key=lambda cell: cell.row):
        cells = list(group)
        if any("under the wrong heads" in (cell.erratum or "") for cell in cells):
            place = {shift: number for number, shift in enumerate(swapped)}
            cells.sort(key=lambda cell: place.get(str(cell.shift), len(place)))
        rows.append((name, [number for cell in cells for number in _printed(cell, table)]))
    return rows


def _printed(cell: Cell, table: Table) -> Row:
    if cell.diverged:
        return [DIVERGED]
    assert cell.published is not None, cell
    share = 100 if table.printed_as == "share" else 1
    return [cell.published / share, *([cell.std] if cell.std is not None else [])]


def contains(row: Row, wanted: Row) -> bool:
    """Whether the wanted numbers occur in this order, perhaps with others (changes) between."""
    left = iter(row)
    return all(any(_same(have, want) for have in left) for want in wanted)


def _same(have: float | None, want: float | None) -> bool:
    if have is None or want is None:
        return have is want
    return abs(have - want) <= 1e-9 * max(1.0, abs(want))


def problems(table: Table, rows: list[Row]) -> list[str]:
    """Rows of ours that are not there, or not in their place."""
    left = transposed(rows) if table.transposed else list(rows)
    missing = []
    for name, wanted in expected(table):
        at = next((n for n, row in enumerate(left) if contains(row, wanted)), None)
        if at is None:
            missing.append(f"{table.label}: row {name!r} is not printed (in its place): {wanted}")
        else:
            left = left[at + 1 :]
    return missing


def main(words: Sequence[str] | None = None) -> int:
    """Compare, and print what is not as printed."""
    parser = argparse.ArgumentParser(description="compare our tables with the paper's .tex file")
    parser.add_argument("--tex", type=Path, required=True)
    tex = parser.parse_args(words).tex.read_text(encoding="utf-8")
    printed = printed_tables(tex)
    ours = {table.label: table for table in tables() if table.kind == "table"}
    figures = {table.label for table in tables() if table.kind == "figure"}
    known = {"unlabelled", *ours, *WITHOUT_NUMBERS}
    wrong = [f"{label}: not in our data" for label in printed if label not in known]
    drawn = set(re.findall(r"\\label\{(fig:.*?)\}", tex)) - SCHEMATIC
    wrong += [f"{label}: in one of the two only" for label in drawn ^ figures]
    count = 0
    for label, table in ours.items():
        key = "unlabelled" if table.unlabelled else label
        if key not in printed:
            wrong.append(f"{label}: not in the .tex file")
            continue
        wrong += problems(table, printed[key])
        count += len(table.cells)
    print("\n".join(wrong) or "all as printed")
    print(
        f"{len(printed)} tables printed, {len(ours)} with numbers and {len(figures)} figures here"
    )
    print(f"{count} numbers compared, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
