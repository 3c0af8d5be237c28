"""The stored measurements of the corruptions as the tables of docs/corruptions.md.

python benchmarks/corruption_report.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def _stored(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return record


def speed() -> str:
    """Milliseconds on one core beside the reference, and images a second on a GPU."""
    cpu, gpu = _stored("corruptions.json"), _stored("corruptions_gpu.json")
    lines = [
        "| corruption | ours, ms | reference, ms | ratio | GPU, images/s |",
        "|---|---|---|---|---|",
    ]
    for name, row in cpu["corruptions"].items():
        rate = gpu["corruptions"][name]["images_per_s"]
        times = f"{row['ours_ms']:.2f} | {row['reference_ms']:.2f} | {row['ratio']:.1f}"
        lines.append(f"| {name} | {times} | {rate:,} |")
    row = cpu["together"]
    times = f"{row['ours_ms']:.1f} | {row['reference_ms']:.1f} | {row['ratio']:.1f}"
    return "\n".join([*lines, f"| all 19 | {times} | |"])


def pixels() -> str:
    """Agreement of pictures and of draws, the worst of the severities measured."""
    parts = _stored("corruption_pixels.json")["parts"]
    lines = [
        "| corruption | grey levels apart, 99.9 % of values | mean, standard errors apart | "
        "variance, ratio | spectrum, ratio |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(part.split(":")[0] for part in parts):
        rows = [row for part, row in parts.items() if part.split(":")[0] == name]
        if "largest" in rows[0]:
            cells = [f"{max(row['percentile_99.9'] for row in rows):g}", "", "", ""]
        else:
            apart = max((row["mean_apart_in_standard_errors"] for row in rows), key=abs)
            variances = [row["variance_ratio"] for row in rows]
            rings = [ring for row in rows for ring in row["spectrum_ratio"]]
            cells = ["", f"{apart:.1f}", _range(variances), _range(rings)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def network() -> str:
    """A trained network's error under both."""
    record = _stored("corruption_network.json")
    lines = [
        "| corruption | error ours, % | error reference, % | difference, 95 % interval |",
        "|---|---|---|---|",
    ]
    for name, row in record["parts"].items():
        low, high = row["difference_interval"]
        errors = f"{row['ours']:.1f} | {row['reference']:.1f}"
        lines.append(f"| {name} | {errors} | {low:.1f} to {high:.1f} |")
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def devices() -> str:
    """How often the GPU's answer differs from the CPU's, for those where it ever does."""
    rows = _stored("corruptions_gpu.json")["corruptions"]
    lines = ["| corruption | values that differ, by one grey level |", "|---|---|"]
    for name, row in rows.items():
        if row["differing_from_cpu"]:
            lines.append(f"| {name} | {1e6 * row['differing_from_cpu']:.0f} in a million |")
    return "\n".join(lines)


TABLES = (speed, pixels, network, devices)


if __name__ == "__main__":
    print("\n\n".join(table() for table in TABLES))
