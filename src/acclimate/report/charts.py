"""Charts as Vega-Lite: rows of numbers become specifications, which pages, SVG and PNG show.

Specifications are plain dictionaries: the grammar is the same as through altair, and the one
package that is needed (vl-convert, in the extra ``report``) brings what draws them, in a browser
and without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from math import ceil, floor, log10
from textwrap import wrap
from typing import Any, NamedTuple, TypeAlias

from acclimate.errors import AcclimateError
from acclimate.table import Table, number_entry
from acclimate.text import printable

__all__ = [
    "CHANGE", "CLICKED", "DARK", "ERROR", "FADED", "GREY", "LIGHT", "MANY", "PLAIN", "SERIES",
    "Curve", "Figure", "Look", "Spec", "axis", "browser_script", "by_line", "grey_line", "lines",
    "nth_look", "padded", "placed", "png", "svg", "why_no_charts",
]  # fmt: skip

Spec: TypeAlias = dict[str, Any]

# Colours that differ for the colour-blind too, on light and on dark paper.
ERROR = ("#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154")
"""Viridis from the good end (yellow) to the bad (purple)."""
CHANGE = ("#542788", "#998ec3", "#f2f0ea", "#f5cf4d", "#d99a00")
"""Worse (purple), as before, better (yellow)."""
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
"""For lines and dots, by Okabe and Ito."""
GREY = "#888888"
_FITS = 16
"""A longer title of an axis would run into those of the small charts above and below."""
MANY = 8
"""More series than that cannot be told apart in one chart."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_DASHES = ([1, 0], [8, 3], [4, 3], [10, 3, 2, 3], [2, 2], [6, 2, 2, 2, 2, 2])
_FONTS = "system-ui, 'DejaVu Sans', 'Noto Sans', 'Liberation Sans', Arial, Helvetica, sans-serif"
_WIDTH = 420  # pixels of a file; a page has the width of its column
_MISSING = "charts need vl-convert: pip install 'acclimate[report]'"


def _config(ink: str, rule: str, grid: str) -> Spec:
    ticks = {"domainColor": rule, "tickColor": rule, "gridColor": grid}
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "font": _FONTS,
        "axis": {**ticks, **words, "titleFontWeight": "normal", "labelOverlap": "greedy",
                 "labelFlush": False},
        "legend": {**words, "orient": "bottom", "columns": 1, "title": None, "labelLimit": 380},
        "header": {"labelColor": ink, "titleColor": ink},
        "title": {"color": ink, "fontSize": 13, "anchor": "start", "frame": "group"},
        "view": {"stroke": rule},
    }  # fmt: skip


LIGHT = _config("#222222", "#777777", "#dddddd")
DARK = _config("#dddddd", "#999999", "#383c44")

