"""Tables from the runs of ``label_free.py``: default learning rate, scores, verdicts."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.guard.history import History
from acclimate.guard.verdict import judge
from acclimate.metrics.scores import information_maximization

MAX_DRIFT = 0.15
Row = dict[str, Any]
Score = Callable[[Row, float], float]


def _im(s: Row, _: float = 0.0) -> float:
    return information_maximization(diversity=s["diversity"], entropy=s["entropy"])


SCORES: dict[str, Score] = {
    "last epoch": lambda s, drift: 0.0,  # ties go to the later epoch
    "no learning (start)": lambda s, drift: -drift,
    "confidence": lambda s, drift: s["confidence"],
    "diversity + confidence": _im,
    "nuclear norm": lambda s, drift: s["nuclear_norm"],
    "agreement with source": lambda s, drift: s["agreement"],
    f"agreement with source, drift <= {MAX_DRIFT}": (
        lambda s, drift: s["agreement"] if drift <= MAX_DRIFT else -1e3 - drift
    ),
    f"agreement + diversity + confidence, drift <= {MAX_DRIFT}": (
        lambda s, drift: s["agreement"] + _im(s) / 2.3 if drift <= MAX_DRIFT else -1e3 - drift
    ),
    f"diversity + confidence, drift <= {MAX_DRIFT}": (
        lambda s, drift: _im(s) if drift <= MAX_DRIFT else -1e3 - drift
    ),
}


def candidates(row: Row) -> list[tuple[Row, float]]:
    history = row["history"]
    epochs = [(e["after_epoch"], _finite(e["drift"])) for e in history["epochs"]]
    return [(history["start"], 0.0), *epochs]


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 1e9


def rates_table(rows: list[Row]) -> list[str]:
    """Change of error against the start (statistics only), mean and worst, after five epochs."""
    table: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        case = row["case"]
        if case["target"] == "all":
            errors = [s["error"] for s, _ in candidates(row)]
            key = (case["model"], case["recipe"], case["optimizer"], case["lr"])
            table[key].append(errors[-1] - errors[0])
    lines = [
        "| model | recipe | optimiser | lr | runs | mean change | worst change |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, changes in sorted(table.items()):
        cells = [
            *map(str, key),
            str(len(changes)),
            f"{np.mean(changes):+.1f}",
            f"{max(changes):+.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def scores_table(rows: list[Row]) -> list[str]:
    """Error of the state a score picks, over the best state of the same run."""
    lines = ["| picks by | runs | mean regret | 95th percentile | worst |", "|---|---|---|---|---|"]
    for name, score in SCORES.items():
        regrets = []
        for row in rows:
            states = candidates(row)
            values = [score(s, drift) for s, drift in states]
            best = max(range(len(states)), key=lambda i: (values[i], i))
            errors = [s["error"] for s, _ in states]
            regrets.append(errors[best] - min(errors))
        numbers = (np.mean(regrets), np.percentile(regrets, 95), max(regrets))
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(f"{n:.2f}" for n in numbers) + " |")
    return lines


def verdicts_table(rows: list[Row]) -> list[str]:
    """What the verdict says of the new statistics alone, against the truth (one row per case)."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    seen = set()
    for row in rows:
        case = row["case"]
        key = json.dumps(
            [case[k] for k in ("model", "split", "shift", "severity", "target", "limit")]
        )
        if key in seen:
            continue
        seen.add(key)
        plain = {**row["history"], "events": [], "epochs": [], "final": row["history"]["start"]}
        for name in ("source", "start", "final"):
            plain[name] = {**plain[name], "class_counts": [0] * 10}  # ten classes in both cases
        history = History.from_dict(plain)
        assert history.source is not None
        assert history.start is not None
        assert history.source.error is not None
        assert history.start.error is not None
        change = history.start.error - history.source.error
        truth = "better" if change < -1 else "worse" if change > 1 else "within 1 point"
        counts[truth, judge(history).word] += 1
    words = ("helpful", "neutral", "harmful")
    lines = ["| error with new statistics is | helpful | neutral | harmful |", "|---|---|---|---|"]
    for truth in ("better", "within 1 point", "worse"):
        lines.append(f"| {truth} | " + " | ".join(str(counts[truth, w]) for w in words) + " |")
    return lines


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def report(paths: list[Path]) -> str:
    rows = [json.loads(line) for path in paths for line in _text(path).splitlines()]
    lines: list[str] = []
    for split in ("dev", "test"):
        chosen = [row for row in rows if row["case"]["split"] == split]
        if not chosen:
            continue
        models = sorted({row["case"]["model"] for row in chosen})
        lines += [f"## {split} shifts ({', '.join(models)}; {len(chosen)} runs)", ""]
        lines += [
            "Change of error (points) by five epochs of learning, against new statistics alone:",
            "",
        ]
        lines += [
            *rates_table(chosen),
            "",
            "Which state a label-free score picks (points of error):",
            "",
        ]
        lines += [*scores_table(chosen), "", "The verdict on new statistics:", ""]
        lines += [*verdicts_table(chosen), ""]
    return "\n".join(lines)
