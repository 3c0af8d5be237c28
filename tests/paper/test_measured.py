"""From results in a store to the number of a cell."""

from __future__ import annotations

import pytest

from acclimate.bench import Result, Store
from acclimate.bench.choices import Choices
from acclimate.metrics import ALEXNET_CORRUPTIONS, ALEXNET_DOMAINS, CORRUPTIONS, DOMAINS
from acclimate.paper import Available, Scope, measured, plan_cell
from stored import change
from tiny_data import by_key, cell_of, made_up

BN = ("tbl:groupnorm", "WRN-26-1-BN", "ENT")


@pytest.fixture
def available(monkeypatch):
    monkeypatch.setattr(Available, "problem", lambda *args, **more: None)
    return Available()


def found(plan, **record):
    return measured(plan, by_key(made_up(job, **record) for job in plan.jobs))


def test_an_error_is_the_mean_over_corruptions_of_the_mean_over_severities(available, tmp_path):
    plan = plan_cell(cell_of(*BN), available=available)
    store = Store(tmp_path / "results.db")
    store.add_all(made_up(job, error=20.0 if job.corruption == "fog" else 5.0) for job in plan.jobs)
    result = measured(plan, by_key(store.results()))
    assert result.value == pytest.approx((20.0 + 14 * 5.0) / 15)
    assert (result.missing, result.images, result.std) == ("", 7500, None)


def test_what_is_missing_is_counted(available):
    plan = plan_cell(cell_of(*BN), available=available)
    some = [made_up(job) for job in plan.jobs[:70]]
    failed = [Result.failed(job, "out of memory\nlong story") for job in plan.jobs[70:72]]
    result = measured(plan, by_key([*some, *failed]))
    assert result.value is None
    assert result.missing == "2 of 75 jobs failed: out of memory; 3 of 75 jobs not run"


def test_the_mce_is_relative_to_alexnet(available):
    plan = plan_cell(cell_of("table-1", "ResNet50 vanilla", "w/o adapt"), available=available)
    half = by_key(
        Result(job=job, record={"errors": {"final": ALEXNET_CORRUPTIONS[job.corruption] / 2}})
        for job in plan.jobs
    )
    assert measured(plan, half).value == pytest.approx(50.0)
    dev = plan_cell(cell_of("table-8", "RPL", "w/o adapt"), available=available)
    assert {job.corruption for job in dev.jobs}.isdisjoint(CORRUPTIONS)
    same = by_key(
        Result(job=job, record={"errors": {"final": ALEXNET_CORRUPTIONS[job.corruption]}})
        for job in dev.jobs
    )
    assert measured(dev, same).value == pytest.approx(100.0)


def test_a_domain_that_is_left_out_gets_what_is_best_on_the_others(available):
    cell = cell_of("tab:leave_one_out", "ResNet50, ENT", "leave one out")
    plan = plan_cell(cell, available=available, choices=Choices.of({"*": {"ent": {"epochs": 1}}}))
    assert len(plan.jobs) == 3 * len(DOMAINS)  # one of seven epochs tells of all shorter ones

    def errors(job):
        """The largest rate is best by far on clipart, the smallest everywhere else."""
        rate, on_clipart = dict(job.options)["optimizer.lr"], job.shift == "clipart"
        worse = 0.1 if on_clipart == (rate == 0.01) else 0.4
        alexnet = ALEXNET_DOMAINS[str(job.shift)]
        return [alexnet * (worse + 0.001 * epoch) for epoch in range(7)]

    results = by_key(
        Result(job=job, record={"errors": {"final": errors(job)[-1], "after_epoch": errors(job)}})
        for job in plan.jobs
    )
    found = measured(plan, results)
    others = len(DOMAINS) - 1
    assert found.value == pytest.approx(100 * (0.4 + others * 0.1) / len(DOMAINS))
    assert found.setting == "what is best on the other domains, for each"
    for result in results.values():  # as where only the end was scored
        after = result.record.errors.after_epoch[6:]
        change(result, errors={"after_epoch": [None] * 6 + list(after)})
    assert measured(plan, results).value > found.value
    alone = plan_cell(cell, available=available, scope=Scope(shifts=("real",)))
    assert "on the other domains" in measured(alone, results).missing


def test_predictions_that_no_label_has_are_counted(available):
    for column, name in (
        ("error on filtered labels", "filtered_error"),
        ("rejected inputs", "unmappable_percent"),
    ):
        plan = plan_cell(cell_of("tab:error_analysis_2", "IN-D real", column), available=available)
        (job,) = plan.jobs
        record = {"errors": {"final": 40.0}}
        assert measured(plan, by_key([Result(job=job, record=record)])).value is None
        result = Result(job=job, record={**record, name: 17.0})
        assert measured(plan, by_key([result])).value == 17.0


