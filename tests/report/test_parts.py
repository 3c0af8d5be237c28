"""What the report says of a store: rows, means, figures, and the checklist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acclimate.bench import Job, Result, Store, conditions
from acclimate.data.corruptions import DEV, TEST
from acclimate.errors import AcclimateError
from acclimate.report.figures import balance_figure, error_figure, pooled, rate_figure, rate_groups
from acclimate.report.page import build_report
from acclimate.report.settings import Setting, choose, panels, view
from report_store import RATES, full_store, headline, result, rows, section, sweep
from stored import change


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return full_store(tmp_path_factory.mktemp("report") / "full.db")


@pytest.fixture(scope="module")
def report(store):
    return build_report(store)


def test_the_headline_has_a_row_for_each_model_and_recipe(report):
    (table,) = section(report, "results").tables
    shown = [row for row in rows(table) if row["corruptions"].startswith("test")]
    assert [row["recipe"] for row in shown] == ["none", "bn", "ent", "rpl"] * 2
    ent = shown[2]
    assert float(ent["BN %"]) == float(shown[1]["after %"])
    assert float(ent["unadapted %"]) == float(shown[0]["after %"])
    assert "±" in ent["after %"]
    assert "±" not in ent["unadapted %"]
    assert (ent["seeds"], ent["labelled images"]) == ("3", "30,000")
    after, source = float(ent["after %"].split()[0]), float(ent["unadapted %"])
    assert float(ent["relative reduction %"]) == pytest.approx(
        100 * (source - after) / source, abs=0.3
    )
    assert shown[0]["relative reduction %"] == "–"


def test_every_setting_of_a_search_is_there_too(report):
    (every,) = section(report, "results").more
    held_out = [row for row in rows(every) if row["corruptions"].startswith("hold-out")]
    assert len([row for row in held_out if row["recipe"] == "ent"]) == 2 * len(RATES)


def test_a_mean_over_less_says_so(reported):
    report = reported(sweep(corruptions=["fog", "snow"], severities=(5,), recipes=["none", "ent"]))
    (table,) = section(report, "results").tables
    assert [row["coverage"] for row in rows(table)] == ["2 of 15"] * 4
    assert any("12 of 15" in note for note in table.notes)
    for written in (table.latex(), table.markdown()):
        lines = [line for line in written.splitlines() if "wrn-40-2" in line]
        assert [line.count("2 of 15") for line in lines] == [1] * 4


def of_one(corruptions, *recipes, **more):
    return sweep(models=["m"], corruptions=corruptions, recipes=recipes, **more)


def test_a_number_that_covers_less_than_its_row_says_so_itself(reported):
    both, less = of_one(["fog", "snow"], "none", "ent"), of_one(["fog"], "bn")
    none, bn, ent = headline(reported([*both, *less]))
    assert (none["coverage"], bn["coverage"], ent["coverage"]) == ("2 of 15", "1 of 15", "2 of 15")
    assert ent["BN %"].endswith("(1 of 15)")
    assert not any("of" in row["after %"] + row["unadapted %"] for row in (none, bn, ent))
    assert "of" not in bn["BN %"]


def test_what_a_recipe_is_compared_with_is_of_the_same_images(reported):
    easy = of_one(["fog"], "ent", severities=(5,))
    found = {row["recipe"]: row for row in headline(reported([*of_one(TEST, "none", "bn"), *easy]))}
    assert found["ent"]["coverage"] == "1 of 15, 3 of 90 parts"
    assert found["ent"]["corruptions"] == "test, severity 5"
    assert found["bn"]["corruptions"] == "test, severity 3, 5"
    (same,) = of_one(["fog"], "bn", severities=(5,))
    assert found["ent"]["BN %"] == f"{same.error:.1f}"


def test_a_baseline_that_ran_on_some_of_the_same_images_says_on_how_many(reported):
    baselines, some = of_one(["fog", "frost"], "none", "bn"), of_one(["fog", "snow"], "rpl")
    report = reported([*baselines, *some, *of_one(["snow"], "ent")])
    found = {row["recipe"]: row for row in headline(report)}
    errors = [each.error for each in of_one(["fog"], "bn")]
    assert found["rpl"]["BN %"] == f"{sum(errors) / 2:.1f} (1 of 15)"
    assert found["ent"]["BN %"] == "–"


def test_what_a_row_covers_is_said_once_in_the_table_of_corruptions_too(reported):
    both = ["fog", "snow"]
    found = [*of_one(both, "none", "ent"), *of_one(both, "bn", severities=(5,))]
    (table,) = section(reported(found), "corruptions").more
    covered = {row["recipe"]: row["coverage"] for row in rows(table)}
    assert covered == {"none": "all", "bn": "1 of 2 parts", "ent": "all"}
    assert not any("of" in row["fog"] + row["snow"] for row in rows(table))


def test_a_whole_mean_needs_no_words_and_no_column(reported):
    report = reported(of_one(TEST, "none", "bn"))
    (first,) = section(report, "results").tables
    (by_corruption,) = section(report, "corruptions").more
    assert not any("all" in row["mean test"] for row in rows(by_corruption))
    assert "coverage" not in first.header
    assert not any("Coverage" in note for note in (*first.notes, *by_corruption.notes))


def test_the_setting_shown_is_the_one_chosen_on_hold_out_corruptions():
    grid = [{"optimizer.lr": 1e-4}, fast := {"optimizer.lr": 1e-3}]
    held_out = sweep(corruptions=DEV, seeds=(0,), grid=grid)
    test = sweep(corruptions=["fog"], seeds=(0,), grid=grid)
    found = panels([*held_out, *test])
    panel = next(panel for panel in found if panel.group == "test")
    picked = {each.setting.recipe: each for each in choose(panel, found)}
    assert dict(picked["ent"].setting.options) == fast
    assert picked["ent"].why == "best on hold-out corruptions"
    alone = panels(test)
    assert "not chosen on hold-out" in choose(panel, alone)[2].why
    plain = panels([*test, *sweep(corruptions=["fog"], seeds=(0,))])
    assert "without options" in choose(panel, plain)[2].why


def test_there_is_a_figure_of_each_kind_with_its_data(report):
    kinds = {figure.name.rstrip("-0123456789") for figure in report.figures}
    assert kinds == {
        "ranking",
        "error-by-corruption",
        "error-over-epochs",
        "learning-rate-by-epoch",
        "reliability",
        "class-balance",
        "published-and-measured",
    }
    assert len({figure.name for figure in report.figures}) == len(report.figures)
    for figure in report.figures:
        assert figure.title
        assert figure.description
        assert figure.spec["width"] == "container"
        assert figure.table.rows


def test_a_long_run_has_all_shorter_ones_and_shows_where_it_collapses():
    found = panels(sweep(corruptions=["fog"], recipes=["ent"], grid=RATES, models=["m"]))
    figure = rate_figure(*rate_groups(next(iter(found)), found)[0])
    table = rows(figure.table)
    assert {row["epochs"] for row in table} == {"1", "2", "3", "4", "5", "6"}
    assert {row["runs"] for row in table} == {"6"}  # two severities, three seeds
    worse = {
        (row["learning rate"], row["epochs"])
        for row in table
        if float(row["error %"]) > float(row["unadapted %"])
    }
    assert {rate for rate, _ in worse} == {"0.01"}
    assert ("0.01", "1") not in worse
    cells = figure.spec["data"]["values"]
    assert {(each["rate"], each["epochs"]) for each in cells if each["worse"]} == worse


def test_runs_that_answer_few_classes_are_marked_whatever_their_error():
    found = panels(sweep(corruptions=["fog"], recipes=["ent"], grid=RATES, models=["m"]))
    panel = next(iter(found))
    assert "†" not in str(rate_figure(*rate_groups(panel, found)[0]).spec)
    for setting, results in found[panel].items():
        for each in results:
            few = 2.0 if dict(setting.options)["optimizer.lr"] == 1e-4 else 9.0
            states = [{"diversity": 9.0}] * 5 + [{"diversity": few}]
            change(each, label_free={"start": {"diversity": 9.5}, "after_epoch": states})
    figure = rate_figure(*rate_groups(panel, found)[0])
    marked = {
        (r["learning rate"], r["epochs"]) for r in rows(figure.table) if r["collapsed"] != "0"
    }
    assert marked == {("0.0001", "6")}
    assert str(figure.spec).count("†") == 2  # and the key


def test_what_rounds_to_the_same_number_hardly_differs_in_colour():
    grid = [{"optimizer.lr": rate, "epochs": 1} for rate in (1e-4, 1e-3)]
    found = panels(sweep(corruptions=["fog"], recipes=["ent"], grid=grid, models=["m"]))
    for results in found[next(iter(found))].values():
        for each in results:
            rate = dict(each.job.options)["optimizer.lr"]
            change(each, errors={"after_epoch": [each.record.errors.start + rate]})
    figure = rate_figure(*rate_groups(next(iter(found)), found)[0])
    (scale,) = [
        layer["encoding"]["fill"]["scale"]
        for layer in figure.spec["layer"]
        if "fill" in layer["encoding"]
    ]
    cells = figure.spec["data"]["values"]
    assert all(abs(c["start"] - c["error"]) < 0.01 * scale["domain"][-1] for c in cells)


def test_bins_of_hardly_any_image_are_not_drawn():
    bins = [
        {"low": low, "high": low + 0.5, "count": count, "confidence": low + 0.3, "accuracy": 0.5}
        for low, count in ((0.0, 1), (0.5, 1999))
    ]
    (one,) = sweep(models=["m"], corruptions=["fog"], severities=(5,), recipes=["none"])
    change(one, reliability=bins)
    curve = pooled([one])
    assert (len(curve.points), curve.images) == (1, 2000)


def test_many_rates_and_epochs_are_drawn_in_part():
    grid = [{"optimizer.lr": 1e-5 * 1.3**n, "epochs": 30} for n in range(40)]
    found = panels(sweep(corruptions=["fog"], recipes=["ent"], grid=grid, models=["m"]))
    (group,) = rate_groups(next(iter(found)), found)
    figure = rate_figure(*group)
    assert len(figure.spec["data"]["values"]) == 12 * 8
    assert "1104 of the places are not drawn" in figure.table.notes[0]


def test_failed_jobs_are_listed_by_reason(report):
    (table,) = section(report, "failures").tables
    assert rows(table)[0] == {
        "jobs": "2",
        "reason": "out of memory with batches of 16",
        "models": "acclimate:wrn-40-2",
        "recipes": "rpl",
        "shifts": "clean",
        "options": "–",
        "seeds": "7, 8",
    }


def test_details_have_versions_device_fingerprint_time_and_memory(report):
    runs, data, _ = section(report, "details").tables
    assert "torch 2.4.0" in runs.notes[0]
    assert any("device cpu" in note for note in runs.notes)  # of all rows
    first = rows(runs)[0]
    assert (first["peak MB"], first["seconds each"]) == ("900", "2.50")
    assert all(row["fingerprint"] for row in rows(data))
    (title, text), *_ = section(report, "details").recipes
    assert '"lr"' in text
    assert "results" in title


def test_records_may_lack_everything(reported):
    job = Job(model="m", dataset="d", recipe="ent", shift="clipart")
    one = Result(job=job, record={"errors": {"final": 20.0}})
    report = reported([one, Result(job=Job(model="m", dataset="d", recipe="none"))])
    assert headline(report)
    assert section(report, "rates").figures == []


def test_conditions_narrow_all_of_it(store):
    report = build_report(store, conditions(["model=*augmix*", "group=test"]))
    table = section(report, "results").tables[0]
    assert any("All rows: model acclimate:wrn-40-2-augmix-cifar10" in note for note in table.notes)
    assert "for wrn-40-2-augmix-cifar10" in report.title
    assert report.facts[-1] == "only model=*augmix*, group=test"


def test_tables_for_papers(report):
    first = report.whole[0]
    tex, text = first.latex(), first.markdown()
    assert tex.count(r" \\") == len(first.rows) + 1
    assert r"$\pm$" in tex
    assert text.count("\n| ") == len(first.rows) + 2
    names = [table.name for table in report.whole]
    assert names == ["headline", "settings", "by-corruption", "by-corruption-hold-out"]


def test_what_cannot_be_reported(tmp_path):
    store = Store(tmp_path / "empty.db")
    with pytest.raises(AcclimateError, match=r"empty\.db has no results; acclimate bench fills it"):
        build_report(store)
    store.add(Result.failed(result(model="m", dataset="d", recipe="none").job, "no such file"))
    with pytest.raises(AcclimateError, match="1 failed job, the first because: no such file"):
        build_report(store)


def test_the_mce_has_a_column_where_it_is_whole(reported):
    found = [
        Result(job=replace(each.job, dataset="imagenet-c", images=None,
                           shift=each.job.shift.removeprefix("cifar/")), record=each.record)
        for each in of_one(TEST, "none", "bn", severities=range(1, 6))
    ]  # fmt: skip
    (table,) = section(reported(found), "results").tables
    assert table.header[-1] == "mCE %"
    assert all(float(row["mCE %"]) > 0 for row in rows(table))


def test_a_run_of_one_epoch_shows_where_it_began_and_its_online_error():
    found = panels(sweep(models=["m"], corruptions=["fog"], recipes=["ent"], severities=(5,),
                         seeds=(0,), grid=[{"epochs": 1}]))  # fmt: skip
    panel = next(iter(found))
    (result_,) = found[panel][Setting("ent", (("epochs", 1),))]
    figure = error_figure(view(panel, found))
    assert [row["kind"] for row in rows(figure.table)] == ["after", "after", "online"]
    assert len(figure.spec["data"]["values"]) == 3
    change(result_, start_balance={"classes": 9.0, "largest": 0.1, "unused": 0})
    balance = rows(balance_figure(view(panel, found)).table)
    assert [row["epoch"] for row in balance] == ["0", "1"]
    assert balance[0]["most frequent prediction %"] == "10.00"


def test_an_unadapted_error_far_off_does_not_press_the_others_together():
    found = panels(sweep(models=["m"], corruptions=["fog"], seeds=(0,)))
    panel = next(iter(found))
    near = error_figure(view(panel, found))
    assert {row["line"] for row in rows(near.table)} == {"none", "bn", "ent", "rpl"}
    for result_ in found[panel][Setting("none")]:
        change(result_, errors={"final": 99.0})
    far = error_figure(view(panel, found))
    assert "none: 99.0, off the top" in {row["line"] for row in rows(far.table)}


def test_bn_is_drawn_with_the_statistics_that_the_curves_have():
    found = panels(sweep(models=["m"], corruptions=["fog"], seeds=(0,)))
    panel = next(iter(found))
    for result_ in found[panel][Setting("bn")]:
        change(result_, errors={"final": 20.0, "online": 21.5})
    drawn = [row for row in rows(error_figure(view(panel, found)).table) if row["line"] == "bn"]
    assert {row["top-1 error %"] for row in drawn} == {"21.50"}
