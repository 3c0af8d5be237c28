"""What a page opens with: the best recipe in words, a ranking, pivots, bars with intervals."""

from __future__ import annotations

import pytest

from acclimate.report.charts import MANY, Curve, axis, lines, nth_look, svg
from acclimate.report.figures import dumbbell_figure
from acclimate.report.ranking import (
    corruption_pivot,
    headline_title,
    ranked_bars,
    ranking_table,
    setting_pivot,
    standings,
    summary_sentence,
)
from acclimate.report.settings import panels, view
from stored import change, result

ERRORS = {"none": 40.0, "bn": 20.0, "ent": 15.0, "rpl": 16.0, "tent": 44.0}


def runs(errors=ERRORS, *, shifts=("fog", "snow"), labelled=1000, **more):
    found = []
    for recipe, error in errors.items():
        for place, shift in enumerate(shifts):
            what = {"recipe": recipe, "shift": f"cifar/{shift}:5", **more}
            one = result(error=error + 2 * place, data=shift, **what)
            found.append(change(one, errors={"unadapted": 40.0 + 2 * place}, labelled=labelled))
    return found


def views(results):
    found = panels(results)
    return [view(panel, found) for panel in found]


@pytest.fixture
def one():
    (found,) = views(runs())
    return found


def words(row):
    return [entry if isinstance(entry, str) else entry.text for entry in row]


def bold(table):
    return sorted(
        entry.text for row in table.rows for entry in row if getattr(entry, "bold", False)
    )


def test_recipes_stand_by_their_mean_error_with_the_unadapted_among_them(one):
    placed = standings(one)
    assert [each.label for each in placed] == ["ent", "rpl", "bn", "unadapted", "tent"]
    assert [each.error for each in placed] == [16.0, 17.0, 21.0, 41.0, 45.0]


def test_the_unadapted_model_is_there_though_the_recipe_none_was_not_run():
    (found,) = views(runs({"bn": 20.0, "ent": 15.0}))
    assert [(each.label, each.error) for each in standings(found)][-1] == ("unadapted", 41.0)


def test_an_interval_is_as_wide_as_the_images_are_few():
    wide, narrow = (standings(views(runs(labelled=count))[0])[0] for count in (100, 10_000))
    assert wide.half == pytest.approx(10 * narrow.half)
    # 15 % and 17 % of 100 images: standard errors of 3.57 and 3.76 points.
    assert wide.half == pytest.approx(1.96 * (3.571 + 3.756) / 2, abs=0.01)


def test_where_seeds_differ_more_than_images_allow_they_make_the_interval():
    found = [each for seed in (0, 1) for each in runs({"ent": 15.0 + 10 * seed}, seed=seed)]
    (shown,) = views([*found, *runs({"none": 40.0})])
    assert standings(shown)[0].half == pytest.approx(1.96 * 50**0.5 / 2**0.5)


def test_a_sentence_says_who_is_best_who_is_as_good_and_who_does_harm(one):
    assert summary_sentence([one]) == (
        "ent has the lowest mean error: 16.0 %, where the unadapted model has 41.0 % and new "
        "statistics alone (bn) have 21.0 %. 1 other is within its interval; worse than unadapted: "
        "tent."
    )


def test_a_sentence_about_several_comparisons():
    stream = [change(each, by_shift={}) for each in runs({**ERRORS, "rpl": 9.0}, setting="online")]
    both = views([*runs(), *stream])
    assert summary_sentence(both) == (
        "ent has the lowest error in 1 of 2 comparisons, rpl in 1; ent, rpl and bn are better than "
        "the unadapted model wherever they ran."
    )
    table = setting_pivot(both)
    assert table.header == ["recipe", "stationary", "online"]
    assert {row[0]: words(row)[1:] for row in table.rows}["rpl"] == ["17.0", "10.0"]
    assert bold(table) == ["10.0", "16.0"]


def test_hold_out_corruptions_are_not_summed_up_beside_test_ones():
    dev = runs({"none": 40.0, "ent": 1.0}, shifts=("spatter", "saturate"))
    assert "ent has the lowest mean error: 16.0 %" in summary_sentence(views([*runs(), *dev]))


def test_the_ranking_has_the_best_in_bold_and_its_options(one):
    table = ranking_table(one)
    assert words(table.rows[0])[:2] == ["ent", "16.0"]
    assert bold(table) == ["16.0"]
    assert words(table.rows[-1])[-1] == "-9.8"  # worse than unadapted


def test_by_corruption_each_column_has_its_best():
    found = runs()
    change(next(each for each in found if each.job.recipe == "bn"), errors={"final": 3.0})
    (shown,) = views(found)
    table = corruption_pivot(shown)
    assert table.header == ["recipe", "snow", "fog", "mean"]
    assert bold(table) == ["12.5", "17.0", "3.0"]


def test_one_corruption_needs_no_pivot():
    (shown,) = views(runs(shifts=("fog",)))
    assert corruption_pivot(shown) is None
    assert setting_pivot([shown]) is None


def test_bars_are_in_order_with_their_intervals(one):
    pytest.importorskip("vl_convert")
    figure = ranked_bars(one)
    values = figure.spec["data"]["values"]
    assert [each["recipe"] for each in values] == ["ent", "rpl", "bn", "unadapted", "tent"]
    assert all(each["low"] < each["error"] < each["high"] for each in values)
    assert [each["kind"] for each in values][:4] == ["best", "other", "other", "unadapted"]
    assert svg(figure.file()).startswith("<svg")


def test_the_title_is_in_words():
    assert headline_title(views(runs()), runs()) == "5 recipes on cifar10, for wrn-40-2"
    orders = [*runs(), *runs(setting="online")]
    assert headline_title(views(orders), orders).endswith("in 2 settings")


def test_of_many_recipes_each_has_a_row_of_cells():
    pytest.importorskip("vl_convert")
    many = {"none": 50.0, **{f"recipe-{n:02}": 10.0 + n for n in range(21)}}
    (shown,) = views(runs(many))
    figure = dumbbell_figure(shown)
    assert figure.wide
    assert len({cell["line"] for cell in figure.spec["data"]["values"]}) == len(many) == 22
    assert svg(figure.file()).startswith("<svg")


@pytest.mark.parametrize("count", [MANY, MANY + 1])
def test_of_many_lines_each_has_a_chart_of_its_own(count):
    pytest.importorskip("vl_convert")
    curves = [Curve(f"line {n}", f"r{n}", [(0, n), (1, n + 1)]) for n in range(count)]
    figure = lines(
        curves, {f"r{n}": nth_look(n) for n in range(count)}, name="n", title="t",
        description="d", x=axis("epoch", 0, 1), y=axis("error %", 0, count + 1),
    )  # fmt: skip
    assert ("facet" in figure.spec) == (count > MANY) == figure.wide
    drawn = svg(figure.file())
    assert all(f">line {n}<" in drawn for n in range(count))


def test_what_is_the_same_in_all_rows_is_shown_once(one):
    table = ranking_table(one)
    assert "options" not in table.header  # no recipe has any
    assert all(len(row) == len(table.header) for row in table.rows)
