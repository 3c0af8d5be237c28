"""The table of the network with group norm, from a made-up export."""

from __future__ import annotations

import pytest

import page_tables
from acclimate.data.corruptions import TEST

ERRORS = {"none": 20.0, "ent": 18.0, "rpl": 19.0}


def results(**more):
    """Errors that rise by a point with the severity; frost is drawn."""
    return [
        {
            "model": "acclimate:wrn-26-2-gn-cifar10", "recipe": recipe, "severity": severity,
            "corruption": "frost-procedural" if corruption == "frost" else corruption, "seed": 0,
            "shift": f"{corruption}:{severity}", "error": error + severity, "options": {}, **more,
        }
        for recipe, error in ERRORS.items()
        for corruption in TEST
        for severity in range(1, 6)
    ]  # fmt: skip


def test_every_corruption_beside_what_the_paper_prints():
    lines = page_tables.group_norm(results()).splitlines()
    assert len(lines) == 2 + 15 + 1 + 1
    assert "| fog | 23.0 (10.6) | 21.0 (10.0) | 22.0 (10.4) |" in lines
    assert lines[-1] == "| all | 23.0 (18.6) | 21.0 (18.0) | 22.0 (18.4) |"


def test_frost_of_our_own_has_no_line_with_frost_of_photographs():
    lines = page_tables.group_norm(results()).splitlines()
    assert "| frost | – (16.7) | – (14.9) | – (16.1) |" in lines
    assert "| frost-procedural | 23.0 | 21.0 | 22.0 |" in lines
    photographed = [
        {**row, "corruption": row["corruption"].removesuffix("-procedural")} for row in results()
    ]
    lines = page_tables.group_norm(photographed).splitlines()
    assert "| frost | 23.0 (16.7) | 21.0 (14.9) | 22.0 (16.1) |" in lines
    assert not any("procedural" in line for line in lines)


def test_seeds_are_averaged():
    second = [row | {"error": row["error"] + 2.0, "seed": 1} for row in results()]
    last = page_tables.group_norm([*results(), *second]).splitlines()[-1]
    assert last == "| all | 24.0 ± 1.4 (18.6) | 22.0 ± 1.4 (18.0) | 23.0 ± 1.4 (18.4) |"


def test_other_weights_and_networks_are_left_out():
    others = [{"options": {"selector": "all"}}, {"model": "acclimate:wrn-26-2-gn"}]
    more = [row for other in others for row in results(error=99.0, **other)]
    assert page_tables.group_norm([*results(), *more]) == page_tables.group_norm(results())


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        (results()[:-1], "rpl, .* got 74 with 1$"),
        ([*results(), *results(seed=1)[:-1]], "rpl, .* got 75 with 1 or 2$"),
        ([], "none, .* got 0 with 0$"),
    ],
)
def test_missing_runs_are_no_mean(rows, got):
    with pytest.raises(page_tables.TableError, match=f"expected 75 shifts with {got}"):
        page_tables.group_norm(rows)
