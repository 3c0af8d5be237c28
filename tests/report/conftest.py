from __future__ import annotations

import pytest

from acclimate.bench import Store
from acclimate.report.page import build_report
from chromium import Chromium, find_chromium


@pytest.fixture
def reported(tmp_path):
    """The report of a store with some results."""

    def build(results, **more):
        store = Store(tmp_path / f"{len(list(tmp_path.iterdir()))}.db")
        store.add_all(results)
        return build_report(store, **more)

    return build


@pytest.fixture(scope="module")
def browser():
    if find_chromium() is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    tab = Chromium()
    yield tab
    tab.close()


@pytest.fixture
def fits(tmp_path):
    """Checks that an open page is as wide as its screen and on the right paper."""

    def check(page, width, scheme):
        assert page.run("document.documentElement.scrollWidth") <= width
        paper = page.run("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 24, 29)")
        page.screenshot(tmp_path / "shot.png")
        assert (tmp_path / "shot.png").stat().st_size > 20_000

    return check
