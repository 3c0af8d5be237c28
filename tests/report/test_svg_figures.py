"""The small SVG room: what it draws, and that it says so in words too."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from acclimate.errors import AcclimateError
from acclimate.report.axes import Axis, Frame, axes, inside
from acclimate.report.colours import CHANGE, ERROR, shade
from acclimate.report.marks import arrows, cells, colour_bar, dots, heat_map, legend, line
from acclimate.report.png import png, why_no_png
from acclimate.report.svg import document, text

NS = "{http://www.w3.org/2000/svg}"
FRAME = Frame(
    left=40,
    top=20,
    width=100,
    height=100,
    x=Axis(label="τ <here>", low=0.01, high=100, log=True),
    y=Axis(label="error", low=0, high=50),
)


def figure(*marks: str) -> str:
    parts = [inside(FRAME, marks), axes(FRAME, title="a & b")]
    return document(parts, width=160, height=160, title="A figure", description="in words")


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def test_a_figure_is_xml_with_a_title_and_a_description():
    root = parse(figure())
    assert root.get("role") == "img"
    assert root[0].text == "A figure"
    assert root[1].text == "in words"
    words = [node.text for node in root.iter(f"{NS}text")]
    assert {"τ <here>", "a & b", "0.01", "100", "50"} <= set(words)


def test_dark_paper_follows_the_reader_and_nothing_is_fetched():
    svg = figure(heat_map(FRAME, [[0.0, 1.0]], ERROR, low=0, high=1))
    assert "prefers-color-scheme:dark" in svg
    links = re.findall(r'(?:href|src|url)\s*[=(]\s*"?([^")]+)', svg)
    assert links
    assert all(link.startswith("data:") for link in links)


def test_values_land_where_the_axes_say():
    root = parse(figure(line(FRAME, [0.01, 1, 100], [0, 25, 50], colour="#000")))
    polyline = next(root.iter(f"{NS}polyline"))
    assert polyline.get("points") == "0,100 50,50 100,0"
    circle = next(parse(figure(dots(FRAME, [1], [50], colour="#000"))).iter(f"{NS}circle"))
    assert (circle.get("cx"), circle.get("cy")) == ("50", "0")


def test_a_line_at_rest_is_not_written_twice():
    drawn = line(FRAME, np.full(1000, 1.0), np.full(1000, 25.0), colour="#000")
    assert len(drawn) < 120


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [(0, 1, "0 0.2 0.4 0.6 0.8 1"), (-1.5, 1.5, "-1 0 1"), (0, 37, "0 10 20 30")],
)
def test_ticks_are_round_numbers(low, high, labels):
    axis = Axis(label="", low=low, high=high)
    assert " ".join(words for _, words in axis.ticks()) == labels


def test_an_axis_that_cannot_be_is_refused():
    with pytest.raises(AcclimateError, match="expected 0 < low < high, got 0, 1"):
        Axis(label="", low=0, high=1, log=True)


def test_a_heat_map_has_its_first_row_at_the_bottom():
    values = np.arange(6.0).reshape(2, 3)
    image = next(parse(figure(heat_map(FRAME, values, CHANGE, low=0, high=5))).iter(f"{NS}image"))
    pixels = Image.open(io.BytesIO(base64.b64decode(image.get("href").split(",")[1])))
    np.testing.assert_array_equal(np.asarray(pixels), shade(values[::-1] / 5, CHANGE))


def test_cells_of_any_width_and_none_where_there_is_no_value():
    drawn = cells(FRAME, [0.01, 1, 100], [0, 10, 50], [[1, np.nan], [2, 3]], CHANGE, low=0, high=3)
    rects = list(parse(drawn).iter("rect"))
    places = [tuple(r.get(k) for k in ("x", "y", "width", "height")) for r in rects]
    assert places == [("0", "80", "50", "20"), ("0", "0", "50", "80"), ("50", "0", "50", "80")]
    assert [r[0].text for r in rects] == ["1", "2", "3"]


def test_an_arrow_points_where_the_field_does_and_nowhere_if_there_is_none():
    flat = Frame(
        left=0,
        top=0,
        width=100,
        height=100,
        x=Axis(label="", low=-1, high=1),
        y=Axis(label="", low=-1, high=1),
    )
    up = arrows(flat, [0], [0], [0], [1e-9], length=10)
    assert 'd="M50.0 55.0l0.0 -10.0' in up
    assert "M" not in re.search(r' d="([^"]*)"', arrows(flat, [0], [0], [0], [0]))[1]


def test_legends_name_their_colours():
    key = legend(0, 0, [("#123456", "6 4", "with dashes")])
    assert 'stroke="#123456"' in key
    assert 'stroke-dasharray="6 4"' in key
    bar = colour_bar(0, 0, 64, ERROR, [(0.0, "good"), (1.0, "bad")])
    rects = list(parse(bar).iter("rect"))
    assert (rects[0].get("fill"), rects[-1].get("fill")) == (ERROR[0], ERROR[-1])


@pytest.mark.skipif(why_no_png() is not None, reason=str(why_no_png()))
def test_png_has_the_size_the_colours_and_the_words():
    svg = document(
        [text(5, 30, "MMMM")], width=60, height=40, title="words", description="four letters"
    )
    image = np.asarray(Image.open(io.BytesIO(png(svg, zoom=2))).convert("L"))
    assert image.shape == (80, 120)
    assert image[0, 0] == 255  # light, whatever the reader's system
    assert (image < 100).sum() > 50


def test_without_resvg_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr("acclimate.report.png.find_spec", lambda name: None)
    with pytest.raises(AcclimateError, match=r"pip install 'acclimate\[plots\]'"):
        png("<svg/>")
