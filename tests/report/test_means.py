"""Plots and tables of a page show the same means: over severities, then corruptions, then seeds."""

from __future__ import annotations

import pytest

from acclimate.bench import Job, Result
from acclimate.report.figures import rate_grid
from acclimate.report.settings import choose, mean_error, panels, side_by_side
from report_store import headline, sweep
from stored import change

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
def report(reported):
    return reported([*runs("none"), *runs("ent", lr=0.1), *runs("ent", lr=1.0, more=5.0)])


def entries(report, section, column):
    part = next(each for each in report.sections if each.name == section)
    table = part.figures[0].table if part.figures else part.tables[0]
    place = list(table.header).index(column)
    return [row[place].value for row in table.rows]


def test_all_rows_have_the_unadapted_error_of_the_unadapted_model(reported):
    found = sweep(models=["m"], seeds=(0,))
    for each in found:
        if each.job.recipe == "ent":  # as where its passes are in bfloat16
            change(each, errors={"unadapted": each.unadapted_error + 0.3})
    learnt = [each for each in found if each.job.recipe != "none"]
    seen = [{row["unadapted %"] for row in headline(reported(of))} for of in (found, learnt)]
    assert list(map(len, seen)) == [1, 2]


def test_tables_plots_and_the_grid_agree(report):
    assert entries(report, "results", "after %") == [MEAN, MEAN]
    assert set(entries(report, "epochs", "top-1 error %")) == {MEAN}
    assert entries(report, "balance", "most frequent prediction %") == [pytest.approx(MEAN)]
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


def test_seeds_count_the_same_and_one_that_ran_on_less_does_not():
    first, second = list(runs("ent", lr=0.1)), list(runs("ent", lr=0.1, seed=1, more=8.0))
    assert mean_error([*first, *second]) == MEAN + 4
    assert mean_error([*first, *second[:1]]) == MEAN
    assert mean_error([]) is None


def scored_at_the_end(result):
    return change(result, errors={"after_epoch": [None, 40.0], "before_update": [48.0, 44.0]})


def test_a_curve_has_points_where_all_of_its_runs_were_scored(reported):
    first, *others = map(scored_at_the_end, runs("ent", lr=0.1))
    change(first, errors={"after_epoch": [99.0, 40.0]})  # it alone was scored after the first epoch
    report = reported([first, *others])
    assert entries(report, "epochs", "epoch") == [0.0, 2.0, 0.5, 1.5]
    assert entries(report, "epochs", "top-1 error %") == [MEAN, 40.0, 48.0, 44.0]


def side_by_side_of(results):
    found = panels(results)
    (panel,) = found
    shown, notes = side_by_side(choose(panel, found))
    return {each.setting.recipe: [r.job.shift for r in each.results] for each in shown}, notes


def at(recipe, *shifts, **more):
    return [
        each for each in runs(recipe, **more) if each.job.shift.removeprefix("cifar/") in shifts
    ]


ALL = [f"cifar/{shift}" for shift in ERRORS]


def test_figures_show_what_ran_on_the_same():
    hardest = at("hard", "gaussian_noise:5")
    shown, notes = side_by_side_of([*runs("none"), *runs("bn"), *hardest])
    assert shown == {"none": ALL, "bn": ALL}
    assert notes == ["hard: not shown, since it did not run on all that the others ran on."]


def test_of_a_sweep_that_is_not_through_they_show_what_all_have():
    begun = at("hard", *list(ERRORS)[:2])
    shown, notes = side_by_side_of([*runs("none"), *runs("bn"), *begun])
    assert shown == {"none": ALL[:2], "bn": ALL[:2], "hard": ALL[:2]}
    assert notes == ["Of 3 shifts at a severity, the 2 that all of these ran on."]


def test_one_recipe_that_ran_on_more_does_not_empty_a_figure():
    few = [each for name in ("none", "bn", "hard", "soft") for each in at(name, "fog:5")]
    shown, _ = side_by_side_of([*few, *runs("dino")])
    assert set(shown) == {"none", "bn", "dino", "hard", "soft"}


def test_seeds_that_ran_on_others_are_left_out_and_it_is_said():
    second = at("ent", "fog:5", lr=0.1, seed=1)
    shown, notes = side_by_side_of([*runs("bn"), *runs("ent", lr=0.1), *second])
    assert shown == {"bn": ALL, "ent": ALL}
    assert notes == ["ent (lr=0.1): 1 of 2 seeds, those that ran on the same."]


def test_a_curve_begins_with_the_runs_it_goes_on_with(reported):
    first, *others = runs("ent", lr=0.1)
    shorter = [with_epochs(each, 80.0) for each in others]
    errors = entries(
        reported([with_epochs(first, 30.0, 29.0), *shorter]), "epochs", "top-1 error %"
    )
    assert errors[:3] == [32.0, 30.0, 29.0]


def with_epochs(result, *after):
    return change(result, errors={"after_epoch": list(after)})


def test_a_grid_of_rates_is_of_the_same_shifts_in_all_its_places():
    low = [with_epochs(each, 20.0, 10.0) for each in runs("ent", lr=0.1)]
    high = [with_epochs(each, 40.0, 30.0) for each in runs("ent", lr=1.0)]
    longer = with_epochs(high[0], 40.0, 30.0, 25.0)  # of one shift, three epochs
    unfinished = with_epochs(next(runs("ent", lr=3.0)), 90.0)
    grid, left_out = rate_grid([*low, longer, *high[1:], unfinished])
    assert {place: mean.error for place, mean in grid.items()} == {
        (0.1, 1): 20.0, (0.1, 2): 10.0, (1.0, 1): 40.0, (1.0, 2): 30.0
    }  # fmt: skip
    assert {mean.runs for mean in grid.values()} == {3}
    assert left_out == 2
    assert rate_grid([]) == ({}, 0)
