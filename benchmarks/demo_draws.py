"""The embedded example at every severity and for several draws of fog: when does learning help?

python benchmarks/demo_draws.py [--draws 6] [--out results.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

import torch
from tqdm import tqdm

import acclimate
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import SHIFT, digits
from acclimate.models.networks.digits import load_digits_model

RECIPES = ("none", "bn", "ent", "rpl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    clean, labels = digits("held-out")
    model = load_digits_model()
    table = []
    for severity in tqdm(range(1, 6)):
        errors: dict[str, list[float]] = {recipe: [] for recipe in RECIPES}
        for seed in range(args.draws):
            images = corrupt(clean, SHIFT, severity, preset="cifar", seed=seed)
            for recipe in RECIPES:
                result = acclimate.adapt(model, images, recipe, labels=labels, progress=False)
                assert result.error_after is not None
                errors[recipe].append(result.error_after)
        row = {name: [round(mean(e), 2), round(stdev(e), 2)] for name, e in errors.items()}
        table.append({"severity": severity, **row})
        print(table[-1], flush=True)
    record = {"shift": SHIFT, "draws": args.draws, "images": len(clean), "mean_and_std": table}
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
