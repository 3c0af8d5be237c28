"""Tables beside what was measured, and how they are printed."""

from __future__ import annotations

import json

import pytest

from acclimate.paper import Available, Scope, compare, jobs_of, plan_tables
from acclimate.paper.rendering import FORMATS, text
from acclimate.paper.tables import find_table, own_tables, tables
from tiny_data import by_key, made_up


def compared(label, *, available=None, scope=None, run=False, **more):
    (plan,) = plan_tables([find_table(label)], available=available or Available(), scope=scope)
    results = by_key(made_up(job) for job in jobs_of([plan])) if run else {}
    return compare(plan, results, **more)


def row_of(comparison, row, column):
    return next(each for each in comparison.rows if (each.row, each.column) == (row, column))


@pytest.mark.parametrize("table", [*tables(), *own_tables()], ids=lambda table: table.label)
def test_every_table_can_be_printed_with_nothing_available(table):
    shown = compared(table.label, simulate=False)
    assert len(shown.rows) == len(table.cells)
    for each in shown.rows:
        assert each.status in ("missing", "counted", "library", "published only")
        assert each.lacks if each.status == "missing" else True
    for form in FORMATS.values():
        assert table.label in form(shown)
    assert json.dumps(shown.to_dict())


def test_published_measured_and_the_difference(cifar):
    shown = compared("tbl:groupnorm", available=cifar, run=True)
    ent = row_of(shown, "WRN-26-1-BN", "ENT")
    assert (ent.published, ent.measured, ent.status) == (13.1, pytest.approx(20.0), "measured")
    assert ent.difference == pytest.approx(6.9)
    assert ent.jobs == 75
    line = next(
        line
        for line in text(shown).splitlines()
        if line.startswith("WRN-26-1-BN") and "ENT" in line
    )
    assert line.split()[:6] == ["WRN-26-1-BN", "ENT", "error", "%", "13.1", "20.0"]
    assert "+6.9" in line


def test_what_can_run_is_not_called_missing(cifar):
    ent = row_of(compared("tbl:groupnorm", available=cifar), "WRN-26-1-BN", "ENT")
    assert (ent.status, ent.jobs, ent.measured) == ("can run", 75, None)


def test_a_small_version_is_marked_in_every_line_and_in_the_json(cifar):
    scope = Scope(images=20, severities=(5,))
    shown = compared("tbl:groupnorm", available=cifar, scope=scope, run=True)
    words = "20 images a shift, severity 5 only"
    out = text(shown)
    lines = [line for line in out.splitlines() if line.startswith(("WRN", "ResNet50"))]
    assert len(lines) == 12
    assert all(line.endswith(words) for line in lines)
    assert "SMALL VERSION" in out
    plain = shown.to_dict()
    assert plain["small"]["words"] == words
    runs = [row for row in plain["rows"] if row["metric"] != "parameters"]
    assert all(row["small"] == words for row in runs)


def test_parameters_are_counted():
    shown = compared("tbl:table-9")
    affine = row_of(shown, "adapted parameters", "affine")
    assert (affine.measured, affine.status) == (53_120, "counted")
    assert "53,120" in affine.erratum
    assert row_of(shown, "adapted parameters", "w/o adapt").measured == 0


def test_hyper_parameters_are_the_librarys_and_say_so():
    shown = compared("tab:hyperparams")
    batch = row_of(shown, "vanilla ResNeXt101, ENT", "batch size")
    assert (batch.published, batch.measured, batch.status) == (128, 32, "library")
    for each in shown.rows:
        if each.column != "batch size":
            assert each.measured == pytest.approx(each.published), (each.row, each.column)


def test_alexnets_errors_are_not_passed_off_as_measured():
    for label in ("tab:alexnet_in_c", "tab:alexnet-in-d"):
        for each in compared(label).rows:
            assert (each.status, each.difference) == ("library", None)
            assert any("not measured" in note for note in each.notes)


def test_statistics_of_the_label_map():
    shown = compared("tab:mapping")
    assert [each.status for each in shown.rows] == ["counted"] * 12
    row = row_of(shown, "ImageNet-D classes", "3")
    assert row.measured == 12
    assert "the released map has 164 classes and 464 pairs" in row.notes


@pytest.mark.parametrize("label", ["fig:theory", "fig:2p-weight"])
def test_the_two_point_model_is_simulated(label):
    simulated = [row for row in compared(label).rows if row.status == "simulated"]
    assert len(simulated) == (2 if label == "fig:theory" else 6)
    assert all(0 < row.measured < 100 for row in simulated)
    assert all(any("acclimate theory" in note for note in row.notes) for row in simulated)


def test_rank_correlations_of_the_printed_errors():
    rows = [row for row in compared("fig:systematic").rows if row.metric == "rank correlation"]
    assert [round(row.difference, 2) for row in rows] == [0, 0]


def test_what_diverged_in_the_paper_is_printed_so():
    out = text(compared("tab:rpl_sensitivity2", simulate=False))
    assert "diverged" in out


def test_a_reason_that_many_lines_share_is_printed_once():
    out = text(compared("tbl:detailed-corruptions-cifarc"))
    assert out.count("https://zenodo.org/records/2535967") == 1
