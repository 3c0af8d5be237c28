"""Choices as the plain values of a choice file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from acclimate.experiments._selection_label_free import LabelFree
from acclimate.experiments._selection_settings import Setting
from acclimate.experiments.job import Value
from acclimate.experiments.selection import Choice

__all__ = ["DEV", "LABEL_FREE", "LEAVE_ONE_OUT", "ORACLE", "entry", "label_free_entry", "left_out"]

DEV = "dev"
ORACLE = "oracle: chosen on the test data"
LEAVE_ONE_OUT = "leave-one-out: chosen for each domain on the test data of the others"
LABEL_FREE = "label-free: chosen for each shift by the guard's score"


def entry(choice: Choice, settings: Sequence[Setting], *, oracle: bool = False) -> dict[str, Any]:
    """One choice for all images."""
    return {
        **_plain(choice, error="test_error" if oracle else "dev_error"),
        "rule": choice.rule,
        "selection": ORACLE if oracle else DEV,
        **_about(settings),
    }


def left_out(choices: Mapping[str, Choice], settings: Sequence[Setting]) -> dict[str, Any]:
    """A choice for each domain, made on the others; ``error`` is on the domains themselves."""
    errors = [each.measured["error"] for each in choices.values()]
    known = [error for error in errors if error is not None]
    return {
        "by_shift": {
            name: {**_plain(each, error="dev_error"), **each.measured}
            for name, each in choices.items()
        },
        "error": fsum(known) / len(known) if known and len(known) == len(errors) else None,
        "rule": next(iter(choices.values())).rule,
        "selection": LEAVE_ONE_OUT,
        **_about(settings),
    }


def label_free_entry(found: LabelFree, settings: Sequence[Setting]) -> dict[str, Any]:
    """A choice for each shift, and its regret against the one that labels make."""
    labelled = found.labelled
    return {
        "by_shift": {
            name: {**_plain(each, error="error"), **each.measured}
            for name, each in found.by_shift.items()
        },
        "error": found.error,
        "regret": found.regret,
        "labelled": None if labelled is None else _plain(labelled, error="error"),
        "rule": next((each.rule for each in found.by_shift.values()), ""),
        "selection": LABEL_FREE,
        **_about(settings),
    }


def _plain(choice: Choice, *, error: str) -> dict[str, Any]:
    return {
        "options": dict(choice.options),
        error: choice.error,
        "chosen_on": list(choice.chosen_on),
        "candidates": choice.candidates,
        "alike": choice.alike,
    }


def _about(settings: Sequence[Setting]) -> dict[str, Any]:
    seeds = sorted({place.seed for setting in settings for place in setting.expected})
    left = [each for each in settings if not each.complete]
    return {
        "searched": _searched([each for each in settings if each.complete]),
        "seeds": seeds,
        "incomplete": [{"options": dict(s.options), "why": s.missing} for s in left],
    }


def _searched(settings: Sequence[Setting]) -> dict[str, list[Value]]:
    """The values of each option that could have been chosen, and of what every recipe has."""
    found: dict[str, dict[Value, None]] = {}
    for setting in settings:
        epochs = [("epochs", number) for number in setting.epochs if number]
        rate = [("optimizer.lr", setting.lr)] if setting.lr is not None else []
        for name, value in (*setting.options, *rate, *epochs):
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}
