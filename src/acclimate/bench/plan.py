"""A plan: models × data sets × shifts × recipes × options × seeds, as independent jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from acclimate.bench.job import (
    SEQUENCES,
    STATIONARY,
    UNADAPTED,
    ImageOrder,
    Job,
    Options,
    Value,
    Weights,
)
from acclimate.bench.shifts import group_shifts, job_shifts
from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.registry import get_recipe
from acclimate.models import list_models, want_trained
from acclimate.models.loading import origin
from acclimate.parts.base import PARTS
from acclimate.reading import read_yaml
from acclimate.recipe import Recipe
from acclimate.text import user_path

__all__ = ["MADE_FROM", "Grid", "Plan", "of_one_pass", "root_of", "split_of", "typed_options"]

Grid: TypeAlias = Mapping[str, Any]
"""Values, or a list of them, by option; and grids of single recipes by the recipe's name."""


def combinations(recipe: str, grid: Grid) -> list[dict[str, Any]]:
    """Every combination of what a grid has for a recipe, with the values as they were given."""
    if recipe == UNADAPTED:
        return [{}]
    made = get_recipe(recipe)
    own: Any = grid.get(recipe, {})
    if not isinstance(own, Mapping):
        raise AcclimateError(f"{recipe}: expected options of the recipe, got {own!r:.60}")
    general = {k: v for k, v in grid.items() if not isinstance(v, Mapping) and _uses(made, k)}
    values = {key: _listed_values(key, value) for key, value in {**general, **own}.items()}
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def of_one_pass(recipe: str, options: Options) -> Options:
    """A stream is met once: a number of epochs must not make two jobs of one.

    Recipes that begin anew with each batch take so many steps with it.

    >>> of_one_pass("ent", (("epochs", 5), ("optimizer.lr", 0.01)))
    (('optimizer.lr', 0.01),)
    """
    if get_recipe(recipe, dict(options)).episode is not None:
        return options
    return tuple(pair for pair in options if pair[0] != "epochs")


def _uses(recipe: Recipe, key: str) -> bool:
    """What makes no difference to a recipe must not make two jobs of one."""
    slot = key.partition(".")[0]
    if key == "epochs":
        return recipe.learns
    return slot not in PARTS or slot in recipe.parts()


def _listed_values(key: str, value: Any) -> Sequence[Value]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise AcclimateError(f"{key}: expected a value or a list of values, got an empty list")
    for each in values:
        if each is not None and not isinstance(each, str | int | float):
            raise AcclimateError(f"{key}: expected words or numbers, got {each!r:.60}")
    return values


def typed_options(recipe: Recipe, options: Mapping[str, Any]) -> Options:
    """1e-3 typed as a word and 0.001 are one option: what the recipe made of it is kept."""
    typed: dict[str, Value] = {}
    for key, value in options.items():
        slot, dot, option = key.partition(".")
        if not dot:
            typed[key] = value if slot in PARTS else getattr(recipe, key)
        else:
            typed[key] = getattr(getattr(recipe, slot), option)
    return tuple(sorted(typed.items()))


