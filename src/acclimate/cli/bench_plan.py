"""A plan from the options of ``acclimate bench``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from acclimate.bench import Job, Plan
from acclimate.bench.choices import chosen_jobs, read_choices
from acclimate.cli.options import assignments
from acclimate.errors import AcclimateError

__all__ = ["jobs_and_marks", "plan_of"]

_NAMED = (
    "models",
    "datasets",
    "shifts",
    "recipes",
    "seeds",
    "images",
    "split",
    "forgetting",
    "settings",
)


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan of a file, changed by the options, or of the options alone; checked."""
    given: dict[str, Any] = {
        name: getattr(args, name) for name in _NAMED if getattr(args, name, None) is not None
    }
    if args.plan is not None:
        plan = _narrowed(Plan.from_yaml(args.plan), given)
    elif "models" in given and "datasets" in given:
        plan = Plan(**given)
    else:
        raise AcclimateError("expected --models and --datasets, or --plan with them")
    roots = _by_name(args.root, plan.datasets, what="--root")
    plan = replace(
        plan,
        options=_merged(plan.options, _grid(assignments(args), plan.recipes)),
        roots={**plan.roots, **roots},
        weights={**plan.weights, **_by_name(args.weights, plan.models, what="--weights")},
    )
    plan.check()
    return plan


def jobs_and_marks(plan: Plan, args: argparse.Namespace) -> tuple[list[Job], list[str]]:
    """The plan's jobs, with the options of ``--choice``, and what has to be said of these."""
    jobs = plan.jobs()
    if not args.choice:
        return jobs, []
    choices = read_choices(*args.choice)
    return chosen_jobs(jobs, choices), choices.marks


def _grid(words: Sequence[str], recipes: Sequence[str]) -> dict[str, Any]:
    """``optimizer.lr=1e-3,1e-4`` and ``ent:epochs=1,5`` as a grid.

    >>> _grid(["optimizer.lr=1e-3,1e-4", "ent:epochs=1"], ["ent"])
    {'optimizer.lr': ['1e-3', '1e-4'], 'ent': {'epochs': ['1']}}
    """
    grid: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        recipe, colon, option = key.rpartition(":")
        values = [each.strip() for each in value.split(",")]
        if not (option.strip() and equals and all(values)):
            raise AcclimateError(
                f"expected part.option=value (optimizer.lr=1e-3, or 1e-3,1e-4 for both), got "
                f"{word!r}"
            )
        if colon and recipe not in recipes:
            raise AcclimateError(
                f"--set {word} is for the recipe {recipe!r}, which the plan has not: "
                f"{', '.join(recipes)}"
            )
        place = grid.setdefault(recipe, {}) if colon else grid
        if option.strip() in place:
            raise AcclimateError(
                f"expected --set {key.strip()} once, got it again as {word!r}; several values go "
                f"into one, as {key.strip()}=1,2"
            )
        place[option.strip()] = values
    return grid


def _merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(first)
    for key, value in then.items():
        below = both.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):  # both for one recipe
            value = {**below, **value}
        both[key] = value
    return both


def _by_name(words: Sequence[str], names: Sequence[str], *, what: str) -> dict[str, str]:
    """``NAME=PATH`` for one, ``PATH`` for all that have none of their own.

    >>> _by_name(["data", "mnist=digits"], ["mnist", "cifar10"], what="--root")
    {'mnist': 'digits', 'cifar10': 'data'}
    """
    found: dict[str, str] = {}
    general: str | None = None
    for word in words:
        name, equals, path = word.partition("=")
        if equals and name in names:
            found[name] = path
        elif equals and not Path(word).expanduser().exists():  # = may be part of a path
            raise AcclimateError(
                f"expected {what} NAME=PATH with one of {', '.join(names)}, got {word}"
            )
        elif general is None:
            general = word
        else:
            raise AcclimateError(
                f"expected {what} NAME=PATH for each of {', '.join(names)}, got {general} and "
                f"{word} for all"
            )
    if general is not None:
        if what == "--weights" and len(names) > 1:
            raise AcclimateError(
                f"expected --weights MODEL=FILE, one of {', '.join(names)}, got {general!r}"
            )
        found |= {name: general for name in names if name not in found}
    return found


def _narrowed(plan: Plan, given: Mapping[str, Any]) -> Plan:
    """A file's plan with the options, without what it says of recipes and data they leave out."""
    left = replace(plan, **given)
    gone = {*plan.recipes, *plan.datasets, *plan.models} - {
        *left.recipes,
        *left.datasets,
        *left.models,
    }
    return replace(
        left,
        shifts=_without(gone, left.shifts) if isinstance(left.shifts, Mapping) else left.shifts,
        options=_without(gone, plan.options),
        roots=_without(gone, plan.roots),
        weights=_without(gone, plan.weights),
    )


def _without(gone: set[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in gone}
