"""The tables of ImageNet-C made from photos, from the results of plans imagenet_c and imagenet_dev.

What is not stored yet is a dash, with how much of it is there. Numbers are mCE in percent; those
that the paper prints stand in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any, Literal, TypeAlias

from acclimate.data.corruptions import DEV, SEVERITIES, TEST
from acclimate.data.shift import STAND_INS, plain_shift
from acclimate.metrics import mce
from acclimate.metrics.mean import mean
from acclimate.metrics.rank import spearman
from acclimate.paper.tables import Cell, find_table, printed, tables
from page_markdown import markdown

Row: TypeAlias = dict[str, Any]
Statistics: TypeAlias = Literal["batch", "all"]

RESNET = "py:photo_models:resnet50"
MODELS = {
    RESNET: "ResNet-50",
    "py:photo_models:efficientnet_lite0": "EfficientNet-Lite0",
    "py:photo_models:efficientnet_lite1": "EfficientNet-Lite1",
    "py:photo_models:efficientnet_lite2": "EfficientNet-Lite2",
}
RECIPES = {
    "none": "unadapted", "bn": "BN", "ent": "ENT", "rpl": "RPL", "hard": "hard", "soft": "soft",
}  # fmt: skip
PAPERS_RATE = 1e-3
TIMES = 10
"""How often 5,000 images go into 50,000: with a rate so many times as high, rate × steps match."""
MOMENTA = (0.9, 0.0)
"""The first is what results without the option have."""
_TUNED = {"optimizer.lr", "epochs", "optimizer.momentum"}


class ImagesDifferError(Exception):
    """Results that one table must not have."""


def imagenet(rows: Sequence[Row]) -> str:
    """The headline: every network at both rates, with momentum and without."""
    return _headline(rows, "batch")


def imagenet_pooled(rows: Sequence[Row]) -> str:
    """The same runs, scored with the statistics of all images, as the returned model has them."""
    return _headline(rows, "all")


def _headline(rows: Sequence[Row], statistics: Statistics) -> str:
    own = [row for row in rows if row["seed"] == 0]
    lines = []
    for model, name in MODELS.items():
        there = [row for row in own if row["model"] == model]
        for momentum in MOMENTA:
            if not any(_has(row, momentum=momentum) for row in there):
                continue
            for rate in (PAPERS_RATE, TIMES * PAPERS_RATE):
                found = [_at(there, recipe, rate, momentum) for recipe in RECIPES]
                cells = [
                    _beside(_mce(each, TEST, statistics), _published(model, recipe, "test"))
                    for recipe, each in zip(RECIPES, found, strict=True)
                ]
                lines.append([name, f"{rate:g}", f"{momentum:g}", *cells])
    of = "each batch" if statistics == "batch" else "all images"
    about = (
        f"mCE in percent on ImageNet-C made from {_images(rows)}, {_frost(rows)}; predictions "
        f"with the statistics of {of}. In brackets what the paper prints, of 50,000 images."
    )
    heads = ["model", "rate", "momentum", *RECIPES.values()]
    return f"{about}\n\n{markdown(heads, lines)}" if lines else none_yet("imagenet_c")


def imagenet_epochs(rows: Sequence[Row]) -> str:
    """Rates and epochs on the hold-out corruptions (tab:epochs), four ways."""
    own = [row for row in rows if row["seed"] == 0 and row["model"] == RESNET]
    cells = find_table("tab:epochs").cells
    columns = list(dict.fromkeys(cell.column for cell in cells))
    parts = [f"mCE in percent of the hold-out corruptions, {_images(rows)}, {_frost(rows)}."]
    for momentum in MOMENTA:
        for times in (1, TIMES):
            pairs = []
            lines: dict[str, list[str]] = {}
            for cell in cells:
                ours = _epoch(own, cell, momentum, times)
                lines.setdefault(cell.row, [cell.row]).append(_beside(ours, cell.published))
                if isinstance(ours, float) and cell.published is not None:
                    pairs.append((ours, cell.published))
            if not pairs:
                continue
            rates = "the paper's rates" if times == 1 else f"{times} times the paper's rates"
            title = f"Momentum {momentum:g}, {rates}. {_distance(pairs, len(cells))}"
            parts.append(f"{title}\n\n{markdown(['epoch', *columns], lines.values())}")
    return "\n\n".join(parts) if len(parts) > 1 else none_yet("imagenet_dev")


def none_yet(name: str) -> str:
    """In place of a table whose plan has not run."""
    plan = f"../benchmarks/plans/{name}.yaml"
    return f"Not measured yet: `python benchmarks/measure.py run {name}` ([plan]({plan}))."


def _epoch(rows: Sequence[Row], cell: Cell, momentum: float, times: int) -> float | str:
    if cell.epochs is None:  # before anything is learnt: with new statistics alone
        return _mce(_at(rows, "bn", nan, momentum), DEV, "batch")
    rate = times * float(cell.options["optimizer.lr"])
    found = _at(rows, str(cell.recipe), rate, momentum)
    return _mce(found, DEV, "batch", epoch=cell.epochs)


def _distance(pairs: Sequence[tuple[float, float]], of: int) -> str:
    if len(pairs) < of:
        return f"{len(pairs)} of {of} numbers are measured."
    apart = mean([abs(ours - theirs) for ours, theirs in pairs])
    ours, theirs = zip(*pairs, strict=True)
    return (
        f"Mean distance from the published: {apart:.1f} points; rank correlation "
        f"{spearman(ours, theirs):.2f}."
    )


def imagenet_analyses(rows: Sequence[Row]) -> str:
    """The other analyses on the hold-out corruptions, at the paper's rates and at ten times those.

    Of runs with six epochs the best counts, as in the paper; others are scored after their last.
    """
    own = [row for row in rows if row["model"] == RESNET and row["corruption"] is not None]
    own = [row for row in own if plain_shift(row["corruption"]) in DEV and row["seed"] == 0]
    methods = dict.fromkeys(
        (row["recipe"], _others(row))
        for row in own
        if _has(row, momentum=MOMENTA[0]) and (row["recipe"] not in ("ent", "none", "bn"))
    )
    lines = []
    for recipe, others in methods:
        same = [r for r in own if (r["recipe"], _others(r)) == (recipe, others)]
        same = [row for row in same if _has(row, momentum=MOMENTA[0])]
        usual = PAPERS_RATE * float(dict(others).get("batch_size", 128)) / 128
        found = [
            _best([row for row in same if _near(row["options"].get("optimizer.lr"), rate)])
            for rate in (usual, TIMES * usual)
        ]
        words = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in others)
        theirs = _of_paper(recipe, dict(others))
        lines.append([f"`{recipe}`{f', {words}' if words else ''}", *map(_beside, found), theirs])
    heads = ["what", "the paper's rate", f"{TIMES} times the rate", "published"]
    about = f"mCE in percent of the hold-out corruptions, {_images(rows)}."
    return f"{about}\n\n{markdown(heads, sorted(lines))}" if lines else none_yet("imagenet_dev")


def _best(rows: Sequence[Row]) -> float | str:
    """After the last epoch, or of six epochs after the best."""
    last = max((int(row["options"]["epochs"]) for row in rows), default=0)
    longest = [row for row in rows if row["options"]["epochs"] == last]
    tried = range(1, last + 1) if last == 6 else [last]
    found = [_mce(longest, DEV, "batch", epoch=epoch) for epoch in tried]
    numbers = [each for each in found if isinstance(each, float)]
    return min(numbers) if numbers and len(numbers) == len(found) else (found or ["–"])[0]


def _of_paper(recipe: str, others: Mapping[str, Any]) -> str:
    """What the paper prints for a method on the hold-out corruptions, in any of its tables."""
    found = {
        cell.published
        for table in tables()
        for cell in table.to_run
        if (cell.model, cell.dataset, cell.shift) == ("paper:resnet50", "imagenet-c", "dev")
        and (cell.metric, cell.recipe, cell.epochs) == ("mCE", recipe, None)
        and {k: v for k, v in cell.options.items() if k not in _TUNED} == others
    }
    return " or ".join(f"{each:.1f}" for each in sorted(filter(None, found))) or "–"


def imagenet_severities(rows: Sequence[Row]) -> str:
    """By severity (fig:detailed-severities), with the calibration error of the returned model."""
    own = [row for row in rows if row["seed"] == 0 and row["model"] == RESNET]
    lines = []
    for recipe, name in RECIPES.items():
        for rate in (PAPERS_RATE, TIMES * PAPERS_RATE):
            if recipe in ("none", "bn") and rate != PAPERS_RATE:
                continue
            found = _at(own, recipe, rate, MOMENTA[0])
            if not found:
                continue
            at = {s: [row for row in found if row["severity"] == s] for s in SEVERITIES}
            words = name if recipe in ("none", "bn") else f"{name}, rate {rate:g}"
            errors = [_shown(_mce(each, TEST, "batch", severities=1)) for each in at.values()]
            lines.append([words, *errors, _ece(found)])
    heads = ["recipe", *(f"severity {s}" for s in SEVERITIES), "calibration error"]
    about = f"mCE in percent, ResNet-50, {_images(rows)}, momentum {MOMENTA[0]:g}."
    return f"{about}\n\n{markdown(heads, lines)}" if lines else none_yet("imagenet_c")


def _ece(rows: Sequence[Row]) -> str:
    known = [100 * row["ece"] for row in rows if row["ece"] is not None]
    return f"{mean(known):.1f}" if len(known) == len(TEST) * len(SEVERITIES) else "–"


def error_of(row: Row, statistics: Statistics, epoch: int | None = None) -> float | None:
    """The error of a stored result, of predictions with these statistics.

    The returned model has those of all images, and that of its last epoch alone.
    """
    last = row["options"].get("epochs")
    value: float | None
    if row["recipe"] == "none":
        value = row["error"]
    elif statistics == "all":
        value = row["error"] if epoch in (None, last) else None
    elif row["recipe"] == "bn":
        value = row["online"]
    else:
        after = row["after_epoch"] or []
        number = len(after) if epoch is None else epoch
        value = after[number - 1] if 1 <= number <= len(after) else None
    return value


def _mce(
    rows: Sequence[Row],
    corruptions: Sequence[str],
    statistics: Statistics,
    *,
    epoch: int | None = None,
    severities: int = len(SEVERITIES),
) -> float | str:
    """The mCE, or in words how many of its shifts are stored."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        error = error_of(row, statistics, epoch)
        if row["corruption"] is not None and plain_shift(row["corruption"]) in corruptions:
            if error is None:
                return "–"
            errors.setdefault(plain_shift(row["corruption"]), []).append(error)
    count, of = sum(map(len, errors.values())), len(corruptions) * severities
    if count < of:
        return f"– ({count} of {of})" if count else "–"
    if count > of:
        raise ImagesDifferError(f"expected {of} results, one for each shift, got {count}")
    means = {name: mean(values) for name, values in errors.items()}
    return mce(means, corruptions=corruptions).value


