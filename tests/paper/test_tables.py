"""The paper's tables as data: all of them, every name known, and numbers that go together."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe, list_recipes
from acclimate.metrics import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    CORRUPTIONS,
    DOMAINS,
    mce,
    mde,
    mean_error,
)
from acclimate.models import list_models
from acclimate.models.paper import paper_names
from acclimate.paper import tables as module
from acclimate.paper.tables import Cell, Table, find_table, find_tables, tables
from acclimate.presets import PRESETS, find_preset
from acclimate.pretraining import METHODS
from acclimate.theory.settings import FIGURES

# 44 tables are printed: tbl:hparams_summary has only ticks, tbl:app-model-checkpoints only links.
# Of the other 42, tab:mapping counts the classes of a label map; 41 hold results of models.
TABLES = [
    "tbl:table-1", "tbl:table-2", "lbl:table-3", "tbl:baselines-inc", "tbl:baselines",
    "tbl:table-5", "tbl:table-6", "tbl:table-7", "tbl:table-8", "tbl:table-9", "tbl:groupnorm",
    "tbl:ece", "tbl:forgetting", "tbl:table-10", "tab:alexnet_in_c", "tab:epochs",
    "learning_rate", "tab:entropy_sensitivity2", "tab:rpl_sensitivity2", "tab:hyperparams",
    "tbl:detailed-corruptions", "tbl:detailed-corruptions-cifarc", "tbl:detailed-uda-results",
    "tab:q-ablation", "tbl:ttt", "tbl:mt3_comparison", "tbl:batchsize", "tbl:seeds",
    "tab:mapping", "tab:leave_one_out", "tab:visda-robust-models", "tab:visda-robust-models-BN",
    "tab:visda-robust-models-GCE", "tab:visda-robust-models-ENT", "tab:visda-robust-models-rpl",
    "tab:imagenet-d-efficientnet", "tab:error_analysis_2", "tab:alexnet-in-d", "tbl:wilds",
    "tbl:app-bit-tuning", "tbl:app-bit-final", "tbl:self-ensembling",
]  # fmt: skip
# 9 figures are printed; fig:main is a sketch of the idea.
FIGURE_LABELS = [
    "fig:theory", "fig:2p-momentum", "fig:2p-standard", "fig:2p-weight",
    "fig:detailed-severities", "fig:online", "fig:RPL-over-time", "fig:systematic",
]  # fmt: skip
METRICS = {
    "error", "accuracy", "mCE", "mDE", "ECE", "filtered error", "unmappable share", "parameters",
    "adapted parameters", "classes", "optimizer.lr", "batch_size", "epochs", "online error",
    "most predicted classes",
}  # fmt: skip
MEAN_ROUNDING = 0.1
MCE_ROUNDING = 0.05 + 0.05 * sum(100 / ALEXNET_CORRUPTIONS[name] for name in CORRUPTIONS) / 15
MDE_ROUNDING = 0.05 + 0.05 * sum(100 / error for error in ALEXNET_DOMAINS.values()) / 6
ALL = tables()
CELLS = [cell for table in ALL for cell in table.cells]


def by_row(table: Table) -> dict[str, list[Cell]]:
    rows: dict[str, list[Cell]] = defaultdict(list)
    for cell in table.cells:
        rows[cell.row].append(cell)
    return rows


def test_every_table_and_figure_that_holds_results_is_there():
    assert sorted(t.label for t in ALL if t.kind == "table") == sorted(TABLES)
    assert sorted(t.label for t in ALL if t.kind == "figure") == sorted(FIGURE_LABELS)


def test_41_tables_and_8_figures():
    assert len([t for t in ALL if t.kind == "table" and t.models]) == 41
    assert [t.label for t in ALL if t.kind == "table" and not t.models] == ["tab:mapping"]
    assert len([t for t in ALL if t.kind == "figure"]) == 8


def test_only_the_wilds_table_has_a_label_of_ours():
    assert [t.label for t in ALL if t.unlabelled] == ["tbl:wilds"]


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.label)
def test_its_cells_are_complete(table):
    places = [(cell.row, cell.column) for cell in table.cells]
    assert len(set(places)) == len(places)
    assert {cell.table for cell in table.cells} <= {table.label}
    for cell in table.cells:
        assert cell.metric in METRICS
        assert cell.unit in ("%", "")
        assert (cell.published is None) == (table.kind == "figure" or cell.diverged)
        assert cell.published_only <= bool(cell.source)
        assert bool(cell.search) <= bool(cell.chosen_on or table.kind == "figure")


def test_figures_say_why_they_have_no_numbers():
    figures = [table for table in ALL if table.kind == "figure"]
    assert all("drawn" in (figure.note or "") for figure in figures)
    assert all(figure.cells or figure.settings for figure in figures)
    assert {figure.settings.get("theory") for figure in figures} == {None, "main", *FIGURES}


def test_every_model_is_known():
    known = {*list_models("acclimate:*"), *(f"paper:{name}" for name in paper_names())}
    known |= set(list_models("torchvision:*"))
    assert {cell.model for cell in CELLS if cell.model} <= known


UNTRAINED = {
    "wrn-28-10", "wrn-26-16-bn", "wrn-26-2-bn", "wrn-26-1-bn", "resnet18-cifar", "resnet50-cifar",
}  # fmt: skip


def test_untrained_models_say_whose_weights_they_want():
    for cell in CELLS:
        own = (cell.model or "").removeprefix("acclimate:")
        bare = cell.model and (cell.model.startswith("torchvision:") or own in UNTRAINED)
        assert bool(cell.weights) == bool(bare), cell


def test_weights_to_train_name_a_method_and_data_that_exist():
    for weights in {cell.weights for cell in CELLS if cell.weights}:
        if weights.startswith("acclimate pretrain"):
            words = weights.split()
            named = dict(zip(words[2::2], words[3::2], strict=True))
            assert named["--method"] in METHODS
            assert find_dataset(named["--dataset"])
            assert find_dataset(named.get("--target", "cifar10"))


def test_every_data_set_split_and_shift_is_known():
    for cell in CELLS:
        if cell.dataset is None:
            assert cell.shift is cell.split is None, cell
            continue
        record = find_dataset(cell.dataset)
        assert cell.split is None or cell.split in record.splits, cell
        words = {*record.shifts, "test", *(["dev"] if record.dev else [])} if record.shifts else ()
        if cell.metric != "classes":
            assert (cell.shift in words) if record.shifts else cell.shift is None, cell
        assert cell.severity is None or (record.severities and 1 <= cell.severity <= 5), cell


def test_every_recipe_to_run_is_known_and_takes_its_options():
    known = {recipe.name for recipe in list_recipes()}
    for cell in CELLS:
        if cell.published_only or cell.recipe is None:
            continue
        assert cell.recipe in known, cell
        epochs = {"epochs": cell.epochs} if cell.epochs else {}
        get_recipe(cell.recipe, {**cell.options, **epochs})
        for option, tried in cell.search.items():
            for value in tried:
                get_recipe(cell.recipe, {**cell.options, option: value})


def test_what_is_not_ours_to_run():
    others = {cell.recipe for cell in CELLS if cell.published_only}
    assert others == {
        "none", "bn", "tent", "eata", "ttt", "slr", "ttt+++", "mt3", "bufr", "self-ensembling",
    }  # fmt: skip


WITH_CORRUPTIONS = [
    (table.label, row, cells)
    for table in ALL
    for row, cells in by_row(table).items()
    if {cell.shift for cell in cells} >= set(CORRUPTIONS) and table.label != "tab:alexnet_in_c"
]


def test_how_many_rows_have_all_corruptions():
    assert len(WITH_CORRUPTIONS) == 15 + 16 + 5 + 11


@pytest.mark.parametrize(("label", "row", "cells"), WITH_CORRUPTIONS)
def test_averages_follow_from_their_corruptions(label, row, cells):
    errors = {c.shift: c.published for c in cells if c.shift in CORRUPTIONS}
    (whole,) = (cell for cell in cells if cell.shift == "test")
    if whole.metric == "mCE":
        assert mce(errors).value == pytest.approx(whole.published, abs=MCE_ROUNDING)
    else:
        assert mean_error(errors).value == pytest.approx(whole.published, abs=MEAN_ROUNDING + 1e-9)


WITH_DOMAINS = [
    (table.label, row, cells)
    for table in find_tables("tab:*")
    for row, cells in by_row(table).items()
    if {cell.shift for cell in cells} >= set(DOMAINS) and any(c.metric == "mDE" for c in cells)
]


@pytest.mark.parametrize(("label", "row", "cells"), WITH_DOMAINS)
def test_the_mde_follows_from_its_domains_or_has_an_erratum(label, row, cells):
    errors = {c.shift: c.published for c in cells if c.shift in DOMAINS}
    (whole,) = (cell for cell in cells if cell.metric == "mDE")
    follows = abs(mde(errors).value - whole.published) <= MDE_ROUNDING
    assert follows == (whole.erratum is None)


def test_the_calibration_error_of_all_severities_is_their_mean():
    for row, (whole, *parts) in by_row(find_table("tbl:ece")).items():
        mean = sum(cell.published for cell in parts) / 5
        assert mean == pytest.approx(whole.published, abs=0.1), row


# The same run, printed elsewhere with another number.
DISAGREE = {
    ("tbl:baselines-inc", "ResNet50", "BN adapt"): "of Schneider et al.; the paper's own is 62.8",
    ("tbl:table-1", "EfficientNet-L2 Noisy Student", "w/o adapt"): "of Xie et al.; own: 28.9",
    ("tbl:table-1", "ResNet50 vanilla, IN-R", "w/o adapt"): "63.8, elsewhere 63.9",
    ("tbl:table-8", "RPL", "instant"): "49.2, elsewhere 48.9",
}


def test_tables_agree_with_each_other():
    runs: dict[tuple[object, ...], dict[tuple[str, str, str], float]] = defaultdict(dict)
    for cell in CELLS:
        if cell.published is None or cell.published_only or not cell.unit or cell.search:
            continue
        what = (cell.metric, cell.model, cell.weights, cell.dataset, cell.split, cell.shift)
        how = (cell.severity, cell.scored_on, cell.recipe, *_plain(cell))
        if (cell.table, cell.row, cell.column) not in DISAGREE:
            runs[what + how][cell.table, cell.row, cell.column] = cell.published
    apart = [found for found in runs.values() if max(found.values()) - min(found.values()) > 0.051]
    assert apart == []
    assert len({(c.table, c.row, c.column) for c in CELLS} & DISAGREE.keys()) == len(DISAGREE)
    assert sum(len(found) > 1 for found in runs.values()) > 50


def _plain(cell: Cell) -> tuple[object, ...]:
    """Its options, without those that are the paper's choice anyway."""
    preset = find_preset(cell.recipe, model_name=cell.model) if cell.model else None
    known = {"objective.q": 0.8, "batch_size": 128}
    if preset:
        known |= {"optimizer.lr": preset.lr, "batch_size": preset.batch_size}
        known |= {"epochs": preset.epochs}
    options = {**cell.options, **({"epochs": cell.epochs} if cell.epochs else {})}
    return tuple(sorted((k, str(v)) for k, v in options.items() if known.get(k) != v))


