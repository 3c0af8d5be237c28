"""The page of a server, in a browser: somebody tries an image, watches versions, and operates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import Chromium, find_chromium
from serving import TOKEN, Process, png, running

pytest.importorskip("fastapi")
pytestmark = pytest.mark.skipif(find_chromium() is None, reason="needs chromium")


@pytest.fixture(scope="module")
def learning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running("--state", str(tmp_path_factory.mktemp("state"))) as process:
        for _ in range(30):
            if process.get("versions")["candidate"] >= 3:
                break
            for start in range(0, 512, 32):
                process.predict(*range(start, start + 32))
        yield process


@pytest.fixture
def browser(learning: Process) -> Iterator[Chromium]:
    tab = Chromium()
    tab.screen(1280, 900)
    tab.send("Page.navigate", url=f"{learning.url}/docs")
    tab.wait("document.querySelectorAll('#routes tr').length > 5")
    tab.wait("document.querySelectorAll('#versions tr').length > 3")
    yield tab
    tab.close()


def words(browser: Chromium, selector: str) -> str:
    return str(browser.run(f"document.querySelector({selector!r}).innerText"))


def test_it_shows_the_state_and_all_routes(learning: Process, browser: Chromium) -> None:
    assert words(browser, "#what") == "acclimate:digits, recipe ent, live"
    assert "(answers)" in words(browser, "#versions")
    assert "learning" in words(browser, "#health")
    shown = words(browser, "#routes")
    assert all(path in shown for path in learning.get("openapi.json")["paths"])
    assert f"{learning.url}/predict?top=3" in words(browser, "#curl")


def test_an_image_is_classified_and_what_is_none_refused(
    learning: Process, browser: Chromium, tmp_path: Path
) -> None:
    for name, content, expected in (
        ("digit.png", png(0), "by version"),
        ("none.png", b"hello", "not an image"),
    ):
        (tmp_path / name).write_bytes(content)
        document = browser.send("DOM.getDocument")["root"]["nodeId"]
        field = browser.send("DOM.querySelector", nodeId=document, selector="#image")["nodeId"]
        browser.send("DOM.setFileInputFiles", nodeId=field, files=[str(tmp_path / name)])
        browser.run("document.querySelector('#try').requestSubmit()")
        browser.wait(f"document.querySelector('#answer').innerText.includes({expected!r})")


def test_operating_wants_the_token(learning: Process, browser: Chromium) -> None:
    def press(action: str, token: str) -> None:
        browser.run(f"document.querySelector('#token').value = {json.dumps(token)}")
        browser.run(f"document.querySelector('#operate [value={action}]').click()")

    press("reset", "wrong")
    browser.wait("document.querySelector('#done').className === 'bad'")
    assert "Bearer TOKEN" in words(browser, "#done")
    press("pause", TOKEN)
    browser.wait("document.querySelector('#done').innerText.startsWith('pause: done')")
    press("reset", TOKEN)
    browser.wait("document.querySelector('#done').innerText.startsWith('reset: done')")
    assert "reset, to 0" in words(browser, "#versions")
    assert learning.get("versions")["versions"][-1]["cause"] == "reset"
    press("resume", TOKEN)
    browser.wait("document.querySelector('#done').innerText.startsWith('resume: done')")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (768, "dark"), (390, "dark")])
def test_it_fits_a_desk_and_a_phone_and_asks_nobody_else(
    learning: Process, browser: Chromium, tmp_path: Path, width: int, scheme: str
) -> None:
    browser.screen(width, 900, scheme=scheme, phone=width < 600)
    assert browser.run("document.documentElement.scrollWidth") <= width
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 24, 29)")
    browser.screenshot(tmp_path / "shot.png")
    assert (tmp_path / "shot.png").stat().st_size > 15_000
    asked = [url for url in browser.requests() if not url.startswith("data:")]
    assert asked
    assert all(url.startswith(learning.url) for url in asked)
    assert not browser.complaints()
