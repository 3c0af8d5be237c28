"""Our corruptions beside those of `imagecorruptions`: pixels, draws, and a network's errors.

    python benchmarks/corruption_agreement.py pixels [--draws 64] [--out results.json]
    python benchmarks/corruption_agreement.py network --model SPEC --weights FILE --images DIR \\
        [--limit 500] [--severity 3] [--out results.json]

The reference is imagecorruptions-imaug 1.1.5 (pip install imagecorruptions-imaug==1.1.5), with
ImageNet's constants at 224 px. For corruptions without chance, ``pixels`` compares pictures; for
the others mean, variance and radial power spectrum of the difference image (corrupted less clean)
over many draws. ``network`` compares the error of a trained network under both, on the same
photos: the interval is a bootstrap of the paired difference.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from acclimate.data import open_images
from acclimate.data.corruptions import corrupt, corruptions, frost_kind
from acclimate.data.corruptions.corrupt import REGISTRY
from acclimate.metrics import bootstrap_interval
from acclimate.models import load
from corruptions import photos

RINGS = 8


def reference(image: NDArray[np.uint8], name: str, severity: int) -> NDArray[np.uint8]:
    from imagecorruptions import corrupt as theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out: NDArray[np.uint8] = theirs(image, corruption_name=name, severity=severity)
    return out


def spectrum(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean power of difference images N×H×W in rings of equal width around frequency 0."""
    power = np.abs(np.fft.fft2(differences)) ** 2
    side = differences.shape[-1]
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side))
    ring = np.minimum((frequency * 2 * RINGS).astype(int), RINGS - 1)
    return np.array([power[:, ring == i].mean() for i in range(RINGS)])


def compare_pixels(name: str, severity: int) -> dict[str, Any]:
    images = photos(16)
    ours = corrupt(images, name, severity, preset="imagenet").astype(int)
    theirs = np.stack([reference(image, name, severity) for image in images])
    apart = np.abs(ours - theirs)
    return {
        "percentile_99.9": float(np.percentile(apart, 99.9)),
        "largest": int(apart.max()),
        "differing": float((apart > 0).mean()),
    }


def compare_draws(name: str, severity: int, draws: int) -> dict[str, Any]:
    image = photos(1)
    ours = corrupt(image.repeat(draws, axis=0), name, severity, preset="imagenet")
    theirs = np.stack([reference(image[0], name, severity) for _ in range(draws)])
    a, b = (batch.astype(float) - image for batch in (ours, theirs))
    means = [d.mean(axis=(1, 2, 3)) for d in (a, b)]
    error = float(np.sqrt(sum(m.var(ddof=1) / draws for m in means)))
    grey = [d.mean(axis=-1) for d in (a, b)]
    return {
        "mean": [float(m.mean()) for m in means],
        "mean_apart_in_standard_errors": float((means[0].mean() - means[1].mean()) / error),
        "variance_ratio": float(a.var(axis=(1, 2, 3)).mean() / b.var(axis=(1, 2, 3)).mean()),
        "spectrum_ratio": (spectrum(grey[0]) / spectrum(grey[1])).round(3).tolist(),
    }


def pixels(args: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in tqdm(corruptions()):
        for severity in args.severities:
            np.random.seed(severity)
            rows[f"{name}:{severity}"] = (
                compare_draws(name, severity, args.draws)
                if REGISTRY[name].random
                else compare_pixels(name, severity)
            )
    return {"draws": args.draws, "parts": rows}


@torch.inference_mode()
def network(args: argparse.Namespace) -> dict[str, Any]:
    loaded = load(args.model, weights=args.weights)
    model = loaded.model.eval()
    source = open_images(args.images, preprocessing=loaded.preprocessing, classes=loaded.classes)
    assert source.labels is not None
    assert source.preprocessing is not None
    chosen = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))[: args.limit]
    images = source.read(chosen).permute(0, 2, 3, 1).numpy()
    labels = source.labels[chosen]

    normalize = source.preprocessing.normalize

    def wrong(pictures: NDArray[np.uint8]) -> NDArray[np.float64]:
        tensor = torch.from_numpy(np.ascontiguousarray(pictures)).permute(0, 3, 1, 2)
        answers = [model(normalize(part)).argmax(dim=1) for part in tensor.split(50)]
        mistakes: NDArray[np.float64] = (torch.cat(answers) != labels).double().numpy()
        return mistakes

    rows: dict[str, Any] = {}
    for name in tqdm(corruptions()):
        np.random.seed(0)
        ours = wrong(corrupt(images, name, args.severity, preset="imagenet"))
        theirs = wrong(np.stack([reference(image, name, args.severity) for image in images]))
        low, high = bootstrap_interval(100 * (ours - theirs))
        rows[name] = {
            "ours": 100 * float(ours.mean()),
            "reference": 100 * float(theirs.mean()),
            "difference_interval": [round(low, 2), round(high, 2)],
        }
        print(name, rows[name], flush=True)
    clean = 100 * float(wrong(images).mean())
    return {"images": len(images), "severity": args.severity, "clean": clean, "parts": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    by_pixel = commands.add_parser("pixels")
    by_pixel.add_argument("--draws", type=int, default=64)
    by_pixel.add_argument("--severities", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    by_pixel.set_defaults(measure=pixels)
    by_network = commands.add_parser("network")
    by_network.add_argument("--model", required=True)
    by_network.add_argument("--weights")
    by_network.add_argument("--images", required=True)
    by_network.add_argument("--limit", type=int, default=500)
    by_network.add_argument("--severity", type=int, default=3)
    by_network.set_defaults(measure=network)
    for command in (by_pixel, by_network):
        command.add_argument("--out", type=Path)
    args = parser.parse_args()
    record = {"frost": frost_kind(), **args.measure(args)}
    text = json.dumps(record, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
