"""Fit the estimate of the error on the dev half of the bank of cases, and judge it on the test.

    python benchmarks/estimates.py fit --results bank.dev.jsonl      # writes estimate.json
    python benchmarks/estimates.py judge --results bank.test.jsonl   # prints the tables of the docs

The weights are fitted by least squares; which signs are used, and how wide the intervals are, is
told by the networks left out of a fit, one at a time.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from acclimate.guard import estimate
from acclimate.guard.estimate import (
    COVERAGE,
    ENOUGH,
    MEANINGLESS,
    Change,
    ErrorEstimate,
    error_shown,
    estimate_from,
    lateness,
    log_odds,
    rise,
    with_products,
)
from acclimate.table import Entry, Number, Table, number_entry
from bank import MODELS, UNLABELLED, read
from bank_signals import SHOWN, TEMPERATURES

FITTED = Path(estimate.__file__).with_name("estimate.json")

SIGNS: dict[str, tuple[str, ...]] = {
    "level": ("constant", "stays", "mirrored", "stays x confidence", "largest", "entropy"),
    "statistics": (
        "changed",
        "rise",
        "steadiness",
        "late x confidence",
        "late x spread",
    ),
    "learning": ("constant", "error"),
}
RIDGE = 0.02
"""Weights are drawn to zero by so much for each network."""

LEARNS = ("ent", "rpl")
GAIN = 1.0
"""Points of error that count as a gain or a loss."""

PUBLISHED: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "agreement with the mirrored image": lambda row: 100 * (1 - row["agree_mirrored"]),
    "average confidence": lambda row: 100 * (1 - row["confidence"]),
    "difference of confidences *": lambda row: 100 * row["doc"],
    "ATC *": lambda row: 100 * row["atc"],
    "AETTA": lambda row: 100 * row["dropout"],
}
"""Estimates of others for one state, in percent; those with * know labelled clean images."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One state, or one change of a state: its signs, and the truth."""

    model: str
    signs: Mapping[str, float]
    truth: float


