"""Plots and tables of a page show the same means: over severities, then corruptions, then seeds."""

from __future__ import annotations

import pytest

from acclimate.experiments import Job, Result, Store
from acclimate.reporting.report_build import build_report
from acclimate.reporting.report_means import mean_error
from acclimate.reporting.report_settings import panels
from acclimate.reporting.report_shown import choose

ERRORS = {"fog:5": 32.0, "gaussian_noise:5": 90.0, "gaussian_noise:3": 50.0}
MEAN = 51.0  # of 32 and 70; of all three it is 57.33


def runs(recipe, *, lr=None, seed=0, more=0.0):
    for shift, error in ERRORS.items():
        options = () if lr is None else (("optimizer.lr", lr),)
        job = Job(
            model="m", dataset="cifar10", recipe=recipe, shift=f"cifar/{shift}", options=options,
            seed=seed,
        )  # fmt: skip
        after = error + more
        errors = {"unadapted": error, "final": after}
        record = {"errors": errors}
        if recipe == "ent":
            record["errors"] = {**errors, "start": error, "after_epoch": [after],
                                "before_update": [after]}  # fmt: skip
            record["recipe"] = {"optimizer": {"lr": lr}}
            record["balance"] = [{"largest": after / 100, "unused": 0}]
        yield Result(job=job, record=record)


@pytest.fixture
def report(tmp_path):
    store = Store(tmp_path / "uneven.db")
    store.add_all([*runs("none"), *runs("ent", lr=0.1), *runs("ent", lr=1.0, more=5.0)])
    return build_report(store)


def entries(report, section, column):
    part = next(each for each in report.sections if each.name == section)
    table = part.figures[0].table if part.figures else part.tables[0]
    place = list(table.header).index(column)
    return [row[place].value for row in table.rows]


def test_tables_plots_and_the_grid_agree(report):
    assert entries(report, "results", "after %") == [MEAN, MEAN]
    assert set(entries(report, "epochs", "top-1 error %")) == {MEAN}
    assert entries(report, "balance", "most frequent answer %") == [pytest.approx(MEAN)]
    assert entries(report, "rates", "error %") == [MEAN, MEAN + 5]
    assert entries(report, "rates", "unadapted %") == [MEAN, MEAN]
    assert entries(report, "rates", "start %") == [MEAN, MEAN]


def test_a_setting_is_chosen_by_the_mean_that_is_shown():
    # By the plain mean of the three the other would be chosen.
    lower_on_noise = list(runs("ent", lr=0.1))
    errors = (30.0, 92.0, 51.5)
    lower_on_fog = [
        Result(job=one.job, record={"errors": {"final": error}})
        for one, error in zip(runs("ent", lr=1.0), errors, strict=True)
    ]
    found = panels([*lower_on_noise, *lower_on_fog])
    (panel,) = found
    (chosen,) = choose(panel, found)
    assert dict(chosen.setting.options) == {"optimizer.lr": 1.0}


def test_seeds_count_the_same_though_one_ran_on_less():
    first, second = list(runs("ent", lr=0.1)), list(runs("ent", lr=0.1, seed=1))[:1]
    assert mean_error([*first, *second]) == (MEAN + 32.0) / 2
    assert mean_error([]) is None
