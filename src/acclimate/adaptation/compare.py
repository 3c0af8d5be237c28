"""compare(): which recipe for these images, by the estimated error or by a few labels."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from acclimate import parallel
from acclimate.adaptation.adapt import adapt, announce_labels
from acclimate.adaptation.auto import AUTO
from acclimate.data import ImageSource, Preprocessing, open_images
from acclimate.data.labels import LabelsFrom
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.files import json_writer, write_files
from acclimate.guard.estimate import Interval
from acclimate.lock import LOCK, claimed
from acclimate.methods.registry import get_recipe
from acclimate.metrics import Figure, bootstrap_interval, wilson_interval
from acclimate.models import LoadedModel, as_loaded
from acclimate.models.device import choose_device
from acclimate.reading import read_object
from acclimate.recipe import Recipe
from acclimate.result import AdaptationResult
from acclimate.table import Entry, Table, number_entry
from acclimate.text import Speed, VerdictWord, user_path

__all__ = ["COMPARISON", "RECIPES", "ComparedRecipe", "Comparison", "compare"]

COMPARISON = "comparison.json"
RECIPES = ("none", "bn", "ent", "rpl", AUTO)
"""What is compared unless others are named: the unadapted model, the paper's, and the default."""

LEVEL = 0.95
"""Of the intervals of labelled errors."""

By = Literal["labels", "estimate"]


