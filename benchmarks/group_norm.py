"""The network with group norm by corruption, beside what the paper prints, for docs/measured.md.

    python benchmarks/group_norm.py                              # prints it
    python benchmarks/group_norm.py --write docs/measured.md     # or --check

It is made from results/cifar10c.json, as the README's table is.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from acclimate.data.corruptions import SEVERITIES, TEST
from acclimate.data.shift import plain_shift
from headline import published
from measured import mean
from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results" / "cifar10c.json"
MODEL = "acclimate:wrn-26-2-gn-cifar10"
RECIPES = ("none", "ent", "rpl")


def group_norm(rows: Sequence[Row]) -> str:
    """Means over the seeds and severities of each corruption, and over all."""
    own = {recipe: [row for row in rows if _is_shown(row, recipe)] for recipe in RECIPES}
    for recipe, found in own.items():
        shifts = Counter((plain_shift(row["corruption"]), row["severity"]) for row in found)
        wanted = {(name, severity) for name in TEST for severity in SEVERITIES}
        if set(shifts) != wanted or len(set(shifts.values())) > 1:
            seeds = sorted(set(shifts.values()))
            raise TableError(
                f"expected {len(wanted)} shifts with {recipe}, each with as many seeds, got "
                f"{len(shifts)} with {' or '.join(map(str, seeds)) or 0}"
            )

    def cell(recipe: str, shift: str) -> str:
        of = TEST if shift == "test" else (shift,)
        ours = (row for row in own[recipe] if plain_shift(row["corruption"]) in of)
        return f"{mean(ours, lambda row: row['error'])} ({published(MODEL, recipe, shift=shift)})"

    return drawn(
        ["corruption", *(f"`{recipe}`" for recipe in RECIPES)],
        [
            ["all" if shift == "test" else shift, *(cell(recipe, shift) for recipe in RECIPES)]
            for shift in (*TEST, "test")
        ],
    )


def _is_shown(row: Row, recipe: str) -> bool:
    return (row["model"], row["recipe"]) == (MODEL, recipe) and "selector" not in row["options"]


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write it."""
    return command(group_norm, name="group_norm", results=RESULTS, about=str(__doc__), words=words)


if __name__ == "__main__":
    sys.exit(main())
