"""Results and their records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from acclimate.bench import Record, Result
from acclimate.errors import AcclimateError
from stored import job, result


def test_errors_by_name():
    found = result(error=20.0, record={"errors": {"after_epoch": [25.0, None, 20.0]}})
    assert (found.after_epoch(1), found.after_epoch(2), found.after_epoch(4)) == (25.0, None, None)
    assert found.error is None
    found = result(error=20.0)
    assert (found.unadapted_error, found.online_error, found.error) == (25.0, 21.0, 20.0)
    assert found.ece == 0.1
    with pytest.raises(AcclimateError, match="expected an epoch >= 1"):
        found.after_epoch(0)


def test_a_failed_result_has_a_message_and_no_numbers():
    found = Result.failed(job(), "out of memory")
    assert (found.status, found.message, found.error) == ("failed", "out of memory", None)


def test_a_result_is_read_back_from_json():
    found = result(record={"loss": float("inf"), "counts": (1, 2)})
    again = Result.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again == found
    assert again.record.more["loss"] is None
    with pytest.raises(AcclimateError, match="expected the fields of a result"):
        Result.from_dict({"status": "done"})


def test_what_is_not_json_is_refused():
    with pytest.raises(AcclimateError, match=r"expected plain values in a record.*got Tensor"):
        result(record={"loss": torch.zeros(())})
    with pytest.raises(AcclimateError, match="expected status done or failed"):
        Result(job=job(), status="running")


def test_the_corruption_found_goes_before_the_one_asked_for():
    assert result(shift="frost:3", record={"corruption": "frost-procedural"}).corruption == (
        "frost-procedural"
    )
    assert result(shift="frost:3").corruption == "frost"


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("file", ["methods.json", "cifar10c.json", "forgetting.json", "dino.json"])
def test_a_record_writes_the_json_it_was_read_from(file):
    for row in json.loads((RESULTS / file).read_text(encoding="utf-8")):
        assert Record.from_dict(row).to_dict() == row


def test_a_record_keeps_what_it_has_no_field_for():
    values = {
        "errors": {"final": None, "after_epoch": [], "before_update": [1.0, None], "median": 3.0},
        "balance": [None, {"largest": 0.5, "counts": [1, 1]}],
        "label_free": {"start": {"confidence": None}, "after_epoch": [None]},
        "forgetting": {"before": 5.0, "after": 6.0, "statistics_estimated_anew": True},
        "recipe": None,
        "by_shift": {},
        "mine": {"a": [1]},
    }
    record = Record.from_dict(values)
    assert record.to_dict() == values
    assert (record.label_free.start.diverged, record.balance[1].counts) == (True, (1, 1))
    assert record.forgetting.after == 6.0
    assert record.errors.more["median"] == 3.0
