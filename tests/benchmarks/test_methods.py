"""The table of methods from a made-up export."""

from __future__ import annotations

import pytest

import page_tables


def row(recipe: str, setting: str, error: float, *, through: bool = False) -> dict[str, object]:
    return {
        "recipe": recipe,
        "setting": setting,
        "options": {} if recipe == "none" else {"optimizer.lr": 0.01, "epochs": 1},
        "by_shift": {"fog": [error]} if through else None,
        "online": error,
    }


def test_means_over_corruptions_and_streams_through_all() -> None:
    rows = [row("none", "online", 40.0 + number) for number in range(15)]
    rows += [row("tent", "online", 20.0) for _ in range(15)]
    rows += [row("tent", "continual", 30.0, through=True)]
    assert page_tables.methods_table(rows).splitlines()[2:] == [
        "| `tent` | 0.01 | 20.0 | – | 30.0 | – | – | – |",
        "| `none` | – | 47.0 | – | – | – | – | – |",
    ]


def test_a_mean_over_some_corruptions_is_none() -> None:
    with pytest.raises(page_tables.TableError, match="15 corruptions of tent online, got 14"):
        page_tables.methods_table([row("tent", "online", 20.0) for _ in range(14)])


def test_how_far_a_recipe_is_from_its_authors_is_the_worst_of_its_networks() -> None:
    one = {"recipe": "sar", "code": "a/sar", "commit": "0123456789", "held_alike": None}
    rows = [
        {**one, "model": "acclimate:wrn", "difference": 2e-14},
        {**one, "model": "acclimate:vit", "difference": 3e-13},
    ]
    assert page_tables.equality({"rows": rows}).splitlines()[2:] == [
        "| `sar` | [a/sar](https://github.com/a/sar), 0123456 | wrn; vit | nothing | 3e-13 |",
    ]
