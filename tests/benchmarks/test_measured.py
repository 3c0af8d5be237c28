"""Tables of exports, from made-up ones."""

from __future__ import annotations

from typing import Any

import pytest

import page_tables


def row(recipe: str = "rpl", error: float = 10.0, **more: Any) -> dict[str, Any]:
    made = {"model": "acclimate:net", "recipe": recipe, "error": error, "seed": 0, "options": {}}
    return made | {"shift": "cifar/fog:5", "unadapted": 20.0, "ece": 0.1, "forgetting": None} | more


def cells(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line and "---" not in line]
    return [[word.strip() for word in line.strip("|").split("|")] for line in lines]


def test_seeds_and_shifts_are_averaged() -> None:
    rows = [row("none", 20.0)]
    rows += [row("ent", 10.0 + seed, seed=seed) for seed in (0, 1, 2)]
    assert cells(page_tables.domains(rows)) == [
        ["model", "`none`", "`ent`"],
        ["net", "20.0", "11.0 ± 1.0"],
    ]


def test_means_of_different_shifts_do_not_stand_side_by_side() -> None:
    rows = [row("none"), row("none", shift="cifar/frost:5"), row("ent")]
    with pytest.raises(page_tables.TableError, match=r"same shifts .* these counts: .*2, .*1"):
        page_tables.domains(rows)


def test_two_runs_of_one_thing_are_not_mixed() -> None:
    rows = [row("none"), row("ent"), row("ent", options={"optimizer.lr": 0.1})]
    with pytest.raises(page_tables.TableError, match="one run on cifar/fog:5 with seed 0, got two"):
        page_tables.domains(rows)


def test_a_table_for_each_option_that_was_varied() -> None:
    rows = [row(options={"objective.q": q}, error=10 * q) for q in (0.8, 0.2)]
    rows += [row(options={"teacher": teacher}) for teacher in ("instant", "epoch")]
    rows += [
        row("ent", options={"selector": selector, "optimizer.lr": lr}, error=100 * lr)
        for selector in ("affine", "all")
        for lr in (0.1, 0.01)
    ]
    assert cells(page_tables.ablations(rows)) == [
        ["q of the robust loss", "0.2", "0.8"],
        ["`rpl`", "2.0", "8.0"],
        ["teacher", "epoch", "instant"],
        ["`rpl`", "10.0", "10.0"],
        ["what learns, by learning rate", "0.01", "0.1"],
        ["`ent`, affine", "1.0", "10.0"],
        ["`ent`, all", "1.0", "10.0"],
    ]


def test_what_of_a_transformer_learns() -> None:
    chosen = {"selector": "affine", "optimizer.lr": 1e-4, "epochs": 2}
    rows = [row("none"), row("dino", 30.0, options=chosen)]
    assert cells(page_tables.dino(rows))[1:] == [["affine", "0.0001", "2", "20.0", "30.0"]]


def test_calibration_and_clean_images() -> None:
    rows = [row("none", ece=0.25), row("bn", forgetting={"before": 6.0, "after": 7.0})]
    assert cells(page_tables.forgetting(rows))[1:] == [
        ["`none`", "10.0", "25.0", "–", "–"],
        ["`bn`", "10.0", "10.0", "6.0", "7.0"],
    ]


def test_photos_by_model_and_severity() -> None:
    rows = [row(name, severity=severity) for name in ("bn", "none") for severity in (5, 1)]
    assert cells(page_tables.photos(rows)) == [
        ["model", "`none`", "`bn`"],
        ["net, severity 1", "10.0", "10.0"],
        ["net, severity 5", "10.0", "10.0"],
    ]


def test_photos_as_they_are_and_with_the_statistics_of_training() -> None:
    rows = [
        row("bn", 7.0, severity=None, shift=None),
        row("ent", severity=3),
        row("bn", severity=3),
    ]
    rows += [row("ent", 9.0, severity=3, options={"normalization": "source"})]
    assert cells(page_tables.photos(rows)) == [
        ["model", "`bn`", "`ent`", "`ent`, old statistics"],
        ["net, as they are", "7.0", "–", "–"],
        ["net, severity 3", "10.0", "10.0", "9.0"],
    ]


