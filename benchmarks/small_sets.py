"""How many epochs do small sets want? Error on hold-out shifts of the embedded digits, by epochs.

python benchmarks/small_sets.py > benchmarks/results/small_sets.json
"""

from __future__ import annotations

import json
from typing import Any

import acclimate
from acclimate.data.corruptions import Preset, corrupt
from acclimate.data.digits import digits
from acclimate.models.networks.digits import load_digits_model

SHIFTS: list[tuple[str, Preset, int]] = [
    ("speckle_noise", "imagenet", 3),
    ("speckle_noise", "imagenet", 5),
    ("gaussian_blur", "cifar", 4),
    ("gaussian_blur", "cifar", 5),
    ("saturate", "imagenet", 5),
]
EPOCHS = {"ent": (1, 5, 10), "rpl": (5, 25, 50)}


def main() -> None:
    model = load_digits_model()
    images, labels = digits("held-out")
    rows = []
    for count in (1000, 100):
        for name, preset, severity in SHIFTS:
            shifted = corrupt(images[:count], name, severity, preset=preset, seed=1)
            row: dict[str, Any] = {
                "images": count,
                "shift": f"{preset}/{name}:{severity}",
                "error": {},
            }
            for recipe in ("none", "bn", *EPOCHS):
                for epochs in EPOCHS.get(recipe, (1,)):
                    result = acclimate.adapt(
                        model,
                        shifted,
                        recipe,
                        labels=labels[:count],
                        options={"epochs": epochs},
                        guard="observe",
                        progress=False,
                    )
                    key = f"{recipe}, {epochs} epochs" if recipe in EPOCHS else recipe
                    row["error"][key] = result.error_after
            rows.append(row)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
