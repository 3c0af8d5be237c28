"""Fit the estimate of the error on the dev half of the bank of cases, and judge it on the test.

    python benchmarks/estimates.py fit --results bank.dev.jsonl.gz      # writes estimate.npz
    python benchmarks/estimates.py judge --results bank.test.jsonl.gz   # the tables of the docs

How wide the intervals are follows from shifts left out of a fit, some at a time; what is printed
of networks left out shows what to expect of others.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from acclimate.guard import estimate
from acclimate.guard.estimate import COVERAGE, ENOUGH, ErrorEstimate, estimate_from, guess
from acclimate.guard.forest import Forest
from acclimate.table import Entry, Number, Table, number_entry
from bank import UNLABELLED, read
from bank_signals import TEMPERATURES

FITTED = Path(estimate.__file__).with_name("estimate.npz")
TREES, LEAF, LOOKED_AT = 50, 6, 0.5
"""Trees of a forest, examples in a leaf at the least, signs each node chooses from."""
GAINS = 2.0
"""Gains weigh so much more than losses in the fit: the dev half has half as many."""
FOLDS = 8
"""Parts of the shifts, or of the networks, that are left out in turn."""
LEAST, DRAWN = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01), (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0)
"""Tried for what always adds to a variance, and for what few images add."""

Z = NormalDist().inv_cdf((1 + COVERAGE) / 2)

GAIN = 1.0
"""Points of error that count as a gain or a loss."""

PUBLISHED: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "agreement with the mirrored image": lambda row: 100 * (1 - row["agree_mirrored"]),
    "average confidence": lambda row: 100 * (1 - row["confidence"]),
    "difference of confidences *": lambda row: 100 * row["doc"],
    "ATC *": lambda row: 100 * row["atc"],
    "ATC, entropy *": lambda row: 100 * row["atc_entropy"],
    "AETTA": lambda row: 100 * row["dropout"] if "dropout" in row else math.nan,
    "nuclear norm": lambda row: 100 * (1 - row["nuclear"]),
}
"""Estimates of others for one state, in percent; those with * know labelled clean images."""

Kind = Literal["level", "change"]
Case = Mapping[str, Any]
Signs = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One state, or one change of a state: its signs, the truth (a share), and where it is from."""

    model: str
    case: int
    shift: str
    signs: Signs
    truth: float


def measured(cases: Sequence[Case]) -> Iterator[tuple[int, Case]]:
    """Cases of which something can be estimated, with their indices."""
    for number, case in enumerate(cases):
        enough = case["states"][0]["shown"] >= ENOUGH
        if enough and all(state["finite"] for state in case["states"]):
            yield number, case


def ways(signs: Signs) -> Iterator[Signs]:
    """As they are, and where the distance from the source's statistics is not known."""
    yield signs
    if signs["distance"] >= 0:
        unknown = {**signs, "distance": -1.0, "late": 0.0}
        if signs.get("strange"):
            unknown["strange"] = -1.0
        yield unknown


def examples(cases: Sequence[Case], kind: Kind) -> list[Example]:
    """Every state, or every change: from the unadapted model, and by learning alone."""
    return [
        Example(
            model=case["case"]["model"],
            case=number,
            shift=case["case"]["shift"].rpartition("/")[2].partition(":")[0],
            signs=signs,
            truth=truth / 100,
        )
        for number, case in measured(cases)
        for known, truth in (levels(case) if kind == "level" else changes(case))
        for signs in ways(known)
    ]


def levels(case: Case) -> Iterator[tuple[Signs, float]]:
    """Signs and error of each state, but of images of no class: no prediction is right there."""
    if case["case"]["shift"] not in UNLABELLED:
        yield from ((state["level"], state["error"]) for state in case["states"])


def changes(case: Case) -> Iterator[tuple[Signs, float]]:
    """Signs and change of the error, from the unadapted model, and by learning alone."""
    before, *others = case["states"]
    start = before
    for state in others:
        yield state["change"], state["error"] - before["error"]
        if state["recipe"] == "bn":
            start = state
        elif state["statistics"] != "source":
            yield state["learning"], state["error"] - start["error"]


