"""What is missing for a cell, and how to get it."""

from __future__ import annotations

import pytest

from acclimate.bench.choices import Choices
from acclimate.errors import AcclimateError
from acclimate.paper import Available, plan_cell, plan_tables
from acclimate.paper.tables import find_table, tables
from tiny_data import cell_of, tiny_npz

BN = ("tbl:groupnorm", "WRN-26-1-BN", "ENT")


def lacks(cell, **given):
    return [str(lack) for lack in plan_cell(cell, **{"available": Available(), **given}).lacks]


def test_with_nothing_available_only_what_takes_no_data_can_be_had():
    cells = [cell for plan in plan_tables(tables(), available=Available()) for cell in plan.cells]
    free = [plan.cell.metric for plan in cells if not plan.lacks]
    assert set(free) == {
        "parameters", "adapted parameters", "classes", "optimizer.lr", "batch_size", "epochs"
    }  # fmt: skip
    assert all(str(lack).strip() and lack.how for plan in cells for lack in plan.lacks)
    assert not any(plan.jobs for plan in cells)


def test_data_says_where_to_get_it_and_what_would_do_instead():
    (words,) = lacks(cell_of(*BN))
    assert "https://zenodo.org/records/2535967" in words
    assert "--root cifar10-c=DIR" in words
    assert "--root cifar10=DIR alone" in words
    assert "\n" not in words


def test_an_empty_folder_is_not_the_data_set(tmp_path):
    (words,) = lacks(cell_of(*BN), available=Available(roots={"cifar10": str(tmp_path)}))
    assert words.startswith("cifar10: expected test_batch.bin of cifar10")


def test_a_set_with_gaps_is_refused_unless_that_is_asked_for(tmp_path):
    root = str(tiny_npz(tmp_path / "cifar10-test.npz"))
    (words,) = lacks(cell_of(*BN), available=Available(roots={"cifar10": root}))
    assert "expected 10,000 images" in words
    assert not lacks(cell_of(*BN), available=Available(roots={"cifar10": root}, incomplete=True))


def test_missing_corruptions_are_named(cifar_c, tmp_path):
    assert not lacks(cell_of(*BN), available=cifar_c)
    (tmp_path / "cifar10-c" / "fog.npy").unlink()
    available = Available(roots=cifar_c.roots)
    (words,) = lacks(cell_of(*BN), available=available)
    assert "1 parts are not in" in words
    assert "fog.npy" in words
    by_corruption = ("mt3_comparison", "WRN-26-1-BN, ENT")
    assert lacks(cell_of(*by_corruption, "fog"), available=available)
    assert not lacks(cell_of(*by_corruption, "snow"), available=available)


def test_weights_say_whose_they_are_or_what_makes_them(cifar_c):
    (words,) = lacks(cell_of("table-2", "WRN-28-10 vanilla", "ENT"), available=cifar_c)
    assert "RobustBench" in words
    assert "--weights 'WRN-28-10 vanilla=FILE'" in words
    (words,) = lacks(cell_of("table-2", "WRN-26-16 vanilla", "ENT"), available=cifar_c)
    assert "acclimate pretrain --method vanilla --dataset cifar10" in words


def test_weights_of_a_row_and_of_a_model(cifar_c, tmp_path):
    file = tmp_path / "net.pt"
    file.write_bytes(b"weights")
    cell = cell_of("table-2", "WRN-28-10 vanilla", "ENT")
    for key in ("WRN-28-10 vanilla", "WRN-28*", "acclimate:wrn-28-10"):
        available = Available(roots=cifar_c.roots, weights={key: str(file)})
        available.check([find_table("tbl:table-2")])
        plan = plan_cell(cell, available=available)
        assert {job.weights.path for job in plan.jobs} == {str(file)}


def test_a_model_of_several_rows_has_to_be_told_which(tmp_path):
    file = tmp_path / "net.pt"
    file.write_bytes(b"weights")
    available = Available(weights={"acclimate:wrn-26-16-bn": str(file)})
    with pytest.raises(AcclimateError, match=r"say for which row.*WRN-26-16 vanilla"):
        available.check([find_table("tbl:table-2")])


def test_a_row_with_a_star_in_its_name_is_that_row_alone(tmp_path):
    file = tmp_path / "net.pt"
    file.write_bytes(b"weights")
    available = Available(weights={"MNIST→SVHN, MT+CT*": str(file)})
    available.check([find_table("tbl:self-ensembling")])
    assert available.file(cell_of("self-ensembling", "MNIST→SVHN, MT+CT*", "ENT")) == str(file)
    assert available.file(cell_of("self-ensembling", "MNIST→SVHN, MT+CT+TF", "ENT")) is None


def test_a_model_for_each_shift(cifar_c, tmp_path):
    cell = cell_of("table-2", "WRN-26-16 UDA-SS", "ENT")
    one = tmp_path / "fog.pt"
    one.write_bytes(b"weights")
    available = Available(roots=cifar_c.roots, weights={cell.row: str(one)})
    assert "put {shift} into the path" in lacks(cell, available=available)[0]
    each = Available(roots=cifar_c.roots, weights={cell.row: str(tmp_path / "{shift}.pt")})
    assert "no file" in lacks(cell, available=each)[0]
    fog = cell_of("detailed-corruptions-cifarc", "WRN-26-16 UDA-SS, ENT", "fog")
    each = Available(roots=cifar_c.roots, weights={fog.row: str(tmp_path / "{shift}.pt")})
    assert {job.weights.path for job in plan_cell(fog, available=each).jobs} == {str(one)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"roots": {"cifer10": "."}}, "did you mean 'cifar10'"),
        ({"roots": {"cifar10": "/nowhere"}}, "expected cifar10 in /nowhere, but nothing is there"),
        ({"weights": {"acclimate:wrn-28-10": "/nowhere.pt"}}, "no weights file /nowhere.pt"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, message):
    with pytest.raises(AcclimateError, match=message):
        Available(**given).check([find_table("tbl:table-2")])


def test_weights_for_nothing_that_is_asked_for_are_refused(tmp_path):
    file = tmp_path / "net.pt"
    file.write_bytes(b"weights")
    with pytest.raises(AcclimateError, match="no model and no row"):
        Available(weights={"timm:vit": str(file)}).check([find_table("tbl:groupnorm")])


def test_a_choice_by_other_images_needs_tuning_or_a_choice():
    cell = cell_of("wilds", "camelyon17, ENT", "test (OOD)")
    assert any("needs acclimate tune" in words for words in lacks(cell))
    chosen = Choices.of({"*": {"ent": {"optimizer.lr": 3e-4, "epochs": 2}}})
    assert not any("tune" in words for words in lacks(cell, choices=chosen))


def test_what_the_paper_does_not_say():
    words = lacks(cell_of("fig:theory", "entropy", "temperatures"))
    assert any("the paper does not say which were tried" in each for each in words)


def test_others_numbers_are_not_for_us():
    (words,) = lacks(cell_of("baselines-inc", "ResNet50", "TENT"))
    assert words.startswith("Wang et al. 2021: published only, not run here")
    assert words.endswith("acclimate bench --recipes tent runs the method")


def test_forgetting_needs_the_clean_images_as_well(tmp_path):
    cell = cell_of("forgetting", "RPL, severity 3", "accuracy on ImageNet")
    assert [words.partition(":")[0] for words in lacks(cell)] == ["imagenet-c", "imagenet"]