def test_presets_are_the_chosen_hyper_parameters():
    for row, cells in by_row(find_table("tab:hyperparams")).items():
        preset = find_preset(cells[0].recipe, model_name=cells[0].model)
        chosen = (preset.lr, preset.batch_size, preset.epochs)
        for cell, value in zip(cells, chosen, strict=True):
            assert cell.published == value or cell.erratum, row
    assert len(by_row(find_table("tab:hyperparams"))) + 2 == len(PRESETS)  # and BiT's two


def test_the_label_map_of_the_paper():
    pairs = [(int(cell.column), cell.published) for cell in find_table("tab:mapping").cells]
    assert sum(count for _, count in pairs) == 164
    assert sum(size * count for size, count in pairs) == 511


def test_swapped_rows_have_their_right_recipes():
    gn = [cell for cell in find_table("tbl:table-2").cells if cell.row == "WRN-26-1-GN"]
    assert {c.column: (c.recipe, c.published) for c in gn if c.unit} == {
        "w/o adapt": ("none", 18.6),
        "RPL": ("rpl", 18.4),
        "ENT": ("ent", 18.0),
    }


def test_a_row_under_the_wrong_heads_has_its_true_corruptions():
    row = by_row(find_table("tbl:detailed-corruptions-cifarc"))["WRN-26-16 vanilla, baseline"]
    errors = {cell.shift: cell for cell in row}
    assert (errors["fog"].published, errors["jpeg_compression"].published) == (10.0, 20.4)
    assert "wrong heads" in errors["fog"].erratum


