"""Results and their records."""

from __future__ import annotations

import json

import pytest
import torch

from acclimate.bench import Result
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
    assert again.record["loss"] is None
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
