"""Results sorted by what was run, their means, and which setting of a recipe is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from acclimate.bench.choices import Choices
from acclimate.bench.job import STATIONARY, UNADAPTED, Options
from acclimate.bench.record import Result
from acclimate.data.shift import group_of
from acclimate.metrics.mean import by_seeds, like, mean, on_the_same
from acclimate.metrics.mean import mean_over_shifts as mean_of_one
from acclimate.report.charts import PLAIN, Look, nth_look
from acclimate.report.choices import given_for
from acclimate.text import counted, option_words

__all__ = [
    "Found", "Panel", "Setting", "Shown", "View", "choose", "compared", "fullest", "looks",
    "mean_error", "mean_over_shifts", "panel_words", "panels", "setting_words", "side_by_side",
    "view",
]  # fmt: skip

_GROUPS = {
    "test": "test corruptions",
    "": "other shifts",
    "clean": "clean images",
    "dev": "hold-out corruptions",
}
_BASELINES = {UNADAPTED: 0, "bn": 1}


class Panel(NamedTuple):
    """A model on some images: what is compared with one another."""

    model: str
    weights: str
    dataset: str
    split: str
    preset: str
    draw: int
    group: str
    images: int
    order: str = ""
    """In which the images come, where they come as a stream: ``online``, ``continual``."""


class Setting(NamedTuple):
    """What was done to it."""

    recipe: str
    options: Options = ()


Runs: TypeAlias = Mapping[Setting, Sequence[Result]]
Found: TypeAlias = Mapping[Panel, Runs]
"""Results by panel and setting."""


def _panel_of(result: Result) -> Panel:
    """What a result is comparable with; nothing is "" or 0, so that panels can be sorted."""
    job = result.job
    return Panel(
        model=job.model,
        weights="" if job.weights is None else job.weights.sha256[:8],
        dataset=job.dataset,
        split=job.split or "",
        preset=job.preset or "",
        draw=job.draw,
        group=group_of(result.corruption) or ("clean" if result.corruption is None else ""),
        images=job.images or 0,
        order=job.setting or "",
    )


def panels(results: Iterable[Result]) -> dict[Panel, dict[Setting, list[Result]]]:
    """Done results by panel and setting, in the order of their names.

    >>> from acclimate.bench import Job
    >>> job = Job(model="wrn", dataset="cifar10", recipe="ent", shift="cifar/fog:3")
    >>> found = panels([Result(job=job)])
    >>> [(panel.group, *settings) for panel, settings in found.items()]
    [('test', Setting(recipe='ent', options=()))]
    """
    found: dict[Panel, dict[Setting, list[Result]]] = {}
    for result in results:
        if result.status == "done":
            setting = Setting(result.job.recipe, result.job.options)
            found.setdefault(_panel_of(result), {}).setdefault(setting, []).append(result)
    order = sorted(found, key=lambda panel: (list(_GROUPS).index(panel.group), panel))
    return {panel: {s: found[panel][s] for s in sorted(found[panel], key=_rank)} for panel in order}


def _rank(setting: Setting) -> tuple[int, str, str]:
    """Simple baselines first, then by name."""
    return (_BASELINES.get(setting.recipe, 2), setting.recipe, option_words(setting.options))


def looks(found: Mapping[Panel, Iterable[Setting]]) -> dict[str, Look]:
    """By recipe, of all that a page has: a chart that lacks one must not recolour the others.

    >>> panel = Panel("wrn", "", "cifar10", "", "cifar", 0, "test", 0)
    >>> [look.colour for look in looks({panel: [Setting("none"), Setting("ent")]}).values()]
    ['#888888', '#0072b2']
    """
    recipes = {Setting(each.recipe) for settings in found.values() for each in settings}
    learning = sorted(recipes - {Setting(UNADAPTED)}, key=_rank)
    return {UNADAPTED: PLAIN, **{each.recipe: nth_look(n) for n, each in enumerate(learning)}}


def panel_words(panel: Panel, among: Iterable[Panel]) -> str:
    """A panel's name: the model, and what tells it from the others.

    >>> one = Panel("wrn", "", "cifar10", "", "cifar", 0, "test", 0)
    >>> panel_words(one, [one, one._replace(group="dev")])
    'wrn, test corruptions'
    """
    # Only what still differs among those of the same name so far.
    others = [other for other in among if other.model == panel.model]
    words = [panel.model]
    for name, shown in {
        "weights": f"weights {panel.weights or 'its own'}",
        "dataset": panel.dataset,
        "group": _GROUPS[panel.group],
        "split": f"split {panel.split or 'the first'}",
        "images": f"{panel.images:,} images" if panel.images else "all images",
        "preset": f"made as {panel.preset}" if panel.preset else "not made on the fly",
        "draw": f"draw {panel.draw}",
        "order": panel.order or STATIONARY,
    }.items():
        alike = [other for other in others if getattr(other, name) == getattr(panel, name)]
        words += [shown] if len(alike) < len(others) else []
        others = alike
    return ", ".join(words)


def setting_words(setting: Setting) -> str:
    """A setting's name for a legend, with the last part of each option's name.

    >>> setting_words(Setting("ent", (("optimizer.lr", 0.001),)))
    'ent (lr=0.001)'
    """
    words = option_words((name.rpartition(".")[2], value) for name, value in setting.options)
    return f"{setting.recipe} ({words})" if words else setting.recipe


_K = TypeVar("_K")
_P = TypeVar("_P")


def mean_over_shifts(numbers: Iterable[tuple[Result, float]]) -> float:
    """The mean of a number of each result, of one at least, as tables have it.

    Over severities, then corruptions, each of which counts the same, then the seeds that ran on
    the most, and on the same.

    >>> from acclimate.bench import Job
    >>> shifts = {"fog:5": 32.0, "snow:5": 90.0, "snow:3": 50.0}
    >>> results = [Result(job=Job(model="m", dataset="d", recipe="ent", shift=s)) for s in shifts]
    >>> mean_over_shifts(zip(results, shifts.values()))
    51.0
    """
    runs: dict[Panel, list[tuple[int, str | None, int | None, float]]] = {}
    for result, number in numbers:
        found = (result.job.seed, *_place(result), number)
        runs.setdefault(_panel_of(result), []).append(found)
    alike = [shifts for run in runs.values() for shifts in on_the_same(by_seeds(run)).values()]
    return mean([each for shifts in alike if (each := mean_of_one(shifts)) is not None])


def mean_error(results: Iterable[Result]) -> float | None:
    """The mean of the errors that are known; None where none is."""
    known = _errors(results)
    return mean_over_shifts(known) if known else None


def _errors(results: Iterable[Result]) -> list[tuple[Result, float]]:
    return [(result, result.error) for result in results if result.error is not None]


def _place(result: Result) -> tuple[str | None, int | None]:
    return result.corruption, result.job.severity


def fullest(ran: Iterable[frozenset[_P]]) -> frozenset[_P]:
    """Of what each of several ran on, that which shows the most, where all who have it show it.

    >>> many, few = frozenset("abc"), frozenset("ab")
    >>> fullest([many, many, few]) == few, fullest([many, many, frozenset("a")]) == many
    (True, True)
    """
    sets = list(ran)

    def shows(on: frozenset[_P]) -> tuple[int, int]:
        having = sum(on <= other for other in sets)
        return having * len(on), having

    return max(dict.fromkeys(sets), key=shows, default=frozenset())


@dataclass(frozen=True, kw_only=True)
class Compared(Generic[_K]):
    """The mean errors of settings that ran on the same, and how many were left out for less."""

    errors: Mapping[_K, float]
    left_out: int

    @property
    def tried(self) -> int:
        """How many settings there are in all."""
        return len(self.errors) + self.left_out

    @property
    def best(self) -> _K:
        """The one with the lowest error."""
        return min(self.errors, key=lambda setting: self.errors[setting])


def compared(runs: Mapping[_K, Iterable[Result]]) -> Compared[_K]:
    """Settings that ran on the most images and seeds; one on fewer may have had the easier ones.

    Of several that ran on as many but others, those count that more settings ran on.
    """
    known = {key: found for key, results in runs.items() if (found := _errors(results))}
    ran = {
        key: frozenset((_panel_of(result), *_place(result), result.job.seed) for result, _ in each)
        for key, each in known.items()
    }
    errors = {key: mean_over_shifts(known[key]) for key in like(ran)}
    return Compared(errors=errors, left_out=len(ran) - len(errors))


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The setting that stands for a recipe in a figure, and why it is that one.

    Where options were chosen for each shift, it is a setting of its own, ``chosen=FILE``, and its
    results go by that name too (``mixed``). ``by_shown_error``: it has the lowest error on the very
    images that are shown.
    """

    setting: Setting
    results: Sequence[Result]
    why: str
    mixed: bool = False
    by_shown_error: bool = False

    @property
    def name(self) -> str:
        """For legends."""
        return setting_words(self.setting)

    @property
    def note(self) -> str:
        """Why it stands for its recipe, and of how many results."""
        return f"{self.name}: {self.why}; {counted(len(self.results), 'result')}."