def problems(plan: Plan) -> list[str]:
    """Every mistake in a plan, in words."""
    found: dict[str, None] = {}  # a set that keeps its order: a grid repeats its mistakes

    @contextmanager
    def noted(before: str = "", after: str = "") -> Iterator[None]:
        try:
            yield
        except AcclimateError as error:
            found[f"{before}{error}{after}"] = None

    for seed in plan.seeds:
        if not _is_whole(seed, 0):
            found[f"expected seeds >= 0, got {seed!r}"] = None
    if plan.images is not None and not _is_whole(plan.images, 1):
        found[f"expected images >= 1, got {plan.images!r}"] = None
    for name in ("models", "datasets", "recipes", "seeds", "settings"):
        if not getattr(plan, name):
            found[f"expected at least one of {name} in the plan, got none"] = None
    for model in plan.models:
        with noted():
            _check_model(model)
        with noted():
            want_trained(model, plan.weights.get(model))
    for dataset in plan.datasets:
        for word in plan.words_for(dataset):
            with noted():
                job_shifts(dataset, [word])
        with noted():
            _check_dataset(plan, dataset)
    for recipe in plan.recipes:
        if recipe == UNADAPTED and plan.options.get(recipe):
            found["the recipe 'none' adapts nothing and takes no options"] = None
        several = len(plan.recipes) > 1 and recipe not in plan.options
        hint = "; an option for one recipe alone goes below its name" if several else ""
        with noted():
            for options in combinations(recipe, plan.options):
                with noted(f"recipe {recipe}: ", hint):
                    get_recipe(recipe, options)
    grids = [name for name, value in plan.options.items() if isinstance(value, Mapping)]
    shifts = plan.shifts if isinstance(plan.shifts, Mapping) else ()
    for what, names, known in (
        ("options for the recipe", grids, plan.recipes),
        ("shifts for the data set", shifts, plan.datasets),
        ("a root for the data set", plan.roots, plan.datasets),
        ("weights for the model", plan.weights, plan.models),
    ):
        for name in names:
            if name not in known:
                found[f"{what} {name!r}, which the plan has not: {', '.join(known)}"] = None
    for name, root in plan.roots.items():
        if not user_path(root).exists():
            found[f"expected {name} in {root}, but nothing is there; check its root"] = None
    for file in plan.weights.values():
        with noted():
            Weights.of(file)
    return list(found)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_model(spec: str) -> None:
    prefix = spec.partition(":")[0]
    if prefix in ("acclimate", "paper") and ":" in spec:  # known without another library
        names = list_models(f"{prefix}:*")
        if spec not in names:
            raise unknown_name("model", spec, names)
    elif prefix != "hf":  # only asking Hugging Face would tell
        origin(spec)


def _check_dataset(plan: Plan, name: str) -> None:
    splits = find_dataset(name).splits
    if plan.split is not None and plan.split not in splits:
        if not splits:
            raise AcclimateError(f"{name} has no splits, got {plan.split!r}; leave it out")
        raise unknown_name(f"split of {name}", plan.split, splits)
    for setting in plan.settings:
        plan.shifts_of(name, setting)
        if plan.forgetting and ImageOrder.parse(setting).name != STATIONARY:
            raise AcclimateError(f"forgetting is measured in the setting {STATIONARY} alone")


MADE_FROM = {"cifar10-c": ("cifar10", "cifar"), "imagenet-c": ("imagenet", "imagenet")}
"""Data sets that can be made on the fly: from which clean one, with whose constants."""


def root_of(dataset: str, roots: Mapping[str, str | Path]) -> Path:
    """Where a data set lies."""
    if dataset not in roots:
        how = find_dataset(dataset).how_to_get(Path("ROOT"))
        raise AcclimateError(f"{dataset} needs a root, the folder it lies in\n{how}")
    return user_path(roots[dataset])


