"""Hyper-parameters from a file."""

from __future__ import annotations

import json

import pytest

from acclimate.errors import AcclimateError
from acclimate.paper import read_choices
from acclimate.paper.plan import chosen_for
from acclimate.paper.tables import find_table


def written(tmp_path, content):
    file = tmp_path / "choice.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_for_all_models_and_for_one(tmp_path):
    content = {"ent": {"epochs": 2}, "acclimate:wrn-40*": {"ent": {"epochs": 7}}}
    choices = read_choices(written(tmp_path, content))
    assert choices.find("acclimate:wrn-40-2", "ent").options == {"epochs": 7}
    assert choices.find("acclimate:wrn-26-2-bn", "ent").options == {"epochs": 2}
    assert choices.find("acclimate:wrn-26-2-bn", "rpl") is None


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "expected JSON"),
        ({"ent": 3}, "expected {"),
        ([], "expected {"),
        ({"ent": {"epoch": 3}}, "epochs"),
        ({"acclimate:wrn-40-2": {"entt": {"epochs": 3}}}, "did you mean 'ent'"),
    ],
)
def test_mistakes_show_before_anything_runs(tmp_path, content, message):
    with pytest.raises(AcclimateError, match=message):
        read_choices(written(tmp_path, content))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(AcclimateError, match="check --choice"):
        read_choices(tmp_path / "nothing.json")