def choose(panel: Panel, found: Found, *, choices: Sequence[Choices] = ()) -> list[Shown]:
    """One setting for each recipe of a panel: a figure can show only so many.

    The one that a choice file names; else the one that does best on the hold-out corruptions of the
    same model and data; where they were not run, the one without options; else the one with the
    lowest error shown. Errors are compared among settings that ran on the most, and on the same.
    """
    by_recipe: dict[str, dict[Setting, Sequence[Result]]] = {}
    for setting, results in found[panel].items():
        by_recipe.setdefault(setting.recipe, {})[setting] = results
    held_out = found.get(panel._replace(group="dev"), {}) if panel.group == "test" else {}
    return [_choose_one(panel, runs, held_out, choices) for runs in by_recipe.values()]


def _choose_one(panel: Panel, runs: Runs, held_out: Runs, choices: Sequence[Choices]) -> Shown:
    """Of the settings of one recipe."""
    if len(runs) == 1:
        ((setting, results),) = runs.items()
        return Shown(setting=setting, results=results, why="the only setting")
    if (by_file := _by_file(panel, runs, choices)) is not None:
        return by_file
    on_dev = compared({setting: held_out.get(setting, ()) for setting in runs})
    if on_dev.tried > 1:
        why = f"best on hold-out corruptions{_without(on_dev)}"
        return Shown(setting=on_dev.best, results=runs[on_dev.best], why=why)
    for setting, results in runs.items():
        if not setting.options:
            why = "the recipe's defaults, without options"
            return Shown(setting=setting, results=results, why=why)
    shown = compared(runs)
    best = shown.best if shown.errors else next(iter(runs))
    why = "the lowest error on what is shown, which is not chosen on hold-out ones"
    if panel.group == "dev":
        why = "the lowest error on the hold-out corruptions themselves"
    why += _without(shown)
    return Shown(setting=best, results=runs[best], why=why, by_shown_error=True)


