"""The table in the README from a made-up export."""

from __future__ import annotations

import json

import pytest

import page_tables
from acclimate.data.corruptions import TEST

MODEL = "acclimate:wrn-40-2-augmix-cifar10"  # the paper: 11.2, BN 10.8, ENT 8.5, RPL 9.0
ERRORS = {"bn": 10.0, "ent": 8.0, "rpl": 9.0}
PAGE = "# title\n\n<!-- headline -->\nold\n<!-- /headline -->\n\nrest\n"


def results(model=MODEL, recipes=ERRORS, seeds=(0, 1)):
    """Errors that differ by a point with the severity, and by half a point with the seed."""
    return [
        {
            "model": model, "recipe": recipe, "corruption": corruption, "severity": severity,
            "seed": seed, "options": {}, "unadapted": 12.0,
            "error": error + severity - 3 + (0 if recipe == "bn" else (seed - 0.5) / 2),
        }
        for recipe, error in recipes.items()
        for corruption in TEST
        for severity in range(1, 6)
        for seed in ((0,) if recipe == "bn" else seeds)
    ]  # fmt: skip


def tables(rows):
    """Both tables: of all severities, and of the highest."""
    drawn = [block for block in page_tables.headline(rows).split("\n\n") if block.startswith("|")]
    return [read(block) for block in drawn]


def read(table):
    head, _, *lines = table.splitlines()
    names = [word.strip() for word in head.strip("|").split("|")]
    values = [[word.strip() for word in line.strip("|").split("|")] for line in lines]
    return [dict(zip(names, each, strict=True)) for each in values]


def cells(rows):
    return tables(rows)[0]


def test_means_with_what_the_paper_prints_beside_them():
    (row,) = cells(results())
    assert row == {
        "model": "wrn-40-2-augmix",
        "unadapted": "12.0 (11.2)",
        "BN": "10.0 (10.8)",
        "ENT": "8.0 ± 0.4 (8.5)",
        "RPL": "9.0 ± 0.4 (9.0)",
        "reduction BN→ENT / BN→RPL (published)": "20 % / 10 % (21 % / 17 %)",
    }


def test_the_unadapted_model_stands_for_itself_where_it_was_run():
    alone = results(recipes={"none": 13.0}, seeds=(0,))
    (row,) = cells([*results(), *[each | {"unadapted": None} for each in alone]])
    assert row["unadapted"] == "12.8 (11.2)"  # a quarter of a point less with this seed


def test_seeds_and_labels_of_the_highest_severity_alone_stay_there():
    more = [
        row
        for row in results(recipes={"ent": 8.0, "hard": 9.5}, seeds=(0, 1, 2))
        if row["severity"] == 5 and (row["seed"], row["recipe"]) != (0, "ent")
    ]
    (row,), (hardest,) = tables([*results(seeds=(0,)), *more])
    assert row["ENT"] == "7.8 (8.5)"  # the mean of the seed that went everywhere
    assert hardest["ENT"] == "10.2 ± 0.5"
    assert (hardest["BN"], hardest["hard"], hardest["soft"]) == ("12.0", "11.8 ± 0.5", "–")


def test_seeds_that_have_not_been_everywhere_are_averaged_where_they_have():
    rows = results()
    assert "Not all seeds" not in page_tables.headline(rows)
    rows = [
        row for row in rows if (row["recipe"], row["seed"]) != ("rpl", 1) or row["severity"] > 1
    ]
    assert "; on those that all ran on: RPL 9.5 ± 0.4 (60 of 75)." in page_tables.headline(rows)
    assert cells(rows)[0]["RPL"] == "8.8 (9.0)"
    at_the_highest = [row for row in rows if row["seed"] == 0 or row["severity"] == 5]
    assert "Not all seeds" not in page_tables.headline(at_the_highest)


def test_labels_that_went_everywhere_have_a_column_in_both_tables():
    hard = results(recipes={"hard": 9.5}, seeds=(0,))
    (row,), (hardest,) = tables([*results(seeds=(0,)), *hard])
    assert (row["hard"], hardest["hard"]) == ("9.2", "11.2")
    assert "soft" not in row


