"""The tables of ImageNet-C, from made-up results of all its shifts."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest

import imagenet_tables
import measure
from acclimate.bench import Job
from acclimate.data.corruptions import DEV, TEST
from acclimate.metrics import ALEXNET_CORRUPTIONS
from acclimate.paper.tables import find_table
from imagenet_tables import RESNET, ImagesDifferError
from markdown_tables import table_of

FROST = "frost-procedural"


def results(
    recipe: str, factor: float, *, names: tuple[str, ...] = TEST, rate: float | None = None,
    epochs: int = 5, model: str = RESNET, frost: str = FROST, seed: int = 0, **options: Any
) -> list[dict[str, Any]]:  # fmt: skip
    """Errors that are AlexNet's times a factor, so that this is the mCE; less with all images."""
    chosen = {} if rate is None else {"optimizer.lr": rate, "epochs": epochs, **options}
    rows = []
    for name in names:
        error = ALEXNET_CORRUPTIONS[name] * factor
        after = [None] * (epochs - 1) + [error] if rate is not None else []
        rows += [
            {
                "model": model, "recipe": recipe, "options": chosen, "seed": seed,
                "corruption": frost if name == "frost" else name, "severity": severity,
                "images": 5000, "online": error, "after_epoch": after, "ece": 0.1,
                "error": error if recipe == "none" else error * 0.9, "forgetting": None,
            }
            for severity in range(1, 6)
        ]  # fmt: skip
    return rows


ALL = [
    *results("none", 0.8), *results("bn", 0.6), *results("ent", 0.55, rate=1e-3, epochs=1),
    *results("rpl", 0.5, rate=1e-3), *results("rpl", 0.4, rate=1e-2),
    *results("rpl", 0.45, rate=1e-2, **{"optimizer.momentum": 0.0}),
]  # fmt: skip


def test_every_setting_beside_what_the_paper_prints() -> None:
    text = imagenet_tables.imagenet(ALL)
    assert "made from 5,000 validation photos, frost of our own textures" in text
    assert table_of(text) == [
        ["model", "rate", "momentum", "unadapted", "BN", "ENT", "RPL", "hard", "soft"],
        ["ResNet-50", "0.001", "0.9", "80.0 (76.7)", "60.0 (62.8)", "55.0 (51.6)", "50.0 (50.5)",
         "–", "–"],
        ["ResNet-50", "0.01", "0.9", "80.0 (76.7)", "60.0 (62.8)", "– (51.6)", "40.0 (50.5)",
         "–", "–"],
        ["ResNet-50", "0.001", "0", "80.0 (76.7)", "60.0 (62.8)", "– (51.6)", "– (50.5)", "–", "–"],
        ["ResNet-50", "0.01", "0", "80.0 (76.7)", "60.0 (62.8)", "– (51.6)", "45.0 (50.5)",
         "–", "–"],
    ]  # fmt: skip


def test_the_returned_model_is_scored_as_well() -> None:
    pooled = table_of(imagenet_tables.imagenet_pooled(ALL))
    assert pooled[1][3:7] == ["80.0 (76.7)", "54.0 (62.8)", "49.5 (51.6)", "45.0 (50.5)"]


def test_some_of_the_shifts_are_no_mean() -> None:
    some = [row for row in ALL if row["corruption"] != "fog"]
    assert table_of(imagenet_tables.imagenet(some))[1][3] == "– (70 of 75) (76.7)"


def test_the_two_kinds_of_frost_do_not_meet() -> None:
    other = results("rpl", 0.5, rate=1e-2, frost="frost")
    with pytest.raises(ImagesDifferError, match="frost and frost-procedural"):
        imagenet_tables.imagenet([*results("none", 0.8), *other])
    fewer = [{**row, "images": 100} for row in other]
    with pytest.raises(ImagesDifferError, match=r"as many images .* \[100, 5000\]"):
        imagenet_tables.imagenet([*results("none", 0.8, frost="frost"), *fewer])


def test_a_shift_counts_once() -> None:
    with pytest.raises(ImagesDifferError, match="expected 75 results, one for each shift, got 150"):
        imagenet_tables.imagenet([*ALL, *ALL])


def as_published(times: float, momentum: float) -> list[dict[str, Any]]:
    """Runs of five epochs with half the errors of tab:epochs, at so many times its rates."""
    cells = find_table("tab:epochs").cells
    rows = results("bn", 0.301, names=DEV)
    for recipe in ("ent", "rpl"):
        for rate in (1e-4, 1e-3, 1e-2):
            own = [c for c in cells if (c.recipe, c.options["optimizer.lr"] if c.epochs else 0)
                   == (recipe, rate)]  # fmt: skip
            after = {cell.epochs: float(cell.published or 0) / 200 for cell in own}
            made = results(
                recipe, 1, names=DEV, rate=rate * times, **{"optimizer.momentum": momentum}
            )
            for row in made:
                alexnet = ALEXNET_CORRUPTIONS[row["corruption"]]
                row["after_epoch"] = [after[epoch] * alexnet for epoch in range(1, 6)]
            rows += made
    return rows