def _without(compared: Compared[_K]) -> str:
    return " (incomplete settings left out)" if compared.left_out else ""


def _by_file(panel: Panel, runs: Runs, choices: Sequence[Choices]) -> Shown | None:
    """The setting that a choice file has, for all images or for each shift."""
    recipe = next(iter(runs)).recipe
    for given in given_for(choices, panel.model, recipe):
        how = given.chosen.selection or "by hand"
        own = [
            result
            for results in runs.values()
            for result in results
            if given.chosen.options_for(result.job) == dict(result.job.options)
        ]
        if not own:
            continue
        if given.chosen.options is not None:
            setting = Setting(recipe, own[0].job.options)
            return Shown(setting=setting, results=own, why=f"the one of {given.file} ({how})")
        setting = Setting(recipe, (("chosen", given.file),))
        renamed = [replace(r, job=replace(r.job, options=setting.options)) for r in own]
        why = f"what {given.file} has for each shift ({how})"
        return Shown(setting=setting, results=renamed, why=why, mixed=True)
    return None


def side_by_side(chosen: Sequence[Shown]) -> tuple[list[Shown], list[str]]:
    """The settings of `choose` on the same images, for a figure, and what is left out of it.

    A recipe that ran at the highest severity alone would look worse than it is beside others'
    means over all of them, and one that is not through, better or worse as it happens.
    """
    alike = [_of_like_seeds(each.results) for each in chosen]
    ran = [frozenset(map(_place, results)) for results in alike]
    on = fullest(ran)
    shown, notes = [], []
    for each, results, own in zip(chosen, alike, ran, strict=True):
        if not on <= own:
            notes.append(
                f"{each.name}: not shown, since it did not run on all that the others ran on."
            )
            continue
        shown.append(replace(each, results=[r for r in results if _place(r) in on]))
        seeds, every = (len({r.job.seed for r in those}) for those in (results, each.results))
        if seeds < every:
            notes.append(f"{each.name}: {seeds} of {every} seeds, those that ran on the same.")
    if any(on < own for own in ran):
        count = len(frozenset.union(*ran))
        notes.append(f"Of {count} shifts at a severity, the {len(on)} that all of these ran on.")
    return shown, notes


def _of_like_seeds(results: Sequence[Result]) -> list[Result]:
    """Of the seeds that ran on the most, and on the same."""
    alike = on_the_same(by_seeds((result.job.seed, *_place(result), 0.0) for result in results))
    return [result for result in results if result.job.seed in alike]


@dataclass(frozen=True, kw_only=True)
class View:
    """A panel as figures show it.

    Attributes:
        panel: what is compared with one another.
        title: its name among all panels.
        looks: of all recipes of the page.
        chosen: the setting that stands for each recipe, with all its results.
        alike: those of them that ran on the same images, with the results on these.
        left_out: what the others lack, in words.
    """

    panel: Panel
    title: str
    looks: Mapping[str, Look]
    chosen: Sequence[Shown]
    alike: Sequence[Shown]
    left_out: Sequence[str]


def view(panel: Panel, found: Found, *, choices: Sequence[Choices] = ()) -> View:
    """A panel with the settings that stand for its recipes."""
    chosen = choose(panel, found, choices=choices)
    alike, left_out = side_by_side(chosen)
    return View(
        panel=panel,
        title=panel_words(panel, found),
        looks=looks(found),
        chosen=chosen,
        alike=alike,
        left_out=left_out,
    )
