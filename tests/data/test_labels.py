"""Folder names and indices become classes of the model, or an error that tells why not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.data import ClassList, match_classes
from acclimate.data.labels import check_labels, labels_of_paths, read_labels
from acclimate.errors import AcclimateError, AcclimateWarning

FISH = ClassList(
    ("tench, Tinca tinca", "goldfish, Carassius auratus", "great white shark", "crane", "crane"),
    ids=("n01440764", "n01443537", "n01484850", "n02012849", "n03126707"),
)


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["tench", "goldfish"], [0, 1]),
        (["TENCH", "Great_White-Shark"], [0, 2]),
        (["Tinca tinca", "carassius_auratus"], [0, 1]),
        (["tench, Tinca tinca"], [0]),
        (["n01443537", "N03126707"], [1, 4]),
        (["0", "4", "3"], [0, 4, 3]),
        (["004", "01"], [4, 1]),
        (["goldfish", "n01440764", "2"], [1, 0, 2]),
    ],
)
def test_folders_match_by_name_id_or_index(folders, expected):
    assert match_classes(folders, FISH) == expected


def test_one_rule_for_all_goes_before_a_mixture():
    # "1" is also the name of class 2 here; with "0", which is no name, both are indices.
    classes = ClassList(("a", "b", "1"))
    assert match_classes(["0", "1"], classes) == [0, 1]
    assert match_classes(["a", "1"], classes) == [0, 2]


def test_folders_that_name_no_class_at_all_give_no_labels():
    assert match_classes(["2024-05-01", "2024-05-02"], FISH) is None
    assert match_classes([], FISH) is None


def test_some_folders_without_a_class_are_an_error_with_the_nearest_name():
    with pytest.raises(
        AcclimateError, match=r"1 of 2 folders.*'goldfsh' \(did you mean 'goldfish'"
    ):
        match_classes(["tench", "goldfsh"], FISH)


def test_an_index_beyond_the_classes_is_an_error():
    with pytest.raises(AcclimateError, match=r"'5'.*index below 5"):
        match_classes(["0", "5"], FISH)


def test_a_name_of_two_classes_is_not_guessed():
    with pytest.raises(AcclimateError, match="crane"):
        match_classes(["tench", "crane"], FISH)


def test_without_classes_only_indices_are_read():
    assert match_classes(["3", "010"], None) == [3, 10]
    assert match_classes(["3", "cat"], None) is None
    assert match_classes(["cat", "dog"], None) is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 999), min_size=1, unique=True))
def test_any_subset_of_indices_matches_itself(indices):
    thousand = ClassList(tuple(f"class {index}" for index in range(1000)))
    assert match_classes([f"{index:04d}" for index in indices], thousand) == indices
    assert match_classes([f"Class_{index}" for index in indices], thousand) == indices


def test_as_many_ids_as_names():
    with pytest.raises(AcclimateError, match="as many ids as names"):
        ClassList(("a", "b"), ids=("x",))


def test_a_flat_folder_has_no_labels():
    assert labels_of_paths(["a.png", "b.png"], FISH) == (None, None)


def test_files_outside_the_class_folders_are_unknown():
    labels, names = labels_of_paths(["a.png", "tench/b.png"], FISH)
    assert labels is not None
    assert labels.tolist() == [-1, 0]
    assert names == ("tench",)


def test_the_class_folder_is_the_outermost():
    labels, _ = labels_of_paths(["tench/2023/a.png", "goldfish/2024/a.png"], FISH)
    assert labels is not None
    assert labels.tolist() == [0, 1]


def test_severity_folders_are_not_taken_for_class_indices():
    labels, names = labels_of_paths(["1/n01440764/a.png", "2/n01443537/a.png"], FISH)
    assert labels is not None
    assert labels.tolist() == [0, 1]
    assert names == ("n01440764", "n01443537")


def test_folders_by_date_are_unlabelled_but_named():
    assert labels_of_paths(["2024-05/a.png", "2024-06/a.png"], FISH) == (
        None,
        ("2024-05", "2024-06"),
    )


@pytest.mark.parametrize(
    "labels",
    [
        [0, 2, -1],
        (0, 2, -1),
        np.array([0, 2, -1], np.int32),
        np.array([[0], [2], [-1]]),
        torch.tensor([0, 2, -1]),
        torch.tensor([0.0, 2.0, -1.0]),
    ],
)
def test_labels_of_any_kind_become_int64(labels):
    checked = check_labels(labels, count=3, class_count=3)
    assert checked is not None
    assert checked.dtype == torch.int64
    assert checked.tolist() == [0, 2, -1]


def test_all_unknown_is_no_labels():
    assert check_labels([-1, -1], count=2) is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"each of the 3 images, got labels of shape \(2,\)"),
        ([[0, 1], [1, 0], [1, 0]], r"shape \(3, 2\)"),
        ([0, 1, 10], "model with 10 classes: expected 0 to 9.*got 10"),
        ([0, 1, -7], "got -7"),
        ([0.5, 1, 2], "whole numbers"),
        (["cat", "dog", "cat"], "class indices"),
    ],
)
def test_wrong_labels_are_refused(labels, message):
    with pytest.raises(AcclimateError, match=message):
        check_labels(labels, count=3, class_count=10)


# Tables.

NAMES = ["day/a.png", "day/b.png", "night/b.png", "night/c.png"]


def labels_in(tmp_path, table: str, classes: ClassList | None = FISH) -> list[int]:
    (tmp_path / "labels.csv").write_text(table, encoding="utf-8")
    return read_labels(tmp_path / "labels.csv", NAMES, classes).tolist()


@pytest.mark.parametrize(
    "table",
    [
        "file,class\nday/a.png,tench\nnight/c.png,goldfish\n",
        "\ufeffFile;Class;by\r\nday/a.png;tench;me\r\nc.png;Goldfish;me\r\nday/b.png;;\r\n",
        "file\tclass\n./day/a.png\t0\nc.png\t1\n",
        "class,file\nn01440764,a.png\nn01443537,night\\c.png\n",
    ],
)
def test_tables_as_people_and_spreadsheets_write_them(table, tmp_path):
    assert labels_in(tmp_path, table) == [0, -1, -1, 1]


def test_files_that_are_not_there_are_named_in_a_warning(tmp_path):
    with pytest.warns(AcclimateWarning, match=r"2 of 3 files in .* \(b.png, d.png\)"):
        assert labels_in(tmp_path, "file,class\na.png,0\nb.png,1\nd.png,1\n")[0] == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "columns file and class"),
        ("image,class\na.png,0\n", "no 'file' among 'image', 'class'"),
        ("file,class\n", "expected labelled files"),
        ("file,class\na.png,goldfsh\n", "got 'goldfsh'"),
        ("file,class\na.png,77\n", "got '77'"),
        ("file,class\nx.png,0\n", "expected names such as 'day/a.png', got 'x.png'"),
        ("file,class\na.png,0\na.png,1\n", "one class for a.png"),
    ],
)
def test_mistakes_in_tables(table, said, tmp_path):
    with pytest.raises(AcclimateError, match=said):
        labels_in(tmp_path, table)
