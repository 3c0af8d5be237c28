"""The paper's tables against the metrics as defined, and the page that says where they part."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from acclimate import metrics
from acclimate.data import corruptions as made
from acclimate.metrics import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    CORRUPTIONS,
    DEV_CORRUPTIONS,
    PublishedRow,
    mce,
    mde,
    mean_error,
    published_corruptions,
    published_domains,
)

SELECTION = Path(metrics.__file__).with_name("paper_domains.json")
PAGE = Path(__file__).parents[2] / "docs/metrics.md"
# Each printed error is off by up to 0.05, all of them perhaps in the same direction; so their mean
# is off by as much, and a mean over AlexNet's errors by as much times its weights.
MEAN_ROUNDING = 0.05
MCE_ROUNDING = 0.05 * sum(100 / ALEXNET_CORRUPTIONS[name] for name in CORRUPTIONS) / 15
MDE_ROUNDING = 0.05 * sum(100 / error for error in ALEXNET_DOMAINS.values()) / 6


def identity(row: PublishedRow) -> str:
    return f"{row.label}-{row.model}-{row.recipe}-{row.note}".replace(" ", "_")


def rows(metric: str) -> list[PublishedRow]:
    return [row for row in published_corruptions() if row.metric == metric]


def follows(row: PublishedRow) -> bool:
    """Whether the printed mDE can come of the printed errors by the formula."""
    return abs(mde(row.errors).value - row.printed) <= 0.05 + MDE_ROUNDING


def by_sketch(row: PublishedRow) -> float:
    """What comes out if every domain is divided by AlexNet's error on the last one."""
    return 100 * mean_error(row.errors).value / ALEXNET_DOMAINS["sketch"]


@pytest.mark.parametrize(
    ("model", "none_or_bn", "ent", "rpl"),
    [
        ("ResNet50", 62.8, 51.6, 50.5),
        ("ResNeXt101", 56.8, 44.3, 43.2),
        ("EfficientNet-L2 Noisy Student", 28.9, 23.0, 22.0),
    ],
)
def test_the_mce_of_the_detailed_rows(model, none_or_bn, ent, rpl):
    values = [mce(row.errors).value for row in rows("mCE") if row.model == model]
    assert values == pytest.approx([none_or_bn, ent, rpl], abs=0.1)


@pytest.mark.parametrize("row", rows("mCE"), ids=identity)
def test_every_printed_mce_follows_from_its_row(row):
    # 0.05 from the printed mCE itself.
    assert mce(row.errors).value == pytest.approx(row.printed, abs=0.05 + MCE_ROUNDING)
    assert mce(row.errors).value == pytest.approx(row.printed, abs=0.1)


@pytest.mark.parametrize("row", rows("mean error"), ids=identity)
def test_every_printed_mean_error_follows_from_its_row(row):
    assert mean_error(row.errors).value == pytest.approx(row.printed, abs=0.05 + MEAN_ROUNDING)


def test_the_mde_of_unadapted_models():
    unadapted = {r.model: r for r in published_domains() if r.recipe == "none"}
    assert mde(unadapted["ResNet50 vanilla"].errors).value == pytest.approx(88.2, abs=0.05)
    assert mde(unadapted["ResNet50 DeepAug+Augmix"].errors).value == pytest.approx(83.4, abs=0.05)


@pytest.mark.parametrize("row", published_domains(), ids=identity)
def test_the_printed_mde_follows_except_for_adapted_resnets(row):
    adapted_resnet = row.model.startswith("ResNet50") and row.recipe != "none"
    assert follows(row) is not adapted_resnet


def test_the_printed_mde_of_bn_and_ent_is_the_mean_error_over_the_sketch_baseline():
    off = [row for row in published_domains() if not follows(row)]
    explained = [r for r in off if abs(by_sketch(r) - r.printed) <= 0.05 + MEAN_ROUNDING / 0.91189]
    assert [(r.model, r.recipe) for r in explained] == [
        (r.model, r.recipe)
        for r in off
        if r.recipe in ("bn", "ent") or (r.model, r.recipe) == ("ResNet50 vanilla", "rpl")
    ]
    assert (len(off), len(explained)) == (21, 15)


def test_brightness_is_the_easiest_corruption_in_every_cifar_row():
    """It is wherever the column heads are right, so a row read in the wrong order shows."""
    for row in rows("mean error"):
        assert min(row.errors, key=row.errors.__getitem__) == "brightness", identity(row)


def test_names_and_numbers_of_rows():
    assert (made.TEST, set(made.DEV)) == (CORRUPTIONS, set(DEV_CORRUPTIONS))
    assert set(ALEXNET_CORRUPTIONS) == {*CORRUPTIONS, *DEV_CORRUPTIONS}
    assert (len(rows("mCE")), len(rows("mean error")), len(published_domains())) == (15, 27, 31)
    assert all(list(row.errors) == list(CORRUPTIONS) for row in published_corruptions())


def mde_table() -> str:
    """The table of docs/metrics.md; ``python tests/metrics/test_published.py`` prints it."""
    lines = [
        "| model | recipe | printed | by the formula | mean error / sketch | table |",
        "|---|---|---|---|---|---|",
    ]
    for row in published_domains():
        value, sketch = mde(row.errors).value, by_sketch(row)
        formula = f"{value:.1f}" if follows(row) else f"**{value:.1f}**"
        lines.append(
            f"| {row.model} | {row.recipe} | {row.printed:.1f} | {formula} | {sketch:.1f} "
            f"| `{row.label}` |"
        )
    return "\n".join(lines)


def mce_table() -> str:
    lines = ["| model | recipe | printed | recomputed |", "|---|---|---|---|"]
    for row in rows("mCE"):
        value = mce(row.errors).value
        lines.append(f"| {row.model} | {row.recipe} | {row.printed:.1f} | {value:.2f} |")
    return "\n".join(lines)


def test_the_page_shows_what_is_computed():
    page = PAGE.read_text(encoding="utf-8")
    assert mde_table() in page
    assert mce_table() in page
    off = sum(not follows(row) for row in published_domains())
    assert f"{off} of the {len(published_domains())} printed mDE" in page
    reordered = sum(row.reordered for row in published_corruptions())
    assert f"Of the CIFAR10-C rows {reordered} stand under the wrong column heads" in page
    printed = json.loads(SELECTION.read_text(encoding="utf-8"))["selection"]
    for chosen in printed["rows"]:
        assert f"{chosen['leave_one_out']} ({chosen['recipe'].upper()})" in page
        row = next(
            r
            for r in published_domains()
            if (r.model, r.recipe) == (chosen["model"], chosen["recipe"])
        )
        assert row.printed == chosen["dev"]
        assert abs(mde(row.errors).value - chosen["leave_one_out"]) < 0.3


def test_the_examples_of_the_page_run():
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        shared: dict[str, object] = {}
        exec(compile(block, str(PAGE), "exec"), shared)


if __name__ == "__main__":
    print(mce_table(), mde_table(), sep="\n\n")
