"""The table of steps on a GPU in docs/how-a-step-works.md.

    python benchmarks/speed_table.py --write docs/how-a-step-works.md    # or --check, or nothing

It is made from results/step_gpu.json, which step.py writes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page_table import Row, TableError, command, drawn

RESULTS = Path(__file__).parent / "results" / "step_gpu.json"
COLUMNS = ["model", "eager, images/s", "auto, images/s", "ratio", "peak GiB", "auto's inference"]


def speeds(result: dict[str, Any]) -> str:
    """A line for each model, as Markdown."""
    by_model: dict[str, dict[str, Row]] = {}
    for row in result["rows"]:
        by_model.setdefault(row["model"], {})[row["what"]] = row
    about = f"{result['machine']}, torch {result['torch']}; {result['step']}; {result['date']}."
    return f"{drawn(COLUMNS, map(_line, by_model.values()))}\n\n{about}"


def _line(sides: dict[str, Row]) -> list[str]:
    eager, auto, inference = (sides.get(what) for what in ("eager", "auto", "inference, auto"))
    if auto is None or eager is None or "skipped" in auto or "skipped" in eager:
        raise TableError(f"expected eager and auto of {next(iter(sides.values()))['model']}")
    learns = "" if auto["learns"] == "affine" else f", {auto['learns']} weights"
    between = (f"{side['peak_mebibytes'] / 1024:.1f}" for side in (eager, auto))
    rate = (inference or {}).get("images_per_second")  # none where it was left out
    answered = "–" if rate is None else f"{rate:,.0f}"
    return [
        f"{auto['model']}, {auto['size']}², batch {auto['batch']}{learns}",
        f"{eager['images_per_second']:,.0f}",
        f"{auto['images_per_second']:,.0f}",
        f"{auto['ratio_to_eager']:.2f}",
        " → ".join(between),
        answered,
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Print, check or write."""
    return command(speeds, name="speed", results=RESULTS, about=str(__doc__), words=words)


if __name__ == "__main__":
    sys.exit(main())
