"""Which setting of a recipe is shown: a figure and the first table have room for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.metrics.mean import like
from acclimate.report.chosen import given_for
from acclimate.report.means import compared, fullest
from acclimate.report.settings import Panel, Setting, setting_words

__all__ = ["Chosen", "choose", "side_by_side"]


@dataclass(frozen=True, kw_only=True)
class Chosen:
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


def choose(
    panel: Panel,
    found: Mapping[Panel, Mapping[Setting, Sequence[Result]]],
    *,
    choices: Sequence[Choices] = (),
) -> list[Chosen]:
    """One setting for each recipe of a panel: a figure can show only so many.

    The one that a choice file names; else the one that does best on the hold-out corruptions of the
    same model and data; where they were not run, the one without options; else the one with the
    lowest error shown. Errors are compared among settings that ran on the most, and on the same.
    """
    by_recipe: dict[str, list[Setting]] = {}
    for setting in found[panel]:
        by_recipe.setdefault(setting.recipe, []).append(setting)
    held_out = found.get(panel._replace(group="dev"), {}) if panel.group == "test" else {}
    chosen = []
    for recipe, settings in by_recipe.items():
        by_shown_error = False
        on_dev = compared({setting: held_out.get(setting, ()) for setting in settings})
        if len(settings) == 1:
            best, why = settings[0], "the only setting"
        elif (by_file := _by_file(panel, recipe, found[panel], choices)) is not None:
            chosen.append(by_file)
            continue
        elif on_dev.tried > 1:
            best, why = on_dev.best, "best on hold-out corruptions" + _without(on_dev.left_out)
        elif any(not setting.options for setting in settings):
            best, why = Setting(recipe), "the recipe as it is, without options"
        else:
            by_shown_error = True
            shown = compared({setting: found[panel][setting] for setting in settings})
            best = shown.best if shown.errors else settings[0]
            why = "the lowest error on the hold-out corruptions themselves"
            if panel.group != "dev":
                why = "the lowest error on what is shown, which is not chosen on hold-out ones"
            why += _without(shown.left_out)
        chosen.append(
            Chosen(setting=best, results=found[panel][best], why=why, by_shown_error=by_shown_error)
        )
    return chosen


def side_by_side(
    panel: Panel,
    found: Mapping[Panel, Mapping[Setting, Sequence[Result]]],
    *,
    choices: Sequence[Choices] = (),
) -> tuple[list[Chosen], list[str]]:
    """The settings of `choose` on the same images, for a figure, and what is left out of it.

    A recipe that ran at the highest severity alone would look worse than it is beside others'
    means over all of them, and one that is not through, better or worse as it happens.
    """
    chosen = choose(panel, found, choices=choices)
    alike = [_of_like_seeds(each.results) for each in chosen]
    ran = [frozenset(map(_place, results)) for results in alike]
    on = fullest(ran)
    shown, notes = [], []
    for each, results, own in zip(chosen, alike, ran, strict=True):
        name = setting_words(each.setting)
        if not on <= own:
            notes.append(f"{name}: not shown, since it did not run on all that the others ran on.")
            continue
        shown.append(replace(each, results=[r for r in results if _place(r) in on]))
        seeds, all_seeds = (len({r.job.seed for r in those}) for those in (results, each.results))
        if seeds < all_seeds:
            notes.append(f"{name}: {seeds} of {all_seeds} seeds, those that ran on the same.")
    if any(on < own for own in ran):
        count = len(frozenset.union(*ran))
        notes.append(f"Of {count} shifts at a severity, the {len(on)} that all of these ran on.")
    return shown, notes


def _place(result: Result) -> tuple[str | None, int | None]:
    return result.corruption, result.job.severity


def _of_like_seeds(results: Sequence[Result]) -> list[Result]:
    """Of the seeds that ran on the most, and on the same."""
    ran: dict[int, set[tuple[str | None, int | None]]] = {}
    for result in results:
        ran.setdefault(result.job.seed, set()).add(_place(result))
    alike = like({seed: frozenset(places) for seed, places in ran.items()})
    return [result for result in results if result.job.seed in alike]


def _without(left_out: int) -> str:
    return " (incomplete settings left out)" if left_out else ""


def _by_file(
    panel: Panel,
    recipe: str,
    found: Mapping[Setting, Sequence[Result]],
    choices: Sequence[Choices],
) -> Chosen | None:
    """The setting that a choice file has, for all images or for each shift."""
    for given in given_for(choices, panel.model, recipe):
        how = given.chosen.selection or "by hand"
        own = [
            result
            for setting, results in found.items()
            if setting.recipe == recipe
            for result in results
            if given.chosen.options_for(result.job) == dict(result.job.options)
        ]
        if not own:
            continue
        if given.chosen.options is not None:
            setting = Setting(recipe, own[0].job.options)
            return Chosen(setting=setting, results=own, why=f"the one of {given.file} ({how})")
        setting = Setting(recipe, (("chosen", given.file),))
        renamed = [replace(r, job=replace(r.job, options=setting.options)) for r in own]
        why = f"what {given.file} has for each shift ({how})"
        return Chosen(setting=setting, results=renamed, why=why, mixed=True)
    return None