def test_the_mce_of_a_small_version_is_over_what_there_is(available):
    scope = Scope(severities=(5,), shifts=("fog",))
    plan = plan_cell(
        cell_of("table-1", "ResNet50 vanilla", "w/o adapt"), available=available, scope=scope
    )
    assert len(plan.jobs) == 1
    assert found(plan).value == pytest.approx(100 * 24.0 / ALEXNET_CORRUPTIONS["fog"])


def test_the_mde_is_relative_to_alexnet(available):
    plan = plan_cell(cell_of("visda-robust-models", "vanilla", "mDE"), available=available)
    half = by_key(
        Result(job=job, record={"errors": {"final": ALEXNET_DOMAINS[job.corruption] / 2}})
        for job in plan.jobs
    )
    assert len(half) == len(DOMAINS)
    assert measured(plan, half).value == pytest.approx(50.0)


def test_seeds_have_a_mean_and_a_deviation(available):
    plan = plan_cell(cell_of("tbl:seeds", "ENT", "dev"), available=available)
    constant = by_key(
        Result(
            job=job,
            record={"errors": {"final": ALEXNET_CORRUPTIONS[job.corruption] * (1 + job.seed) / 4}},
        )
        for job in plan.jobs
    )
    result = measured(plan, constant)
    assert (result.value, result.std) == (pytest.approx(50.0), pytest.approx(25.0))
    assert result.over == "seeds"


def test_calibration_is_in_percent_with_its_deviation_over_corruptions(available):
    plan = plan_cell(cell_of("ece", "RPL", "severity 3"), available=available)
    result = found(plan, ece=0.25)
    assert (result.value, result.std, result.over) == (25.0, 0.0, "corruptions")
    assert found(plan, ece=None).missing == "the runs have no ECE"


def test_accuracy_on_clean_images_afterwards(available):
    plan = plan_cell(
        cell_of("forgetting", "RPL, severity 3", "accuracy on ImageNet"), available=available
    )
    assert found(plan, forgetting={"before": 24.0, "after": 26.0}).value == 74.0
    assert found(plan).value is None


def test_the_online_error(available):
    plan = plan_cell(cell_of("fig:online", "IN-R", "by images seen"), available=available)
    assert found(plan, error=20.0).value == 21.0


def test_epochs_are_read_off_a_longer_run(available):
    from acclimate.paper import plan_tables
    from acclimate.paper.tables import find_table

    (table,) = plan_tables([find_table("tab:epochs")], available=available)
    plans = {(each.cell.row, each.cell.column): each for each in table.cells}
    early, late = (plans[row, "ENT, 0.001"] for row in ("1", "5"))
    assert [job.key for job in early.jobs] == [job.key for job in late.jobs]
    results = by_key(made_up(job, error=40.0) for job in early.jobs)
    assert measured(early, results).value > measured(late, results).value


def test_the_best_of_a_search_and_what_it_was(available):
    cell = cell_of("self-ensembling", "MNIST→USPS, MT+TF", "ENT")
    plan = plan_cell(cell, available=available)
    errors = {1e-5: 4.0, 1e-4: 3.0, 1e-3: 2.0, 1e-2: 5.0, 1e-1: 90.0}
    results = by_key(
        made_up(job, error=errors[dict(job.options)["optimizer.lr"]]) for job in plan.jobs
    )
    result = measured(plan, results)
    assert result.value == 98.0
    assert result.setting == "optimizer.lr 0.001, epochs 10"


def test_a_figure_by_epochs_has_its_points(available):
    plan = plan_cell(cell_of("RPL-over-time", "RPL", "Sketch"), available=available)
    assert found(plan, error=70.0).series == (76.0, 75.0, 74.0, 73.0, 72.0, 71.0, 70.0)


def test_notes_of_runs_are_passed_on(available):
    plan = plan_cell(cell_of(*BN), available=available)
    assert found(plan, notes=["out of memory"]).notes == ("out of memory",)
    many = found(plan, notes=list("abcde")).notes
    assert many == ("a", "b", "c", "and 2 more notes in the store")


def test_with_the_statistics_of_each_batch_as_the_paper_predicts(available):
    plan = plan_cell(cell_of(*BN), available=available)
    learnt = {"final": 10.0, "online": 30.0, "after_epoch": [None, 12.0]}
    assert (found(plan, errors=learnt).value, found(plan, errors=learnt).by_batch) == (10.0, 12.0)
    new = plan_cell(cell_of("mt3_comparison", "WRN-26-1-BN, BN adapt", "avg"), available=available)
    statistics = {"final": 10.0, "online": 13.0, "after_epoch": []}
    assert found(new, errors=statistics).by_batch == 13.0
    unadapted = plan_cell(cell_of("groupnorm", "WRN-26-1-BN", "w/o adapt"), available=available)
    assert found(unadapted, errors={"final": 20.0}).by_batch is None