def weights(kind: Kind, examples: Sequence[Example]) -> np.ndarray:
    """Every network counts the same, and every case of a network; changes by how much changed."""
    of_case = Counter((e.model, e.case) for e in examples)
    cases = Counter(model for model, _ in of_case)
    plain = np.array([1 / cases[e.model] / of_case[e.model, e.case] for e in examples])
    if kind == "level":
        return plain
    changed = np.array([e.signs["changed"] for e in examples])
    of_sign = np.array([GAINS if e.truth < 0 else 1.0 for e in examples])
    return np.asarray(plain * changed * of_sign)


def grown(kind: Kind, examples: Sequence[Example]) -> Forest:
    """A forest, in the package's own form."""
    names = tuple(examples[0].signs)
    x = np.array([[e.signs[name] for name in names] for e in examples])
    truth = np.array([e.truth for e in examples])
    if kind == "change":
        changed = np.array([e.signs["changed"] for e in examples])
        truth = np.clip(truth / np.maximum(changed, 0.005), -1, 1)
    trees = ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAF, max_features=LOOKED_AT, random_state=0
    ).fit(x, truth, sample_weight=weights(kind, examples))
    nodes = [tree.tree_ for tree in trees.estimators_]
    sizes = [each.node_count for each in nodes]
    roots = np.cumsum([0, *sizes[:-1]])

    def joined(parts: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
        return np.concatenate(parts).astype(dtype)

    leaves = joined([each.children_left for each in nodes], int) < 0
    feature = joined([each.feature for each in nodes], np.int16)
    return Forest(
        names=names,
        feature=np.where(leaves, np.int16(-1), feature),
        threshold=joined([each.threshold for each in nodes], np.float32),
        # Trees are stored depth first: the next node is the left one.
        right=joined([n.children_right - np.arange(n.node_count) for n in nodes], np.int16),
        value=joined([each.value[:, 0, 0] for each in nodes], np.float16),
        roots=roots.astype(np.int32),
    )


def left_out(kind: Kind, examples: Sequence[Example], groups: Sequence[str]) -> np.ndarray:
    """What each is guessed to be by a forest that has not seen its group, and the deviations."""
    fold = {group: index % FOLDS for index, group in enumerate(sorted(set(groups)))}
    found = np.zeros((len(examples), 4))
    for part in range(FOLDS):
        forest = grown(kind, [e for e, g in zip(examples, groups, strict=True) if fold[g] != part])
        for row, (e, group) in enumerate(zip(examples, groups, strict=True)):
            if fold[group] == part:
                found[row] = guess(forest, e.signs)
    return found


def widths(found: np.ndarray, truth: np.ndarray, weight: np.ndarray) -> list[float]:
    """The narrowest intervals that hold as many of the truths as they should."""
    value, trees, most, few = found.T
    best, widest = [math.nan] * 3, math.inf
    for least, drawn in product(LEAST, DRAWN):
        for spread in np.geomspace(0.01, 10, 100):
            deviation = np.sqrt(spread * trees**2 + least * most**2 + drawn * few**2)
            inside = np.abs(value - truth) <= Z * deviation
            if float(np.average(inside, weights=weight)) >= COVERAGE:
                width = float(np.average(deviation, weights=weight))
                if width < widest:
                    best, widest = [float(spread), least, drawn], width
                break
    if math.isinf(widest):
        raise ValueError("expected some width to hold enough of the truths: widen what is tried")
    return best


def held(found: np.ndarray, truth: np.ndarray, weight: np.ndarray, width: np.ndarray) -> float:
    """The share of the truths, in percent, that lie in intervals of this width."""
    value, *parts = found.T
    deviation = np.sqrt(sum(w * each**2 for w, each in zip(width, parts, strict=True)))
    inside = np.abs(value - truth) <= Z * deviation
    return 100 * float(np.average(inside, weights=weight))


def fit(args: argparse.Namespace) -> None:
    """Fit both, and say how they do on shifts left out."""
    cases = [case for path in args.results for case in read(path)]
    stored: dict[str, np.ndarray] = {}
    rows: list[list[Entry]] = []
    kinds: tuple[Kind, ...] = ("level", "change")
    for kind in kinds:
        known = examples(cases, kind)
        truth, of_case = np.array([e.truth for e in known]), Counter(e.case for e in known)
        weight = np.array([1 / of_case[e.case] for e in known])
        width = np.zeros(3)
        for left, groups in (
            ("shifts", [e.shift for e in known]), ("networks", [e.model for e in known]),
        ):  # fmt: skip
            found = left_out(kind, known, groups)
            if left == "shifts":
                width = np.array(widths(found, truth, weight))
            clear = np.abs(truth) > 0.02
            right = np.average((found[:, 0] * truth > 0)[clear], weights=weight[clear])
            off = np.average(np.abs(found[:, 0] - truth), weights=weight)
            rows.append(
                [
                    kind,
                    left,
                    Number(str(len(known)), len(known)),
                    number_entry(100 * float(off)),
                    "" if kind == "level" else f"{right:.0%}",
                    number_entry(held(found, truth, weight, width), digits=0),
                ]
            )
        print(f"{kind}: spread {width[0]:.3f}, least {width[1]:.4f}, drawn {width[2]:.2f}")
        stored[f"{kind}/widths"] = width
        stored |= dict(grown(kind, known).arrays(kind))
    if not args.dry:
        np.savez_compressed(FITTED, **stored)  # type: ignore[arg-type]
        estimate.fitted.cache_clear()
    header = ["fit", "left out", "examples", "points off", "sign right", "held, %"]
    print(Table(rows, header=header).text())


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is reported to a user of one treatment."""

    case: Case
    state: Mapping[str, Any]
    found: ErrorEstimate

    @property
    def change(self) -> float:
        """The true one, in points."""
        return float(self.state["error"] - self.case["states"][0]["error"])

    @property
    def truth(self) -> str:
        """What the error does, in a word."""
        return "falls" if self.change < -GAIN else "rises" if self.change > GAIN else "neither"

    @property
    def word(self) -> str:
        """The verdict."""
        if self.state["agree_source"] > 0.99:
            return "unchanged"
        if not self.found.change.excludes_zero:
            return "unclear"
        return "helpful" if self.found.change.value < 0 else "harmful"

    @property
    def kind(self) -> str:
        """Which treatment it is."""
        if self.state["recipe"] == "bn":
            return "new statistics"
        new = self.state["statistics"] != "source"
        return "new statistics, learning" if new else "learning alone"


def judged(cases: Sequence[Case]) -> Iterator[Judged]:
    """The estimate, as a user would get it, of every treatment of every case."""
    for _, case in measured(cases):
        before, *others = case["states"]
        start: dict[str, Signs] = {}
        for state in others:
            if state["recipe"] == "bn":
                start[state["statistics"]] = state["change"]
            steps = [each for each in (start.get(state["statistics"]),) if each is not None]
            if "learning" in state:
                steps.append(state["learning"])
            found = estimate_from(before["level"], state["level"], steps)
            yield Judged(case=case, state=state, found=found)


def verdict_table(cases: Sequence[Case]) -> Table:
    """What the verdict says of each treatment, by what became of the error; percent of cases."""
    rows: list[list[Entry]] = []
    words = ("helpful", "unclear", "unchanged", "harmful")
    found = list(judged(cases))
    for kind in ("new statistics", "new statistics, learning", "learning alone"):
        for truth in ("falls", "neither", "rises"):
            own = [each for each in found if (each.kind, each.truth) == (kind, truth)]
            counts = Counter(each.word for each in own)
            shares = [number_entry(100 * counts[w] / max(1, len(own))) for w in words]
            rows.append([kind, truth, Number(str(len(own)), len(own)), *shares])
    header = ["treatment", "the error", "states", *(f"{each}, %" for each in words)]
    return Table(rows, header=header)


def estimate_table(cases: Sequence[Case]) -> Table:
    """How far estimates are from the error; every case counts the same."""
    known = [case for _, case in measured(cases) if case["case"]["shift"] not in UNLABELLED]
    found = list(judged(known))
    of_case = Counter(id(each.case) for each in found)
    weight = [1 / of_case[id(each.case)] for each in found]
    rows: list[list[Entry]] = []
    for name, estimates, truths in (
        (
            "ours, of the unadapted model",
            [each.found.before for each in found],
            [each.case["states"][0]["error"] for each in found],
        ),
        (
            "ours, of the adapted model",
            [each.found.after for each in found],
            [each.state["error"] for each in found],
        ),
        (
            "ours, of the change",
            [each.found.change for each in found],
            [each.change for each in found],
        ),
    ):
        off = [abs(e.value - truth) for e, truth in zip(estimates, truths, strict=True)]
        held = [e.low <= truth <= e.high for e, truth in zip(estimates, truths, strict=True)]
        rows.append(
            [
                name,
                number_entry(float(np.average(off, weights=weight))),
                number_entry(100 * float(np.average(held, weights=weight)), digits=0),
            ]
        )
    for name, of in PUBLISHED.items():
        for which, states in (
            ("unadapted", [case["states"][:1] for case in known]),
            ("adapted", [case["states"][1:] for case in known]),
        ):
            off = [
                float(np.nanmean([abs(of(state) - state["error"]) for state in own]))
                for own in states
                if own and not all(math.isnan(of(state)) for state in own)
            ]
            rows.append([f"{name}, of the {which} model", number_entry(float(np.mean(off))), ""])
    header = ["estimate", "mean distance, points", "intervals that hold the truth, %"]
    return Table(rows, header=header)


def calibration_table(cases: Sequence[Case]) -> Table:
    """Calibration errors in percent; of few images a perfect model has some too."""
    plain = TEMPERATURES.index(min(TEMPERATURES, key=lambda t: abs(math.log(t))))
    found: dict[str, list[float]] = {}
    below = []

    def nearest(scaled: Mapping[str, Any], accuracy: float) -> int:
        return int(np.argmin([abs(each - accuracy) for each in scaled["confidence"]]))

    for each in judged(cases):
        state, scaled = each.state, each.state["scaled"]
        if each.case["case"]["shift"] in UNLABELLED or state["recipe"] == "bn":
            continue
        ours = nearest(scaled, 1 - each.found.after.value / 100)
        flips = nearest(scaled, state["agree_mirrored"])
        before = each.case["states"][0]["scaled"]["ece"][plain]
        choices = {"unadapted": before, "adapted": scaled["ece"][plain]}
        choices["adapted, calibrated by the estimate"] = scaled["ece"][ours]
        choices["adapted, confidence as agreement with the mirrored"] = scaled["ece"][flips]
        if state.get("pseudocal"):
            mixed = int(np.argmin([abs(math.log(t / state["pseudocal"])) for t in TEMPERATURES]))
            choices["adapted, PseudoCal"] = scaled["ece"][mixed]
            choices["adapted, PseudoCal and mirrored"] = scaled["ece"][(mixed + flips) // 2]
        choices["adapted, best temperature"] = min(scaled["ece"])
        below.append(scaled["ece"][ours] < before)
        for name, ece in choices.items():
            found.setdefault(name, []).append(100 * ece)
    rows: list[list[Entry]] = [[k, number_entry(float(np.mean(v)))] for k, v in found.items()]
    rows.append(
        ["calibrated below unadapted, % of states", number_entry(100 * float(np.mean(below)))]
    )
    return Table(rows, header=["probabilities", "mean calibration error, %"])


def pages(cases: Sequence[Case]) -> str:
    """The tables of docs/guard.md."""
    models = Counter(case["case"]["model"] for case in cases)
    counted = ", ".join(f"{name} {count}" for name, count in sorted(models.items()))
    tables = (verdict_table(cases), estimate_table(cases), calibration_table(cases))
    said = f"{len(cases)} cases ({counted}) of 50 to 2,000 images."
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
