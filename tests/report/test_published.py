"""Published numbers beside measured ones: which are there, and how far they are apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acclimate.bench import Result, Store
from acclimate.report.page import build_report
from acclimate.report.published import PublishedPoint, published_figure, published_points
from acclimate.report.settings import choose, panels
from report_store import full_store, rows, section, sweep


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return full_store(tmp_path_factory.mktemp("report") / "full.db")


def test_the_numbers_of_the_paper_whose_jobs_are_there_are_compared(store):
    points = published_points(store.results())
    assert points
    assert all("WRN-40-2" in point.label for point in points)
    assert {point.small for point in points} == {
        "1,000 of 10,000 images a shift, severities 3, 5 only"
    }
    assert published_points(sweep(models=["some:other"], corruptions=["fog"])) == []


def test_streams_beside_them_take_no_number_away():
    model, rates = "acclimate:wrn-40-2-augmix-cifar10", [{"optimizer.lr": 1e-4, "epochs": 2}]
    once = sweep(models=[model], recipes=["ent"], seeds=(0,), grid=rates, severities=range(1, 6))
    streams = [
        Result(
            job=replace(each.job, setting="online", options=(("optimizer.lr", 1e-3),)),
            record=each.record,
        )
        for each in once
    ]

    def points(results):
        found = panels(results)
        return published_points(results, [each for panel in found for each in choose(panel, found)])

    assert len(points([*once, *streams])) == len(points(once)) > 0


def test_only_numbers_of_all_images_have_a_distance():
    whole = PublishedPoint(label="a", published=10.0, measured=12.0)
    small = PublishedPoint(label="b", published=10.0, measured=40.0, small="severity 5 only")
    said = [published_figure(points).description for points in ([whole], [whole, small], [small])]
    assert "They differ by 2.0 on average, by 2.0 at most." in said[0]
    assert "Those measured in full (1 of 2) differ by 2.0 on average" in said[1]
    assert "None is measured on all that the paper's number is of" in said[2]
    assert all("30.0" not in each for each in said)


def test_settings_that_were_chosen_on_hold_out_images_are_compared(tmp_path):
    rates = [{"optimizer.lr": rate, "epochs": 2} for rate in (1e-4, 1e-3)]
    model = "acclimate:wrn-40-2-augmix-cifar10"
    tried = {"models": [model], "recipes": ["ent"], "seeds": (0,), "severities": (1, 2, 3, 4, 5)}
    store = Store(tmp_path / "tuned.db")
    on_test = sweep(**tried, grid=rates, corruptions=["fog"])
    store.add_all(on_test)
    # Which of the two is better is only told by what is shown.
    assert not section(build_report(store), "published").figures
    store.add_all(sweep(**tried, grid=rates, corruptions=["spatter"]))
    store.add_all(sweep(**tried, corruptions=["fog"]))  # as it is, which nobody chose
    (figure,) = section(build_report(store), "published").figures
    (point,) = rows(figure.table)
    assert point["cell"] == "tbl:detailed-corruptions-cifarc: WRN-40-2 AM, ENT, fog (error)"
    errors = [r.error for r in on_test if dict(r.job.options) == rates[1]]
    assert point["measured"] == f"{sum(errors) / 5:.1f}"


def test_other_published_numbers_can_be_handed_in(store):
    points = [PublishedPoint(label="mine", published=10.0, measured=12.5)]
    (figure,) = section(build_report(store, published=points), "published").figures
    assert rows(figure.table)[0]["difference"] == "2.5"