def _at(rows: Iterable[Row], recipe: str, rate: float, momentum: float) -> list[Row]:
    """The plain recipe at a rate; those that do not learn have none."""
    own = [row for row in rows if row["recipe"] == recipe and not row.get("forgetting")]
    if recipe in ("none", "bn"):
        return own
    found = [
        row
        for row in own
        if _near(row["options"].get("optimizer.lr"), rate)
        and _has(row, momentum=momentum)
        and not _others(row)
    ]
    # A longer run has the errors of a shorter one.
    longest = max((row["options"]["epochs"] for row in found), default=0)
    return [row for row in found if row["options"]["epochs"] == longest]


def _has(row: Row, *, momentum: float) -> bool:
    learns = row["recipe"] not in ("none", "bn")
    found = row["options"].get("optimizer.momentum", MOMENTA[0])
    return learns and _near(found, momentum)


def _others(row: Row) -> tuple[tuple[str, Any], ...]:
    """The options that make another method."""
    return tuple((name, each) for name, each in row["options"].items() if name not in _TUNED)


def _near(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) <= 1e-6 * abs(wanted)


def _published(model: str, recipe: str, shift: str) -> float | None:
    if model != RESNET:
        return None
    where = {"dataset": "imagenet-c", "metric": "mCE", "shift": shift}
    return printed(model="paper:resnet50", recipe=recipe, severity=None, **where)


def _images(rows: Sequence[Row]) -> str:
    counts = {row["images"] for row in rows}
    if len(counts) > 1:
        raise ImagesDifferError(f"expected as many images in every result, got {sorted(counts)}")
    return f"{counts.pop():,} validation photos" if counts else "validation photos (none yet)"


def _frost(rows: Sequence[Row]) -> str:
    """Which frost a table is over: one with both kinds would compare nothing."""
    names = {row["corruption"] for row in rows} & {"frost", *STAND_INS}
    if len(names) > 1:
        raise ImagesDifferError(f"expected one kind of frost, got {' and '.join(sorted(names))}")
    kinds = {"frost": "frost photographed", "frost-procedural": "frost of our own textures"}
    return kinds[names.pop()] if names else "frost not among them"


def _beside(ours: float | str, theirs: float | None = None) -> str:
    return _shown(ours) + ("" if theirs is None else f" ({theirs:.1f})")


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}"