@dataclass(frozen=True, kw_only=True)
class ComparedRecipe:
    """What a recipe makes of the images: of the model that ``adapt`` returns, fallback and all.

    Attributes:
        recipe: its name.
        verdict: of the run; "unfit" where the model does not fit it; ``reason`` says why.
        reason: of the verdict.
        estimated: the error in percent, estimated without labels; None where it cannot be.
        change: of the unadapted model's, in points, estimated likewise.
        error: on the labelled images, with Wilson's interval; None without labels.
        gain: of the same images, by how many points the error is below the unadapted model's; None
            where no prediction changed.
        apart: whether the best recipe is better beyond doubt; None for the best one, and where
            it cannot be told.
        changed: the share of images whose prediction changed.
        passes: forward passes for each image, estimates included, a backward pass counted as two.
        seconds: of the run.
    """

    recipe: str
    verdict: VerdictWord | Literal["unfit"]
    reason: str
    estimated: Interval | None = None
    change: Interval | None = None
    error: Figure | None = None
    gain: Figure | None = None
    apart: bool | None = None
    changed: float | None = None
    passes: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Recipes on the same images, best first.

    ``by`` is what they are ranked by; ``labelled`` is how many of the ``images`` have labels.
    """

    model: str
    images: int
    labelled: int
    by: By
    recipes: tuple[ComparedRecipe, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> str:
        """The name of the best one, for ``adapt``."""
        return self.recipes[0].recipe

    @property
    def conclusion(self) -> str:
        """One sentence: which one to take, and which others may be as good."""
        first, *others = self.recipes
        known = first.error if self.by == "labels" else first.estimated
        if known is None:
            return "the error cannot be estimated: label some images (--labels FILE)"
        kind = "error" if self.by == "labels" else "estimated error"
        said = f"{first.recipe} has the lowest {kind}, {known.value:.1f} %"
        close = [each.recipe for each in others if each.apart is False]
        if close:
            said += f"; {_listed(close)} cannot be told apart from it"
        return said

    def table(self) -> Table:
        """A row for each recipe."""
        labelled = self.by == "labels"
        head = ["recipe"]
        if labelled:
            head += ["error %", "95 % interval", "points gained", "95 % interval"]
        head += ["estimated %", "90 % interval", "changed %", "verdict", "passes", "seconds"]
        rows: list[list[Entry]] = []
        for each in self.recipes:
            row: list[Entry] = [each.recipe]
            if labelled:
                row += [*_with_ends(each.error), *_with_ends(each.gain, sign=True)]
            row += [
                *_with_ends(each.estimated),
                number_entry(None if each.changed is None else 100 * each.changed),
                each.verdict,
                number_entry(each.passes),
                number_entry(each.seconds),
            ]
            rows.append(row)
        unfit = [f"{e.recipe}: {e.reason}" for e in self.recipes if e.verdict == "unfit"]
        count = f"{self.images:,} images, {self.labelled:,} labelled"
        return Table(
            rows,
            header=head,
            title=f"{self.model}, {count}",
            name="recipes",
            notes=(
                "passes: forward passes for each image, a backward pass counted as two",
                *unfit,
                *self.notes,
            ),
        )

    def __str__(self) -> str:
        return f"{self.table().text()}\n\n{self.conclusion}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "best": self.best, "conclusion": self.conclusion}


@torch.inference_mode(False)
def compare(
    model: nn.Module | LoadedModel,
    data: Any,
    recipes: Sequence[str | Recipe] = RECIPES,
    *,
    batch_size: int | None = None,
    labels: LabelsFrom | None = None,
    preprocessing: Preprocessing | None = None,
    shift: str | Shift | None = None,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
    speed: Speed = "auto",
    progress: bool = True,
) -> Comparison:
    """Adapt to the same images with some recipes, and rank what each returns.

    By the error on labelled images where there are any, else by the estimated error. A hundred
    labels tell apart what differs by ten points; the intervals say what they tell.

    Args:
        model: as in :func:`acclimate.adapt`; it is not changed.
        data: a folder, array, tensor or Dataset, as in :func:`acclimate.adapt`.
        recipes: names (see ``acclimate.list_recipes``), "auto", or Recipes.
        batch_size: images per step; the learning rates follow.
        labels: as in :func:`acclimate.adapt`; a table with the columns file and class need not name
            all images.
        preprocessing: how the model wants uint8 images; taken from its own record when it has one.
        shift: a corruption to see clean images through, ``"imagenet/fog:3"``.
        out: a folder; the run of each recipe is kept in a sub-folder, and resumed there.
        device: where to run; CUDA when there is one, else the CPU.
        seed: of each run.
        speed: as in :func:`acclimate.adapt`.
        progress: show progress on stderr.

    >>> import acclimate
    >>> from acclimate.data.digits import digits
    >>> images, labels = digits("held-out", shifted=True)
    >>> model = acclimate.models.load("acclimate:digits")
    >>> found = acclimate.compare(model, images[:200], ["none", "bn"], progress=False)
    >>> found.best, found.by
    ('bn', 'estimate')
    """
    named = _named(recipes)  # a typo shows before anything is read
    loaded, where = as_loaded(model, preprocessing), choose_device(device)
    unfit = _unfit(named, loaded.model)
    fitting = {name: recipe for name, recipe in named.items() if name not in unfit}
    main = parallel.is_main()
    images = open_images(
        data,
        preprocessing=loaded.preprocessing,
        labels=labels,
        classes=loaded.classes,
        shift=shift,
        device=where,
        progress=progress and main,
    )
    if progress and main and isinstance(data, (str, Path)):
        announce_labels(images)
    folder = None if out is None else user_path(out)
    with nullcontext() if folder is None or not main else claimed(folder):
        earlier = {} if folder is None else _earlier(folder)
        runs: dict[str, _Run] = {}
        for number, (name, recipe) in enumerate(fitting.items(), 1):
            if progress and main:
                print(f"{number}/{len(fitting)} {name}", file=sys.stderr)
            began = time.perf_counter()
            result = adapt(
                loaded,
                images,
                recipe,
                batch_size=batch_size,
                out=None if folder is None else folder / _folder_name(name),
                device=where,
                seed=seed,
                speed=speed,
                progress=progress,
            )
            cost = _Cost(result.cost, round(time.perf_counter() - began, 2))
            if result.cost is None and name in earlier:  # it was only read
                cost = earlier[name]
            runs[name] = _Run(result, images, cost)
            found = _ranked(loaded.name, images, runs, unfit)
            if folder is not None and main:
                write_files({folder / COMPARISON: json_writer(found.to_dict())})
    return found


class _Cost(NamedTuple):
    passes: float | None
    seconds: float | None


class _Run:
    """One recipe's result, in what is compared of it."""

    def __init__(self, result: AdaptationResult, images: ImageSource, cost: _Cost) -> None:
        self.verdict, self.cost = result.verdict, cost
        self.estimate = result.estimated_error
        self.changed = None if result.changed is None else float(result.changed.double().mean())
        self.wrong = self.wrong_before = None
        self.error: tuple[int, int] | None = None  # wrong, labelled
        labels, final = images.labels, result.history.final
        if labels is not None and images.scoring is None:
            known = labels >= 0
            self.wrong = (result.predictions != labels)[known].long()
            self.error = int(self.wrong.sum()), len(self.wrong)
            if result.predictions_before is not None:
                self.wrong_before = (result.predictions_before != labels)[known].long()
        elif labels is not None and final is not None and final.error is not None:
            self.error = round(final.error * final.labelled / 100), final.labelled

    def row(self, name: str, unadapted: Interval | None) -> ComparedRecipe:
        """What is reported; ``unadapted`` is the estimate where that model is returned."""
        estimate, change = self.estimate, None
        estimated = None if estimate is None else estimate.after
        if estimate is not None and self.verdict.returns_adapted:
            change = estimate.change
        elif estimate is not None:
            estimated = unadapted or estimate.before
        gain = None
        if self.wrong is not None and self.wrong_before is not None and self.changed:
            gain = _points(self.wrong_before - self.wrong)
        return ComparedRecipe(
            recipe=name,
            verdict=self.verdict.word,
            reason=self.verdict.reason,
            estimated=estimated,
            change=change,
            error=None if self.error is None else _error(*self.error),
            gain=gain,
            changed=self.changed,
            passes=None if self.cost.passes is None else round(self.cost.passes, 1),
            seconds=self.cost.seconds,
        )


