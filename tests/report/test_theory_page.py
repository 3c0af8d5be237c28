"""The page computes what Python computes, answers to mouse and keys, and asks the net for nothing.

In headless Chromium, and the model alone in node; each is skipped where it is not installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from acclimate.report import theory as pages
from acclimate.report.theory import theory_page
from acclimate.theory import simulate, will_collapse

MODEL = Path(pages.__file__).parent / "theory_assets" / "model.js"
BASE = {"tauS": 0.4, "tauT": 1.0, "stopGradient": True, "q": 0.0, "lr": 0.1, "momentum": 0.9,
        "steps": 400, "start": [0.5, -0.5]}  # fmt: skip
CASES = {
    "collapses": {},
    "grows": {"tauS": 2.0},
    "on the line": {"tauS": 1.0},
    "hard labels": {"tauT": 0.0, "tauS": 1.0},
    "entropy": {"stopGradient": False, "tauS": 1.0},
    "entropy, collapses": {"stopGradient": False},
    "entropy, from far out": {"stopGradient": False, "start": [1.3, -0.9]},
    "entropy, one of two": {"stopGradient": False, "start": [1.3, -0.5], "steps": 200},
    "entropy, hard labels": {"stopGradient": False, "tauT": 0.0},
    "no momentum, other start": {"momentum": 0.0, "start": [-0.6, 0.3]},
    "slow": {"lr": 0.001, "start": [0.0, 2.5]},
    "steps too long": {"lr": 1.0, "tauS": 0.05},
    "saturated": {"tauS": 0.003, "tauT": 0.01},
    "robust": {"q": 0.8},
    "robust, collapses": {"q": 0.3, "steps": 2000},
    "robust entropy": {"q": 0.5, "stopGradient": False, "tauS": 0.2},
    "robust, hard labels": {"q": 0.8, "tauT": 0.0},
    "robust, never collapses": {"q": 1.0, "tauS": 0.05},
}


def settings(case: str) -> dict[str, object]:
    return BASE | CASES[case]


def node(script: str) -> object:
    done = subprocess.run(
        ["node", "-e", f"console.log(JSON.stringify({script}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "theory.html"
    path.write_text(theory_page(), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, file):
    browser.screen(1200, 1000)
    browser.open(file)
    browser.wait("map.done")
    yield browser
    assert browser.complaints() == []


@pytest.fixture(scope="module", params=["chromium", "node"])
def answers(request, file):
    """By case: path, prediction and sentence, as JavaScript has them."""
    script = (
        f"Object.fromEntries(Object.entries({json.dumps({c: settings(c) for c in CASES})}).map("
        "([name, m]) => { const path = trajectory(m); return [name, {path: Array.from(path), "
        "rule: willCollapse(m), sentence: explain(m, path), "
        "end: outcome(m.start, [path.at(-2), path.at(-1)]), "
        "ends: m.start.map((y) => settle(y, m.tauS, m.tauT, m))}]; }))"
    )
    if request.param == "chromium":
        browser = request.getfixturevalue("browser")
        browser.open(file)
        return browser.run(script)
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    return node(
        f"(({{explain, outcome, settle, trajectory, willCollapse}}) => {script})"
        f"(require('{MODEL}'))"
    )


@pytest.mark.parametrize("case", CASES)
def test_the_path_is_that_of_python(answers, case):
    m = settings(case)
    options = {name: m[name] for name in ("lr", "momentum", "q", "start", "steps")}
    run = simulate(m["tauS"], m["tauT"], stop_gradient=m["stopGradient"], points=np.eye(2),
                   keep=m["steps"], **options)  # fmt: skip
    path = np.array(answers[case]["path"]).reshape(-1, 2)
    np.testing.assert_allclose(path, run.trajectory, rtol=1e-9, atol=1e-6)
    end = answers[case]["end"]
    assert (end["collapsed"], end["flipped"]) == (bool(run.collapsed), bool(run.flipped))
    # What the map shows stops early, at rest or far out, and comes to the same verdict.
    ends, start = np.abs(answers[case]["ends"]), np.abs(m["start"]).max()
    assert (ends.max() < 0.1 * start) == bool(run.collapsed)
    grown = np.abs(run.final) > 10 * start
    np.testing.assert_allclose(ends[~grown], np.abs(run.final)[~grown], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_proposition_has_the_words_of_python(answers, case):
    m = settings(case)
    told = will_collapse(m["tauS"], m["tauT"], m["stopGradient"], q=m["q"])
    assert answers[case]["rule"] == {"collapses": bool(told), "reason": told.reason}


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("collapses", "the model has collapsed"),
        ("grows", "the model has become more confident"),
        ("on the line", "say the same, so nothing pulls"),
        ("on the line", "Proposition 1 says nothing, since τs = 1 is on the line"),
        ("entropy, from far out", "this start is too far out"),
        ("steps too long", "The steps are too long"),
        ("saturated", "sigmoids are saturated"),
        ("slow", "It takes longer than this"),
    ],
)
def test_the_sentence_says_what_happened_and_why(answers, case, says):
    assert says in answers[case]["sentence"]


def test_the_page_opens_alone_and_without_complaint(page, file):
    assert page.requests() == [file.as_uri()]
    assert "Proposition 1 predicts collapse" in page.run("sentence.textContent")
    assert page.run("[...map.values].filter(Number.isNaN).length") == 0


def test_the_map_is_the_one_that_python_simulates(page):
    shown = np.array(page.run("[...map.values].map((v) => v === Infinity ? 9 : v)")).reshape(60, 60)
    t = np.array(page.run("[...Array(60).keys()].map(temperature)"))
    run = simulate(t[:, None], t, stop_gradient=True, start=(0.5, 0.5))
    assert ((shown == -1) != run.collapsed).mean() < 0.005  # cells that bounce are chaotic
    calm = t[:, None] > t
    grew = np.log10(np.abs(run.final).max(axis=-1) / 0.5)
    np.testing.assert_allclose(shown[calm], np.clip(grew[calm], -1, 1), atol=1e-4)


def test_a_slider_changes_path_sentence_and_label(page):
    before = page.run("[path.at(-2), sentence.textContent, plane.getAttribute('aria-label')]")
    page.run("tauS.value = 0.5; tauS.dispatchEvent(new Event('input', {bubbles: true}))")
    after = page.run("[path.at(-2), sentence.textContent, plane.getAttribute('aria-label')]")
    assert all(a != b for a, b in zip(before, after, strict=True))
    assert page.run("model.tauS") == 3.16
    assert "has become more confident" in after[1]
    assert page.run("document.querySelector('output[for=tauS]').value") == "3.16"


def test_every_input_has_a_label_and_does_something(page):
    inputs = page.run("[...document.querySelectorAll('input')].map((i) => [i.id, i.labels.length])")
    assert dict(inputs) == dict.fromkeys(
        ["tauS", "tauT", "q", "stopGradient", "lr", "momentum", "steps", "yk", "yl"], 1
    )
    for name, _ in inputs:
        before = page.run("JSON.stringify([model, sentence.textContent, path.at(-1), path.at(-2)])")
        page.run(f"document.getElementById('{name}').focus()")
        page.key(
            " " if name == "stopGradient" else "ArrowLeft" if name == "steps" else "ArrowRight"
        )
        if name == "q":
            page.wait("map.done")
        after = page.run("JSON.stringify([model, sentence.textContent, path.at(-1), path.at(-2)])")
        assert after != before, name


def test_no_label_is_cut_off_however_far_the_outputs_go(page):
    page.run("change({tauS: 0.001, tauT: 10, lr: 3.16, momentum: 0.99, steps: 10000})")
    for axes, canvas in (("planeFrame()", "plane"), ("phaseFrame()", "phase")):
        words, right, width = page.run(
            f"(() => {{ const f = {axes}, [value, words] = f.x.ticks.at(-1), "
            f"ctx = {canvas}.getContext('2d'); return [words, "
            f"f.px(value) + ctx.measureText(words).width / 2, {canvas}.clientWidth]; }})()"
        )
        assert right <= width, words
    assert page.run("tick(200000) + ' ' + tick(-1e4) + ' ' + tick(5000)") == "2e5 -1e4 5000"


def test_presets_by_key_and_hard_labels(page):
    page.run("document.querySelector('[data-preset=hard]').focus()")
    page.key(" ")
    assert page.run("[model.tauT, document.querySelector('output[for=tauT]').value]") == [
        0,
        "0 (hard labels)",
    ]
    assert page.run("document.activeElement.getAttribute('aria-pressed')") == "true"


def test_markers_can_be_dragged(page):
    def place(canvas: str, marker: str) -> tuple[float, float]:
        box, spot = page.run(
            f"(() => {{ const b = {canvas}.getBoundingClientRect(), f = {canvas}Frame(); "
            f"return [[b.left, b.top], {marker}]; }})()"
        )
        return box[0] + spot[0], box[1] + spot[1]

    start = place("plane", "[f.px(model.start[0]), f.py(model.start[1])]")
    page.drag(start, place("plane", "[f.px(-0.75), f.py(0.25)]"))
    np.testing.assert_allclose(page.run("model.start"), [-0.75, 0.25], atol=0.02)
    page.drag(place("phase", "marker(f)"), place("phase", "[f.px(-1), f.py(0.5)]"))
    np.testing.assert_allclose(page.run("[model.tauT, model.tauS]"), [0.1, 3.16], rtol=0.05)
    assert "no collapse" in page.run("sentence.textContent")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_a_phone_and_a_desk_in_light_and_dark(page, file, fits, width, scheme):
    page.screen(width, 900, scheme=scheme, phone=width < 500)
    page.open(file)
    page.wait("map.done")
    fits(page, width, scheme)


def test_the_page_is_small_and_names_no_other_place():
    text = theory_page()
    assert len(text.encode()) < 50_000
    assert "http://" not in text
    assert "https://" not in text


def test_it_says_what_the_outputs_the_loss_and_a_temperature_are(page):
    words = page.run("[...document.querySelectorAll('.words dt')].map((each) => each.textContent)")
    assert words == ["The outputs", "The loss", "A temperature", "Why it can collapse"]
    page.run("document.querySelector('.words a').click()")
    assert page.run("document.querySelector(':target h2').textContent") == "The derivation"


def test_on_a_phone_the_words_make_room_for_the_sliders(page, file):
    page.screen(390, 900, phone=True)
    page.open(file)
    assert page.run("document.querySelector('.words').open") is False
