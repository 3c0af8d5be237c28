"""Figures and tables of docs/theory.md from the runs of ``temperatures.py`` and ``..._start.py``.

python benchmarks/temperatures_report.py      # writes docs/figures, prints the tables
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acclimate.report.phase_figures import METHODS, real_network_figure
from acclimate.theory import bound_on_student

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES = ROOT / "benchmarks/results", ROOT / "docs/figures"
NOTICED, COLLAPSED = 0.5, 50.0  # points of change that count, and the error that is a collapse
ENDS = (75.0, 5.0)  # of the figures' colours: points worse and better
SLICE = 0.031623  # the student's temperature shown in the table of entropy
COLUMNS = (0.562341, 1.0, 1.778279, 3.162278, 5.623413, 10.0)  # the teacher's

Cells = dict[str, dict[str, Any]]


def main() -> None:
    """Write the figures, print the tables."""
    FIGURES.mkdir(exist_ok=True)
    for name, svg in figures().items():
        (FIGURES / name).write_text(svg, encoding="utf-8")
    for table in (sides(), start(), agreement()):
        print("\n".join(table) + "\n")


def _stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def figures() -> dict[str, str]:
    """By name: the network, and the linear student that starts from its outputs."""
    network, linear = _stored("temperatures.json"), _stored("temperatures_start.json")["linear"]
    runs = {
        "temperatures.svg": ("network", network),
        "temperatures-linear.svg": ("linear student", linear),
    }
    return {
        name: real_network_figure(run, baseline="batch_norm", who=who, ends=ENDS)
        for name, (who, run) in runs.items()
    }


def _split(key: str) -> tuple[str, str, float, float]:
    shift, method, student, teacher = key.rsplit(" ", 3)
    return shift, method, float(student), float(teacher)


def _change(cell: dict[str, Any]) -> float:
    """Error at the end less that of new batch statistics alone."""
    return float(cell["after_epoch"][-1] - cell["batch_norm"])


def _side(method: str, student: float, teacher: float) -> str:
    if teacher == 0:
        return "hard labels"
    bound = teacher * bound_on_student(stop_gradient=METHODS[method])
    if abs(student / bound - 1) < 1e-3:
        return "on it"
    return "below" if student < bound else "above"


def sides() -> list[str]:
    """What became of the cells on each side of their line."""
    cells: Cells = _stored("temperatures.json")["cells"]
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for key, cell in cells.items():
        shift, method, student, teacher = _split(key)
        groups.setdefault((shift, method, _side(method, student, teacher)), []).append(cell)
    lines = [
        "| shift | method | side of its line | cells | worse | collapsed | better | worst | best |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (shift, method, side), found in sorted(groups.items(), key=lambda g: _order(g[0])):
        changes = [_change(cell) for cell in found]
        worse = sum(change > NOTICED for change in changes)
        better = sum(change < -NOTICED for change in changes)
        collapsed = sum(cell["after_epoch"][-1] > COLLAPSED for cell in found)
        lines.append(
            f"| {_short(shift)} | {method} | {side} | {len(found)} | {worse} | {collapsed} "
            f"| {better} | {_signed(max(changes))} | {_signed(min(changes))} |"
        )
    return lines


def _order(group: tuple[str, str, str]) -> tuple[str, int, int]:
    shift, method, side = group
    return (
        shift,
        list(METHODS).index(method),
        ["above", "hard labels", "on it", "below"].index(side),
    )


def start() -> list[str]:
    """Entropy at one of the student's temperatures: the network, and the theory from its start."""
    network, found = _stored("temperatures.json")["cells"], _stored("temperatures_start.json")
    linear, shifts = found["linear"]["cells"], found["shifts"]
    lines = [
        f"| τs = {SLICE:.2g} | τt = " + " | ".join(f"{t:.2g}" for t in COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for shift, facts in shifts.items():
        keys = [f"{shift} entropy {SLICE:g} {teacher:g}" for teacher in COLUMNS]
        inwards = facts["share pulled inwards, smallest tau_s"]
        rows = {
            "network: error": [_signed(_change(network[key])) for key in keys],
            "linear student: error": [_signed(_change(linear[key])) for key in keys],
            "its outputs' size": [f"× {linear[key]['size']:.2f}" for key in keys],
            "images pulled inwards": [f"{100 * inwards[f'{t:g}']:.0f} %" for t in COLUMNS],
        }
        lines += [
            f"| {_short(shift)}, {what} | " + " | ".join(r) + " |" for what, r in rows.items()
        ]
    return lines


def agreement() -> list[str]:
    """Cells in which a prediction (worse or not) is what the network did."""
    network, found = _stored("temperatures.json")["cells"], _stored("temperatures_start.json")
    lines = [
        "| shift | method | cells | the line | one scale | linear student |",
        "|---|---|---|---|---|---|",
    ]
    for shift, facts in found["shifts"].items():
        for method, stop_gradient in METHODS.items():
            rows = []
            for key, cell in found["linear"]["cells"].items():
                where, how, student, teacher = _split(key)
                if (where, how) == (shift, method):
                    line = _side(method, student, teacher) == "below"
                    flat = facts["flat at tau_t"][f"{student:g}"]
                    scale = line if stop_gradient else teacher > flat
                    worse = _change(network[key]) > NOTICED
                    told = (line, scale, _change(cell) > NOTICED)
                    rows.append([each == worse for each in told])
            right = " | ".join(str(sum(column)) for column in zip(*rows, strict=True))
            lines.append(f"| {_short(shift)} | {method} | {len(rows)} | {right} |")
    return lines


def _short(shift: str) -> str:
    return shift.removeprefix("cifar/gaussian_").removesuffix(":5")


def _signed(change: float) -> str:
    return f"{change:+.1f}" if abs(change) >= 0.05 else "0.0"


if __name__ == "__main__":
    main()
