"""What a reader wants to know first: which recipe is best, where, and how certain that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from acclimate.bench.job import STATIONARY, UNADAPTED
from acclimate.bench.record import Result
from acclimate.report.charts import GREY, SERIES, Figure, Spec, axis
from acclimate.report.figures import errors_by_shift, shifts_in_order
from acclimate.report.settings import Panel, View, mean_error, panel_words
from acclimate.report.tables import shown_once
from acclimate.table import Entry, Number, Table, number_entry
from acclimate.text import counted

__all__ = [
    "Standing", "corruption_pivot", "headline_title", "ranked_bars", "ranking_table",
    "setting_pivot", "standings", "summary_sentence",
]  # fmt: skip

_Z = 1.96
"""Standard errors that a 95 % interval goes to either side."""

INTERVAL = (
    "The interval has 95 %: from the number of labelled images, as if all shifts showed the same "
    "ones, or from the spread over seeds where that is more."
)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A recipe among others on the same images: its mean error in percent, and how certain.

    ``half`` is half of the 95 % interval, None where the number of images is not known.
    """

    name: str
    recipe: str
    error: float
    half: float | None
    seeds: int

    @property
    def label(self) -> str:
        """The recipe's name, for a row."""
        return "unadapted" if self.recipe == UNADAPTED else self.recipe

    @property
    def options(self) -> str:
        """The options of the setting that stands for it."""
        return self.name.removeprefix(self.recipe).strip(" ()") if self.name != self.label else ""

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return max(0.0, self.error - (self.half or 0.0))

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return min(100.0, self.error + (self.half or 0.0))


def standings(view: View) -> list[Standing]:
    """The recipes that ran on the same images, and the unadapted model; the best first.

    Computed once for a view, since means over thousands of results take a while.
    """
    kept: dict[str, list[Standing]] = vars(view)
    if "_standings" not in kept:
        kept["_standings"] = _standings(view)
    return kept["_standings"]


def _standings(view: View) -> list[Standing]:
    found = []
    for shown in view.alike:
        error = mean_error(shown.results)
        if error is not None:
            found.append(Standing(
                name="unadapted" if shown.setting.recipe == UNADAPTED else shown.name,
                recipe=shown.setting.recipe, error=error, half=_half_width(shown.results),
                seeds=len({result.job.seed for result in shown.results}),
            ))  # fmt: skip
    if all(each.recipe != UNADAPTED for each in found):
        by_shift = errors_by_shift(view).get("unadapted")
        if by_shift:
            mean = fmean(by_shift.values())
            found.append(
                Standing(name="unadapted", recipe=UNADAPTED, error=mean, half=None, seeds=1)
            )
    return sorted(found, key=lambda each: each.error)


def _half_width(results: Sequence[Result]) -> float | None:
    """Half of the 95 % interval of a mean error.

    Shifts of the same images are not independent: the mean of their standard errors is what the
    standard error of their mean can be at most.
    """
    sizes = [(result.error, result.record.labelled) for result in results]
    drawn = [sqrt(e * (100 - e) / n) for e, n in sizes if e is not None and n]
    if len(drawn) < len(sizes):
        return None
    by_seed: dict[int, list[Result]] = {}
    for result in results:
        by_seed.setdefault(result.job.seed, []).append(result)
    means = [mean for each in by_seed.values() if (mean := mean_error(each)) is not None]
    spread = stdev(means) / sqrt(len(means)) if len(means) > 1 else 0.0
    return _Z * max(fmean(drawn), spread)


def headline_title(views: Sequence[View], results: Sequence[Result]) -> str:
    """What was compared, in a line.

    >>> from acclimate.bench import Job
    >>> jobs = [Job(model="acclimate:wrn", dataset="cifar10", recipe=r) for r in ("bn", "ent")]
    >>> headline_title([], [Result(job=job) for job in jobs])
    '2 recipes on cifar10, for wrn'
    """
    recipes, models, datasets = (
        sorted({str(getattr(result.job, what)) for result in results})
        for what in ("recipe", "model", "dataset")
    )
    what = recipes[0] if len(recipes) == 1 else counted(len(recipes), "recipe")
    on = ", ".join(datasets) if len(datasets) < 4 else counted(len(datasets), "data set")
    who = counted(len(models), "model")
    if len(models) < 3:
        who = " and ".join(name.rpartition(":")[2] for name in models)
    orders = len({view.panel.order for view in views})
    return f"{what} on {on}, for {who}" + (f", in {orders} settings" if orders > 1 else "")


