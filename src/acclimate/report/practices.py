"""The paper's best practices as a checklist: what a store passes, with the evidence in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from acclimate.bench.choices import Choices
from acclimate.bench.job import UNADAPTED, Job, Options
from acclimate.bench.record import Result
from acclimate.report.choices import State, given_for, judged, searched_values
from acclimate.report.rates import rate_of
from acclimate.report.settings import Found, compared, panel_words
from acclimate.text import option_words

__all__ = ["Practice", "practices"]


_ROBUST = (
    "augmix", "deepaug", "noisy-student", "noisystudent", "dino", "wsl", "self-ensembling",
    "-ns-", "-ant-", "-ant3x3-", "-sin-", "-uda-", "-dann-", "-mt-",
)  # fmt: skip
"""Parts of a name; short ones are whole words, between hyphens, dots or underscores."""
_GRADIENT_FREE = (UNADAPTED, "bn")
_ROUNDING = 0.1
"""Points of error by which two passes in bfloat16 may differ."""
_NAMED = 3
_NOTHING_REPORTED = "No recipe that learns was run on anything but hold-out corruptions yet."


@dataclass(frozen=True, kw_only=True)
class Practice:
    """One of them: what is asked, whether it was done, and how that shows."""

    name: str
    state: State
    evidence: str


def practices(found: Found, choices: Sequence[Choices] = ()) -> list[Practice]:
    """All of them, in the paper's order; what choice files say of a search comes before the store.

    >>> [practice.state for practice in practices({})]
    ['cannot tell', 'cannot tell', 'cannot tell', 'cannot tell', 'cannot tell', 'cannot tell']
    """
    learnt = [r for settings in found.values() for s, rs in settings.items()
              if s.recipe not in _GRADIENT_FREE for r in rs]  # fmt: skip
    return [
        _selection(found, choices),
        _baselines(found),
        _robust(found),
        _searched("Epochs searched", learnt, _Of("epochs", "numbers of epochs", _epochs), choices),
        _searched("Learning rate searched", learnt,
                  _Of("optimizer.lr", "learning rates", _rates), choices),
        _searched("Adapted parameters searched", learnt,
                  _Of("selector", "choices of parameters", _selectors), choices),
    ]  # fmt: skip


class _Of(NamedTuple):
    """An option, in words, and how the record of a run has it."""

    option: str
    words: str
    values: Callable[[Result], set[object]]


def _selection(found: Found, choices: Sequence[Choices]) -> Practice:
    name = "Hyper-parameters chosen on hold-out corruptions"
    dev, test = _by_recipe(found, held_out=True), _by_recipe(found, held_out=False)
    adapted = {key: settings for key, settings in test.items() if key[1] not in _GRADIENT_FREE}
    if not adapted:
        return Practice(name=name, state="cannot tell", evidence=_NOTHING_REPORTED)
    open_, agreed, broken = list[str](), list[str](), list[str]()
    from_elsewhere = False
    by_state = {"passed": agreed, "not passed": broken, "cannot tell": open_}
    for key, settings in adapted.items():
        words = f"{key[1]} of {key[0]}"
        on_dev = compared(dev.get(key, {}))
        given = given_for(choices, key[0], key[1])
        if given:
            state, evidence = judged(given, _reported(found, key))
            by_state[state].append(f"{words}: {evidence}")
        elif on_dev.tried > 1:
            lowest = on_dev.errors[on_dev.best]
            best = [options for options, error in on_dev.errors.items() if error <= lowest + 1e-6]
            reported = [options for options in best if options in settings]
            named = option_words((reported or best)[0], none="no options")
            less = f"{on_dev.left_out} left out as incomplete there"
            evidence = f"{words}: {named} did best of {len(on_dev.errors)} on hold-out corruptions"
            evidence += f" ({less})" if on_dev.left_out else ""
            if len(on_dev.errors) == 1:
                open_.append(f"{words}: nothing to compare {named} with on hold-out corruptions, "
                             f"{less}")  # fmt: skip
            elif reported:
                agreed.append(evidence)
            else:
                broken.append(f"{evidence}, and is not among those run for the report")
        elif len(settings) > 1:
            broken.append(
                f"{words}: {len(settings)} settings on what is reported, and no search on hold-out "
                "corruptions; to name the best of them is to choose on the test"
            )
        else:
            from_elsewhere = True
            open_.append(f"{words}: one setting, and where it comes from is not in this store")
    if broken:
        return Practice(name=name, state="not passed", evidence=_listed(broken))
    if open_:
        hint = (
            " If it was chosen in another store, acclimate results STORE --merge OTHER adds that."
        )
        evidence = _listed(open_) + (hint if from_elsewhere else "")
        return Practice(name=name, state="cannot tell", evidence=evidence)
    return Practice(name=name, state="passed", evidence=_listed(agreed))


def _by_recipe(
    found: Found, *, held_out: bool
) -> dict[tuple[str, str, str], dict[Options, list[Result]]]:
    """Labelled results of each setting by model and recipe, of hold-out corruptions or others."""
    runs: dict[tuple[str, str, str], dict[Options, list[Result]]] = {}
    for panel, settings in found.items():
        if (panel.group == "dev") != held_out:
            continue
        for setting, results in settings.items():
            known = [result for result in results if result.error is not None]
            of_recipe = runs.setdefault((panel.model, setting.recipe, panel.weights), {})
            if known:
                of_recipe.setdefault(setting.options, []).extend(known)
    return runs


def _reported(found: Found, key: tuple[str, str, str]) -> list[list[Job]]:
    """The jobs of a model, recipe and weights, by images other than hold-out corruptions."""
    model, recipe, weights = key
    by_panel = [
        [
            r.job
            for setting, results in settings.items()
            if setting.recipe == recipe
            for r in results
        ]
        for panel, settings in found.items()
        if (panel.model, panel.weights) == (model, weights) and panel.group != "dev"
    ]
    return [jobs for jobs in by_panel if jobs]


def _baselines(found: Found) -> Practice:
    name = "Simple baselines beside it"
    lacking, exempt, whole = [], [], 0
    learns = {
        panel: settings
        for panel, settings in found.items()
        if {setting.recipe for setting in settings} - set(_GRADIENT_FREE)
    }
    reported = any(panel.group != "dev" for panel in learns)
    for panel, settings in learns.items():
        if reported and panel.group == "dev":  # options were chosen there, nothing is claimed
            continue
        recipes = {setting.recipe for setting in settings}
        source = UNADAPTED in recipes or all(
            result.unadapted_error is not None for each in settings.values() for result in each
        )
        runs = [result for each in settings.values() for result in each]
        alike = not any(map(_restates, runs))
        if alike and "bn" not in recipes:
            exempt.append(panel_words(panel, found))
        there = {"unadapted": source, "bn": alike or "bn" in recipes}
        gone = [word for word, here in there.items() if not here]
        whole += not gone
        if gone:
            lacking.append(f"{panel_words(panel, found)}: no {' and no '.join(gone)}")
    if not lacking and not whole:
        return Practice(name=name, state="cannot tell", evidence="No recipe that learns was run.")
    if lacking:
        return Practice(name=name, state="not passed", evidence=_listed(lacking))
    times = f"{whole} combinations" if whole > 1 else "the one combination"
    both = "The unadapted model, and bn where it changes anything," if exempt else ""
    both = both or "The unadapted model and bn"
    evidence = f"{both} stand beside every recipe, for {times} of model and images."
    if exempt:
        evidence += f" It changes nothing for {_listed(exempt)}"
    return Practice(name=name, state="passed", evidence=evidence)


def _restates(result: Result) -> bool:
    """Whether there are statistics to renew: not in a model without batch norm."""
    if result.job.recipe in _GRADIENT_FREE:
        return False
    layers = result.record.batch_norm_layers
    if layers is not None:
        return bool(layers)
    # Results from before that was kept: whether new statistics alone made a difference.
    start, before = result.record.errors.start, result.unadapted_error
    return start is None or before is None or abs(start - before) > _ROUNDING


def _robust(found: Found) -> Practice:
    name = "Robust source models among the models"
    models = {}
    for panel, settings in found.items():
        weights = next(iter(settings.values()))[0].job.weights
        file = "" if weights is None else Path(weights.path).name
        words = "-".join(re.findall("[a-z0-9]+", f"{panel.model} {file}".lower()))
        models[panel.model, panel.weights] = f"-{words}-"
    if not models:
        return Practice(name=name, state="cannot tell", evidence="There are no done results.")
    robust = [key[0] for key, words in models.items() if any(word in words for word in _ROBUST)]
    if robust:
        return Practice(name=name, state="passed", evidence=f"By their names: {_listed(robust)}")
    named = _listed([model for model, _ in models])
    return Practice(
        name=name,
        state="not passed",
        evidence=f"None of the names says so (AugMix, DeepAugment, noisy student, …): {named}",
    )


def _searched(
    name: str, results: Sequence[Result], of: _Of, choices: Sequence[Choices]
) -> Practice:
    reported = {(r.job.recipe, r.job.model) for r in results if not _held_out(r)}
    if not reported:
        return Practice(name=name, state="cannot tell", evidence=_NOTHING_REPORTED)
    tried: dict[tuple[str, str], set[object]] = {}
    for result in results:
        key = (result.job.recipe, result.job.model)
        if key in reported:
            tried.setdefault(key, set()).update(of.values(result))
    few, several = [], []
    for (recipe, model), stored in tried.items():
        searched = searched_values(given_for(choices, model, recipe), of.option)
        values, files = (stored, []) if searched is None else searched
        by = f", says {' and '.join(files)}" if files else ""
        if len(values) < 2:
            one = "only the recipe's own" if files and not values else _one(values)
            few.append(f"{recipe} of {model}: {one}{by}")
        else:
            several.append(f"{recipe} of {model}: {len(values)} {of.words} ({_some(values)}){by}")
    if few:
        return Practice(name=name, state="not passed", evidence=_listed(few))
    return Practice(name=name, state="passed", evidence=_listed(several))


def _epochs(result: Result) -> set[object]:
    after = result.record.errors.after_epoch
    # Every longer run has shorter ones in it, but nobody may have chosen among them: a search is on
    # hold-out images, and says how many at most.
    searched = _held_out(result) and "epochs" in dict(result.job.options)
    if result.record.score == "end" or not searched:
        return {len(after)}
    return set(range(1, len(after) + 1))


def _held_out(result: Result) -> bool:
    return result.job.group == "dev" or result.job.split == "val"


def _rates(result: Result) -> set[object]:
    rate = rate_of(result)
    return set() if rate is None else {rate}


def _selectors(result: Result) -> set[object]:
    selector = (result.record.recipe or {}).get("selector") or {}
    return {selector["kind"]} if "kind" in selector else set()


def _one(values: set[object]) -> str:
    return f"only {next(iter(values))}" if values else "not recorded"


def _some(values: set[object]) -> str:
    ordered = sorted(values, key=lambda v: (v if isinstance(v, int | float) else 0, str(v)))
    return f"{ordered[0]} to {ordered[-1]}" if len(ordered) > 4 else ", ".join(map(str, ordered))


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return "; ".join(words[:_NAMED]) + (f"; and {more} more" if more > 0 else "") + "."
