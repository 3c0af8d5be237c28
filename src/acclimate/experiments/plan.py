"""A plan: models × data sets × shifts × recipes × options × seeds, as independent jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from acclimate.errors import AcclimateError
from acclimate.experiments._datasets import root_of, split_of
from acclimate.experiments._grid import Grid, of_one_pass, recipe_options
from acclimate.experiments._plan_check import problems
from acclimate.experiments._shift_words import group_shifts, job_shifts
from acclimate.experiments.job import UNADAPTED, Job, Weights
from acclimate.experiments.settings import SEQUENCES, STATIONARY, Setting

__all__ = ["Plan"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run, in the words of ``acclimate evaluate``.

    Attributes:
        models: as ``--model`` has them.
        datasets: as ``--dataset`` has them.
        shifts: as ``--shift`` has them: fog, fog:3, dev, test, all; with a preset (cifar/fog) for
            those that are made on the way; ``clean`` for the images as they are. For all data sets,
            or a list for each. None: the test shifts of a data set that has its own, else clean.
        recipes: names; "none" is the model as it is.
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
        from acclimate.experiments._plan_file import read_plan

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
        variants = {
            recipe: recipe_options(recipe, self.options) for recipe in dict.fromkeys(self.recipes)
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
            for recipe, combinations in variants.items()
            for options in combinations
            # Nothing is drawn where nothing is adapted.
            for seed in (self.seeds if recipe != UNADAPTED or setting != STATIONARY else (0,))
        )
        return list({job.key: job for job in jobs}.values())

    def shifts_of(self, dataset: str, setting: str) -> Sequence[str | None]:
        """The shifts of a data set's jobs: single ones, or groups that a setting runs through."""
        name = Setting.parse(setting).name
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
