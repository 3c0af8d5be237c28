"""The tables of CIFAR-10-C from plans cifar_grid and cifar_settling: both ways of scoring, named.

Errors in percent; what the paper prints stands in brackets. What is not stored yet is a dash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from acclimate.data.corruptions import SEVERITIES, TEST
from acclimate.data.shift import plain_shift
from acclimate.metrics.mean import mean
from acclimate.paper.tables import printed
from imagenet_tables import RECIPES, ImagesDifferError, Statistics, error_of, none_yet
from page_markdown import markdown

Row: TypeAlias = dict[str, Any]

STATISTICS: dict[Statistics, str] = {"batch": "each batch", "all": "all images"}
GROUP_NORM = "acclimate:wrn-26-2-gn-cifar10"


def cifar_grid(rows: Sequence[Row]) -> str:
    """Every network with the options of the paper's protocol, a line for each way of scoring."""
    lines = []
    for model, weights in dict.fromkeys((row["model"], row["weights"]) for row in rows):
        own = [row for row in rows if (row["model"], row["weights"]) == (model, weights)]
        severity = None if any(row["severity"] != 5 for row in own) else 5
        for statistics, words in STATISTICS.items():
            cells = [
                _cell([r for r in own if r["recipe"] == recipe], statistics, severity)
                for recipe in RECIPES
            ]
            lines.append([_name(model, weights, severity), words, *cells])
    heads = ["model", "statistics of", *RECIPES.values()]
    lines.sort(key=lambda line: line[0])
    return markdown(heads, lines) if lines else none_yet("cifar_grid")


def cifar_batches(rows: Sequence[Row]) -> str:
    """BN and ENT by batch size, and the share of BN's error that learning removes."""
    own = [row for row in rows if "batch_size" in row["options"]]
    lines = []
    for model, size in sorted({(row["model"], row["options"]["batch_size"]) for row in own}):
        same = [r for r in own if (r["model"], r["options"]["batch_size"]) == (model, size)]
        for statistics, words in STATISTICS.items():
            found = {
                recipe: _mean([r for r in same if r["recipe"] == recipe], statistics, None)
                for recipe in ("bn", "ent")
            }
            shown = [_shown(found[r], _published(model, r, None)) for r in found]
            lines.append([_name(model, None, None), f"{size}", words, *shown, _reduction(**found)])
    heads = ["model", "batch size", "statistics of", "BN", "ENT", "reduction"]
    return markdown(heads, lines) if lines else none_yet("cifar_settling")


def group_norm_oracle(rows: Sequence[Row]) -> str:
    """Group norm at severity 5: the best of all settings by the labels, for all shifts and each."""
    own = [row for row in rows if row["model"] == GROUP_NORM]
    lines = []
    for recipe in ("ent", "rpl"):
        tried = _tried([row for row in own if row["recipe"] == recipe])
        whole = {setting: errors for setting, errors in tried.items() if len(errors) == len(TEST)}
        if not whole:
            continue
        best = min(whole, key=lambda setting: mean(list(whole[setting].values())))
        rate, momentum, epochs = best
        each = mean([min(errors[name] for errors in whole.values()) for name in whole[best]])
        unadapted = mean([row["unadapted"] for row in _once(own, recipe)])
        at = f"rate {rate:g}, momentum {momentum:g}, {epochs} epochs"
        theirs = _published(GROUP_NORM, recipe, 5)
        lines.append(
            [
                RECIPES[recipe],
                _shown(unadapted, _published(GROUP_NORM, "none", 5)),
                f"{_shown(mean(list(whole[best].values())))} ({at})",
                _shown(each),
                "–" if theirs is None else f"{theirs:.1f}",
                f"{len(whole)}",
            ]
        )
    heads = [
        "recipe", "unadapted", "best for all shifts", "best for each shift", "published",
        "settings tried",
    ]  # fmt: skip
    return markdown(heads, lines) if lines else none_yet("cifar_settling")


def _tried(rows: Iterable[Row]) -> dict[tuple[float, float, int], dict[str, float]]:
    """Errors by corruption of every rate, momentum and number of epochs."""
    found: dict[tuple[float, float, int], dict[str, float]] = {}
    for row in rows:
        options = row["options"]
        for epoch, error in enumerate(row["after_epoch"], start=1):
            if error is not None:
                setting = (options["optimizer.lr"], options.get("optimizer.momentum", 0.9), epoch)
                found.setdefault(setting, {})[row["corruption"]] = error
    return found


def _once(rows: Iterable[Row], recipe: str) -> list[Row]:
    """A row of each corruption."""
    return list({row["corruption"]: row for row in rows if row["recipe"] == recipe}.values())


def _cell(rows: Sequence[Row], statistics: Statistics, severity: int | None) -> str:
    found = _mean(rows, statistics, severity)
    theirs = _published(rows[0]["model"], rows[0]["recipe"], severity) if rows else None
    return _shown(found, theirs)


def _mean(rows: Sequence[Row], statistics: Statistics, severity: int | None) -> float | None:
    """Over all shifts, the first seed; None where they are not all there."""
    places: dict[tuple[str, int], float] = {}
    for row in rows:
        error = error_of(row, statistics)
        place = (plain_shift(row["corruption"]), row["severity"])
        if row["seed"] or error is None or severity not in (None, row["severity"]):
            continue
        if place in places:
            raise ImagesDifferError(f"expected one result on {place[0]}:{place[1]}, got two")
        places[place] = error
    of = len(TEST) * (len(SEVERITIES) if severity is None else 1)
    return mean(list(places.values())) if len(places) == of else None


def _reduction(bn: float | None, ent: float | None) -> str:
    return "–" if bn is None or ent is None else f"{100 * (bn - ent) / bn:.0f} %"


def _published(model: str, recipe: str, severity: int | None) -> float | None:
    where = {"dataset": "cifar10-c", "metric": "error"}
    return printed(model=model, recipe=recipe, severity=severity, **where)


def _name(model: str, weights: str | None, severity: int | None) -> str:
    name = model.removeprefix("acclimate:").removesuffix("-cifar10")
    file = Path(weights or "").stem
    trained = f", {file}" if file and not name.startswith(file) else ""
    return f"{name}{trained}{'' if severity is None else f', severity {severity}'}"


def _shown(value: float | None, theirs: float | None = None) -> str:
    ours = "–" if value is None else f"{value:.1f}"
    return ours + ("" if theirs is None else f" ({theirs:.1f})")
