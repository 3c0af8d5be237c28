"""Results sorted by what was run: images and model (a panel), recipe and options (a line in it)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from acclimate.bench.job import STATIONARY, UNADAPTED, Options
from acclimate.bench.record import Result
from acclimate.data.shift import group_of
from acclimate.text import option_words

__all__ = [
    "Panel",
    "Setting",
    "panel_of",
    "panel_words",
    "panels",
    "ranked",
    "setting_words",
]


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


def panel_of(result: Result) -> Panel:
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
            found.setdefault(panel_of(result), {}).setdefault(setting, []).append(result)
    order = sorted(found, key=lambda panel: (list(_GROUPS).index(panel.group), panel))
    return {
        panel: {s: found[panel][s] for s in sorted(found[panel], key=ranked)} for panel in order
    }


def ranked(setting: Setting) -> tuple[int, str, str]:
    """What settings are sorted by: simple baselines first, then by name."""
    return (_BASELINES.get(setting.recipe, 2), setting.recipe, option_words(setting.options))


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
        "preset": f"made as {panel.preset}" if panel.preset else "not made on the way",
        "draw": f"draw {panel.draw}",
        "order": panel.order or STATIONARY,
    }.items():
        if any(getattr(other, name) != getattr(panel, name) for other in others):
            words.append(shown)
        others = [other for other in others if getattr(other, name) == getattr(panel, name)]
    return ", ".join(words)


def setting_words(setting: Setting) -> str:
    """A setting's name for a legend, with the last part of each option's name.

    >>> setting_words(Setting("ent", (("optimizer.lr", 0.001),)))
    'ent (lr=0.001)'
    """
    words = option_words((name.rpartition(".")[2], value) for name, value in setting.options)
    return f"{setting.recipe} ({words})" if words else setting.recipe
