"""The network with group norm by corruption, beside what the paper prints, for docs/measured.md.

    python benchmarks/group_norm.py                              # prints it
    python benchmarks/group_norm.py --write docs/measured.md     # or --check

It is made from results/cifar10c.json, as the README's table is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from acclimate.data.corruptions import TEST
from acclimate.experiments.paper import tables
from measured import mean
from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results" / "cifar10c.json"
MODEL, TABLE = "acclimate:wrn-26-2-gn-cifar10", "tbl:mt3_comparison"
RECIPES = ("none", "ent", "rpl")
SEVERITIES = 5


def group_norm(rows: Sequence[Row]) -> str:
    """Means over the severities of each corruption, and over all."""
    errors = {
        recipe: {
            (_published_name(row), row["severity"]): row
            for row in rows
            if (row["model"], row["recipe"], row["seed"]) == (MODEL, recipe, 0)
            and "selector" not in row["options"]
        }
        for recipe in RECIPES
    }
    wanted = {(name, severity) for name in TEST for severity in range(1, SEVERITIES + 1)}
    for recipe, found in errors.items():
        if set(found) != wanted:
            raise TableError(f"expected {len(wanted)} shifts with {recipe}, got {len(found)}")

    def cell(recipe: str, corruptions: Sequence[str], published: str) -> str:
        ours = (row for (name, _), row in errors[recipe].items() if name in corruptions)
        return f"{mean(ours, lambda row: row['error'])} ({_printed(published, recipe):.1f})"

    parts = [(name, [name], name) for name in TEST]
    return drawn(
        ["corruption", *(f"`{recipe}`" for recipe in RECIPES)],
        [
            [words, *(cell(recipe, corruptions, published) for recipe in RECIPES)]
            for words, corruptions, published in (*parts, ("all", TEST, "test"))
        ],
    )


def _printed(shift: str, recipe: str) -> float:
    (value,) = (
        cell.published
        for table in tables()
        for cell in table.to_run
        if (cell.table, cell.model, cell.shift, cell.recipe) == (TABLE, MODEL, shift, recipe)
        and not cell.options
    )
    assert value is not None
    return value


def _published_name(row: Row) -> str:
    """Of a corruption; ours of frost is drawn rather than photographed."""
    name: str = row["corruption"]
    return name.removesuffix("-procedural")


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write it."""
    return command(group_norm, name="group_norm", results=RESULTS, about=str(__doc__), words=words)


if __name__ == "__main__":
    sys.exit(main())
