"""The page alone: small, harmless, and at home in a browser; skipped where there is no Chromium."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from acclimate.bench import Job, Result, Store
from acclimate.report.page import build_report, report_page
from report_store import DEV, TEST, full_store, sweep


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    page = report_page(build_report(full_store(folder / "full.db")))
    (folder / "report.html").write_text(page, encoding="utf-8")
    return folder / "report.html"


@pytest.fixture
def page(browser, file):
    browser.screen(1280, 900)
    browser.open(file)
    yield browser
    assert browser.complaints() == []


def without_vega(page: str) -> str:
    """What is ours of it: all but the script that draws charts."""
    return re.sub(r"<script>.*?</script>", "", page, count=1, flags=re.DOTALL)


def test_the_page_names_no_other_place(file):
    text = file.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\s\"'<]*", without_vega(text)) == []
    assert "default-src 'none'" in text
    assert "/*" not in text.split("<main>")[1].split("</main>")[0]


def test_names_in_a_store_are_words_and_nothing_else(tmp_path):
    store = Store(tmp_path / "odd.db")
    odd = '<img src=x onerror="alert(1)">&<!--sections-->'
    store.add_all(sweep(models=[odd], corruptions=["fog"], seeds=(0,)))
    store.add(Result.failed(Job(model=odd, dataset=odd, recipe="ent"), "<script>bad</script>"))
    text = without_vega(report_page(build_report(store)))
    assert "<img" not in text
    assert "<script>bad" not in text
    assert "&lt;img src=x" in text


def test_ten_thousand_results_make_a_page_below_two_megabytes(tmp_path):
    grid = [{"optimizer.lr": lr, "epochs": 10} for lr in (1e-4, 2e-4, 5e-4, 1e-3, 1e-2)]
    many = sweep(
        models=[f"acclimate:net-{n}" for n in range(8)],
        corruptions=[*TEST, *DEV],
        severities=(1, 3, 5),
        seeds=(0, 1),
        grid=grid,
    )
    # And a row of its own for each of another thousand.
    options = [{"optimizer.lr": 1e-4 * (1 + n)} for n in range(500)]
    many += sweep(models=["one"], corruptions=["fog"], severities=(1,), seeds=(0,), grid=options)
    assert len(many) > 10_000
    store = Store(tmp_path / "many.db")
    store.add_all(many)
    page = report_page(build_report(store))
    assert len(page.encode()) < 2_000_000
    assert "rows are left out here; narrow it with --where" in page
    assert "models and data; --where narrows the report to them" in page


def test_it_opens_alone_and_without_complaint(page, file):
    assert page.requests() == [file.as_uri()]
    assert page.run("document.querySelectorAll('section').length") == 11
    assert page.run("[...document.querySelectorAll('nav a')].every((a) => "
                    "document.querySelector(a.getAttribute('href')))")  # fmt: skip


def column(page, table, place):
    return page.run(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => !row.hidden)"
        f".map((row) => row.cells[{place}].textContent)"
    )


def test_a_head_sorts_up_then_down_with_missing_numbers_last(page):
    head = "document.querySelector('#headline th:nth-child(5)')"
    assert page.run(f"{head}.textContent") == "online %"
    page.run(f"{head}.querySelector('button').click()")
    up = column(page, "headline", 4)
    assert page.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    page.run(f"{head}.querySelector('button').click()")
    down = column(page, "headline", 4)
    assert page.run(f"{head}.getAttribute('aria-sort')") == "descending"
    numbers = [[float(v.split()[0]) for v in values if v != "–"] for values in (up, down)]
    assert numbers[0] == sorted(numbers[0])
    assert numbers[1] == sorted(numbers[1], reverse=True)
    assert up[-1] == down[-1] == "–"


def test_sorting_goes_by_key_too(page):
    page.run("document.querySelector('#headline th:nth-child(2) button').focus()")
    page.key(" ")
    assert column(page, "headline", 1) == sorted(column(page, "headline", 1))
    assert page.run("document.activeElement.parentElement.getAttribute('aria-sort')") == "ascending"


def test_a_filter_keeps_rows_with_every_word_and_says_how_many(page):
    page.run("document.querySelector('#headline input').focus()")
    page.send("Input.insertText", text="augmix RPL")
    assert set(column(page, "headline", 1)) == {"rpl"}
    assert set(column(page, "headline", 0)) == {"acclimate:wrn-40-2-augmix-cifar10"}
    assert page.run("document.querySelector('#headline output').value") == "2 of 16 rows"
    page.send("Input.insertText", text=" nowhere")
    assert column(page, "headline", 1) == []


def test_figures_have_words_and_data_for_those_who_do_not_see_them(page):
    assert page.run(
        "[...document.querySelectorAll('figure')].every((f) => f.querySelector('h3').textContent"
        " && f.querySelector('.unseen').textContent && f.querySelector('details tbody tr')"
        " && f.querySelector('[role=graphics-document]').ariaLabel)"
    )
    assert page.run("[...document.querySelectorAll('input')].every((i) => i.ariaLabel)")
    assert page.run(
        "[...document.querySelectorAll('.scroll')].every((s) => s.tabIndex === 0 && s.ariaLabel)"
    )


def mouse(page, kind, found):
    """Do something with the mouse in the middle of an element, once it is in view."""
    page.run(f"{found}.scrollIntoView({{block: 'center'}})")
    box = page.run(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
                   f"({found}.getBoundingClientRect())")  # fmt: skip
    where = {"x": box[0], "y": box[1], "button": "left" if kind != "mouseMoved" else "none"}
    page.send("Input.dispatchMouseEvent", type=kind, clickCount=1, **where)


def test_a_mark_tells_its_numbers_and_a_legend_shows_one_line_alone(page):
    chart = "document.querySelector('#epochs .chart')"
    dots = f"[...{chart}.querySelectorAll('.mark-symbol.role-mark path')]"
    mouse(page, "mouseMoved", f"{dots}.at(-1)")
    tooltip = page.run("document.querySelector('#vg-tooltip-element').innerText")
    assert "rpl (epochs=6" in tooltip
    assert "top-1 error %" in tooltip
    entry = (
        f"[...{chart}.querySelectorAll('.role-legend text')].find((e) => e.textContent === 'bn')"
    )
    for kind in ("mousePressed", "mouseReleased"):
        mouse(page, kind, entry)
    assert set(page.run(f"{dots}.map((e) => e.getAttribute('opacity'))")) == {"0.1", "1"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk_in_light_and_dark(page, file, fits, width, scheme):
    page.screen(width, 900, scheme=scheme, phone=width < 500)
    page.open(file)
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    wide = (
        "[...document.querySelectorAll('.chart svg, p, h1, h2, h3, .scroll, .checks')]"
        ".filter((e) => "
        f"e.getBoundingClientRect().right > {width} || e.getBoundingClientRect().left < 0)"
    )
    assert page.run(f"{wide}.map((e) => e.outerHTML.slice(0, 80))") == []
    fits(page, width, scheme)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_names_of_many_recipes_can_be_read(browser, tmp_path, scheme):
    """More than fit into one chart have a small one each, under their names."""
    store, found = Store(tmp_path / "many.db"), []
    for result in sweep(models=["acclimate:net"], corruptions=["fog"], seeds=(0,)):
        if result.job.recipe == "ent":
            jobs = [replace(result.job, recipe=f"mine-{number}") for number in range(12)]
            found += [replace(result, job=job) for job in jobs]
    store.add_all(found)
    path = tmp_path / "many.html"
    path.write_text(report_page(build_report(store)), encoding="utf-8")
    browser.screen(1280, 900, scheme=scheme)
    browser.open(path)
    browser.wait("document.querySelectorAll('#epochs svg text').length > 12")
    names = (
        "[...document.querySelectorAll('#epochs text')].filter(e => /^mine-/.test(e.textContent))"
    )
    inks = browser.run(f"{names}.map(e => getComputedStyle(e).fill)")
    assert len(inks) == 12
    for ink in inks:
        brightness = sum(int(part) for part in re.findall(r"\d+", ink)[:3]) / 3
        assert brightness > 150 if scheme == "dark" else brightness < 100
    titles = "[...document.querySelectorAll('#balance .role-axis-title text')]"
    heights = browser.run(f"{titles}.map(e => e.getBoundingClientRect().height)")
    assert max(heights) <= 110  # those of one row do not run into the next
    for width, columns in ((1280, 6), (390, 2)):
        browser.screen(width, 900, scheme=scheme, phone=width < 500)
        browser.open(path)
        browser.wait("document.querySelectorAll('#epochs svg text').length > 12")
        left = f"{names}.map(e => Math.round(e.getBoundingClientRect().left))"
        assert len(set(browser.run(left))) == columns
        assert browser.run("document.documentElement.scrollWidth") <= width
