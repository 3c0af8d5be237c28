"""One table, written as text, Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import NamedTuple, TypeAlias

from acclimate.text import printable

__all__ = ["Entry", "Number", "Table", "number_entry"]


class Number(NamedTuple):
    """Words to show and a number to sort by; ``bold`` where it is the best of its column."""

    text: str
    value: float
    bold: bool = False


Entry: TypeAlias = str | Number


@dataclass(frozen=True)
class Table:
    """Rows under a header. Columns with numbers are aligned to the right, but in text.

    Attributes:
        rows: words, or numbers to sort by.
        header: of the columns; empty for a table without one.
        title: what it shows, in a line.
        name: for file names, labels and anchors.
        notes: how to read it, and what was left out.

    >>> table = Table([["none", "42.0"], ["rpl", "7.1"]], header=["recipe", "error %"])
    >>> print(table.text())
    recipe  error %
    ------  -------
    none    42.0
    rpl     7.1
    """

    rows: Sequence[Sequence[Entry]]
    header: Sequence[str] = ()
    title: str = ""
    name: str = ""
    notes: Sequence[str] = ()

    def first(self, count: int, *, rest: str) -> Table:
        """The first rows; a note says how many others there are, and where."""
        left = len(self.rows) - count
        if left <= 0:
            return self
        note = f"{left:,} of {len(self.rows):,} rows are left out here; {rest}"
        return replace(self, rows=self.rows[:count], notes=(*self.notes, note))

    def text(self) -> str:
        """Columns as wide as their widest entry; the title above, the notes below."""
        lines = [[_word(entry) for entry in row] for row in self.rows]
        if self.header:
            lines.insert(0, [*map(_word, self.header)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if self.header:
            lines.insert(1, ["-" * width for width in widths])
        padded = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        above = [printable(self.title), ""] if self.title else []
        below = ["", *map(printable, self.notes)] if self.notes else []
        return "\n".join([*above, *padded, *below])

    def markdown(self) -> str:
        r"""For a README or an issue.

        >>> print(Table([["x", number_entry(1)]], header=["a|b", "n"], title="T").markdown())
        **T**
        <BLANKLINE>
        | a\|b | n |
        | --- | ---: |
        | x | 1.0 |
        """
        marks = ["---:" if numeric else "---" for numeric in self._numeric]
        words = [[_styled(entry, _pipe_words, "**{}**") for entry in row] for row in self.rows]
        lines = [self._heads(_pipe_words), marks, *words]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        title, *notes = (_pipe_words(printable(words)) for words in (self.title, *self.notes))
        return "\n\n".join([*([f"**{title}**"] if title else []), table, *notes])

    def latex(self) -> str:
        r"""For a paper; needs the package booktabs. Without a title, the tabular alone.

        >>> print(Table([["50 %"]], header=["a_1"]).latex())
        \begin{tabular}{l}
        \toprule
        a\_1 \\
        \midrule
        50 \% \\
        \bottomrule
        \end{tabular}
        """
        align = "".join("r" if numeric else "l" for numeric in self._numeric)
        words = [[_styled(entry, _latex_words, r"\textbf{{{}}}") for entry in r] for r in self.rows]
        head, *rows = (" & ".join(r) + r" \\" for r in [self._heads(_latex_words), *words])
        lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule", *rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.title:
            caption = [
                rf"\caption{{{_latex_words(_word(self.title))}}}",
                rf"\label{{tbl:{self.name}}}",
            ]
            lines = [r"\begin{table}", r"\centering", *caption, *lines, r"\end{table}"]
        return "\n".join([*(f"% {_word(note)}" for note in self.notes), *lines])

    def html(self, *, sortable: bool = False) -> str:
        """A ``<table>``; sortable with a button for each column and numbers to sort by."""
        numeric = self._numeric
        button = "<button type=button>{}</button>" if sortable else "{}"
        heads = "".join(f"<th scope=col>{button.format(name)}</th>" for name in self._heads(escape))
        rows = "\n".join(
            f"<tr>{''.join(map(partial(_html_cell, sortable), row, numeric))}</tr>"
            for row in self.rows
        )
        label = f' aria-label="{escape(_word(self.title))}"' if self.title else ""
        return f"<table{label}><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"

    def _heads(self, escaped: Callable[[str], str]) -> list[str]:
        return [escaped(_word(name)) for name in self.header]

    @property
    def _numeric(self) -> list[bool]:
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.header)
        return [any(isinstance(entry, Number) for entry in column) for column in columns]


def number_entry(value: float | None, *, digits: int = 1, text: str | None = None) -> Entry:
    """A number as an entry, a dash where there is none.

    >>> number_entry(21.345), number_entry(None)
    (Number(text='21.3', value=21.345, bold=False), '–')
    """
    if value is None:
        return text or "–"
    return Number(f"{value:,.{digits}f}" if text is None else text, value)


_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "τ": r"$\tau$", "→": r"$\to$",
}  # fmt: skip


def _latex_words(words: str) -> str:
    r"""Words with what means something else to LaTeX escaped.

    >>> print(_latex_words("50 % ± 1, wrn_40"))
    50 \% $\pm$ 1, wrn\_40
    """
    return "".join(_SIGNS.get(letter, letter) for letter in words)


def _word(entry: Entry) -> str:
    text = entry.text if isinstance(entry, Number) else entry
    return printable(text.replace("\n", " "))


def _pipe_words(words: str) -> str:
    r"""Words with what ends a cell, or begins HTML, escaped.

    >>> print(_pipe_words("a|b <img src=x>"))
    a\|b &lt;img src=x>
    """
    return words.replace("|", "\\|").replace("&", "&amp;").replace("<", "&lt;")


def _styled(entry: Entry, escaped: Callable[[str], str], bold: str) -> str:
    words = escaped(_word(entry))
    return bold.format(words) if isinstance(entry, Number) and entry.bold else words


def _html_cell(sortable: bool, entry: Entry, numeric: bool) -> str:
    words = _styled(entry, escape, "<b>{}</b>")
    if sortable and isinstance(entry, Number):
        return f'<td class=n data-v="{entry.value:.6g}">{words}</td>'
    return f"<td{' class=n' if numeric else ''}>{words}</td>"
