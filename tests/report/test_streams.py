"""Streams in a report: beside stationary runs, part by part, shift by shift."""

from __future__ import annotations

from dataclasses import replace

from acclimate.bench import Job, Result
from report_store import headline, rows, section, sweep


def test_streams_stand_beside_stationary_runs_and_are_not_averaged_with_them(reported):
    still = sweep(models=["m"], corruptions=["fog"], recipes=["bn"], severities=(5,))
    flowing = [
        Result(
            job=replace(each.job, setting="online"),
            record={**each.record.to_dict(), "errors": {"online": 77.0, "final": 77.0}},
        )
        for each in still
    ]
    report = reported([*still, *flowing])
    after = {row["setting"]: row["after %"][:4] for row in headline(report)}
    assert after == {"–": f"{still[0].error:.1f}", "online": "77.0"}
    shown = [figure.title for figure in section(report, "corruptions").figures]
    assert shown == ["m, stationary", "m, online"]
    assert {row["corruptions"] for row in rows(section(report, "details").tables[0])} == {
        "test",
        "test, online",
    }


def test_a_stream_shows_its_error_and_balance_part_by_part(reported):
    job = Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/fog:5", setting="online")
    spans = [{"images": 50, "error": 40.0 - n, "largest": 0.1 + 0.04 * n} for n in range(20)]
    record = {"errors": {"online": 30.5, "final": 30.5}, "labelled": 1000, "spans": spans}
    report = reported([Result(job=job, record=record)])
    (error,) = section(report, "epochs").figures
    assert [row["top-1 error %"] for row in rows(error.table)][::19] == ["40.00", "21.00"]
    (balance,) = section(report, "balance").figures
    assert rows(balance.table)[-1]["most frequent prediction %"] == "86.00"


def corruptions_of(report):
    """The rows of the figure by corruption."""
    (figure,) = section(report, "corruptions").figures
    return rows(figure.table)


def flow(recipe, shift, error, *, setting="online", **record):
    job = Job(model="m", dataset="cifar10", recipe=recipe, shift=shift, setting=setting)
    return Result(job=job, record={"errors": {"online": error, "final": error}, **record})


def test_a_stream_has_its_unadapted_errors_from_the_recipe_none(reported):
    errors = {"none": 40.0, "bn": 30.0}
    (row,) = corruptions_of(reported([flow(r, "cifar/fog:5", e) for r, e in errors.items()]))
    assert (row["unadapted"], row["bn"]) == ("40.0", "30.0")


def test_a_stream_through_several_shifts_shows_each(reported):
    results = []
    for recipe, gain in (("none", 0.0), ("bn", 10.0)):
        parts = {"fog": [40.0 - gain, 50.0 - gain], "snow": [30.0 - gain], "frost": [None]}
        more = {"setting": "continual", "by_shift": parts}
        results.append(flow(recipe, "cifar/test:5", 40.0 - gain, **more))
    found = {row["corruption"]: row for row in corruptions_of(reported(results))}
    seen = {name: (row["unadapted"], row["bn"]) for name, row in found.items()}
    assert seen == {"fog": ("45.0", "35.0"), "snow": ("30.0", "20.0")}
