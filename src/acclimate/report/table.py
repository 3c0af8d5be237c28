"""A table as data, and as HTML, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple, TypeAlias

from acclimate.text import latex_words

__all__ = ["Entry", "ReportTable", "html_table", "latex_table", "markdown_table", "number_entry"]


class Number(NamedTuple):
    """Words to show and a number to sort by."""

    text: str
    value: float


Entry: TypeAlias = str | Number


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows under a header.

    Attributes:
        name: for file names and anchors.
        title: what it shows, in a line.
        header: of the columns.
        rows: words, or numbers to sort by.
        notes: how to read it, and what was left out.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    notes: Sequence[str] = field(default_factory=tuple)

    def first(self, count: int, *, rest: str) -> ReportTable:
        """The first rows; a note says how many others there are, and where."""
        left = len(self.rows) - count
        if left <= 0:
            return self
        note = f"{left:,} of {len(self.rows):,} rows are left out here; {rest}"
        return ReportTable(
            name=self.name,
            title=self.title,
            header=self.header,
            rows=self.rows[:count],
            notes=(*self.notes, note),
        )


def number_entry(value: float | None, *, digits: int = 1, text: str | None = None) -> Entry:
    """A number as an entry, a dash where there is none.

    >>> number_entry(21.345), number_entry(None)
    (Number(text='21.3', value=21.345), '–')
    """
    if value is None:
        return text or "–"
    return Number(f"{value:,.{digits}f}" if text is None else text, value)


def html_table(table: ReportTable, *, plain: bool = False) -> str:
    """A table with a filter and heads to sort by; ``plain`` without, for the data of a figure."""
    heads = "".join(_head(name, plain) for name in table.header)
    numeric = _numeric(table)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>" for row in table.rows)
    body = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>"
    # What can be scrolled must be reachable by key, and then needs a name.
    label = escape(table.title)
    box = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">'
        f'<table aria-label="{label}">{body}</table></div>'
    )
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    if plain:
        return box + notes
    count = len(table.rows)
    search = (
        f'<p class="filter"><label>Filter <input type="search" aria-label="Filter: {label}" '
        f'placeholder="words that a row must have"></label> '
        f'<output aria-live="polite">{count:,} of {count:,} rows</output></p>'
    )
    return (
        f'<div class="sheet" id="{escape(table.name)}"><h3>{label}</h3>{search}{box}{notes}</div>'
    )


def _head(name: str, plain: bool) -> str:
    if plain:
        return f"<th scope=col>{escape(name)}</th>"
    return f"<th scope=col><button type=button>{escape(name)}</button></th>"


def _cell(entry: Entry, numeric: bool) -> str:
    if isinstance(entry, Number):
        return f'<td class=n data-v="{entry.value:.6g}">{escape(entry.text)}</td>'
    return f"<td{' class=n' if numeric else ''}>{escape(entry)}</td>"


def markdown_table(table: ReportTable) -> str:
    """For a README or an issue.

    >>> small = ReportTable(name="t", title="T", header=["a|b", "n"], rows=[["x", number_entry(1)]])
    >>> print(markdown_table(small))
    **T**
    <BLANKLINE>
    | a\\|b | n |
    | --- | ---: |
    | x | 1.0 |
    """
    marks = ["---:" if numeric else "---" for numeric in _numeric(table)]
    rows = [[_word(entry) for entry in row] for row in table.rows]
    lines = [_pipes([_escaped(word) for word in row]) for row in [list(table.header), *rows]]
    lines.insert(1, _pipes(marks))
    parts = [f"**{table.title}**", "\n".join(lines), *(f"{note}" for note in table.notes)]
    return "\n\n".join(parts)


def latex_table(table: ReportTable) -> str:
    """For a paper; needs the package booktabs.

    >>> small = ReportTable(name="t", title="T_1", header=["a"], rows=[["50 %"]])
    >>> "50 \\\\% \\\\\\\\" in latex_table(small), "\\\\caption{T\\\\_1}" in latex_table(small)
    (True, True)
    """
    align = "".join("r" if numeric else "l" for numeric in _numeric(table))
    rows = [" & ".join(latex_words(_word(entry)) for entry in row) + r" \\" for row in table.rows]
    notes = [f"% {note}" for note in table.notes]
    head = " & ".join(map(latex_words, table.header)) + r" \\"
    lines = [
        r"\begin{table}", r"\centering", rf"\caption{{{latex_words(table.title)}}}",
        rf"\label{{tbl:{table.name}}}", rf"\begin{{tabular}}{{{align}}}", r"\toprule", head,
        r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join([*notes, *lines])


def _numeric(table: ReportTable) -> list[bool]:
    return [
        any(isinstance(row[place], Number) for row in table.rows)
        for place in range(len(table.header))
    ]


def _word(entry: Entry) -> str:
    return entry.text if isinstance(entry, Number) else entry


def _escaped(word: str) -> str:
    return word.replace("|", "\\|").replace("\n", " ")


def _pipes(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"
