"""The file of chosen options that ``acclimate tune`` writes, and jobs with the options in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from acclimate.bench.job import UNADAPTED, Job, Value
from acclimate.bench.plan import of_one_pass, typed_options
from acclimate.bench.selection import place_of
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe, list_recipes
from acclimate.reading import read_json
from acclimate.text import user_path

__all__ = ["Choices", "Chosen", "Labelled", "Search", "chosen_jobs", "read_choices"]


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The one choice for all shifts that labels make, beside one that had none."""

    options: Mapping[str, Value]
    error: float


@dataclass(frozen=True, kw_only=True)
class Search:
    """What was chosen from, and on what; empty where the file does not say.

    Attributes:
        searched: the values of each option among the candidates.
        chosen_on: the images, ``cifar10 cifar/spatter:3``.
        candidates: how many settings × epochs could have been chosen.
        error: in percent, the mean on these images; of a choice for each shift, with all of them.
        errors: the same for each shift, where each has its own choice.
        labelled: of a choice without labels, what it is compared with.
        regret: how many points more its error is than with labels.
        seeds: of the runs.
        images: how many of each shift; None is all.
    """

    searched: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    chosen_on: tuple[str, ...] = ()
    candidates: int | None = None
    error: float | None = None
    errors: Mapping[str, float | None] = field(default_factory=dict)
    labelled: Labelled | None = None
    regret: float | None = None
    seeds: tuple[int, ...] = ()
    images: int | None = None


def search_of(entry: Mapping[str, Any], *, path: str | Path) -> Search:
    """The search of an entry that ``acclimate tune`` wrote.

    >>> entry = {"options": {"epochs": 2}, "dev_error": 9.5, "searched": {"epochs": [1, 2]}}
    >>> search = search_of(entry, path="choice.json")
    >>> search.error, search.searched
    (9.5, {'epochs': (1, 2)})
    """
    errors = [entry[key] for key in ("dev_error", "test_error", "error") if key in entry]
    labelled = entry.get("labelled")
    try:
        parts: Mapping[str, Mapping[str, Any]] = entry.get("by_shift") or {}
        each = [entry, *parts.values()]
        places = [str(name) for one in each for name in one.get("chosen_on") or ()]
        counts = [int(one["candidates"]) for one in each if one.get("candidates") is not None]
        searched: Mapping[str, Any] = entry.get("searched") or {}
        return Search(
            searched={name: tuple(values) for name, values in searched.items()},
            chosen_on=tuple(dict.fromkeys(places)),
            candidates=max(counts, default=None),
            error=_number(next(iter(errors), None)),
            errors={name: _number(one.get("error")) for name, one in parts.items()},
            labelled=labelled
            and Labelled(options=dict(labelled["options"]), error=float(labelled["error"])),
            regret=_number(entry.get("regret")),
            seeds=tuple(map(int, entry.get("seeds") or ())),
            images=entry.get("images_per_shift"),
        )
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise AcclimateError(
            f"expected an entry as acclimate tune writes it in {path} (--choice), got one that "
            f"cannot be read ({error}): {str(dict(entry))[:80]}; write the file anew with "
            "acclimate tune --out"
        ) from error


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Options for a model and a recipe.

    Attributes:
        options: for all images; None where they were chosen for each shift.
        by_shift: options by images, as ``imagenet-d clipart``.
        selection: how they were chosen, "" where that is not known.
        search: from what, and on what.
    """

    options: Mapping[str, Value] | None = None
    by_shift: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    selection: str = ""
    search: Search = field(default_factory=Search)

    def options_for(self, job: Job) -> Mapping[str, Value] | None:
        """The options for the images of a job; None where there are none for them.

        >>> job = Job(model="m", dataset="imagenet-d", recipe="ent", shift="real")
        >>> Chosen(by_shift={"imagenet-d real": {"epochs": 2}}).options_for(job)
        {'epochs': 2}
        """
        whole = self.options is not None
        options = self.options if whole else self.by_shift.get(place_of(job).words)
        if options is None or job.setting is None:
            return options
        return dict(of_one_pass(job.recipe, tuple(options.items())))


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What was chosen, by model (a name or a pattern, ``*`` for all) and recipe.

    >>> choices = Choices(chosen={"*": {"ent": Chosen(options={"optimizer.lr": 1e-3})}})
    >>> choices.find("acclimate:wrn-40-2", "ent").options
    {'optimizer.lr': 0.001}
    """

    chosen: Mapping[str, Mapping[str, Chosen]] = field(default_factory=dict)
    source: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Mapping[str, Mapping[str, Value]]]) -> Choices:
        """Options for all images, by model and recipe.

        >>> Choices.of({"*": {"ent": {"epochs": 2}}}).find("m", "ent").options
        {'epochs': 2}
        """
        return cls(
            chosen={
                model: {recipe: Chosen(options=each) for recipe, each in recipes.items()}
                for model, recipes in options.items()
            }
        )

    def find(self, model: str, recipe: str) -> Chosen | None:
        """What was chosen for a model and a recipe: by its name, by a pattern, for all."""
        for pattern in sorted(self.chosen, key=lambda each: (each != model, each == "*")):
            if recipe in self.chosen[pattern] and (pattern == model or fnmatchcase(model, pattern)):
                return self.chosen[pattern][recipe]
        return None

    @property
    def marks(self) -> list[str]:
        """What has to be said of numbers with these options: the selections other than dev."""
        every = (each.selection for recipes in self.chosen.values() for each in recipes.values())
        return list(dict.fromkeys(word for word in every if word not in ("", "dev")))


