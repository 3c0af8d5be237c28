"""What ``acclimate tune`` says of a model and a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acclimate.cli.tables import table
from acclimate.experiments._selection_settings import Setting
from acclimate.experiments.sensitivity import LEGEND, Sensitivity
from acclimate.words import AS_IT_IS, counted, option_words

__all__ = ["tuned_text"]


def tuned_text(
    model: str,
    recipe: str,
    *,
    tables: Sequence[Sensitivity],
    settings: Sequence[Setting],
    entry: Mapping[str, Any] | None,
) -> str:
    """The tables, the choice, and what could not be chosen."""
    lines = [f"{model} {recipe}: mean error % by epoch and learning rate"]
    for each in tables:
        others = option_words(each.options, between=" ")
        lines += [*([f"with {others}"] if others else [])]
        lines += [table(each.rows, header=each.header) if each.rows else "no results", ""]
    lines += [LEGEND, *_chosen(entry)]
    left = [setting for setting in settings if not setting.complete]
    lines += [f"not chosen from: {setting.words}: {setting.missing}" for setting in left]
    return "\n".join(lines)


def _chosen(entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return ["nothing chosen: no setting has a finite run for every shift"]
    if "by_shift" not in entry:
        error = entry.get("dev_error", entry.get("test_error"))
        on = f"{error:.2f} % over {counted(len(entry['chosen_on']), 'shift')}"
        mark = "" if entry["selection"] == "dev" else f"; {entry['selection']}"
        chosen = f"chosen: {_words(entry['options'])}: {on}, of {entry['candidates']} candidates"
        alike = f"{entry['alike']} of them have that very error: more images would tell them apart"
        return [chosen + mark, *([alike] if entry["alike"] > 1 else []), *_edge(entry)]
    rows = [[name, _words(each["options"]), _number(each.get("error"))]
            for name, each in entry["by_shift"].items()]  # fmt: skip
    lines = ["", table(rows, header=["shift", "chosen", "error %"])]
    lines.append(f"mean error: {_number(entry['error'])} %; {entry['selection']}")
    if "regret" in entry:
        labelled = entry["labelled"]
        if labelled is not None:
            lines.append(
                f"regret: {_number(entry['regret'])} points against {_words(labelled['options'])}, "
                f"the one choice that labels make for all shifts ({labelled['error']:.2f} %)"
            )
    return lines


def _edge(entry: Mapping[str, Any]) -> list[str]:
    """Where the best may lie beyond what was searched; nothing lies below one epoch.

    >>> searched = {"optimizer.lr": [0.01, 0.1], "epochs": [1, 2, 3]}
    >>> _edge({"options": {"optimizer.lr": 0.1, "epochs": 1}, "searched": searched})
    ['optimizer.lr=0.1 is at the edge of what was searched: others beyond it may do better']
    """
    at = []
    for name, least in (("optimizer.lr", None), ("epochs", 1)):
        values, chosen = entry["searched"].get(name, []), entry["options"].get(name)
        if len(values) > 1 and chosen in (min(values), max(values)) and chosen != least:
            at.append(f"{name}={chosen:g}")
    if not at:
        return []
    said = " and ".join(at) + (" is" if len(at) == 1 else " are")
    return [f"{said} at the edge of what was searched: others beyond it may do better"]


def _words(options: Mapping[str, Any]) -> str:
    return option_words(options.items(), between=" ", none=AS_IT_IS)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