def split_of(dataset: str, split: str | None) -> str | None:
    """A split, None where it is the first, so that naming it makes no other job.

    >>> split_of("mnist", "test"), split_of("mnist", "train")
    (None, 'train')
    """
    splits = find_dataset(dataset).splits
    return None if splits and split == splits[0] else split


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run, in the words of ``acclimate evaluate``.

    Attributes:
        models: as ``--model`` has them.
        datasets: as ``--dataset`` has them.
        shifts: as ``--shift`` has them: fog, fog:3, dev, test, all; with a preset (cifar/fog) for
            those that are made on the fly; ``clean`` for the images as they are. For all data sets,
            or a list for each. None: the test shifts of a data set that has its own, else clean.
        recipes: names; "none" is the unadapted model.
        options: a grid, ``{"optimizer.lr": [1e-3, 1e-4]}``, and grids for single recipes,
            ``{"ent": {"epochs": [1, 5]}}``, which come on top. General options of parts that a
            recipe does not use (an optimiser where nothing is learnt) are left out for it.
        seeds: of the adaptation.
        images: only so many of each shift.
        forgetting: also measure the error on clean images after adaptation.
        settings: in which order the images come, see `SETTINGS`; those that run through a group of
            shifts (continual, gradual, mixed) take groups alone: test, dev, all.
        split: of the data sets; None is the first of each.
        roots: where each data set lies; no part of a job.
        weights: a weights file for each model that needs one.

    >>> plan = Plan(models=["acclimate:wrn-40-2-augmix-cifar10"], datasets=["cifar10"],
    ...             shifts=["cifar/fog:3"], recipes=["none", "ent"],
    ...             options={"optimizer.lr": [1e-3, 1e-4]}, seeds=[0, 1])
    >>> [(job.recipe, dict(job.options), job.seed) for job in plan.jobs()][:2]
    [('none', {}, 0), ('ent', {'optimizer.lr': 0.001}, 0)]
    >>> len(plan.jobs())
    5
    """

    models: Sequence[str]
    datasets: Sequence[str]
    shifts: Sequence[str] | Mapping[str, Sequence[str]] = ()
    recipes: Sequence[str] = (UNADAPTED,)
    options: Grid = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    images: int | None = None
    forgetting: bool = False
    settings: Sequence[str] = (STATIONARY,)
    split: str | None = None
    roots: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Plan:
        """Read a plan from a file, with the names of the command line: model, shift, set, ..."""

        return cls(**read_plan(path))

    def check(self) -> None:
        """Refuse a plan that cannot be run, with all that is wrong with it."""
        found = problems(self)
        if len(found) == 1:
            raise AcclimateError(found[0])
        if found:
            listed = "".join(f"\n  - {problem}" for problem in found)
            raise AcclimateError(f"{len(found)} things are wrong with the plan:{listed}")

    def jobs(self) -> list[Job]:
        """All jobs, each once, those that share model and shift next to each other."""
        self.check()
        weights = {model: Weights.of(path) for model, path in self.weights.items()}
        chosen = {
            recipe: [typed_options(get_recipe(recipe, options), options) for options in grid]
            for recipe in dict.fromkeys(self.recipes)
            if (grid := combinations(recipe, self.options))
        }
        jobs = (
            Job(
                model=model,
                dataset=dataset,
                recipe=recipe,
                shift=shift,
                options=options if setting == STATIONARY else of_one_pass(recipe, options),
                seed=seed,
                images=self.images,
                weights=weights.get(model),
                split=self.split_of(dataset),
                forgetting=self.forgetting and recipe != UNADAPTED,
                setting=setting,
            )
            for model in self.models
            for dataset in self.datasets
            for setting in self.settings
            for shift in self.shifts_of(dataset, setting)
            for recipe, variants in chosen.items()
            for options in variants
            # Nothing is drawn where nothing is adapted.
            for seed in (self.seeds if recipe != UNADAPTED or setting != STATIONARY else (0,))
        )
        return list({job.key: job for job in jobs}.values())

    def shifts_of(self, dataset: str, setting: str) -> Sequence[str | None]:
        """The shifts of a data set's jobs: single ones, or groups that a setting runs through."""
        name = ImageOrder.parse(setting).name
        if name in SEQUENCES:
            return group_shifts(dataset, self.words_for(dataset), severities=name != "gradual")
        return job_shifts(dataset, self.words_for(dataset))

    def words_for(self, dataset: str) -> Sequence[str]:
        """The words for the shifts of a data set."""
        if isinstance(self.shifts, Mapping):
            return self.shifts.get(dataset, ())
        return self.shifts

    def split_of(self, dataset: str) -> str | None:
        """The split, None where it is the first, so that naming it makes no other job."""
        return split_of(dataset, self.split)

    def root(self, dataset: str) -> Path:
        """Where a data set lies."""
        return root_of(dataset, self.roots)


_HOW = ("choice", "device", "engine", "score", "speed", "store", "workers")