def _ranked(
    model: str, images: ImageSource, runs: Mapping[str, _Run], unfit: Mapping[str, str]
) -> Comparison:
    labelled = 0 if images.labels is None else int((images.labels >= 0).sum())
    by: By = "labels" if labelled else "estimate"
    plain = runs.get("none")
    level = None if plain is None or plain.estimate is None else plain.estimate.after
    rows = [run.row(name, level) for name, run in runs.items()]

    def order(row: ComparedRecipe) -> tuple[float, float]:
        known = row.error if by == "labels" else row.estimated
        return (math.inf if known is None else known.value), row.passes or math.inf

    rows.sort(key=order)
    best = rows[0]
    compared = [best, *(replace(row, apart=_apart(best, row, runs, by)) for row in rows[1:])]
    compared += [
        ComparedRecipe(recipe=name, verdict="unfit", reason=why) for name, why in unfit.items()
    ]
    return Comparison(
        model=model, images=len(images), labelled=labelled, by=by, recipes=tuple(compared)
    )


def _apart(
    best: ComparedRecipe, other: ComparedRecipe, runs: Mapping[str, _Run], by: By
) -> bool | None:
    """Whether the best recipe is better than another beyond what chance may do."""
    if by == "labels":
        one, two = runs[best.recipe].wrong, runs[other.recipe].wrong
        if one is not None and two is not None:
            least = _points(two - one).low
            return least is not None and least > 0
        high = None if best.error is None else best.error.high
        low = None if other.error is None else other.error.low
        return None if high is None or low is None else high < low
    if best.estimated is None or other.estimated is None:
        return None
    widths = [0.0 if e is None else (e.high - e.low) / 2 for e in (best.change, other.change)]
    return other.estimated.value - best.estimated.value > max(widths)


def _error(wrong: int, labelled: int) -> Figure:
    low, high = wilson_interval(wrong, labelled, level=LEVEL)
    return Figure(value=100 * wrong / labelled, images=labelled, low=low, high=high, level=LEVEL)


def _points(differences: Tensor) -> Figure:
    """The mean of paired differences in percentage points."""
    points = 100 * differences.double()
    low, high = bootstrap_interval(points, level=LEVEL)
    return Figure(
        value=float(points.mean()), images=len(points), low=low, high=high, level=LEVEL, unit=""
    )


def _with_ends(known: Figure | Interval | None, *, sign: bool = False) -> list[Entry]:
    """A number and its interval, as two cells."""
    if known is None or known.low is None or known.high is None:
        return [number_entry(None), "–"]
    form = "+.1f" if sign else ".1f"
    ends = f"{known.low:{form}} to {known.high:{form}}"
    return [number_entry(known.value, text=f"{known.value:{form}}"), ends]


def _named(recipes: Sequence[str | Recipe]) -> dict[str, str | Recipe]:
    if isinstance(recipes, (str, Recipe)) or not recipes:
        raise AcclimateError(f"expected a list of recipes to compare, got {recipes!r:.40}")
    named: dict[str, str | Recipe] = {}
    for recipe in recipes:
        name = recipe if isinstance(recipe, str) else recipe.name
        if name in named:
            raise AcclimateError(f"expected recipes with different names, got {name} twice")
        if recipe != AUTO:
            get_recipe(recipe)
        named[name] = recipe
    return named


def _unfit(named: Mapping[str, str | Recipe], model: nn.Module) -> dict[str, str]:
    """Why some of the recipes cannot be run with a model; an error if that is all of them."""
    found: dict[str, str] = {}
    for name, recipe in named.items():
        try:
            if recipe != AUTO:
                get_recipe(recipe).check(model)
        except AcclimateError as error:
            if len(named) == len(found) + 1:
                raise
            found[name] = str(error)
    return found


def _folder_name(recipe: str) -> str:
    """A recipe's sub-folder.

    >>> _folder_name("rpl"), _folder_name("py:my.methods:mine")
    ('rpl', 'py-my.methods-mine')
    """
    return re.sub(r"[^\w.+-]+", "-", recipe).strip(".") or "recipe"


def _earlier(folder: Path) -> dict[str, _Cost]:
    """What the runs that a comparison finds finished have cost."""
    contents = sorted(p.name for p in folder.iterdir() if p.name != LOCK) if folder.is_dir() else []
    if COMPARISON not in contents:
        files = [name for name in contents if not (folder / name).is_dir()]
        if files:
            raise AcclimateError(
                f"the output folder {folder} holds no comparison ({', '.join(files[:3])}); choose "
                "another one"
            )
        return {}
    found = read_object(folder / COMPARISON, "recipes", hint="; choose another folder")
    try:
        return {row["recipe"]: _Cost(row["passes"], row["seconds"]) for row in found["recipes"]}
    except (TypeError, KeyError) as error:
        raise AcclimateError(
            f"expected a comparison in {folder / COMPARISON}, got one that is damaged ({error!r}); "
            "choose another folder"
        ) from error


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
