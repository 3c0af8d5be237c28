"""The tables of the paper's protocol on CIFAR-10-C, from made-up results."""

from __future__ import annotations

from typing import Any

import pytest

import cifar_tables
import measure
from acclimate.data.corruptions import TEST
from imagenet_tables import ImagesDifferError
from markdown_tables import table_of

BN = "acclimate:wrn-26-2-bn-cifar10"
GN = "acclimate:wrn-26-2-gn-cifar10"


def results(
    recipe: str, error: float, *, model: str = BN, severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    after: list[float | None] | None = None, weights: str | None = None, seed: int = 0,
    **options: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """A point worse with the statistics of batches."""
    usual = [] if recipe in ("none", "bn") else [None, error + 1]
    return [
        {
            "model": model, "weights": weights, "recipe": recipe, "seed": seed, "corruption": name,
            "severity": severity, "error": error, "online": error + 1, "unadapted": 40.0,
            "after_epoch": usual if after is None else after, "options": options,
        }
        for name in TEST
        for severity in severities
    ]  # fmt: skip


def test_a_line_for_each_way_of_scoring() -> None:
    rows = [
        *results("none", 30.0),
        *results("bn", 15.0),
        *results("ent", 12.0, epochs=2),
        *results("hard", 14.0, epochs=2),
        *results("ent", 99.0, seed=1),
    ]
    assert table_of(cifar_tables.cifar_grid(rows)) == [
        ["model", "statistics of", "unadapted", "BN", "ENT", "RPL", "hard", "soft"],
        [
            "wrn-26-2-bn",
            "each batch",
            "30.0 (25.8)",
            "16.0 (18.7)",
            "13.0 (13.1)",
            "–",
            "15.0",
            "–",
        ],
        [
            "wrn-26-2-bn",
            "all images",
            "30.0 (25.8)",
            "15.0 (18.7)",
            "12.0 (13.1)",
            "–",
            "14.0",
            "–",
        ],
    ]


def test_networks_with_other_weights_and_of_one_severity_have_their_own_lines() -> None:
    model, file = "acclimate:wrn-40-2", "wrn-40-2-augmix-200.safetensors"
    rows = [
        *results("none", 13.0, model=model, weights="longer.safetensors"),
        *results("none", 14.0, model=model, weights=file),
        *results("none", 47.0, model="acclimate:resnet18-cifar", severities=(5,)),
    ]
    lines = table_of(cifar_tables.cifar_grid(rows))
    assert [line[0] for line in lines[1::2]] == [
        "resnet18-cifar, severity 5", "wrn-40-2, longer", "wrn-40-2, wrn-40-2-augmix-200",
    ]  # fmt: skip
    assert lines[1][2] == "47.0 (42.9)"


def test_some_of_the_shifts_are_no_mean_and_none_counts_twice() -> None:
    rows = results("none", 30.0)
    assert table_of(cifar_tables.cifar_grid(rows[1:]))[1][2] == "– (25.8)"
    with pytest.raises(ImagesDifferError, match="one result on gaussian_noise:1, got two"):
        cifar_tables.cifar_grid([*rows, rows[0]])


def test_learning_is_compared_with_statistics_of_the_same_batches() -> None:
    rows = [*results("bn", 19.0, batch_size=16), *results("ent", 15.0, batch_size=16)]
    rows += [*results("bn", 14.0, batch_size=128)]
    assert table_of(cifar_tables.cifar_batches(rows)) == [
        ["model", "batch size", "statistics of", "BN", "ENT", "reduction"],
        ["wrn-26-2-bn", "16", "each batch", "20.0 (18.7)", "16.0 (13.1)", "20 %"],
        ["wrn-26-2-bn", "16", "all images", "19.0 (18.7)", "15.0 (13.1)", "21 %"],
        ["wrn-26-2-bn", "128", "each batch", "15.0 (18.7)", "– (13.1)", "–"],
        ["wrn-26-2-bn", "128", "all images", "14.0 (18.7)", "– (13.1)", "–"],
    ]


def test_the_oracle_is_the_best_setting_and_the_best_for_each_shift() -> None:
    def tried(rate: float, momentum: float, after: list[float | None]) -> list[dict[str, Any]]:
        options = {"optimizer.lr": rate, "optimizer.momentum": momentum, "epochs": len(after)}
        return results("ent", 0.0, model=GN, severities=(5,), after=after, **options)

    rows = [*tried(1e-3, 0.9, [31.0, 29.0, 35.0]), *tried(1e-2, 0.0, [30.0, 60.0, 90.0])]
    for row in rows:
        if row["corruption"] == "fog" and row["options"]["optimizer.lr"] == 1e-2:
            row["after_epoch"] = [14.0, 60.0, 90.0]
    (line,) = table_of(cifar_tables.group_norm_oracle(rows))[1:]
    assert line == [
        "ENT", "40.0 (35.6)", f"{(14 * 30.0 + 14.0) / 15:.1f} (rate 0.01, momentum 0, 1 epochs)",
        f"{(14 * 29.0 + 14.0) / 15:.1f}", "27.8", "6",
    ]  # fmt: skip


def test_the_plan_of_the_protocol_has_one_grid_for_all() -> None:
    searches = [stage["tune"] for stage in measure.plan("cifar_grid")]
    for search in searches:
        assert {key: search[key] for key in ("recipes", "set", "epochs", "shifts")} == {
            "recipes": ["ent", "rpl", "hard", "soft"],
            "set": ["optimizer.lr=0.0001,0.001,0.01,0.03,0.1,0.3,1.0"],
            "epochs": 20,
            "shifts": ["cifar/dev"],
        }


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("cifar_grid", "cifar_grid"),
        ("cifar_batches", "cifar_settling"),
        ("group_norm_oracle", "cifar_settling"),
    ],
)
def test_without_results_a_table_tells_what_measures_it(name: str, plan: str) -> None:
    text = getattr(cifar_tables, name)([])
    assert text.startswith(f"Not measured yet: `python benchmarks/measure.py run {plan}`")
