"""Tables of what the default call returns, from rows written by hand."""

from __future__ import annotations

from typing import Any

import defaults
import precision
import rates


def run(shift: str, unadapted: float, returned: float, **more: Any) -> dict[str, Any]:
    estimate = {name: [returned, 0, 100] for name in ("before", "after", "change")}
    common = {"images": 5000, "seed": 0, "verdict": "helpful", "estimate": estimate}
    return {
        "model": "resnet50", "shift": shift, "unadapted": unadapted, "returned": returned,
        **common, **more,
    }  # fmt: skip


def case(shift: str, classes: str = "all") -> dict[str, Any]:
    return {
        "model": "resnet50", "shift": shift, "classes": classes, "images": 200, "second": None,
    }  # fmt: skip


def test_every_shift_has_a_row_and_the_mean_is_of_all():
    rows = [run("imagenet/fog:5", 80, 40), run("imagenet/fog:1", 40, 30), run("clean", 25, 24)]
    lines = defaults.table(rows).markdown().splitlines()[2:]
    assert [line.split(" | ")[2] for line in lines] == ["clean", "fog:5", "fog:1", "mean of 3"]
    assert lines[-1].split(" | ")[3:5] == ["48.3", "31.3"]
    assert len(defaults.photos(rows).splitlines()) == 2 + 1 + 1


def test_regret_is_of_the_best_treatment_by_true_labels():
    known = [
        {"case": case(shift), "states": [{"error": 60.0}, {"error": best}]}
        for shift, best in (("imagenet/fog:5", 40.0), ("imagenet/snow:5", 58.0))
    ]
    rows = [
        {"case": case(f"imagenet/{name}:5"), "unadapted": 60.0, "returned": end, "verdict": word}
        for name, end, word in (("fog", 60.0, "unclear"), ("snow", 62.0, "helpful"))
    ]
    (_, together) = defaults.regret_table(rows, known).markdown().splitlines()[2:]
    assert together == "| together | 2 | 12.0 | 50.0 | 50.0 | 100.0 |"


def test_rates_are_compared_on_the_same_shifts():
    def row(shift: str, rate: float, end: float) -> dict[str, Any]:
        errors = [[0.0, 50.0], [25.0, end]]
        return {"model": "net", "shift": shift, "images": 300, "rate": rate, "errors": errors}

    rows = [row("a", 0.1, 45.0), row("a", 0.3, 40.0), row("b", 0.1, 10.0)]
    slow, fast = rates.pages(rows).splitlines()[2:]
    assert slow.startswith("| net | 300 | 1 | 0.1 | -5.0 | – |")
    assert fast.startswith("| net | 300 | 1 | 0.3 | -10.0 | – |")


def test_the_difference_that_rounding_makes_is_over_seeds():
    checks = {"32": {"cosine": 0.5, "length": 1.0, "apart": 0.1, "confident flipped": 0}}
    ways = {
        name: {"runs": [{"after": after}, {"after": after + 1}], "checks": checks}
        for name, after in (("exact", 60.0), ("bf16 fused", 60.2))
    }
    rows = [{"model": "net", "shift": "fog", "images": 10, "ways": ways}]
    cells = precision.pages(rows).splitlines()[-1].strip("| ").split(" | ")
    assert cells[2:6] == ["60.0", "60.2", "0.20", "0.71"]