def test_every_file_is_read_and_no_line_is_hard_to_read():
    folder = Path(module.__file__).parent
    assert {path.stem for path in folder.glob("*.json")} == {*module.GROUPS, "readme", "chosen"}
    for path in folder.glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
        assert max(len(line) for line in path.read_text(encoding="utf-8").splitlines()) < 700, path


def labels(name: str) -> list[str]:
    return [table.label for table in find_tables(name)]


def test_a_label_with_or_without_its_prefix():
    assert labels("tbl:table-2") == labels("table-2") == ["tbl:table-2"]
    assert labels("learning_rate") == ["learning_rate"]


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.label)
def test_every_label_is_found(table):
    assert labels(table.label) == [table.label]


def test_an_alias_is_the_table():
    assert labels("tab:my_label") == labels("my_label") == ["tbl:app-bit-tuning"]


def test_wildcards():
    assert labels("*bit*") == ["tbl:app-bit-tuning", "tbl:app-bit-final"]
    assert len(labels("*")) == 50


def test_a_wrong_name_is_refused_with_the_nearest():
    with pytest.raises(AcclimateError, match="did you mean 'tbl:groupnorm'"):
        find_tables("tbl:gruopnorm")
    with pytest.raises(AcclimateError, match="did you mean 'groupnorm'"):
        find_tables("groupnrom")