# A file follows the reader's system as well: rules of a style win over attributes.
_DARK_FILE = (
    "@media (prefers-color-scheme:dark){svg>rect{fill:#16181d}"
    ".role-axis text,.role-legend text,.role-title text{fill:#ddd}"
    ".role-axis-grid line{stroke:#383c44}}"
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart, its data, its description in words, and the name it is saved under."""

    name: str
    title: str
    description: str
    spec: Spec
    table: Table
    wide: bool = False

    def file(self) -> Spec:
        """The specification with its title and a fixed width, for a file."""
        width = 2 * _WIDTH if self.wide else _WIDTH
        about = {"title": wrap(self.title, width // 8), "description": self.description}
        if "facet" in self.spec:  # as wide as its parts
            return {**self.spec, **about, "columns": 4}
        return {**self.spec, **about, "width": width}


class Curve(NamedTuple):
    """A line: its name, whose it is, its points, and whether these are of online predictions."""

    name: str
    recipe: str
    points: Sequence[tuple[float, float]]
    online: bool = False


class Look(NamedTuple):
    """How a recipe is drawn."""

    colour: str
    shape: str
    dash: tuple[int, ...]


PLAIN = Look(GREY, "circle", (1, 0))
"""Of the unadapted model."""


def nth_look(number: int) -> Look:
    """One of many: past the last colour, the first comes again with other marks and dashes.

    >>> nth_look(0).colour == nth_look(len(SERIES)).colour, nth_look(len(SERIES)).shape
    (True, 'square')
    """
    again, place = divmod(number, len(SERIES))
    kind = again % len(_SHAPES)
    return Look(SERIES[place], _SHAPES[kind], tuple(_DASHES[kind]))


def padded(values: Sequence[float], *, least: float | None = None) -> tuple[float, float]:
    """The range of an axis: a little more than that of its values.

    >>> padded([10.0, 20.0]), padded([5.0])
    ((9.4, 20.6), (4.5, 5.5))
    """
    low, high = min(values), max(values)
    space = 0.06 * (high - low) or max(0.1 * abs(high), 0.5)
    low = low - space
    return (low if least is None else max(low, least)), high + space


def axis(
    title: str | Sequence[str],
    low: float,
    high: float,
    *,
    values: Sequence[float] | None = None,
    log: bool = False,
) -> Spec:
    """A quantitative axis over a range, with ticks at ``values`` or at round numbers."""
    scale = {"domain": [low, high], "nice": False, "zero": False}
    shown: Spec = {}
    if log:
        scale["type"] = "log"
        shown = {"format": "~g", "grid": False}
        first, last = (log10(end) for end in (low, high))
        values = values or [10.0**k for k in range(ceil(first - 1e-9), floor(last + 1e-9) + 1)]
    shown |= {"tickCount": 6} if values is None else {"values": list(values)}
    return {"type": "quantitative", "title": title, "scale": scale, "axis": shown}


def placed(x: Spec, y: Spec) -> Spec:
    """Where a mark is: by the fields ``x`` and ``y``, on these axes."""
    return {"x": {"field": "x", **x}, "y": {"field": "y", **y}}


def by_line(drawn: Mapping[str, Look]) -> dict[str, Spec]:
    """Colour, marks and dashes by the field ``line``, with one legend, to be clicked."""
    ranges = {
        "color": [look.colour for look in drawn.values()],
        "shape": [look.shape for look in drawn.values()],
        "strokeDash": [list(look.dash) for look in drawn.values()],
    }
    return {
        channel: {"field": "line", "type": "nominal", "title": None,
                  "scale": {"domain": list(drawn), "range": values}}
        for channel, values in ranges.items()
    }  # fmt: skip


CLICKED = {"name": "clicked", "select": {"type": "point", "fields": ["line"]}, "bind": "legend"}
FADED = {"condition": {"param": "clicked", "value": 1}, "value": 0.1}


def lines(
    curves: Sequence[Curve],
    drawn: Mapping[str, Look],
    *,
    name: str,
    title: str,
    description: str,
    x: Spec,
    y: Spec,
    notes: Sequence[str] = (),
    diagonal: float | None = None,
) -> Figure:
    """Lines with dots; those of online predictions are thin and dotted, in their recipe's colour.

    With ``diagonal``, a line from zero to there and there.
    """
    both = any(curve.online for curve in curves)
    points = [
        (curve.name, "online" if curve.online else "after", a, b)
        for curve in curves
        for a, b in curve.points
    ]
    of = by_line({curve.name: drawn[curve.recipe] for curve in curves})
    after, online = ({"filter": f"datum.kind == '{kind}'"} for kind in ("after", "online"))
    tooltip = [
        {"field": "line", "title": "line"},
        *([{"field": "kind", "title": "kind"}] if both else []),
        {"field": "x", "title": x["title"], "format": ".4~g"},
        {"field": "y", "title": y["title"], "format": ".2f"},
    ]
    marks = {**placed(x, y), "color": of["color"], "opacity": FADED, "tooltip": tooltip}
    spec: Spec = {
        "width": "container",
        "height": 230,
        "data": {"values": [{"line": line, "kind": kind, "x": round(a, 3), "y": round(b, 3)}
                            for line, kind, a, b in points]},
        "layer": [
            *([grey_line([(0, 0), (diagonal, diagonal)], x, y)] if diagonal else []),
            # Of layers with one legend, it is clicked where it is made: in the first.
            {"params": [CLICKED], "transform": [after], "mark": {"type": "line", "clip": True},
             "encoding": {**placed(x, y), "color": of["color"], "strokeDash": of["strokeDash"],
                          "opacity": FADED}},
            *([{"transform": [online],
                "mark": {"type": "line", "clip": True, "strokeDash": [2, 3], "strokeWidth": 1.5,
                         "point": {"size": 18}}, "encoding": marks}] if both else []),
            {"transform": [after],
             "mark": {"type": "point", "filled": True, "size": 45, "clip": True},
             "encoding": {**marks, "shape": of["shape"]}},
        ],
    }  # fmt: skip
    if len(of["color"]["scale"]["domain"]) > MANY:
        spec = _small_multiples(points, {c.name: drawn[c.recipe] for c in curves}, x, y)
    rows = [
        [
            line,
            *([kind] if both else []),
            number_entry(a, text=f"{a:.4g}"),
            number_entry(b, digits=2),
        ]
        for line, kind, a, b in points
    ]
    header = ["line", *(["kind"] if both else []), x["title"], y["title"]]
    table = Table(name=name, title=title, header=header, rows=rows, notes=notes)
    return Figure(
        name=name, title=title, description=description, spec=spec, table=table,
        wide="facet" in spec,
    )  # fmt: skip


def _small_multiples(
    points: Sequence[tuple[str, str, float, float]], drawn: Mapping[str, Look], x: Spec, y: Spec
) -> Spec:
    """A small chart for each line, with the others in grey behind it."""
    values = [{"line": line, "kind": kind, "x": round(a, 3), "y": round(b, 3)}
              for line, kind, a, b in points]  # fmt: skip
    others = [{"other": line, "x": round(a, 2), "y": round(b, 2)}
              for line, kind, a, b in points if kind == "after"]  # fmt: skip
    colour = {
        "field": "line",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(drawn), "range": [look.colour for look in drawn.values()]},
    }
    tooltip = [
        {"field": "line", "title": "line"},
        {"field": "kind", "title": "kind"},
        {"field": "x", "title": x["title"], "format": ".4~g"},
        {"field": "y", "title": y["title"], "format": ".2f"},
    ]
    few = {"axis": {**x["axis"], "labelOverlap": True}}
    title = y["title"] if len(y["title"]) <= _FITS else "%"
    place = placed({**x, **few}, {**y, "title": title, "axis": {**y["axis"], "tickCount": 4}})
    own = {**place, "color": colour, "tooltip": tooltip}
    after, online = ({"filter": f"datum.kind == '{kind}'"} for kind in ("after", "online"))
    return {
        "data": {"values": values},
        "facet": {"field": "line", "type": "nominal", "title": None, "sort": list(drawn),
                  "header": {"labelFontSize": 12, "labelLimit": 170, "labelAnchor": "start"}},
        "columns": 2,
        "spacing": 14,
        "spec": {
            "width": 150,
            "height": 90,
            "layer": [
                {"data": {"values": others},
                 "mark": {"type": "line", "color": GREY, "opacity": 0.25, "strokeWidth": 1},
                 "encoding": {**place, "detail": {"field": "other"}}},
                {"transform": [online], "mark": {"type": "line", "strokeDash": [2, 3]},
                 "encoding": own},
                {"transform": [after], "mark": {"type": "line", "point": {"size": 30}},
                 "encoding": own},
            ],
        },
    }  # fmt: skip


def grey_line(points: Sequence[tuple[float, float]], x: Spec, y: Spec) -> Spec:
    """A dashed line to compare with, as a layer."""
    return {
        "data": {"values": [{"x": a, "y": b} for a, b in points]},
        "mark": {"type": "line", "color": GREY, "strokeDash": [4, 4], "strokeWidth": 1},
        "encoding": placed(x, y),
    }


def why_no_charts() -> str | None:
    """What to install, where charts cannot be drawn."""
    return _MISSING if find_spec("vl_convert") is None else None


def _vl_convert() -> Any:
    if (missing := why_no_charts()) is not None:
        raise AcclimateError(missing)
    import vl_convert

    return vl_convert


def browser_script() -> str:
    """The JavaScript that draws specifications in a browser: vega, vega-lite and vega-embed."""
    script: str = _vl_convert().javascript_bundle()
    return script.replace("</script", "<\\/script")


def _in_light(spec: Spec) -> Spec:
    """The chart on white paper; what draws it ends the process over a control character in it."""
    plain: Spec = _printable({**spec, "config": {**LIGHT, "background": "white"}})
    return plain


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list | tuple) else value


def svg(spec: Spec) -> str:
    """A chart with its title and description for those who do not see it; the same every time."""
    drawn: str = _vl_convert().vegalite_to_svg(_in_light(spec))
    seen: dict[str, str] = {}
    # Names are counted on over all charts of a process.
    drawn = re.sub(
        r"\b(clip|gradient)_?\d+", lambda m: seen.setdefault(m[0], f"{m[1]}{len(seen)}"), drawn
    )
    title = spec.get("title", "")
    words = title if isinstance(title, str) else " ".join(title)
    described = spec.get("description", "")
    head = f"<title>{escape(printable(words))}</title><desc>{escape(printable(described))}</desc>"
    head += f"<style>{_DARK_FILE}</style>"
    return re.sub(r"<svg ([^>]*)>", lambda m: f'<svg role="img" {m[1]}>{head}', drawn, count=1)


def png(spec: Spec) -> bytes:
    """The same in light colours, two pixels for each of the SVG's."""
    return bytes(_vl_convert().vegalite_to_png(_in_light(spec), scale=2))
