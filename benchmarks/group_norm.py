"""The network with group norm by corruption, beside what the paper prints, for docs/measured.md.

    python benchmarks/group_norm.py                              # prints it
    python benchmarks/group_norm.py --write docs/measured.md     # or --check

It is made from results/cifar10c.json, as the README's table is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from acclimate.data.corruptions import SEVERITIES, TEST
from acclimate.experiments.reproduce.scope import plain_shift
from headline import published
from measured import mean
from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results" / "cifar10c.json"
MODEL = "acclimate:wrn-26-2-gn-cifar10"
RECIPES = ("none", "ent", "rpl")


def group_norm(rows: Sequence[Row]) -> str:
    """Means over the severities of each corruption, and over all."""
    errors = {
        recipe: {
            (plain_shift(row["corruption"]), row["severity"]): row
            for row in rows
            if (row["model"], row["recipe"], row["seed"]) == (MODEL, recipe, 0)
            and "selector" not in row["options"]
        }
        for recipe in RECIPES
    }
    wanted = {(name, severity) for name in TEST for severity in SEVERITIES}
    for recipe, found in errors.items():
        if set(found) != wanted:
            raise TableError(f"expected {len(wanted)} shifts with {recipe}, got {len(found)}")

    def cell(recipe: str, shift: str) -> str:
        of = TEST if shift == "test" else (shift,)
        ours = (row for (name, _), row in errors[recipe].items() if name in of)
        return f"{mean(ours, lambda row: row['error'])} ({published(MODEL, recipe, shift=shift)})"

    return drawn(
        ["corruption", *(f"`{recipe}`" for recipe in RECIPES)],
        [
            ["all" if shift == "test" else shift, *(cell(recipe, shift) for recipe in RECIPES)]
            for shift in (*TEST, "test")
        ],
    )


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write it."""
    return command(group_norm, name="group_norm", results=RESULTS, about=str(__doc__), words=words)


if __name__ == "__main__":
    sys.exit(main())