def measured(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Cases of which something can be told, and the images looked at."""
    for case in cases:
        kind = MODELS[case["case"]["model"]][1]
        shown = min(case["case"]["images"], SHOWN[kind])
        if shown >= ENOUGH and all(state["finite"] for state in case["states"]):
            yield case, shown


def levels(cases: Sequence[Mapping[str, Any]]) -> Iterator[Example]:
    """Every state of every case."""
    for case, shown in measured(cases):
        if case["case"]["shift"] in UNLABELLED:
            continue  # of no class: there is no right answer to be confident of
        for state in case["states"]:
            signs = level_of(state, shown)
            truth = state["error"] / 100
            yield Example(model=case["case"]["model"], signs=signs, truth=truth)


def all_signs(
    before: Mapping[str, Any], state: Mapping[str, Any], kind: str, images: int
) -> dict[str, float]:
    """Signs as :func:`change_signs` gives them today, from what the bank has stored."""
    error, later = (error_shown(level_of(each, images))[0] for each in (before, state))
    signs = {
        **state[kind],
        "growth": math.log(state["used"] / before["used"]),
        "late": lateness_of(state) if kind == "change" else 0.0,
        "confidence": before["confidence"],
        "error": error,
        "rise": rise(error, later, changed=round(state[kind]["changed"] * images), images=images),
    }
    return with_products(signs)


def lateness_of(state: Mapping[str, Any]) -> float:
    """From the octiles of the layers and the last one, as the bank stores them."""
    gap = state.get("gap")
    return lateness([*gap[:7], max(gap[7:])]) if gap else 0.0


def level_of(state: Mapping[str, Any], images: int) -> dict[str, float]:
    """Signs as :func:`level_signs` gives them today, from what the bank has stored."""
    stays, confidence = (state["level"][name] for name in ("stays", "confidence"))
    mirrored, zoomed = (state[f"agree_{view}"] for view in ("mirrored", "zoomed"))
    return {
        "constant": 1.0,
        "images": float(images),
        "stays": stays,
        "mirrored": stays if zoomed - mirrored > MEANINGLESS else log_odds(mirrored, images),
        "confidence": confidence,
        "stays x confidence": stays * confidence,
        "largest": log_odds(state["largest"], images),
        "entropy": state["entropy"],
    }


def changes(cases: Sequence[Mapping[str, Any]], kind: Change) -> Iterator[Example]:
    """Every change of a kind: new statistics, or what was learnt after them."""
    for case, shown in measured(cases):
        before, *others = case["states"]
        start = {"source": before}
        for state in others:
            if state["recipe"] == "bn":
                start[state["statistics"]] = state
                signs, old = all_signs(before, state, "change", shown), before
            else:
                old = start[state["statistics"]]
                signs = all_signs(old, state, "learning", shown)
            if (kind == "statistics") == (state["recipe"] == "bn"):
                truth = (state["error"] - old["error"]) / 100
                yield Example(model=case["case"]["model"], signs=signs, truth=truth)


def value(weights: Mapping[str, float], signs: Mapping[str, float]) -> float:
    return sum(weight * signs[name] for name, weight in weights.items())


def predicted(kind: str, weights: Mapping[str, float], signs: Mapping[str, float]) -> float:
    """As the package predicts."""
    if kind == "level":
        return 1 / (1 + math.exp(-value(weights, signs)))
    return signs["changed"] * math.tanh(value(weights, signs))


def fitted(kind: str, examples: Sequence[Example], signs: Sequence[str]) -> dict[str, float]:
    """The weights, every network counting the same."""
    per_model = {m: sum(e.model == m for e in examples) for m in {e.model for e in examples}}
    weight = np.array([1 / per_model[e.model] for e in examples]) ** 0.5
    x = np.array([[e.signs[name] for name in signs] for e in examples])
    truth = np.array([e.truth for e in examples])
    changed = np.array([e.signs.get("changed", 1.0) for e in examples])
    ridge = (RIDGE * len(per_model)) ** 0.5

    def residuals(w: np.ndarray) -> np.ndarray:
        z = np.clip(x @ w, -30, 30)
        found = 1 / (1 + np.exp(-z)) if kind == "level" else changed * np.tanh(z)
        return np.concatenate([4 * weight * (found - truth), ridge * w])

    start = np.zeros(len(signs))
    best = least_squares(residuals, start, loss="soft_l1", f_scale=0.2)
    return dict(zip(signs, best.x.tolist(), strict=True))


def left_out(kind: str, examples: Sequence[Example], signs: Sequence[str]) -> np.ndarray:
    """What is predicted for each network by the others."""
    found = np.zeros(len(examples))
    for model in {e.model for e in examples}:
        weights = fitted(kind, [e for e in examples if e.model != model], signs)
        for row, e in enumerate(examples):
            if e.model == model:
                found[row] = predicted(kind, weights, e.signs)
    return found


def width(kind: str, example: Example, found: float) -> tuple[float, float]:
    """What the spread is multiplied by, and what the number of images adds (a variance)."""
    n = example.signs["images"]
    if kind == "level":
        slope = max(found * (1 - found), 0.02)
        return slope, slope / n
    changed = example.signs["changed"]
    return changed, (changed + 1 / n) / n


def spread(kind: str, examples: Sequence[Example], found: np.ndarray) -> float:
    """The least one whose intervals hold as many of the truths as they should."""
    for candidate in np.geomspace(0.01, 10, 300):
        inside = 0
        for example, guess in zip(examples, found, strict=True):
            scale, sampling = width(kind, example, float(guess))
            half = 1.645 * math.hypot(candidate * scale, sampling**0.5)
            inside += abs(guess - example.truth) <= half
        if inside >= COVERAGE * len(examples):
            return float(candidate)
    return 10.0


def examples_of(kind: str, cases: Sequence[Mapping[str, Any]]) -> list[Example]:
    if kind == "level":
        return list(levels(cases))
    return list(changes(cases, "statistics" if kind == "statistics" else "learning"))


def fit(args: argparse.Namespace) -> None:
    """Fit all three, and say how they do on networks left out.

    Levels come first: the others go by them.
    """
    cases = [case for path in args.results for case in read(path)]
    stored, rows = json.loads(FITTED.read_text()), []
    for kind, signs in SIGNS.items():
        examples = examples_of(kind, cases)
        weights, out = fitted(kind, examples, signs), left_out(kind, examples, signs)
        truth = np.array([e.truth for e in examples])
        inside = np.array([predicted(kind, weights, e.signs) for e in examples])
        stored[kind] = {
            "weights": {name: round(w, 3) for name, w in weights.items()},
            "spread": round(spread(kind, examples, out), 3),
        }
        if kind == "learning":  # of too few examples to be known better than that of statistics
            stored[kind]["spread"] = max(stored[kind]["spread"], stored["statistics"]["spread"])
        if not args.dry:
            FITTED.write_text(json.dumps(stored, indent=1) + "\n")
            estimate.fitted.cache_clear()
        clear = np.abs(truth) > 0.02
        rows.append(
            [
                kind,
                str(len(examples)),
                f"{100 * np.abs(inside - truth).mean():.1f}",
                f"{100 * np.abs(out - truth).mean():.1f}",
                "" if kind == "level" else f"{(out * truth > 0)[clear].mean():.0%}",
                str(stored[kind]),
            ]
        )
    header = ["fit", "examples", "mean error", "left out", "sign right", "weights"]
    print(Table(rows, header=header).text())


def judged(cases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Any, Any]]:
    """The estimate, as a user would get it, of every treatment of every case."""
    for case, shown in measured(cases):
        before, *others = case["states"]
        through: dict[str, dict[Change, Mapping[str, float]]] = {"source": {}}
        start = {"source": before}
        for state in others:
            steps = dict(through.get(state["statistics"], {}))
            if state["recipe"] == "bn":
                steps["statistics"] = all_signs(before, state, "change", shown)
                through[state["statistics"]], start[state["statistics"]] = steps, state
            else:
                steps["learning"] = all_signs(start[state["statistics"]], state, "learning", shown)
            found = estimate_from(level_of(before, shown), level_of(state, shown), steps)
            yield case, state, found


def word(found: ErrorEstimate) -> str:
    if not found.change.excludes_zero:
        return "unclear"
    return "helpful" if found.change.value < 0 else "harmful"


Cases = Sequence[Mapping[str, Any]]


def verdict_table(cases: Cases) -> Table:
    """What the verdict says of each treatment, by what became of the error."""
    counts: Counter[tuple[str, str]] = Counter()
    for case, state, found in judged(cases):
        change = state["error"] - case["states"][0]["error"]
        truth = "falls" if change < -GAIN else "rises" if change > GAIN else "neither"
        said = "unchanged" if state["agree_source"] > 0.99 else word(found)
        counts[truth, said] += 1
    words = ("helpful", "unclear", "unchanged", "harmful")
    rows = [
        [truth, *(Number(str(counts[truth, said]), counts[truth, said]) for said in words)]
        for truth in ("falls", "neither", "rises")
    ]
    return Table(rows, header=["the error", *words])


def estimate_table(cases: Cases) -> Table:
    """How far estimates are from the error: ours of the adapted model, others' of every state."""
    ours = [
        (state["error"], found.after)
        for case, state, found in judged(cases)
        if case["case"]["shift"] not in UNLABELLED
    ]
    states = [
        state
        for case, _ in measured(cases)
        if case["case"]["shift"] not in UNLABELLED
        for state in case["states"]
    ]
    held = float(np.mean([each.low <= error <= each.high for error, each in ours]))
    off = float(np.mean([abs(each.value - error) for error, each in ours]))
    rows: list[list[Entry]] = [
        ["ours", number_entry(off), f"{held:.0%} of the intervals hold the error"]
    ]
    for name, of in PUBLISHED.items():
        away = float(np.mean([abs(of(state) - state["error"]) for state in states]))
        rows.append([name, number_entry(away), ""])
    return Table(rows, header=["estimate", "mean distance from the error, points", ""])


def calibration_table(cases: Cases) -> Table:
    """Calibration errors in percent, of so few images that a perfect model has some too."""
    found: dict[str, list[float]] = {}
    plain = TEMPERATURES.index(min(TEMPERATURES, key=lambda t: abs(math.log(t))))
    for case, state, found_error in judged(cases):
        if case["case"]["shift"] in UNLABELLED:
            continue
        scaled, accuracy = state["scaled"], 1 - found_error.after.value / 100
        chosen = int(np.argmin([abs(each - accuracy) for each in scaled["confidence"]]))
        before = case["states"][0]["scaled"]["ece"][plain]
        for name, ece in (
            ("unadapted", before),
            ("adapted", scaled["ece"][plain]),
            ("adapted, calibrated", scaled["ece"][chosen]),
            ("adapted, best temperature", min(scaled["ece"])),
        ):
            found.setdefault(name, []).append(100 * ece)
    header = ["probabilities", "mean calibration error, %"]
    return Table([[k, number_entry(float(np.mean(v)))] for k, v in found.items()], header=header)


def pages(cases: Cases) -> str:
    """The tables of docs/guard.md."""
    models = Counter(case["case"]["model"] for case in cases)
    counted = ", ".join(f"{name} {count}" for name, count in sorted(models.items()))
    tables = (verdict_table(cases), estimate_table(cases), calibration_table(cases))
    said = f"{len(cases)} cases ({counted}), new statistics of 50 to 200 images."
    return "\n\n".join([said, *(table.markdown() for table in tables)])


def judge(args: argparse.Namespace) -> None:
    """Print the tables."""
    cases = [case for path in args.results for case in read(path)]
    for make in (verdict_table, estimate_table, calibration_table):
        print(make(cases).text(), end="\n\n")


def main() -> None:
    """Fit or judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for call in (fit, judge):
        one = commands.add_parser(call.__name__)
        one.add_argument("--results", type=Path, nargs="+", required=True)
        one.set_defaults(call=call)
        if call is fit:
            one.add_argument("--dry", action="store_true", help="print, write nothing")
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
