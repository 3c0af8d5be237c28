"""The page of one adaptation."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from PIL import Image

import acclimate
from acclimate.data import open_images
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.guard.drift import layer_drift
from acclimate.models.networks.digits import load_digits_model
from acclimate.report.run import SHOWN, run_page, thumbnail
from chromium import Chromium, find_chromium

IMAGES, LABELS = (part[:200] for part in digits("held-out"))
BLURRED = corrupt(IMAGES, "gaussian_blur", 4, preset="cifar", seed=0)
MODEL = load_digits_model()


@pytest.fixture(scope="module")
def source():
    return open_images(BLURRED, preprocessing=MODEL.preprocessing, labels=LABELS)


@pytest.fixture(scope="module")
def result(source):
    return acclimate.adapt(MODEL, source, speed="exact", progress=False)


@pytest.fixture(scope="module")
def page(result, source):
    return run_page(result, source, layer_drift(MODEL.model, source))


def words(page: str) -> str:
    """What a reader sees of it, without the style."""
    text: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            text.append(data)

    Reader().feed(re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))
    return " ".join(" ".join(text).split())


def test_the_verdict_the_estimate_and_the_plan(page, result):
    seen = words(page)
    assert f"{result.verdict.word} : {result.verdict.reason}" in seen
    before, after = result.estimated_error.before, result.estimated_error.after
    assert f"{before.value:.0f} % ({before.low:.0f} to {before.high:.0f})" in seen
    assert f"{after.value:.0f} % ({after.low:.0f} to {after.high:.0f})" in seen
    assert f"before, by labels {result.error_before:.1f} %" in seen
    for reason in result.record.plan:
        assert reason in seen


def test_the_most_doubtful_of_the_changed_images_come_first(page, result):
    files = re.findall(r'<p class="file">(.*?)</p>', page)
    doubt = {
        name: float(probability)
        for name, probability, changed in zip(
            result.names, result.probabilities, result.changed, strict=True
        )
        if changed
    }
    assert files == sorted(doubt, key=lambda name: doubt[name])[:SHOWN]
    assert f"{len(doubt)} of 200 predictions changed" in page
    assert f"{len(doubt) - SHOWN} more are in predictions.csv" in page


def test_labels_say_which_changes_are_right(page):
    assert re.findall(r'<p class="(right|wrong)">(✓|✗) labelled \d', page)


def test_drift_has_a_bar_for_each_layer(page, source):
    seen = words(page)
    layers = layer_drift(MODEL.model, source)
    assert len(layers) == 3
    assert " ".join(f"{layer.name} {layer.distance:.2f}" for layer in layers) in seen


def test_the_page_needs_nothing_else(page):
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)


@pytest.mark.parametrize("shape", [(3, 224, 160), (1, 8, 8), (4, 30, 60)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_thumbnails_are_small_jpegs_of_the_same_proportions(shape, dtype):
    torch.manual_seed(0)
    noise = torch.rand(shape)
    uri = thumbnail((noise * 255).to(torch.uint8) if dtype == torch.uint8 else noise * 6 - 3)
    content = base64.b64decode(uri.partition(",")[2])
    image = Image.open(io.BytesIO(content))
    assert image.format == "JPEG"
    assert 100 < max(image.size) <= 144
    assert image.width / image.height == pytest.approx(shape[2] / shape[1], rel=0.02)
    assert len(content) < 20_000


def test_names_of_others_are_escaped(result, source):
    hostile = ["<script>alert(1)</script>\x1b.png"] * len(result.names)
    page = run_page(replace(result, names=hostile), source)
    assert "<script" not in page
    assert "\\x1b.png" in page


def test_where_nothing_changed_or_nobody_asked_it_says_so(source):
    none = acclimate.adapt(MODEL, source, "none", progress=False)
    assert "None: 0 of 200 predictions changed." in words(run_page(none, source))
    off = acclimate.adapt(MODEL, source, "bn", guard="off", estimate=False, progress=False)
    assert "changed: 0" not in run_page(off, source)
    few = acclimate.adapt(MODEL, BLURRED[:20], "bn", guard="off", progress=False)
    unlabelled = open_images(BLURRED[:20], preprocessing=MODEL.preprocessing)
    seen = words(run_page(few, unlabelled))
    assert "The unadapted model was not asked: the guard was off." in seen
    assert "It cannot be estimated, and no labels are known." in seen


def test_it_says_which_model_was_not_returned(source):
    few = (source.labels == 1).nonzero().squeeze(1)
    one = open_images(IMAGES[few.numpy()].repeat(3, 0), preprocessing=MODEL.preprocessing)
    returned = {}
    for guard in ("rollback", "observe"):
        run = acclimate.adapt(MODEL, one, "ent", guard=guard, speed="exact", progress=False)
        assert not run.verdict.returns_adapted
        returned[guard] = words(run_page(run, one))
    assert "adapted, not returned" in returned["rollback"]
    assert "The unadapted model is returned." in returned["rollback"]
    assert "not returned" not in returned["observe"]


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium")
def test_it_fits_a_phone_and_a_desk_and_asks_for_nothing(page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page)
    browser = Chromium()
    try:
        for width, scheme in ((1280, "light"), (400, "dark")):
            browser.screen(width, 1000, scheme=scheme, phone=width < 600)
            browser.open(path)
            assert browser.run("document.documentElement.scrollWidth") <= width
            bars = "[...document.querySelectorAll('.track')].map(bar => bar.clientWidth)"
            assert browser.run(f"Math.min(...{bars})") >= 60
            assert browser.run("[...document.images].every(i => i.complete && i.naturalWidth)")
            assert [url for url in browser.requests() if not url.startswith("data:")] == [
                path.as_uri()
            ]
            assert not browser.complaints()
        dark = browser.run("getComputedStyle(document.body).backgroundColor")
        assert dark == "rgb(22, 24, 29)"
    finally:
        browser.close()
