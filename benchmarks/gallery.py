"""The figures of docs/gallery.md, from stored results: the paper's beside ours.

    python benchmarks/gallery.py            # writes docs/figures
    python benchmarks/gallery.py --check    # 1 where the data of a figure are not the stored ones

The numbers drawn stand in each file's description, which is what is checked: how a chart is drawn
differs between versions of the library that draws it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from acclimate.data.corruptions import SEVERITIES, TEST
from acclimate.data.shift import group_of, plain_shift
from acclimate.report.charts import GREY, SERIES, Spec, axis, svg

sys.path.insert(0, str(Path(__file__).parent))  # where tests run it from elsewhere

import page_tables

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
RESULTS = ROOT / "benchmarks" / "results"
NETWORKS = {
    "acclimate:wrn-28-10": "WRN-28-10",
    "acclimate:wrn-26-2-bn-cifar10": "WRN-26-2",
    "acclimate:wrn-40-2-augmix-cifar10": "WRN-40-2, AugMix",
}
RECIPES = {"none": "unadapted", "bn": "BN", "ent": "ENT", "rpl": "RPL"}
COLOURS = [GREY, SERIES[0], SERIES[1], SERIES[2]]

Row = dict[str, Any]


def stored(name: str) -> list[Row]:
    rows: list[Row] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return rows


def usual(rows: Sequence[Row]) -> list[Row]:
    """Of the networks and recipes shown, on the test corruptions, of the first seed."""
    return [
        row
        for row in rows
        if row["model"] in NETWORKS and row["recipe"] in RECIPES and row["seed"] == 0
        if row["severity"] and group_of(row["corruption"]) == "test"
        if "selector" not in row["options"] and not _retrained(row)
    ]


def _retrained(row: Row) -> bool:
    return "second" in str(row["weights"])


def by_recipe(title: str = "recipe") -> Spec:
    scale = {"domain": list(RECIPES.values()), "range": COLOURS}
    return {"field": "recipe", "type": "nominal", "title": title, "scale": scale}


def severities() -> Spec:
    """Ours of the paper's ``fig:detailed-severities``: the mean error by severity."""
    sums: dict[tuple[str, str, int], list[float]] = {}
    for row in usual(stored("cifar10c")):
        key = NETWORKS[row["model"]], RECIPES[row["recipe"]], row["severity"]
        sums.setdefault(key, []).append(row["error"])
    values: list[Row] = [
        {"network": network, "recipe": recipe, "severity": severity,
         "error": round(sum(errors) / len(errors), 1)}
        for (network, recipe, severity), errors in sorted(sums.items())
        if len(errors) == len(TEST)
    ]  # fmt: skip
    high = max(each["error"] for each in values)
    return {
        "title": "Error by severity, CIFAR-10-C",
        "data": {"values": values},
        "facet": {"field": "network", "type": "nominal", "title": None,
                  "sort": list(NETWORKS.values())},
        "columns": 3,
        "spec": {
            "width": 190, "height": 190,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "severity", "type": "ordinal", "axis": {"labelAngle": 0}},
                "y": {"field": "error", **axis("mean top-1 error %", 0, 1.05 * high)},
                "color": by_recipe(),
            },
        },
    }  # fmt: skip


def published() -> Spec:
    """Each error that the paper prints of these networks beside ours: one dot a corruption."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    for row in usual(stored("cifar10c")):
        shift = plain_shift(row["corruption"])
        sums.setdefault((row["model"], row["recipe"], shift), []).append(row["error"])
    values: list[Row] = []
    for (model, recipe, shift), errors in sorted(sums.items()):
        printed = page_tables.published(model, recipe, shift=shift)
        if printed is not None and len(errors) == len(SEVERITIES):
            ours = round(sum(errors) / len(errors), 1)
            values.append({"network": NETWORKS[model], "recipe": RECIPES[recipe],
                           "corruption": shift, "published": printed, "ours": ours})  # fmt: skip
    high = 1.05 * max(max(each["published"], each["ours"]) for each in values)
    x, y = axis("published error %", 0, high), axis("our error %", 0, high)
    return {
        "title": "Published and measured, CIFAR-10-C, by corruption",
        "width": 380,
        "height": 380,
        "data": {"values": values},
        "layer": [
            {"data": {"values": [{"a": 0, "b": 0}, {"a": high, "b": high}]},
             "mark": {"type": "line", "color": GREY, "strokeDash": [4, 4], "strokeWidth": 1},
             "encoding": {"x": {"field": "a", **x}, "y": {"field": "b", **y}}},
            {"mark": {"type": "point", "filled": True, "opacity": 0.75},
             "encoding": {"x": {"field": "published", **x}, "y": {"field": "ours", **y},
                          "color": by_recipe(),
                          "shape": {"field": "network", "type": "nominal", "title": "network"}}},
        ],
    }  # fmt: skip


def methods() -> Spec:
    """All methods of docs/methods.md, one corruption after the other without a reset."""
    values: list[Row] = [
        {"recipe": row["recipe"], "error": round(row["online"], 1)}
        for row in stored("methods")
        if row["setting"] == "continual"
    ]
    values.sort(key=lambda each: each["error"])
    x = axis("mean top-1 error % of the predictions", 0, 1.12 * values[-1]["error"])
    return {
        "title": "Continual CIFAR-10-C, severity 5, WRN-26-2",
        "width": 460,
        "height": 18 * len(values),
        "data": {"values": values},
        "encoding": {
            "y": {"field": "recipe", "type": "nominal", "sort": None, "title": None},
            "x": {"field": "error", **x},
        },
        "layer": [
            {"mark": {"type": "bar", "color": SERIES[0], "opacity": 0.8}},
            {"mark": {"type": "text", "align": "left", "dx": 4, "color": GREY},
             "encoding": {"text": {"field": "error", "format": ".1f"}}},
        ],
    }  # fmt: skip


FIGURE: dict[str, Callable[[], Spec]] = {
    "severities": severities,
    "published": published,
    "methods": methods,
}


def described(spec: Spec) -> str:
    """The numbers of a figure in words, for those who do not see it, and for the check."""
    return "; ".join(" ".join(map(str, value.values())) for value in spec["data"]["values"])


def main(words: Sequence[str] | None = None) -> int:
    """Write the figures, or check that they are of the stored results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(words)
    status = 0
    for name, make in FIGURE.items():
        spec, path = make(), FIGURES / f"{name}.svg"
        spec["description"] = described(spec)
        if not args.check:
            path.write_text(svg(spec) + "\n", encoding="utf-8")
            continue
        drawn = ElementTree.parse(path).getroot()
        if drawn.findtext("{http://www.w3.org/2000/svg}desc") != spec["description"]:
            print(f"{path} is of other results; python benchmarks/gallery.py draws it")
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