def _reported(views: Sequence[View]) -> list[View]:
    """The comparisons to be summed up: hold-out corruptions are to choose on, not to report."""
    some = [view for view in views if len(standings(view)) > 1]
    return [view for view in some if view.panel.group != "dev"] or some


def summary_sentence(views: Sequence[View]) -> str:
    """Who is best, by how much, and who does harm."""
    shown = _reported(views)
    if not shown:
        return ""
    if len(shown) == 1:
        return _sentence_of_one(standings(shown[0]))
    wins = Counter(standings(view)[0].recipe for view in shown).most_common()
    first, count = wins[0]
    words = f"{_plain(first)} has the lowest error in {count} of {len(shown)} comparisons"
    for count in sorted({count for _, count in wins[1:]}, reverse=True):
        names = [_plain(name) for name, won in wins[1:] if won == count]
        words += f", {_listed(names)} in {count}{' each' if len(names) > 1 else ''}"
    never, ran = _never_worse(shown)
    if len(never) == len(ran):
        who, where = "every recipe is", "it"
    elif never:
        who = f"{_listed(never)} {'is' if len(never) == 1 else 'are'}"
        where = "it" if len(never) == 1 else "they"
    else:
        who, where = "no recipe is", "it"
    return f"{_first_large(words)}; {who} better than the unadapted model wherever {where} ran."


def _never_worse(views: Sequence[View]) -> tuple[list[str], set[str]]:
    """Recipes that are better than the unadapted model everywhere, of those that ran."""
    ran: dict[str, bool] = {}
    for view in views:
        placed = standings(view)
        source = next((each.error for each in placed if each.recipe == UNADAPTED), None)
        for each in placed:
            if each.recipe != UNADAPTED and source is not None:
                ran[each.recipe] = ran.get(each.recipe, True) and each.error < source
    return [name for name, better in ran.items() if better], set(ran)


def _sentence_of_one(placed: Sequence[Standing]) -> str:
    best, others = placed[0], placed[1:]
    errors = {each.recipe: each.error for each in others}
    words = f"{_plain(best.recipe)} has the lowest mean error: {best.error:.1f} %"
    beside = []
    if UNADAPTED in errors:
        beside.append(f"the unadapted model has {errors[UNADAPTED]:.1f} %")
    if "bn" in errors:
        beside.append(f"new statistics alone (bn) have {errors['bn']:.1f} %")
    words += f", where {' and '.join(beside)}" if beside else ""
    near = [each for each in others if each.recipe != UNADAPTED and each.low <= best.high]
    if near and best.half is not None:
        words += f". {_verb(len(near), 'other is', 'others are')} within its interval"
    if UNADAPTED in errors:
        worse = [each.recipe for each in others if each.error > errors[UNADAPTED]]
        words += f"; worse than unadapted: {_listed(worse)}" if worse else ""
    return f"{_first_large(words)}."


def _plain(recipe: str) -> str:
    return "the unadapted model" if recipe == UNADAPTED else recipe


