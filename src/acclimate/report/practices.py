"""The paper's best practices as a checklist: what a store passes, with the evidence in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from acclimate.bench.choices import Choices
from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.report.choices import State, given_for, judged, searched_values
from acclimate.report.figures import rate_of
from acclimate.report.settings import Found, Runs, Setting, compared, panel_words
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
_ELSEWHERE = "one setting, and where it comes from is not in this store"

_Checked: TypeAlias = tuple[State, str]


class Practice(NamedTuple):
    """One of them: what is asked, whether it was done, and how that shows."""

    name: str
    state: State
    evidence: str


def practices(found: Found, choices: Sequence[Choices] = ()) -> list[Practice]:
    """All of them, in the paper's order; what choice files say of a search comes before the store.

    >>> [practice.state for practice in practices({})]
    ['cannot tell', 'cannot tell', 'cannot tell', 'cannot tell', 'cannot tell', 'cannot tell']
    """

    def searched(option: str, words: str, values: Callable[[Result], set[object]]) -> _Checked:
        return _searched(found, choices, option=option, words=words, values=values)

    checked = {
        "Hyper-parameters chosen on hold-out corruptions": _selection(found, choices),
        "Simple baselines beside it": _baselines(found),
        "Robust source models among the models": _robust(found),
        "Epochs searched": searched("epochs", "numbers of epochs", _epochs),
        "Learning rate searched": searched("optimizer.lr", "learning rates", _rates),
        "Adapted parameters searched": searched("selector", "choices of parameters", _selectors),
    }
    return [Practice(name, *found) for name, found in checked.items()]


def _selection(found: Found, choices: Sequence[Choices]) -> _Checked:
    adapted = dict.fromkeys(
        (panel.model, setting.recipe, panel.weights)
        for panel, settings in found.items()
        for setting in settings
        if panel.group != "dev" and setting.recipe not in _GRADIENT_FREE
    )
    by_state: dict[State, list[str]] = {"not passed": [], "cannot tell": [], "passed": []}
    for model, recipe, weights in adapted:
        own = {
            panel: {s: results for s, results in settings.items() if s.recipe == recipe}
            for panel, settings in found.items()
            if (panel.model, panel.weights) == (model, weights)
        }
        test = [runs for panel, runs in own.items() if runs and panel.group != "dev"]
        given = given_for(choices, model, recipe)
        if given:
            jobs = [[r.job for results in runs.values() for r in results] for runs in test]
            state, words = judged(given, jobs)
        else:
            dev = [runs for panel, runs in own.items() if panel.group == "dev"]
            state, words = _chosen_on_dev(_labelled(dev), _labelled(test))
        by_state[state].append(f"{recipe} of {model}: {words}")
    for state, evidence in by_state.items():
        if evidence:
            hint = " If it was chosen in another store, acclimate results STORE --merge OTHER adds "
            elsewhere = state == "cannot tell" and any(e.endswith(_ELSEWHERE) for e in evidence)
            return state, _listed(evidence) + (f"{hint}that." if elsewhere else "")
    return "cannot tell", _NOTHING_REPORTED


def _labelled(panels: Iterable[Runs]) -> dict[Setting, list[Result]]:
    """The results whose error is known, of all panels."""
    found: dict[Setting, list[Result]] = {}
    for runs in panels:
        for setting, results in runs.items():
            if known := [result for result in results if result.error is not None]:
                found.setdefault(setting, []).extend(known)
    return found


def _chosen_on_dev(dev: Runs, test: Runs) -> _Checked:
    """Whether what a recipe is reported with is what did best on hold-out corruptions."""
    on_dev = compared(dev)
    if on_dev.tried > 1:
        lowest = on_dev.errors[on_dev.best]
        best = [setting for setting, error in on_dev.errors.items() if error <= lowest + 1e-6]
        reported = [setting for setting in best if setting in test]
        named = option_words((reported or best)[0].options, none="no options")
        less = f"{on_dev.left_out} left out as incomplete there"
        if len(on_dev.errors) == 1:
            return "cannot tell", (
                f"nothing to compare {named} with on hold-out corruptions, {less}"
            )
        evidence = f"{named} did best of {len(on_dev.errors)} on hold-out corruptions"
        evidence += f" ({less})" if on_dev.left_out else ""
        if reported:
            return "passed", evidence
        return "not passed", f"{evidence}, and is not among those run for the report"
    if len(test) > 1:
        return "not passed", (
            f"{len(test)} settings on what is reported, and no search on hold-out "
            "corruptions; to name the best of them is to choose on the test"
        )
    return "cannot tell", _ELSEWHERE


def _baselines(found: Found) -> _Checked:
    lacking, exempt, whole = [], [], 0
    learns = {panel: runs for panel, runs in found.items()
              if any(setting.recipe not in _GRADIENT_FREE for setting in runs)}  # fmt: skip
    reported = any(panel.group != "dev" for panel in learns)
    for panel, runs in learns.items():
        if reported and panel.group == "dev":  # options were chosen there, nothing is claimed
            continue
        name = panel_words(panel, found)
        recipes = {setting.recipe for setting in runs}
        results = [result for each in runs.values() for result in each]
        measured = all(result.unadapted_error is not None for result in results)
        alike = "bn" not in recipes and not any(map(_restates, results))
        there = {"unadapted": measured or UNADAPTED in recipes, "bn": alike or "bn" in recipes}
        gone = [word for word, here in there.items() if not here]
        lacking += [f"{name}: no {' and no '.join(gone)}"] if gone else []
        exempt += [name] if alike else []
        whole += not gone
    if lacking:
        return "not passed", _listed(lacking)
    if not whole:
        return "cannot tell", "No recipe that learns was run."
    times = f"{whole} combinations" if whole > 1 else "the one combination"
    both = "The unadapted model and bn"
    if exempt:
        both = "The unadapted model, and bn where it changes anything,"
    evidence = f"{both} stand beside every recipe, for {times} of model and images."
    return "passed", evidence + (f" It changes nothing for {_listed(exempt)}" if exempt else "")


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


def _robust(found: Found) -> _Checked:
    models = {}
    for panel, runs in found.items():
        weights = next(iter(runs.values()))[0].job.weights
        file = "" if weights is None else Path(weights.path).name
        words = "-".join(re.findall("[a-z0-9]+", f"{panel.model} {file}".lower()))
        models[panel.model, panel.weights] = f"-{words}-"
    if not models:
        return "cannot tell", "There are no done results."
    robust = [key[0] for key, words in models.items() if any(word in words for word in _ROBUST)]
    if robust:
        return "passed", f"By their names: {_listed(robust)}"
    named = _listed([model for model, _ in models])
    none = "None of the names says so (AugMix, DeepAugment, noisy student, …)"
    return "not passed", f"{none}: {named}"


def _searched(
    found: Found,
    choices: Sequence[Choices],
    *,
    option: str,
    words: str,
    values: Callable[[Result], set[object]],
) -> _Checked:
    """Whether several values of an option were tried, by its ``values`` in the record of a run."""
    tried: dict[tuple[str, str], set[object]] = {}
    reported = set()
    for runs in found.values():
        for setting, results in runs.items():
            for result in results if setting.recipe not in _GRADIENT_FREE else ():
                key = (setting.recipe, result.job.model)
                tried.setdefault(key, set()).update(values(result))
                reported |= set() if _held_out(result) else {key}
    few, several = [], []
    for (recipe, model), stored in tried.items():
        if (recipe, model) not in reported:
            continue
        searched = searched_values(given_for(choices, model, recipe), option)
        known, files = (stored, []) if searched is None else searched
        by = f", says {' and '.join(files)}" if files else ""
        if len(known) > 1:
            several.append(f"{recipe} of {model}: {len(known)} {words} ({_some(known)}){by}")
        else:
            one = f"only {next(iter(known))}" if known else "not recorded"
            one = "only the recipe's own" if files and not known else one
            few.append(f"{recipe} of {model}: {one}{by}")
    if few:
        return "not passed", _listed(few)
    return ("passed", _listed(several)) if several else ("cannot tell", _NOTHING_REPORTED)


def _held_out(result: Result) -> bool:
    return result.job.group == "dev" or result.job.split == "val"


def _epochs(result: Result) -> set[object]:
    after = result.record.errors.after_epoch
    # Every longer run has shorter ones in it, but nobody may have chosen among them: a search is on
    # hold-out images, and says how many at most.
    searched = _held_out(result) and "epochs" in dict(result.job.options)
    if result.record.score == "end" or not searched:
        return {len(after)}
    return set(range(1, len(after) + 1))


def _rates(result: Result) -> set[object]:
    rate = rate_of(result)
    return set() if rate is None else {rate}


def _selectors(result: Result) -> set[object]:
    selector = (result.record.recipe or {}).get("selector") or {}
    return {selector["kind"]} if "kind" in selector else set()


def _some(values: set[object]) -> str:
    ordered = sorted(values, key=lambda v: (v if isinstance(v, int | float) else 0, str(v)))
    return f"{ordered[0]} to {ordered[-1]}" if len(ordered) > 4 else ", ".join(map(str, ordered))


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return "; ".join(words[:_NAMED]) + (f"; and {more} more" if more > 0 else "") + "."
