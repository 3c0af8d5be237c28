"""Tables by corruption and severity against the numbers in their cells."""

from __future__ import annotations

import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.metrics import CORRUPTIONS, ErrorTable, mce


def batch(wrong: int, images: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(images) % 6
    return torch.eye(6)[(labels + (torch.arange(images) < wrong)) % 6], labels


def table_of(cells: dict[tuple[str, int], tuple[int, int]]) -> ErrorTable:
    table = ErrorTable()
    for (name, severity), (wrong, images) in cells.items():
        table.update(*batch(wrong, images), corruption=name, severity=severity)
    return table


RAGGED = {("fog", 5): (5, 10), ("fog", 1): (1, 10), ("snow", 5): (20, 20)}


def test_means_go_over_severities_and_over_corruptions():
    table = table_of(RAGGED)
    assert {n: (f.value, f.images) for n, f in table.by_corruption().items()} == {
        "fog": (pytest.approx(30), 20),
        "snow": (pytest.approx(100), 20),
    }
    assert {s: (f.value, f.images) for s, f in table.by_severity().items()} == {
        1: (pytest.approx(10), 10),
        5: (pytest.approx(75), 30),
    }
    assert (table.mean_error().value, table.mean_error().images) == (pytest.approx(65), 40)


def test_the_table_reads():
    assert str(table_of(RAGGED)).splitlines() == [
        "| corruption | 1 | 5 | mean | images |",
        "|---|---|---|---|---|",
        "| fog | 10.0 | 50.0 | 30.0 | 20 |",
        "| snow | – | 100.0 | 100.0 | 20 |",
        "| mean | 10.0 | 75.0 | 65.0 | 40 |",
    ]
    assert str(ErrorTable()) == "no images yet"


def test_mce_of_a_whole_table():
    cells = {(n, s): (i + s, 40) for i, n in enumerate(CORRUPTIONS) for s in range(1, 6)}
    table = table_of(cells)
    errors = {n: [100 * (i + s) / 40 for s in range(1, 6)] for i, n in enumerate(CORRUPTIONS)}
    assert table.mce().value == pytest.approx(mce(errors).value)
    assert table.mce().images == 15 * 5 * 40
    by_severity = table.mce_by_severity()
    assert sum(r.value for r in by_severity.values()) / 5 == pytest.approx(mce(errors).value)
    assert by_severity[1].value < by_severity[5].value
    interval = table.mce(interval=0.9).figure
    assert interval.low < interval.value < interval.high


def test_mce_of_a_part_says_what_is_not_there():
    table = table_of(RAGGED)
    with pytest.raises(AcclimateError, match="got 2; missing: gaussian_noise, "):
        table.mce()
    notes = table.mce(partial=True).notes
    assert notes == ("over 2 of 15 corruptions", "not all of 5 severities")


def test_tables_of_parts_add_up():
    one, other = table_of({("fog", 1): (1, 10)}), table_of({("fog", 1): (3, 10), **RAGGED})
    total = one + other
    assert total.by_corruption()["fog"].images == 10 + 20
    assert total.cells[("fog", 1)].error().value == pytest.approx(100 * 2 / 20)
    total.update(*batch(0, 10), corruption="snow", severity=5)
    assert other.by_corruption()["snow"].images == 20
    assert one.by_corruption()["fog"].images == 10


def test_intervals_on_request():
    fog = table_of(RAGGED).by_corruption(interval=0.9)["fog"]
    assert fog.low < 30 < fog.high
    assert table_of(RAGGED).by_severity()[5].low is None


@pytest.mark.parametrize("severity", [0, 6, 2.0, "1"])
def test_severities_are_1_to_5(severity):
    with pytest.raises(AcclimateError, match="severity of 1, 2, 3, 4 or 5, got"):
        ErrorTable().update(*batch(0, 2), corruption="fog", severity=severity)