def test_only_places_where_all_recipes_went_are_averaged():
    rows = [r for r in results(seeds=(0,)) if r["recipe"] != "ent" or r["severity"] > 3]
    (row,) = cells(rows)
    assert (row["BN"], row["ENT"]) == ("11.5 (30 of 75)", "9.2 (30 of 75)")


def test_other_weights_that_learn_are_another_model():
    affine, whole = results(recipes={"ent": 8.0}), results(recipes={"ent": 9.0})
    for row in whole:
        row["options"] = {"selector": "all"}
    assert [row["model"] for row in cells([*affine, *whole])] == [
        "wrn-40-2-augmix",
        "wrn-40-2-augmix, all weights",
    ]


def test_a_second_training_is_another_model():
    first, second = results(), results()
    for row in first:
        row["weights"] = "wrn-40-2.safetensors"
    for row in second:
        row["weights"] = "second-training.safetensors"
    assert [row["model"] for row in cells([*first, *second])] == [
        "wrn-40-2-augmix",
        "wrn-40-2-augmix, second training",
    ]


def test_a_model_that_has_no_batch_norm_and_one_the_paper_has_not():
    gn, other = "acclimate:wrn-26-2-gn-cifar10", "my:net"
    rows = [*results(gn, {"ent": 18.0}), *results(other, {"bn": 10.0, "soft": 9.5})]
    mine, normed = cells(rows)
    hardest, _ = tables(rows)[1]
    assert (normed["BN"], normed["ENT"]) == ("–", "18.0 ± 0.4 (18.0)")
    assert normed["reduction BN→ENT / BN→RPL (published)"] == "–"
    assert (mine["model"], mine["unadapted"], mine["BN"]) == ("my:net", "12.0", "10.0")
    assert hardest["soft"] == "11.5 ± 0.4"


def test_one_name_for_several_networks_of_the_paper_has_no_published_number():
    assert page_tables.published("acclimate:wrn-26-16-bn", "ent") is None
    assert page_tables.published("acclimate:wrn-26-2-bn-cifar10", "bn") == 18.7
    assert page_tables.published("acclimate:resnet18-cifar", "ent", 5) == 16.3
    assert page_tables.published("acclimate:wrn-26-2-gn-cifar10", "ent") == 18.0  # not full model's


def test_a_mean_over_less_says_so():
    (row,) = cells([each for each in results() if each["corruption"] != "fog"])
    assert row["ENT"] == "8.0 ± 0.4 (70 of 75)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": {"epochs": 2}}, "expected one setting of ent"),
        ({}, "expected each run once"),
        ({"corruption": "spatter"}, "expected test corruptions"),
    ],
)
def test_what_must_not_be_averaged(change, message):
    rows = results()
    more = next(row for row in rows if row["recipe"] == "ent")
    with pytest.raises(page_tables.TableError, match=message):
        page_tables.headline([*rows, {**more, **change}])


def test_checked_and_written(tmp_path, capsys):
    page, export = tmp_path / "README.md", tmp_path / "export.json"
    page.write_text(PAGE)
    export.write_text(json.dumps(results()))
    on = ["headline", "--results", str(export), "--page", str(page)]
    assert page_tables.main([*on, "--check"]) == 1
    assert "--write" in capsys.readouterr().out
    assert page.read_text() == PAGE
    assert page_tables.main([*on, "--write"]) == 0
    written = page.read_text()
    assert "old" not in written
    assert written.endswith("<!-- /headline -->\n\nrest\n")
    assert page_tables.main([*on, "--check"]) == 0
    assert page_tables.main(on) == 0
    assert capsys.readouterr().out.strip() in written
    page.write_text(written.replace("8.0 ±", "7.9 ±"))
    assert page_tables.main([*on, "--check"]) == 1


def test_no_marks_and_no_export(tmp_path, capsys):
    page, export = tmp_path / "README.md", tmp_path / "export.json"
    page.write_text("# title\n")
    assert page_tables.main(["headline", "--results", str(export)]) == 2
    assert "cannot read" in capsys.readouterr().err
    export.write_text(json.dumps(results()))
    assert (
        page_tables.main(["headline", "--results", str(export), "--page", str(page), "--check"])
        == 2
    )
    assert "expected <!-- headline -->" in capsys.readouterr().err
