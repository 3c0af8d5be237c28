"""A table that is made from results and stands in a page between two marks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Row", "TableError", "command", "drawn", "in_page"]

Row = dict[str, Any]


class TableError(Exception):
    """The table cannot be made, or put where it was asked for."""


def drawn(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right.

    >>> print(drawn(["recipe", "error"], [["ent", "9.0"]]))
    | recipe | error |
    | --- | --: |
    | ent | 9.0 |
    """
    every = [head, ["---", *["--:"] * (len(head) - 1)], *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in every)


def in_page(page: str, table: str, *, name: str) -> str:
    """A page with the table between its marks.

    >>> in_page("a <!-- t --> old <!-- /t --> b", "new", name="t")
    'a <!-- t -->\\nnew\\n<!-- /t --> b'
    """
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, opened, rest = page.partition(opening)
    _, closed, after = rest.partition(closing)
    if not (opened and closed):
        raise TableError(f"expected {opening} and {closing} in the page, around the table")
    return f"{before}{opening}\n{table}\n{closing}{after}"


def command(
    make: Callable[[Any], str],
    *,
    name: str,
    results: Path,
    about: str,
    words: Sequence[str] | None = None,
) -> int:
    """The command line of a table: print it, check a page for it, or write it there."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=results, help="the export to read")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", type=Path, metavar="PAGE", help="1 where it has another table")
    what.add_argument("--write", type=Path, metavar="PAGE", help="put the table into it")
    args = parser.parse_args(words)
    try:
        table = make(json.loads(_read(args.results)))
        page = args.check or args.write
        if page is None:
            print(table)
            return 0
        text = _read(page)
        wanted = in_page(text, table, name=name)
    except TableError as error:
        print(error, file=sys.stderr)
        return 2
    if args.write:
        page.write_text(wanted, encoding="utf-8")
    elif wanted != text:
        print(f"{page} has another table; python {sys.argv[0]} --write {page} mends it")
        return 1
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror}") from error