def test_the_verdicts_on_gains_and_losses() -> None:
    runs = [(10.0, "neutral"), (18.9, "harmful"), (19.5, "helpful"), (30.0, "harmful")]
    rows = [row(error=error, verdict=verdict) for error, verdict in runs]
    assert cells(page_tables.few_classes(rows)) == [
        ["error afterwards", "let through", "called harmful"],
        ["lower", "1", "1"],
        ["within a point", "1", "0"],
        ["higher", "0", "1"],
    ]


def test_batch_sizes_with_a_rate_for_all_and_one_in_proportion() -> None:
    rates = {(128, 0.04): 10.0, (64, 0.04): 11.0, (64, 0.02): 9.0}
    rows = [
        row("rpl", error, options={"batch_size": size, "optimizer.lr": rate})
        for (size, rate), error in rates.items()
    ]
    assert cells(page_tables.ablations(rows)) == [
        ["batch size", "64", "128"],
        ["`rpl` with the same learning rate", "11.0", "10.0"],
        ["`rpl` with one in proportion", "9.0", "10.0"],
    ]


def test_what_learning_takes_off_each_source() -> None:
    errors = {"none": 40.0, "bn": 20.0, "ent": 15.0, "rpl": 19.0}
    rows = [row(recipe, error, weights=None) for recipe, error in errors.items()]
    rows += [row(recipe, 2 * error, weights="6-epochs.pt") for recipe, error in errors.items()]
    assert cells(page_tables.sources(rows)) == [
        ["source", "`none`", "`bn`", "`ent`", "`rpl`", "reduction BN→ENT", "BN→RPL"],
        ["net", "40.0", "20.0", "15.0", "19.0", "25 %", "5 %"],
        ["net, 6-epochs", "80.0", "40.0", "30.0", "38.0", "25 %", "5 %"],
    ]


def test_what_was_reproduced_as_errors() -> None:
    cell = {"row": "MNIST→USPS", "column": "ENT", "measured": 98.25, "published": 97.0}
    missing = {"row": "MNIST→SVHN", "column": "ENT", "measured": None, "published": 97.0}
    table = page_tables.self_ensembling({"tables": [{"rows": [missing, cell]}]})
    assert cells(table) == [["trained for, with", "ENT"], ["MNIST→USPS", "1.75 (3.00)"]]


def test_statistics_of_batches_and_of_all_images() -> None:
    rows = [
        row("bn", 10.0 + size / 64, online=20.0 - size / 16, options={"batch_size": size})
        for size in (128, 16)
    ]
    assert cells(page_tables.statistics(rows)) == [
        ["model", "unadapted", "batches of 16", "batches of 128", "all images"],
        ["net", "20.0", "19.0", "12.0", "12.0"],
    ]


def test_what_learning_takes_off_with_the_statistics_of_small_batches() -> None:
    size = {"options": {"batch_size": 16}}
    rows = [row("bn", 15.0, online=20.0, after_epoch=[], **size)]
    rows += [row("ent", 12.0, online=19.0, after_epoch=[None, 18.0], **size)]
    assert cells(page_tables.small_batches(rows)) == [
        ["batch size, statistics", "`bn`", "`ent`", "reduction"],
        ["16, of each batch", "20.0", "18.0", "10 %"],
        ["16, of all images", "15.0", "12.0", "20 %"],
    ]


def test_seeds_that_went_elsewhere_have_no_deviation() -> None:
    rows = [row("ent"), row("ent", shift="cifar/frost:5"), row("ent", seed=1)]
    with pytest.raises(page_tables.TableError, match="same shifts with every seed"):
        page_tables.domains(rows)


def test_an_unknown_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert page_tables.main(["nothing"]) == 2
    assert "expected one of headline, " in capsys.readouterr().err
