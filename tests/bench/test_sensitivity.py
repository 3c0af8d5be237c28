"""Tables of mean errors by learning rate and epoch."""

from __future__ import annotations

from acclimate.bench.selection import choose_from, sensitivity, settings_of
from searches import search_job, search_result, searched, searched_settings

SPATTER, BLUR = "cifar/spatter:1", "cifar/gaussian_blur:1"


def test_a_row_for_each_epoch_and_a_column_for_each_rate():
    errors = {
        (1e-2, SPATTER): [40.0, 90.0], (1e-2, BLUR): [20.0, 90.0],
        (1e-3, SPATTER): [20.0, 15.0], (1e-3, BLUR): [30.0, 25.0],
    }  # fmt: skip
    settings = searched_settings(errors)
    (table,) = sensitivity(settings, choose_from(settings).options)
    assert table.header == ["epoch", "lr 0.001", "lr 0.01"]
    assert table.rows == [
        ["0", "50.0", "50.0"], ["1", "25.0", "30.0"], ["2", "20.0*", "90.0"],
    ]  # fmt: skip


def test_collapsed_and_diverged_runs_are_marked():
    key, other = (1e-2, SPATTER), (1e-2, BLUR)
    seen = [{"diversity": d, "confidence": 0.9} for d in (9.0, 4.9, 1.0)]
    record = {
        "label_free": {"start": {"diversity": 10.0}, "after_epoch": seen},
        "drift": [0.1, 0.2, None],
    }
    errors = {key: [20.0, 60.0, 90.0], other: [20.0, 20.0, 20.0]}
    (table,) = sensitivity(searched_settings(errors, records={key: record}))
    assert [row[1] for row in table.rows] == ["50.0", "20.0", "40.0†", "div"]
    worst = table.to_dict()["cells"][-1]
    assert (worst["epochs"], worst["diverged"], worst["collapsed"]) == (3, 1, 1)


def test_other_options_have_tables_of_their_own_and_gaps_are_counted():
    jobs = [
        search_job(1e-3, shift, epochs=1, options={"objective.q": q})
        for q in (0.7, 0.8)
        for shift in (SPATTER, BLUR)
    ]
    results = {job.key: search_result(job, [20.0]) for job in jobs[:3]}
    first, second = sensitivity(settings_of(jobs, results))
    assert (first.options, second.options) == ((("objective.q", 0.7),), (("objective.q", 0.8),))
    assert first.rows[1] == ["1", "20.0"]
    assert second.rows[1] == ["1", "20.0 (1 missing)"]


def test_a_rate_that_nobody_named_is_the_recipes_own():
    jobs, _ = searched({(1e-3, SPATTER): [20.0]})
    plain = search_job(1e-3, SPATTER)
    plain = type(plain).from_dict({**plain.to_dict(), "options": {"epochs": 1}})
    result = search_result(plain, [20.0], recipe={"optimizer": {"lr": 0.004}})
    (table,) = sensitivity(settings_of([plain], {plain.key: result}))
    assert table.header == ["epoch", "lr 0.004"]
    (table,) = sensitivity(settings_of(jobs, {}))
    assert (table.header, table.rows) == (["epoch", "lr 0.001"], [["0", "-"]])