def read_plan(path: str | Path) -> dict[str, Any]:
    """The fields of a plan. All mistakes are reported at once."""
    plain = _read(user_path(path))
    found: list[str] = []
    values: dict[str, Any] = {}
    for given, value in plain.items():
        name = _SINGULAR.get(str(given), str(given))
        if name not in _FIELDS:
            found.append(_unknown(str(given)))
            continue
        field_name, read = _FIELDS[name]
        if field_name in values:
            found.append(f"expected {name} once, got it as {given} too")
            continue
        values[field_name] = None
        try:
            if name in ("root", "weights") and not isinstance(value, Mapping):
                value = _for_each(name, _word(name, value), plain)
            values[field_name] = read(name, value)
        except AcclimateError as error:
            found.append(str(error))
    for name in ("model", "dataset"):
        if _FIELDS[name][0] not in values:
            found.append(f"expected {name}: in the plan, got none")
    if found:
        raise AcclimateError(f"{path} is no plan:" + "".join(f"\n  - {each}" for each in found))
    return values


def _unknown(name: str) -> str:
    if name in _HOW:
        return f"a plan says what is run, not how: expected --{name} on the command line, got a key"
    if name in ("lr", "epochs"):
        option = "optimizer.lr" if name == "lr" else name
        return f"expected {option} among the options under set:, got the key {name}"
    return str(unknown_name("key", name, _FIELDS))


def _read(path: Path) -> Mapping[str, Any]:
    plain = read_yaml(path, hint="; check --plan")
    if not isinstance(plain, Mapping):
        raise AcclimateError(
            f"expected a plan with lines such as 'model: acclimate:wrn-40-2' in {path}, got "
            f"{type(plain).__name__}"
        )
    return plain


Reader: TypeAlias = Callable[[str, Any], Any]
"""Checks the value of a key, whose name it is given for its message."""


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _word(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise AcclimateError(f"{name}: expected a name, got {value!r}")
    return value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise AcclimateError(f"{name}: expected a whole number, got {value!r}")
    return value


def _each(read: Reader) -> Reader:
    return lambda name, value: [read(name, each) for each in _listed(value)]


def _shifts(name: str, value: Any) -> Any:
    words = _each(_word)
    if isinstance(value, Mapping):
        return {str(dataset): words(name, each) for dataset, each in value.items()}
    return words(name, value)


def _grid(name: str, value: Any) -> Grid:
    if not isinstance(value, Mapping):
        raise AcclimateError(f"set: expected options such as optimizer.lr: [1e-3], got {value!r}")
    for option, below in value.items():
        for word in (option, *(below if isinstance(below, Mapping) else ())):
            _word(name, word)
    return value


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise AcclimateError(f"{name}: expected true or false, got {value!r}")
    return value


def _paths(name: str, value: Mapping[Any, Any]) -> dict[str, str]:
    return {str(each): _word(name, path) for each, path in value.items()}


def _for_each(name: str, path: str, plain: Mapping[str, Any]) -> dict[str, str]:
    """A folder may hold several data sets, where a file of weights is of one model."""
    owner = "dataset" if name == "root" else "model"
    owners = [str(each) for each in _listed(plain.get(owner, plain.get(f"{owner}s")))]
    if owner == "model" and len(owners) != 1:
        raise AcclimateError(
            f"{name}: expected a path for each {owner} ({', '.join(owners)}), got {path!r}"
        )
    return dict.fromkeys(owners, path)


def _or_none(read: Reader) -> Reader:
    return lambda name, value: None if value is None else read(name, value)


_FIELDS: dict[str, tuple[str, Reader]] = {
    "model": ("models", _each(_word)),
    "dataset": ("datasets", _each(_word)),
    "recipe": ("recipes", _each(_word)),
    "seed": ("seeds", _each(_whole)),
    "setting": ("settings", _each(_word)),
    "root": ("roots", _paths),
    "weights": ("weights", _paths),
    "shift": ("shifts", _shifts),
    "set": ("options", _grid),
    "images": ("images", _or_none(_whole)),
    "forgetting": ("forgetting", _switch),
    "split": ("split", _or_none(_word)),
}
"""The keys of a plan's file: the field of a `Plan` each one fills, and what reads its value."""
_SINGULAR = {many: one for one, (many, _) in _FIELDS.items()} | {"images-per-shift": "images"}