@pytest.mark.parametrize(("times", "momentum"), [(1, 0.9), (10, 0.9), (1, 0.0), (10, 0.0)])
def test_which_rates_and_momentum_are_nearest_to_the_paper(times: float, momentum: float) -> None:
    text = imagenet_tables.imagenet_epochs(as_published(times, momentum))
    rates = "the paper's rates" if times == 1 else "10 times the paper's rates"
    half = fmean(cell.published or 0 for cell in find_table("tab:epochs").cells) / 2
    near = f"Mean distance from the published: {half:.1f} points; rank correlation 1.00."
    assert f"Momentum {momentum:g}, {rates}. {near}" in text
    shown = table_of(text.partition(near)[2])
    assert shown[1] == ["0", *["30.1 (60.2)"] * 6]
    assert shown[6][3] == "65.6 (131.2)"


def test_a_longer_run_has_the_epochs_of_a_shorter_one() -> None:
    rows = [*as_published(1, 0.9), *results("ent", 0.9, names=DEV, rate=1e-3, epochs=1)]
    assert imagenet_tables.imagenet_epochs(rows) == imagenet_tables.imagenet_epochs(
        as_published(1, 0.9)
    )


def test_other_methods_at_both_rates() -> None:
    rows = [
        *results("hard", 0.52, names=DEV, rate=1e-3),
        *results("hard", 0.50, names=DEV, rate=1e-2, **{"filter.threshold": 0.5,
                                                       "filter": "confidence"}),
        *results("rpl", 0.49, names=DEV, rate=1.25e-4, epochs=5, batch_size=16),
    ]  # fmt: skip
    assert table_of(imagenet_tables.imagenet_analyses(rows)) == [
        ["what", "the paper's rate", "10 times the rate", "published"],
        ["`hard`", "52.0", "–", "53.8"],
        ["`hard`, threshold 0.5, filter confidence", "–", "50.0", "51.9"],
        ["`rpl`, batch_size 16", "49.0", "–", "53.8"],
    ]


def test_severities_and_calibration() -> None:
    lines = table_of(imagenet_tables.imagenet_severities(ALL))
    assert lines[1] == ["unadapted", *["80.0"] * 5, "10.0"]
    assert [line[0] for line in lines[2:]] == [
        "BN", "ENT, rate 0.001", "RPL, rate 0.001", "RPL, rate 0.01",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        imagenet_tables.imagenet, imagenet_tables.imagenet_pooled, imagenet_tables.imagenet_epochs,
        imagenet_tables.imagenet_analyses, imagenet_tables.imagenet_severities,
    ],
)  # fmt: skip
def test_without_results_a_table_tells_what_measures_it(make: Callable[..., str]) -> None:
    assert make([]).startswith("Not measured yet: `python benchmarks/measure.py run imagenet_")


@pytest.mark.parametrize(
    ("plan", "stages"), [("imagenet_c", (1, 2, 3)), ("imagenet_dev", (1, 2, 3, 4, 5, 6, 7, 8))]
)
def test_the_plans_run_what_the_tables_show(plan: str, stages: tuple[int, ...]) -> None:
    """Every job of the ResNet-50 has a place in some table; a table of them has no gaps."""
    jobs = [job for number in stages for job in measure.jobs_of(measure.plan(plan)[number - 1])]
    assert {job.model for job in jobs} == {RESNET}
    rows = [_row(job) for job in {job.key: job for job in jobs}.values()]
    if plan == "imagenet_c":
        shown = table_of(imagenet_tables.imagenet(rows))
        assert len(shown) == 1 + 4
        gaps = [line for line in shown if "–" in line[3:7] or any("of 75" in w for w in line)]
        assert gaps == []
    else:
        text = imagenet_tables.imagenet_epochs(rows)
        assert text.count("Mean distance") == 4
        assert "–" not in " ".join(w for line in table_of(text) for w in line)
        analyses = imagenet_tables.imagenet_analyses(rows)
        assert "–" not in " ".join(w for line in table_of(analyses) for w in line[1:3])


def _row(job: Job) -> dict[str, Any]:
    """A made-up result of a job, with another number for each."""
    error = 10.0 + (int(job.key[:6], 16) % 1000) / 100
    options = dict(job.options)
    return {
        "model": job.model, "recipe": job.recipe, "options": options, "seed": job.seed,
        "corruption": job.corruption, "severity": job.severity, "images": 5000,
        "online": error, "error": error, "after_epoch": [error] * int(options.get("epochs", 0)),
        "ece": 0.1, "forgetting": None,
    }  # fmt: skip
