"""The choices that ship, and README's tables with them."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

import measure
from acclimate.bench.choices import Choices
from acclimate.data.shift import DEV, Shift
from acclimate.paper import StoredResults, compare, find_tables, plan_tables, with_stored
from acclimate.paper.chosen import shipped_choices, with_shipped
from acclimate.paper.needs import Available
from acclimate.paper.rendering import FORMATS
from acclimate.paper.tables import GROUPS, own_tables, tables
from page_tables import RESULTS, headline

MODEL = "acclimate:wrn-26-2-bn-cifar10"


def test_they_are_the_choices_of_the_stored_search(tmp_path, monkeypatch, capsys):
    assert measure.ship(Namespace(write=False)) == 0, capsys.readouterr().out
    elsewhere = tmp_path / "chosen.json"
    monkeypatch.setattr(measure, "SHIPPED", elsewhere)
    assert measure.ship(Namespace(write=False)) == 1
    assert "measure.py ship --write" in capsys.readouterr().out
    assert measure.ship(Namespace(write=True)) == 0
    assert measure.ship(Namespace(write=False)) == 0


def test_all_were_chosen_on_hold_out_corruptions():
    found = [each for recipes in shipped_choices().chosen.values() for each in recipes.values()]
    assert {each.selection for each in found} == {"dev"}
    for place in {place for each in found for place in each.search.chosen_on}:
        assert Shift.parse(place.partition(" ")[2]).name in DEV


def test_group_norm_learns_at_a_smaller_rate_than_batch_norm():
    norms = {"bn": "acclimate:wrn-26-2-bn-cifar10", "gn": "acclimate:wrn-26-2-gn-cifar10"}
    for recipe in ("ent", "rpl", "hard", "soft"):
        rates = {
            norm: shipped_choices().find(model, recipe).options["optimizer.lr"]
            for norm, model in norms.items()
        }
        assert rates["gn"] < rates["bn"] / 10, recipe


def test_a_choice_of_ones_own_comes_first():
    own = with_shipped(Choices.of({"*": {"ent": {"epochs": 1}}}))
    assert own.find(MODEL, "ent").options == {"epochs": 1}
    assert own.find(MODEL, "rpl").options["epochs"] == 10


def test_the_tables_of_readme_are_none_of_the_papers():
    own = {table.label for table in own_tables()}
    assert {table.label for table in find_tables("readme")} == own
    assert not own & {table.label for table in [*tables(), *find_tables("*")]}
    assert {table.group for table in own_tables()}.isdisjoint(GROUPS)


@pytest.mark.parametrize(("label", "number"), [("readme:cifar10-c", 0), ("readme:cifar10-c-5", 1)])
def test_stored_runs_have_the_numbers_of_readme(label, number):
    """Of the networks that ship, so that a user can run the same; ``headline`` makes README's."""
    stored = StoredResults(measure.everything())
    plans = with_stored(
        plan_tables(find_tables(label), available=Available()), stored, with_shipped()
    )
    (shown,) = [compare(plan, stored.by_key) for plan in plans]
    rows = json.loads((RESULTS / "cifar10c.json").read_text(encoding="utf-8"))
    once = headline([row for row in rows if row["seed"] == 0]).split("At severity 5:")[number]
    theirs = {line.split(" | ")[0].strip("| "): line for line in once.splitlines()}
    for name in ("wrn-26-2-bn", "wrn-26-2-gn", "wrn-40-2-augmix"):
        own = [row for row in shown.rows if row.row == name]
        assert {row.status for row in own} == {"measured"}
        assert all(f" {row.measured:.1f} " in theirs[name] for row in own), theirs[name]


@pytest.mark.parametrize("form", FORMATS)
def test_a_line_has_a_model_and_a_column_a_recipe(form):
    (plan,) = plan_tables(find_tables("readme:imagenet-c"), available=Available())
    text = FORMATS[form](compare(plan, {}))
    (line,) = [line for line in text.splitlines() if "ResNet50" in line]
    assert [line.count(f"missing ({printed})") for printed in (76.7, 62.8, 51.6, 50.5)] == [1] * 4