def read_choices(*paths: str | Path) -> Choices:
    """Read what ``acclimate tune --out`` wrote, or a shorter form by hand; several files as one.

    ``{"MODEL": {"ent": {"options": {…}}}}``; ``{"MODEL": {"ent": {"optimizer.lr": 1e-3}}}`` and,
    for all models, ``{"ent": {"optimizer.lr": 1e-3}}`` are understood too.
    """
    together: dict[str, dict[str, Chosen]] = {}
    read_from: dict[tuple[str, str], str | Path] = {}
    for path in paths:
        for pattern, recipe, chosen in _read(path):
            before = together.setdefault(pattern, {}).setdefault(recipe, chosen)
            first = read_from.setdefault((pattern, recipe), path)
            if (before.options, before.by_shift) != (chosen.options, chosen.by_shift):
                raise AcclimateError(
                    f"{first} and {path} (--choice) have different options of {recipe} for "
                    f"{pattern}; leave one of them out"
                )
    return Choices(chosen=together, source=", ".join(map(str, paths)))


def _read(path: str | Path) -> Iterator[tuple[str, str, Chosen]]:
    """What a file has for a model, or a pattern of names, and a recipe."""
    content = read_json(user_path(path), hint="; check --choice")
    known = {recipe.name for recipe in list_recipes()}
    for name, value in _mapping(content, path).items():
        if name in known:
            yield "*", name, _chosen(name, _mapping(value, path), path)
            continue
        for recipe, entry in _mapping(value, path).items():
            yield name, recipe, _chosen(recipe, _mapping(entry, path), path)


def _chosen(recipe: str, entry: Mapping[str, Any], path: str | Path) -> Chosen:
    if "options" not in entry and "by_shift" not in entry:
        return Chosen(options=_options(recipe, entry, path))
    options = entry.get("options")
    return Chosen(
        options=None if options is None else _options(recipe, options, path),
        by_shift={
            name: _options(recipe, _mapping(each, path).get("options", {}), path)
            for name, each in _mapping(entry.get("by_shift", {}), path).items()
        },
        selection=str(entry.get("selection", "")),
        search=search_of(entry, path=path),
    )


def _options(recipe: str, options: Any, path: str | Path) -> Mapping[str, Value]:
    given = _mapping(options, path)
    # Unknown names show before anything runs, and 1e-3 in quotes is the number.
    typed = dict(typed_options(get_recipe(recipe, given), given))
    return {name: typed[name] for name in given}


def _mapping(value: Any, path: str | Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise AcclimateError(
            'expected {"MODEL": {"RECIPE": {"options": {"OPTION": value}}}}, as acclimate tune '
            f"writes it, in {path} (--choice), got {value!r:.60}"
        )
    return value


def chosen_jobs(jobs: Sequence[Job], choices: Choices) -> list[Job]:
    """Jobs with the chosen options below their own; none is for the unadapted model."""
    made = (_with_options(job, choices) for job in jobs)
    return list({job.key: job for job in made}.values())


def _with_options(job: Job, choices: Choices) -> Job:
    if job.recipe == UNADAPTED:
        return job
    chosen = choices.find(job.model, job.recipe)
    if chosen is None:
        if not get_recipe(job.recipe).learns:
            return job
        raise AcclimateError(
            f"{choices.source} has no choice for {job.recipe} with {job.model}; tune it too, or "
            "leave it out"
        )
    options = chosen.options_for(job)
    if options is None:
        raise AcclimateError(
            f"{choices.source} has options of {job.recipe} for each shift, but none for "
            f"{place_of(job).words}: {', '.join(chosen.by_shift)}"
        )
    return replace(job, options=tuple({**options, **dict(job.options)}.items()))