def _verb(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _first_large(words: str) -> str:
    """A sentence's beginning; names of recipes stay as they are typed."""
    return "The" + words[3:] if words.startswith("the ") else words


def _listed(names: Sequence[str]) -> str:
    """Words in a row, the last after an "and".

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def ranking_table(view: View) -> Table:
    """The recipes of a comparison, the best first and in bold."""
    placed = standings(view)
    source = next((each.error for each in placed if each.recipe == UNADAPTED), None)
    rows: list[list[Entry]] = []
    for each in placed:
        interval = f"{each.low:.1f}\u00a0–\u00a0{each.high:.1f}" if each.half is not None else "–"
        fell = None if not source else 100 * (source - each.error) / source
        rows.append([
            each.label, _bold(each.error, each is placed[0]), interval,
            "–" if each.recipe == UNADAPTED else number_entry(fell), each.options or "–",
        ])  # fmt: skip
    table = Table(
        name="ranking",
        title=f"Ranked: {view.title}",
        header=["recipe", "error %", "95 % interval", "relative reduction %", "options"],
        rows=rows,
        notes=[INTERVAL, *view.left_out],
    )
    return shown_once(table, ["options"])


def _bold(error: float, best: bool) -> Number:
    return Number(f"{error:.1f}", error, bold=best)


def setting_pivot(views: Sequence[View]) -> Table | None:
    """Recipe × comparison: the mean error of each, the best of a column in bold."""
    shown = _reported(views)
    if len(shown) < 2:
        return None
    by_view = [{each.recipe: each.error for each in standings(view)} for view in shown]
    places: dict[str, list[float]] = {}
    for errors in by_view:
        ordered = sorted(errors, key=errors.__getitem__)
        for place, recipe in enumerate(ordered):
            places.setdefault(recipe, []).append(place / max(1, len(ordered) - 1))
    recipes = sorted(places, key=lambda recipe: fmean(places[recipe]))
    rows: list[list[Entry]] = [
        [
            "unadapted" if recipe == UNADAPTED else recipe,
            *(
                _bold(errors[recipe], errors[recipe] == min(errors.values()))
                if recipe in errors
                else "–"
                for errors in by_view
            ),
        ]
        for recipe in recipes
    ]
    heads = column_heads([view.panel for view in shown])
    return Table(
        name="recipe-by-setting",
        title="Mean error % of each recipe in each comparison",
        header=["recipe", *heads],
        rows=rows,
        notes=["Ordered by the mean place over the comparisons; bold: the lowest of the column."],
    )


def column_heads(panels: Sequence[Panel]) -> list[str]:
    """What tells comparisons apart, in few words.

    >>> one = Panel("acclimate:wrn", "", "cifar10", "", "cifar", 0, "test", 200, "single")
    >>> column_heads([one, one._replace(images=5000, order="online")])
    ['single', 'online']
    """
    models = {panel.model for panel in panels}
    orders = [panel.order or STATIONARY for panel in panels]
    if len(models) == 1 and len(set(orders)) == len(orders):
        return orders
    words = [panel_words(panel, panels).split(", ") for panel in panels]
    shared = set.intersection(*map(set, words))
    heads = [[word for word in each if word not in shared] for each in words]
    return [", ".join(each).removeprefix("acclimate:") or panel.model
            for each, panel in zip(heads, panels, strict=True)]  # fmt: skip


def corruption_pivot(view: View) -> Table | None:
    """Recipe × corruption: the best recipe first, the best of a column in bold."""
    series = errors_by_shift(view)
    shifts = shifts_in_order(series)
    if len(shifts) < 2:
        return None
    best = {s: min(errors[s] for errors in series.values() if s in errors) for s in shifts}
    rows: list[list[Entry]] = []
    placed = standings(view)
    for each in placed:
        errors: Mapping[str, float] = series.get(each.name, {})
        cells = [_bold(errors[s], errors[s] == best[s]) if s in errors else "–" for s in shifts]
        rows.append([each.label, *cells, _bold(each.error, each is placed[0])])
    return Table(
        name="recipe-by-corruption",
        title=f"{view.title}: error % by corruption",
        header=["recipe", *(shift.replace("_", " ") for shift in shifts), "mean"],
        rows=rows,
        notes=["Bold: the lowest of the column.", *view.left_out],
    )


def ranked_bars(view: View) -> Figure:
    """A bar for each recipe with its interval, the best on top."""
    placed = standings(view)
    best = placed[0]
    values: list[Spec] = [
        {"recipe": each.label, "options": each.options or "none", "error": round(each.error, 2),
         "low": round(each.low, 2), "high": round(each.high, 2), "words": f"{each.error:.1f}",
         "kind": "unadapted" if each.recipe == UNADAPTED else "best" if each is best else "other"}
        for each in placed
    ]  # fmt: skip
    x = axis("mean top-1 error %", 0, 1.2 * max(each["high"] for each in values))
    y = {"field": "recipe", "type": "nominal", "title": None, "sort": None,
         "axis": {"labelLimit": 210, "grid": False}}  # fmt: skip
    colour = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": ["unadapted", "best", "other"], "range": [GREY, SERIES[1], SERIES[0]]},
    }
    tooltip = [
        {"field": field, "title": title}
        for field, title in {"recipe": "recipe", "options": "options", "error": "error %",
                             "low": "from", "high": "to"}.items()
    ]  # fmt: skip
    spec: Spec = {
        "width": "container",
        "height": 22 * len(values),
        "data": {"values": values},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "bar", "opacity": 0.75, "height": {"band": 0.7}},
             "encoding": {"x": {"field": "error", **x}, "color": colour, "tooltip": tooltip}},
            {"mark": {"type": "rule", "strokeWidth": 1.5, "color": GREY},
             "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}}},
            {"mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 11, "color": GREY},
             "encoding": {"x": {"field": "high", **x}, "text": {"field": "words"}}},
        ],
    }  # fmt: skip
    return Figure(
        name="ranking",
        title=view.title,
        description=f"Mean error with a 95 percent interval, the best on top: "
        f"{', '.join(f'{each.label} {each.error:.1f}' for each in placed[:5])}.",
        spec=spec,
        table=ranking_table(view),
    )
