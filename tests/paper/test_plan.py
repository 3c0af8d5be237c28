"""What is run for a cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acclimate.bench.choices import Choices
from acclimate.data.corruptions import DEV, TEST
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe
from acclimate.paper import Available, Scope, jobs_of, plan_cell, plan_tables, read_choices
from acclimate.paper.plan import chosen_for
from acclimate.paper.tables import find_table, own_tables, tables
from tiny_data import cell_of

BN = ("tbl:groupnorm", "WRN-26-1-BN", "ENT")


@pytest.fixture
def all_data(monkeypatch, tmp_path):
    """As if every data set and file were there."""
    monkeypatch.setattr(Available, "problem", lambda *args, **more: None)
    file = tmp_path / "net.pt"
    file.write_bytes(b"weights")
    monkeypatch.setattr(Available, "file", lambda self, cell: _file(cell, file))
    return Available()


def _file(cell, file: Path) -> str | None:
    if cell.weights and "SHIFT" in cell.weights:
        for name in (*TEST, *DEV):
            file.with_name(f"{name}.pt").write_bytes(b"weights")
        return str(file.with_name("{shift}.pt"))
    return str(file)


@pytest.fixture
def bn_plan():
    """The plan of one cell, ENT on fifteen corruptions."""
    return lambda available, **more: plan_cell(cell_of(*BN), available=available, **more)


def test_a_test_cell_is_fifteen_corruptions_at_five_severities(cifar_c, bn_plan):
    jobs = bn_plan(cifar_c).jobs
    assert {job.corruption for job in jobs} == set(TEST)
    assert len(jobs) == 75
    assert (jobs[0].model, jobs[0].dataset) == ("acclimate:wrn-26-2-bn-cifar10", "cifar10-c")
    assert (jobs[0].recipe, jobs[0].preset, jobs[0].images) == ("ent", None, None)


def test_corruptions_are_made_on_the_fly_where_the_published_set_is_not_there(
    cifar, cifar_c, bn_plan
):
    made = bn_plan(cifar)
    assert {job.dataset for job in made.jobs} == {"cifar10"}
    assert "cifar/fog:3" in {job.shift for job in made.jobs}
    assert len(made.jobs) == 75
    assert any("made on the fly from cifar10" in note for note in made.notes)
    both = bn_plan(Available(roots={**cifar.roots, **cifar_c.roots}, incomplete=True))
    assert {job.dataset for job in both.jobs} == {"cifar10-c"}
    assert not any("on the fly" in note for note in both.notes)


def test_a_small_version(cifar_c, bn_plan):
    scope = Scope(images=20, severities=(5,), shifts=("fog", "snow"))
    jobs = bn_plan(cifar_c, scope=scope).jobs
    assert [(job.shift, job.images) for job in jobs] == [("snow:5", 20), ("fog:5", 20)]


def test_cells_that_a_small_version_leaves_out_say_so(cifar_c):
    cell = cell_of("mt3_comparison", "WRN-26-1-BN, ENT", "fog")
    (lack,) = plan_cell(cell, available=cifar_c, scope=Scope(shifts=("snow",))).lacks
    assert (lack.kind, lack.how) == ("scope", "snow only")


def test_one_severity(cifar_c):
    jobs = plan_cell(cell_of("baselines", "MT3, WRN-26-1-GN", "ours, ENT"), available=cifar_c).jobs
    assert {job.severity for job in jobs} == {5}
    assert len(jobs) == 15


def test_options_of_the_cell_win_over_a_choice(cifar_c):
    cell = cell_of("mt3_comparison", "WRN-26-1-GN, ENT, full model", "fog")
    choices = Choices.of({"*": {"ent": {"selector": "affine", "epochs": 3}}})
    (job, *_) = plan_cell(cell, available=cifar_c, choices=choices).jobs
    assert dict(job.options) == {"selector": "all", "epochs": 3}


def test_an_unadapted_model_has_no_options_and_one_seed(cifar_c):
    choices = Choices.of({"*": {"ent": {"epochs": 3}}})
    jobs = plan_cell(cell_of(*BN[:2], "w/o adapt"), available=cifar_c, choices=choices).jobs
    assert {(job.recipe, job.options, job.seed) for job in jobs} == {("none", (), 0)}


def test_seeds_are_jobs_of_their_own(all_data):
    jobs = plan_cell(cell_of("tbl:seeds", "ENT", "dev"), available=all_data).jobs
    assert {job.seed for job in jobs} == {0, 1, 2}
    assert len(jobs) == 3 * 4 * 5


def test_forgetting_is_asked_for(all_data):
    row = "RPL, severity 3"
    jobs = plan_cell(cell_of("forgetting", row, "accuracy on ImageNet"), available=all_data).jobs
    assert {(job.dataset, job.severity, job.forgetting) for job in jobs} == {
        ("imagenet-c", 3, True)
    }
    (clean,) = plan_cell(
        cell_of("forgetting", "w/o adapt", "accuracy on ImageNet"), available=all_data
    ).jobs
    assert (clean.dataset, clean.shift, clean.recipe, clean.forgetting) == (
        "imagenet", None, "bn", False
    )  # fmt: skip


def test_domains_have_no_severities(all_data):
    jobs = plan_cell(cell_of("visda-robust-models", "vanilla", "mDE"), available=all_data).jobs
    assert [job.shift for job in jobs] == [
        "clipart", "infograph", "painting", "quickdraw", "real", "sketch"
    ]  # fmt: skip


def test_cells_that_differ_in_epochs_alone_share_a_run(all_data):
    (plan,) = plan_tables([find_table("tab:epochs")], available=all_data)
    after = {
        each.cell.row: each.tries[0]
        for each in plan.cells
        if each.cell.column == "ENT, 0.001" and each.cell.epochs
    }
    assert [setting.options["epochs"] for setting in after.values()] == [5] * 5
    assert [setting.epochs for setting in after.values()] == [(1,), (2,), (3,), (4,), (5,)]
    # Six settings and epoch 0, at four corruptions and five severities.
    assert len(jobs_of([plan])) == 7 * 4 * 5


def test_the_best_by_its_own_score_is_a_grid(all_data):
    cell = cell_of("self-ensembling", "MNIST→USPS, MT+TF", "ENT")
    plan = plan_cell(cell, available=all_data)
    assert len(plan.tries) == 5
    assert {each.epochs for each in plan.tries} == {tuple(range(1, 11))}
    assert len(plan.jobs) == 5
    assert any("selection=oracle: best of 50 settings by the labels" in note for note in plan.notes)


def test_what_was_chosen_is_not_searched_again_and_the_rest_is_still_an_oracle(all_data):
    cell = cell_of("self-ensembling", "MNIST→USPS, MT+TF", "ENT")
    chosen = Choices.of({"*": {"ent": {"optimizer.lr": 1e-3}}})
    plan = plan_cell(cell, available=all_data, choices=chosen)
    assert [dict(job.options) for job in plan.jobs] == [{"optimizer.lr": 1e-3, "epochs": 10}]
    assert "selection=oracle: best of 10 settings by the labels it is scored on" in plan.notes
    assert "options of --choice" in plan.notes
    whole = Choices.of({"*": {"ent": {"optimizer.lr": 1e-3, "epochs": 2}}})
    assert not any(
        "oracle" in note for note in plan_cell(cell, available=all_data, choices=whole).notes
    )


def test_leave_one_out_is_no_oracle_and_takes_no_choice(all_data):
    cell = cell_of("tab:leave_one_out", "ResNet50, ENT", "leave one out")
    for choices in (None, Choices.of({"*": {"ent": {"optimizer.lr": 1e-3}}})):
        notes = plan_cell(cell, available=all_data, choices=choices).notes
        assert "chosen on the other domains: best of 21 settings there" in notes
        assert not any("oracle" in note or "--choice" in note for note in notes)


@pytest.mark.parametrize("table", [*tables(), *own_tables()], ids=lambda table: table.label)
def test_every_job_of_every_table_is_one_that_can_be_run(table, all_data):
    (plan,) = plan_tables([table], available=all_data)
    for job in {job.key: job for each in plan.cells for job in each.jobs}.values():
        if job.recipe != "none":
            get_recipe(job.recipe, dict(job.options))
    kinds = {lack.kind for each in plan.cells for lack in each.lacks}
    assert kinds <= {"others", "tune", "unstated", "predictions"}


def test_where_the_hyper_parameters_come_from(all_data, cifar_c):
    def notes(*cell, **more):
        return " ".join(plan_cell(cell_of(*cell), available=cifar_c, **more).notes)

    assert "the library's defaults; the paper prints none" in notes(*BN)
    assert "this package's own" in notes(*BN)
    chosen = Choices.of({"*": {"ent": {"epochs": 3}}})
    assert "options of --choice" in notes(*BN, choices=chosen)
    assert "the paper's preset" in notes("table-1", "ResNet50 vanilla", "RPL")


def written(tmp_path, content):
    file = tmp_path / "choice.json"
    file.write_text(json.dumps(content))
    return file


def test_what_tune_wrote_and_how_it_was_chosen(tmp_path):
    entry = {"options": {"epochs": 7}, "selection": "oracle: chosen on the test data"}
    choices = read_choices(written(tmp_path, {"acclimate:wrn-40-2": {"ent": entry}}))
    assert choices.find("acclimate:wrn-40-2", "ent").options == {"epochs": 7}
    assert choices.marks == ["oracle: chosen on the test data"]


def test_a_model_by_its_name_comes_before_a_pattern_as_in_bench(tmp_path):
    cell = next(cell for cell in find_table("tbl:groupnorm").cells if cell.recipe == "ent")
    content = {"*wrn*": {"ent": {"epochs": 9}}, cell.model: {"ent": {"epochs": 2}}}
    assert chosen_for(cell, read_choices(written(tmp_path, content))) == {"epochs": 2}


def test_options_for_each_shift_are_no_setting_of_a_cell(tmp_path):
    entry = {"by_shift": {"imagenet-d clipart": {"options": {"epochs": 7}}}}
    with pytest.raises(AcclimateError, match="for each shift"):
        read_choices(written(tmp_path, {"paper:resnet50": {"ent": entry}}))


def test_a_recipe_that_is_not_there_shows_before_anything_runs(tmp_path):
    with pytest.raises(AcclimateError, match="did you mean 'ent'"):
        read_choices(written(tmp_path, {"acclimate:wrn-40-2": {"entt": {"epochs": 3}}}))


def test_the_papers_own_setting_is_run_on_however_many_images(all_data):
    plan = plan_cell(cell_of("table-1", "ResNet50 vanilla", "RPL"), available=all_data)
    assert plan.tries[0].options == {"optimizer.lr": 0.001, "epochs": 5}
    other = Choices.of({"paper:resnet50": {"rpl": {"epochs": 1}}})
    chosen = plan_cell(plan.cell, available=all_data, choices=other)
    assert chosen.tries[0].options == {"optimizer.lr": 0.001, "epochs": 1}
    assert "options of --choice" in chosen.notes
    searched = plan_cell(cell_of("tab:q-ablation", "RPL", "q = 0.8"), available=all_data)
    assert searched.tries[0].epochs == (1, 2, 3, 4, 5, 6)
