"""A sweep that was stopped half way: a setting on fewer shifts may have had the easier ones."""

from __future__ import annotations

from acclimate.bench import Job, Result
from acclimate.report.practices import practices
from acclimate.report.settings import choose, compared, panels
from report_store import section

SLOW, FAST, MIDDLE = ((("optimizer.lr", lr),) for lr in (0.1, 1.0, 0.5))
LEFT_OUT = "(incomplete settings left out)"


def run(shift, error, options=(), *, recipe="ent", seed=0):
    job = Job(
        model="m", dataset="cifar10", recipe=recipe, shift=f"cifar/{shift}:5", options=options,
        seed=seed,
    )  # fmt: skip
    return Result(job=job, record={"errors": {"final": error, "unadapted": error + 10}})


STOPPED = [
    run("saturate", 6.7, SLOW),
    run("speckle_noise", 25.3, SLOW),
    run("saturate", 10.7, FAST),
]
ON_TEST = [run("fog", 20.0, SLOW), run("fog", 19.0, FAST)]


def shown(results):
    found = panels(results)
    panel = next(panel for panel in found if panel.group == "test")
    return next(each for each in choose(panel, found) if each.setting.recipe == "ent")


def selection(results):
    return practices(panels(results))[0]


def test_the_best_on_hold_out_corruptions_is_one_that_ran_on_all_of_them():
    chosen = shown([*STOPPED, *ON_TEST])
    assert chosen.setting.options == SLOW
    assert chosen.why == f"best on hold-out corruptions {LEFT_OUT}"


def test_the_lowest_error_shown_is_of_one_that_ran_on_all_that_is_shown():
    chosen = shown([run("fog", 20.0, SLOW), run("snow", 40.0, SLOW), run("fog", 22.0, FAST)])
    assert chosen.setting.options == SLOW
    assert chosen.why.endswith(LEFT_OUT)


def test_the_headline_has_the_unadapted_error_of_what_the_row_of_none_has(reported):
    source = [run("fog", 30.0, recipe="none"), run("snow", 50.0, recipe="none")]
    learnt = [run("fog", 20.0, SLOW), run("snow", 40.0, SLOW), run("fog", 22.0, FAST)]
    (table,) = section(reported([*source, *learnt]), "results").tables
    ent = dict(zip(table.header, table.rows[1], strict=True))
    assert ent["unadapted %"].value == table.rows[0][table.header.index("after %")].value == 40.0
    assert any(LEFT_OUT in note for note in table.notes)


def test_the_checklist_does_not_pass_a_setting_with_none_to_compare():
    one = selection([*STOPPED, *ON_TEST])
    assert one.state == "cannot tell"
    assert "nothing to compare optimizer.lr=0.1 with" in one.evidence
    assert "1 left out as incomplete" in one.evidence


def test_the_checklist_names_the_best_of_those_that_are_complete():
    more = [run("saturate", 8.0, MIDDLE), run("speckle_noise", 20.0, MIDDLE)]
    one = selection([*STOPPED, *more, *ON_TEST, run("fog", 18.0, MIDDLE)])
    assert one.state == "passed"
    assert "optimizer.lr=0.5 did best of 2 on hold-out corruptions (1 left out" in one.evidence


def test_nothing_is_said_to_be_left_out_where_nothing_is():
    whole = [*STOPPED, run("speckle_noise", 40.0, FAST)]
    assert shown([*whole, *ON_TEST]).why == "best on hold-out corruptions"
    assert "left out" not in selection([*whole, *ON_TEST]).evidence


def test_a_missing_seed_counts_as_a_missing_shift_does():
    two = [run("fog", error, SLOW, seed=seed) for seed, error in enumerate((20.0, 30.0))]
    assert list(compared({"slow": two, "fast": [run("fog", 20.0, FAST)]}).errors) == ["slow"]


def test_of_as_many_but_other_shifts_those_count_that_most_settings_ran_on():
    fog, snow = {"fast": [run("fog", 20.0)]}, {"slow": [run("snow", 40.0)]}
    of_snow = compared({**fog, **snow, "middle": [run("snow", 50.0)]})
    assert (of_snow.best, of_snow.left_out) == ("slow", 1)
    of_fog = compared({**fog, **snow, "middle": [run("fog", 50.0)]})
    assert (of_fog.best, of_fog.left_out) == ("fast", 1)


def test_results_without_labels_are_not_compared():
    none = compared({"ent": [Result(job=STOPPED[0].job)]})
    assert (none.tried, dict(none.errors)) == (0, {})
