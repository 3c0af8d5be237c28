"""A recipe has one colour on a page, whichever others a figure has."""

from __future__ import annotations

import re
from dataclasses import replace

from acclimate.bench import Store
from acclimate.report.build import build_report
from acclimate.report.colours import SERIES
from acclimate.report.looks import looks
from acclimate.report.settings import Panel, Setting
from report_store import section, sweep

PANEL = Panel("m", "", "cifar10", "", "cifar", 0, "test", 0)


def colours(svg, recipe):
    """Those of its entries in the legend of a figure: a circle or a line, then its words."""
    drawn = rf'(?:fill|stroke)="(#\w{{6}})"(?:(?!#\w{{6}}).)*?>{recipe}\b'
    return re.findall(drawn, svg)


def test_a_figure_without_a_recipe_does_not_recolour_the_others(tmp_path):
    store = Store(tmp_path / "sweep.db")
    store.add_all(sweep(models=["m"], corruptions=["fog", "snow"]))
    store.add_all(sweep(models=["n"], corruptions=["fog"], recipes=["none", "rpl"]))
    report = build_report(store)
    drawn = [f for f in report.figures if f.name.rstrip("-12") in (
        "error-by-corruption", "error-over-epochs", "reliability", "class-balance",
    )]  # fmt: skip
    assert len(drawn) == 8
    for recipe, colour in zip(("bn", "ent", "rpl"), SERIES, strict=False):
        found = [each for figure in drawn for each in colours(figure.svg, recipe)]
        assert set(found) == {colour}, recipe
        assert len(found) >= (8 if recipe == "rpl" else 3)
    grey = [each for figure in drawn for each in colours(figure.svg, "(?:none|unadapted)")]
    assert set(grey) == {"#888888"}


def test_past_the_last_colour_dashes_and_rings_tell_recipes_apart():
    names = ["none", *(f"recipe-{n}" for n in range(len(SERIES) + 1))]
    seen = looks({PANEL: [Setting(name) for name in names]})
    assert len(set(seen.values())) == len(names)
    first, again = seen["recipe-0"], seen[names[-1]]
    assert first.colour == again.colour
    assert (first.dash, first.again) == ("", 0)
    assert (again.dash, again.again) == ("6 4", 1)


def test_recipes_with_the_same_error_are_all_seen(tmp_path):
    store = Store(tmp_path / "same.db")
    for each in sweep(models=["m"], corruptions=["fog"], severities=(5,), recipes=["bn"]):
        store.add(each)
        store.add(replace(each, job=replace(each.job, recipe="rotta")))
    (figure,) = section(build_report(store), "corruptions").figures
    heights = re.findall(r'<circle[^>]*cy="([\d.]+)"', figure.svg.split("top-1 error %")[0])
    assert len(heights) == len(set(heights)) == 3  # unadapted and both, at different heights
