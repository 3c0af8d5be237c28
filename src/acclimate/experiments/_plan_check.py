"""What is wrong with a plan, all of it, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError, unknown_name
from acclimate.experiments._grid import combinations
from acclimate.experiments._shift_words import job_shifts
from acclimate.experiments.job import UNADAPTED, Weights
from acclimate.experiments.settings import STATIONARY, Setting
from acclimate.models import list_models, want_trained
from acclimate.models.loading import origin
from acclimate.recipes import get_recipe

if TYPE_CHECKING:
    from acclimate.experiments.plan import Plan

__all__ = ["problems"]

_LISTED = ("acclimate", "paper")  # whose names are known without another library


def problems(plan: Plan) -> list[str]:
    """Every mistake in a plan, in words."""
    found: dict[str, None] = {}  # a set that keeps its order: a grid repeats its mistakes
    for check in _checks(plan):
        try:
            check()
        except AcclimateError as error:
            found[str(error)] = None
    return list(found)


def _checks(plan: Plan) -> Iterator[Callable[[], object]]:
    yield partial(_numbers, plan)
    for name in ("models", "datasets", "recipes", "seeds", "settings"):
        if not getattr(plan, name):
            yield partial(_refuse, f"expected at least one of {name} in the plan, got none")
    for model in plan.models:
        yield partial(_model, model)
        yield partial(want_trained, model, plan.weights.get(model))
    for dataset in plan.datasets:
        for word in plan.words_for(dataset):
            yield partial(job_shifts, dataset, [word])
        yield partial(_dataset, plan, dataset)
    for recipe in plan.recipes:
        yield from _recipe(plan, recipe)
    for name, value in plan.options.items():
        if isinstance(value, Mapping):
            yield partial(_in_plan, "options for the recipe", name, plan.recipes)
    if isinstance(plan.shifts, Mapping):
        for name in plan.shifts:
            yield partial(_in_plan, "shifts for the data set", name, plan.datasets)
    for name, root in plan.roots.items():
        yield partial(_in_plan, "a root for the data set", name, plan.datasets)
        yield partial(_root, name, root)
    for name, file in plan.weights.items():
        yield partial(_in_plan, "weights for the model", name, plan.models)
        yield partial(Weights.of, file)


def _refuse(words: str) -> None:
    raise AcclimateError(words)


def _numbers(plan: Plan) -> None:
    for seed in plan.seeds:
        if not _whole(seed, 0):
            raise AcclimateError(f"expected seeds >= 0, got {seed!r}")
    if plan.images is not None and not _whole(plan.images, 1):
        raise AcclimateError(f"expected images >= 1, got {plan.images!r}")


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _model(spec: str) -> None:
    prefix = spec.partition(":")[0]
    if prefix in _LISTED and ":" in spec:
        names = list_models(f"{prefix}:*")
        if spec not in names:
            raise unknown_name("model", spec, names)
    elif prefix != "hf":  # only asking Hugging Face would tell
        origin(spec)


def _dataset(plan: Plan, name: str) -> None:
    splits = find_dataset(name).splits
    if plan.split is not None and plan.split not in splits:
        if not splits:
            raise AcclimateError(f"{name} has no splits, got {plan.split!r}; leave it out")
        raise unknown_name(f"split of {name}", plan.split, splits)
    for setting in plan.settings:
        plan.shifts_of(name, setting)
        if plan.forgetting and Setting.parse(setting).name != STATIONARY:
            raise AcclimateError(f"forgetting is measured in the setting {STATIONARY} alone")


def _recipe(plan: Plan, name: str) -> Iterator[Callable[[], object]]:
    if name == UNADAPTED and plan.options.get(name):
        yield partial(_refuse, "the recipe 'none' adapts nothing and takes no options")
    try:
        chosen = combinations(name, plan.options)
    except AcclimateError as error:
        yield partial(_refuse, str(error))
        return
    for options in chosen:
        yield partial(_options, plan, name, options)


def _options(plan: Plan, recipe: str, options: Mapping[str, Any]) -> None:
    try:
        get_recipe(recipe, options)
    except AcclimateError as error:
        several = len(plan.recipes) > 1 and recipe not in plan.options
        hint = "; an option for one recipe alone goes below its name" if several else ""
        raise AcclimateError(f"recipe {recipe}: {error}{hint}") from error


def _in_plan(what: str, name: str, known: Any) -> None:
    if name not in known:
        raise AcclimateError(f"{what} {name!r}, which the plan has not: {', '.join(known)}")


def _root(name: str, root: str) -> None:
    if not Path(root).expanduser().exists():
        raise AcclimateError(f"expected {name} in {root}, but nothing is there; check its root")
