"""From stored results, whatever they were made for, to the cells of the paper they measure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acclimate.bench import Job, Result
from acclimate.bench.choices import Choices
from acclimate.bench.job import Weights
from acclimate.data.corruptions import TEST
from acclimate.paper import (
    Available,
    Scope,
    StoredResults,
    compare,
    find_tables,
    measured,
    plan_tables,
    with_models,
    with_stored,
)
from tiny_data import cell_of, made_up

MODEL = "acclimate:wrn-26-2-bn-cifar10"
ENT = cell_of("tbl:groupnorm", "WRN-26-1-BN", "ENT")
CHOSEN = {"optimizer.lr": 0.03, "epochs": 9}


def runs(*, error=20.0, names=TEST, severities=range(1, 6), kind="frost", **job):
    """The results of a run through corruptions made on the fly."""
    job = {"model": MODEL, "dataset": "cifar10", "recipe": "ent", "options": CHOSEN} | job
    names = [kind if name == "frost" else name for name in names]
    return [
        made_up(Job.of(shift=f"cifar/{name}:{severity}", **job), error=error, labelled=10_000)
        for name in names
        for severity in severities
    ]


def value(cell, results, **given):
    stored = StoredResults(results)
    plan = stored.plan(cell, **given)
    return None if plan is None else measured(plan, stored.by_key).value


def test_a_setting_that_was_chosen_counts_wherever_it_ran():
    assert value(ENT, runs()) == pytest.approx(20.0)
    plan = StoredResults(runs()).plan(ENT)
    assert "ran with epochs=9, optimizer.lr=0.03" in plan.notes
    assert any("made on the fly" in note for note in plan.notes)
    assert plan.small == ""


@pytest.mark.parametrize(
    "other",
    [
        {"names": TEST[1:]},
        {"severities": [5]},
        {"recipe": "rpl"},
        {"model": "acclimate:wrn-40-2-augmix-cifar10"},
        {"options": {**CHOSEN, "selector": "all"}},
        {"setting": "online", "options": {"optimizer.lr": 0.03}},
        {"forgetting": True},
        {"dataset": "mnist"},
    ],
    ids=str,
)
def test_what_is_not_of_the_cell_does_not_count(other):
    assert value(ENT, runs(**other)) is None


def test_what_is_at_its_default_makes_no_other_method():
    assert value(ENT, runs(options={**CHOSEN, "batch_size": 128})) == pytest.approx(20.0)


def test_of_two_settings_neither_is_picked_by_its_labels():
    both = [*runs(), *runs(error=15.0, options={"optimizer.lr": 0.01, "epochs": 9})]
    assert value(ENT, both) is None
    chosen = Choices.of({"*": {"ent": CHOSEN}})
    assert value(ENT, both, choices=chosen) == pytest.approx(20.0)
    assert value(ENT, [*both, *runs(error=17.0, options={})]) == pytest.approx(17.0)  # the paper's


def test_all_images_before_some_of_them():
    few = [replace(each, record=replace(each.record, labelled=500)) for each in runs(images=500)]
    assert value(ENT, [*few, *runs(error=15.0)]) == pytest.approx(15.0)
    assert StoredResults(few).plan(ENT).small == "500 of 10,000 images a shift"


def test_a_cell_of_one_severity_and_a_small_version():
    assert value(ENT, runs(severities=[5]), scope=Scope(severities=(5,))) == pytest.approx(24.0)
    plan = StoredResults(runs(severities=[5])).plan(ENT, scope=Scope(severities=(5,)))
    assert plan.small == "severity 5 only"


def test_frost_of_our_own_is_in_means_alone():
    frost = replace(ENT, shift="frost")
    fog = replace(frost, shift="fog")
    own, published = runs(kind="frost-procedural"), runs(error=30.0)
    assert value(ENT, own) == pytest.approx(20.0)
    assert any("frost-procedural" in note for note in StoredResults(own).plan(ENT).notes)
    assert value(fog, own) is not None
    assert [lack.what for lack in StoredResults(own).plan(frost).lacks] == ["photographs of frost"]
    at_fog = value(fog, published)
    assert value(frost, published) == at_fog
    # Where both ran, the published counts, in either order.
    for together in ([*own, *published[40:45]], [*published[40:45], *own]):
        assert value(ENT, together) == pytest.approx((14 * 20 + 30) / 15)


def test_a_cell_wants_as_many_seeds_as_it_is_a_mean_of():
    three = replace(ENT, seeds=3)
    assert value(three, [*runs(), *runs(seed=1)]) is None
    assert value(three, [each for seed in range(3) for each in runs(seed=seed)]) == pytest.approx(
        21.0
    )


def test_a_longer_run_has_passed_the_epoch_of_a_cell():
    short = replace(ENT, epochs=2, options={"optimizer.lr": 0.03})
    assert value(short, runs(options={"optimizer.lr": 0.03, "epochs": 1})) is None
    assert value(short, runs(options={"optimizer.lr": 0.01, "epochs": 5})) is None
    assert value(short, runs(options={"optimizer.lr": 0.03, "epochs": 5})) == pytest.approx(23.0)


def test_weights_of_our_own_stand_for_a_network_that_has_one_set_of_them():
    wide = cell_of("tbl:table-2", "WRN-28-10 vanilla", "ENT")
    own = Weights(path="wide.pt", sha256="0a")
    filled = [
        Result(job=replace(each.job, weights=own), record=each.record)
        for each in runs(model=wide.model)
    ]
    assert value(wide, filled) == pytest.approx(20.0)
    assert any("wide.pt" in note for note in StoredResults(filled).plan(wide).notes)
    assert value(wide, runs(model=wide.model)) is None


def test_weights_of_a_network_that_stands_for_several_are_named_by_row():
    one, other = (
        cell_of("tbl:table-2", f"WRN-26-16 {name}", "ENT") for name in ("vanilla", "DANN")
    )
    own = Weights(path="folder/vanilla.pt", sha256="0a")
    filled = [
        Result(job=replace(each.job, weights=own), record=each.record)
        for each in runs(model=one.model)
    ]
    assert StoredResults(filled).plan(one) is None
    named = StoredResults(filled, weights={"WRN-26-16 vanilla": "elsewhere/vanilla.pt"})
    assert named.plan(one) is not None
    assert named.plan(other) is None


def test_a_search_takes_the_best_of_all_that_were_tried():
    searched = replace(
        ENT, search={"optimizer.lr": (0.01, 0.03)}, chosen_on="test", options={}, epochs=None
    )
    tried = [
        each
        for lr, error in ((0.01, 20.0), (0.03, 15.0))
        for each in runs(error=error, options={"optimizer.lr": lr})
    ]
    assert value(searched, tried) == pytest.approx(15.0)


def test_every_cell_has_one_state_and_a_reason_where_nothing_is_measured():
    plans = plan_tables(find_tables("*"), available=Available())
    stored = StoredResults(runs())
    rows = [
        row
        for plan in with_stored(plans, stored)
        for row in compare(plan, stored.by_key, simulate=False).rows
    ]
    states = [row.state for row in rows]
    assert len(rows) == 1786
    assert states.count("measured") > 1
    for row in rows:
        assert (row.difference is not None) == (row.state in ("measured", "counted"))
        assert row.reason or row.state == "counted"
        assert "\n" not in row.reason


def photos(model="py:photo_models:resnet50", **job):
    """Runs of a network through ImageNet-C's corruptions, as the paper's preset has them."""
    options = {"optimizer.lr": 1e-3, "epochs": 5}
    job = {"model": model, "dataset": "imagenet", "recipe": "rpl", "options": options} | job
    return [
        made_up(Job.of(shift=f"imagenet/{name}:{severity}", **job), labelled=5000)
        for name in TEST
        for severity in range(1, 6)
    ]


def test_another_network_in_place_of_the_papers():
    runs, others = photos(), {"paper:resnet50": "py:photo_models:resnet50"}
    tables = find_tables("tbl:table-1")

    def shown(models):
        stored = StoredResults(runs, models=models)
        plans = plan_tables(with_models(tables, models), available=Available())
        (table,) = [compare(each, stored.by_key) for each in with_stored(plans, stored)]
        return {(row.row, row.column): row for row in table.rows}

    assert shown({})["ResNet50 vanilla", "RPL"].state == "needs data"
    row = shown(others)["ResNet50 vanilla", "RPL"]
    assert (row.state, row.published, row.small) == (
        "measured", 50.5, "5,000 of 50,000 images a shift",
    )  # fmt: skip
    assert "py:photo_models:resnet50 in place of paper:resnet50" in row.notes
    assert shown(others)["ResNet50 vanilla", "parameters"].measured == 25_557_032


def test_of_several_rates_the_papers_own_counts():
    other = photos(options={"optimizer.lr": 1e-2, "epochs": 5})
    without = {"optimizer.lr": 1e-3, "epochs": 5, "optimizer.momentum": 0.0}
    runs = [*other, *photos(), *photos(options=without)]
    (cell,) = [
        cell
        for table in with_models(find_tables("tbl:table-1"), {"paper:resnet50": runs[0].job.model})
        for cell in table.cells
        if (cell.row, cell.column) == ("ResNet50 vanilla", "RPL")
    ]
    plan = StoredResults(runs, models={"paper:resnet50": runs[0].job.model}).plan(cell)
    assert {dict(job.options)["optimizer.lr"] for job in plan.jobs} == {1e-3}
    assert {len(job.options) for job in plan.jobs} == {2}
