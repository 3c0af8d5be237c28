"""Charts: one look for a recipe on a page, words for those who do not see them, and files."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from acclimate.errors import AcclimateError
from acclimate.report import charts
from acclimate.report.charts import SERIES, Curve, Look, axis, lines, png, svg
from acclimate.report.page import report_page
from acclimate.report.settings import Panel, Setting, looks
from report_store import section, sweep

PANEL = Panel("m", "", "cifar10", "", "cifar", 0, "test", 0)


def colours(figure):
    """Those of its series, by the first word of their names."""
    (scale,) = {
        str(layer["encoding"]["color"]["scale"])
        for layer in figure.spec["layer"]
        if "color" in layer["encoding"]
    }
    layer = figure.spec["layer"][-1]["encoding"]["color"]["scale"]
    assert str(layer) == scale
    return {n.split(" ")[0].rstrip(":"): c for n, c in zip(*layer.values(), strict=True)}


def figure():
    curves = [
        Curve("ent <a>", "ent", [(0, 20.0), (1, 15.0)]),
        Curve("ent <a>", "ent", [(0.5, 18.0)], online=True),
    ]
    drawn = {"ent": Look(SERIES[0], "circle", (1, 0))}
    words = {"name": "error", "title": "A & B", "description": "from 20 <down> to 15"}
    return lines(curves, drawn, **words, x=axis("epoch", 0, 1), y=axis("error %", 10, 25))


def test_a_figure_without_a_recipe_does_not_recolour_the_others(reported):
    less = sweep(models=["n"], corruptions=["fog"], recipes=["none", "rpl"])
    report = reported([*sweep(models=["m"], corruptions=["fog", "snow"]), *less])
    drawn = [f for f in report.figures if f.name.rstrip("-12") in (
        "error-by-corruption", "error-over-epochs", "reliability", "class-balance",
    )]  # fmt: skip
    assert len(drawn) == 8
    expected = dict(zip(("bn", "ent", "rpl"), SERIES, strict=False))
    expected |= {"none": "#888888", "unadapted": "#888888"}
    seen = [pair for each in drawn for pair in colours(each).items()]
    assert {(name, colour) for name, colour in seen} == set(expected.items())


def test_past_the_last_colour_marks_and_dashes_tell_recipes_apart():
    names = ["none", *(f"recipe-{n}" for n in range(len(SERIES) + 1))]
    seen = looks({PANEL: [Setting(name) for name in names]})
    assert len(set(seen.values())) == len(names)
    first, again = seen["recipe-0"], seen[names[-1]]
    assert first.colour == again.colour
    assert first.shape != again.shape
    assert first.dash != again.dash


def test_recipes_with_the_same_error_are_all_seen(reported):
    (bn,) = sweep(models=["m"], corruptions=["fog"], severities=(5,), recipes=["bn"])
    report = reported([bn, replace(bn, job=replace(bn.job, recipe="rotta"))])
    (figure,) = section(report, "corruptions").figures
    dots = figure.spec["layer"][-1]["encoding"]
    assert dots["yOffset"]["field"] == dots["color"]["field"] == "line"
    assert [row["line"] for row in figure.spec["data"]["values"]] == ["unadapted", "bn", "rotta"]


def test_a_chart_has_numbers_to_point_at_and_a_legend_to_click():
    first, *_, dots = figure().spec["layer"]
    assert first["params"][0]["bind"] == "legend"
    titles = [each["title"] for each in dots["encoding"]["tooltip"]]
    assert titles == ["line", "kind", "epoch", "error %"]


def test_a_file_has_words_and_is_the_same_every_time():
    drawn = svg(figure().file())
    root = ET.fromstring(drawn)
    words = {node.tag.rpartition("}")[2]: node.text for node in root[:2]}
    assert words == {"title": "A & B", "desc": "from 20 <down> to 15"}
    assert root.get("role") == "img"
    assert "ent <a>" in {node.text for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert "prefers-color-scheme:dark" in drawn
    assert drawn == svg(figure().file())


def test_a_png_is_light_and_has_words():
    image = np.asarray(Image.open(io.BytesIO(png(figure().file()))).convert("L"))
    assert image[0, 0] == 255
    assert (image < 100).sum() > 500


def test_names_with_control_characters_are_written_out_in_files(reported):
    (bn,) = sweep(models=["m"], corruptions=["fog"], severities=(5,), recipes=["bn"])
    report = reported([replace(bn, job=replace(bn.job, recipe="\x1b[2Jbn"))])
    (figure,) = section(report, "corruptions").figures
    drawn = svg(figure.spec)
    ET.fromstring(drawn)  # well-formed: XML has no such characters
    assert r"\x1b[2Jbn" in drawn
    assert png(figure.spec).startswith(b"\x89PNG")


def test_without_vl_convert_the_page_has_tables_and_files_are_refused(reported, monkeypatch):
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    with pytest.raises(AcclimateError, match=r"pip install 'acclimate\[report\]'"):
        svg(figure().file())
    page = report_page(reported(sweep(models=["m"], corruptions=["fog"], seeds=(0,))))
    assert "Data without charts: charts need vl-convert" in page
    assert "<td>fog</td>" in page
    assert 'class="chart"' not in page
