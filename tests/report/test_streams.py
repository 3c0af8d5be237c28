"""Streams in a report: beside stationary runs, part by part, shift by shift."""

from __future__ import annotations

from dataclasses import replace

from acclimate.bench import Job, Result, Store
from acclimate.report.page import build_report
from report_store import rows, section, sweep


def test_streams_stand_beside_stationary_runs_and_are_not_averaged_with_them(tmp_path):
    still = sweep(models=["m"], corruptions=["fog"], recipes=["bn"], severities=(5,))
    flowing = [
        Result(
            job=replace(each.job, setting="online"),
            record={**each.record.to_dict(), "errors": {"online": 77.0, "final": 77.0}},
        )
        for each in still
    ]
    store = Store(tmp_path / "sweep.db")
    store.add_all([*still, *flowing])
    report = build_report(store)
    headline = rows(section(report, "results").tables[0])
    assert {row["setting"]: row["after %"][:4] for row in headline} == {
        "–": f"{still[0].error:.1f}",
        "online": "77.0",
    }
    shown = [figure.title for figure in section(report, "corruptions").figures]
    assert shown == ["m, stationary", "m, online"]
    assert {row["corruptions"] for row in rows(section(report, "details").tables[0])} == {
        "test",
        "test, online",
    }


def test_a_stream_shows_its_error_and_balance_part_by_part(tmp_path):
    job = Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/fog:5", setting="online")
    spans = [{"images": 50, "error": 40.0 - n, "largest": 0.1 + 0.04 * n} for n in range(20)]
    store = Store(tmp_path / "sweep.db")
    record = {"errors": {"online": 30.5, "final": 30.5}, "labelled": 1000, "spans": spans}
    store.add(Result(job=job, record=record))
    report = build_report(store)
    (error,) = section(report, "epochs").figures
    assert [row["top-1 error %"] for row in rows(error.table)][::19] == ["40.00", "21.00"]
    (balance,) = section(report, "balance").figures
    assert rows(balance.table)[-1]["most frequent prediction %"] == "86.00"


def test_a_stream_has_its_unadapted_errors_from_the_recipe_none(tmp_path):
    store = Store(tmp_path / "sweep.db")
    for recipe, error in (("none", 40.0), ("bn", 30.0)):
        job = Job(
            model="m", dataset="cifar10", recipe=recipe, shift="cifar/fog:5", setting="online"
        )
        store.add(Result(job=job, record={"errors": {"online": error, "final": error}}))
    (figure,) = section(build_report(store), "corruptions").figures
    (row,) = rows(figure.table)
    assert (row["unadapted"], row["bn"]) == ("40.0", "30.0")


def test_a_stream_through_several_shifts_shows_each(tmp_path):
    store = Store(tmp_path / "sweep.db")
    for recipe, gain in (("none", 0.0), ("bn", 10.0)):
        job = Job(
            model="m", dataset="cifar10", recipe=recipe, shift="cifar/test:5", setting="continual"
        )
        parts = {"fog": [40.0 - gain, 50.0 - gain], "snow": [30.0 - gain], "frost": [None]}
        errors = {"online": 40.0 - gain, "final": 40.0 - gain}
        store.add(Result(job=job, record={"errors": errors, "by_shift": parts}))
    (figure,) = section(build_report(store), "corruptions").figures
    found = {row["corruption"]: (row["unadapted"], row["bn"]) for row in rows(figure.table)}
    assert found == {"fog": ("45.0", "35.0"), "snow": ("30.0", "20.0")}
