"""Our corruptions measured: their time, and how they agree with `imagecorruptions`.

    python benchmarks/corruptions.py speed [--device cuda] [--out results.json]
    python benchmarks/corruptions.py pixels [--draws 64] [--out results.json]
    python benchmarks/corruptions.py network --model SPEC --weights FILE --images DIR \\
        [--limit 500] [--severity 3] [--out results.json]
    python benchmarks/corruptions.py report    # stored results as in docs/corruptions.md

The reference is imagecorruptions-imaug 1.1.5 (pip install imagecorruptions-imaug==1.1.5), with
ImageNet's constants at 224 px. Photos are pieces of a sample of scikit-learn (pip install
scikit-learn).

``speed`` on the CPU: both make severity 3 of 224 × 224 photos on one core: ours a batch of 32, the
reference, where it is installed, one at a time, as it takes them. Runs interleave, and the fastest
of each counts. On a GPU, images are there before and after; images a second in batches, the largest
difference from the CPU's result, and whether the size of the batch changes anything.

``pixels``: for corruptions without randomness the images themselves; for the others mean, variance
and radial power spectrum of the difference image (corrupted less clean) over many draws.
``network``: the error of a trained network under both, on the same photos; the interval is a
bootstrap of the paired difference.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from acclimate.data import open_images
from acclimate.data.corruptions import corrupt, corruptions, frost_kind
from acclimate.data.corruptions.corrupt import REGISTRY
from acclimate.metrics import bootstrap_interval
from acclimate.models import load
from acclimate.table import Entry, Number, Table, number_entry

RESULTS = Path(__file__).parent / "results"
SEVERITY = 3
CPU_BATCH = 32
REPEATS = 12
RINGS = 8
WHO = ("ours", "reference")


def photos(count: int) -> NDArray[np.uint8]:
    """Different 224 × 224 pieces of a photograph."""
    from sklearn.datasets import load_sample_image

    whole = Image.fromarray(load_sample_image("china.jpg"))
    rng = np.random.default_rng(0)
    pieces = []
    for _ in range(count):
        left, top = int(rng.integers(0, 240)), int(rng.integers(0, 27))
        piece = whole.crop((left, top, left + 400, top + 400))
        pieces.append(np.asarray(piece.resize((224, 224), Image.Resampling.LANCZOS)))
    return np.stack(pieces)


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Time of each corruption: on one core beside the reference, or on a GPU."""
    measured = on_one_core() if args.device == "cpu" else on_gpu(args.device, args.batch)
    about = {"torch": torch.__version__, "machine": platform.machine()}
    return {"severity": SEVERITY, "frost": frost_kind(), **about, **measured}


def fastest(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest time of each call in milliseconds; calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], 1000 * (time.perf_counter() - start))
    return best


def on_one_core() -> dict[str, Any]:
    torch.set_num_threads(1)
    reference = _reference()
    images = photos(CPU_BATCH)
    rows: dict[str, Any] = {}
    for name in corruptions():
        calls: dict[str, Callable[[], object]] = {
            "ours": functools.partial(corrupt, images, name, SEVERITY, preset="imagenet")
        }
        if reference is not None:
            calls["reference"] = functools.partial(
                reference, images[0], corruption_name=name, severity=SEVERITY
            )
        times = fastest(calls)
        row = {"ours_ms": times["ours"] / CPU_BATCH}
        if reference is not None:
            row |= {"reference_ms": times["reference"]}
            row |= {"ratio": times["reference"] / row["ours_ms"]}
        rows[name] = {key: round(value, 3) for key, value in row.items()}
        print(f"{name:20s}", rows[name], flush=True)
    together = {
        key: sum(row[key] for row in rows.values()) for key in rows["fog"] if key != "ratio"
    }
    if reference is not None:
        together["ratio"] = together["reference_ms"] / together["ours_ms"]
    print("together", together)
    return {"corruptions": rows, "together": {k: round(v, 3) for k, v in together.items()}}


def _reference() -> Callable[..., object] | None:
    try:
        import cv2
        from imagecorruptions import corrupt as reference
    except ImportError:
        return None
    cv2.setNumThreads(1)
    call: Callable[..., object] = reference
    return call


def on_gpu(device: str, batch: int) -> dict[str, Any]:
    images = torch.from_numpy(photos(64)).permute(0, 3, 1, 2).contiguous()
    many = images.repeat(-(-batch // 64), 1, 1, 1)[:batch].to(device)
    rows: dict[str, Any] = {}
    for name in corruptions():
        corrupt(many, name, SEVERITY, preset="imagenet")
        torch.cuda.synchronize()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            whole = corrupt(many, name, SEVERITY, preset="imagenet")
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        on_cpu = corrupt(images, name, SEVERITY, preset="imagenet").int()
        apart = (whole[:64].cpu().int() - on_cpu).abs()
        alone = torch.cat([corrupt(many[i : i + 1], name, SEVERITY, preset="imagenet", start=i)
                           for i in range(8)])  # fmt: skip
        rows[name] = {
            "images_per_s": round(batch / min(times)),
            "differing_from_cpu": float((apart > 0).double().mean()),
            "differing_by_more_than_1": float((apart > 1).double().mean()),
            "largest_difference": int(apart.max()),
            "batch_size_matters": not torch.equal(alone, whole[:8]),
        }
        print(f"{name:20s}", rows[name], flush=True)
    return {"corruptions": rows, "batch": batch, "gpu": torch.cuda.get_device_name()}


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
    return {"frost": frost_kind(), "draws": args.draws, "parts": rows}


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

    def wrong(shown: NDArray[np.uint8]) -> NDArray[np.float64]:
        tensor = torch.from_numpy(np.ascontiguousarray(shown)).permute(0, 3, 1, 2)
        predicted = [model(normalize(part)).argmax(dim=1) for part in tensor.split(50)]
        mistakes: NDArray[np.float64] = (torch.cat(predicted) != labels).double().numpy()
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
    clean = 100 * float(wrong(images).mean())
    about = {"frost": frost_kind(), "images": len(images), "severity": args.severity}
    return {**about, "clean": clean, "parts": rows}


def report(_: argparse.Namespace) -> None:
    print("\n\n".join(table() for table in TABLES))


def _stored(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return record


def speed_table() -> str:
    """Milliseconds on one core beside the reference, and images a second on a GPU."""
    cpu, gpu = _stored("corruptions.json"), _stored("corruptions_gpu.json")

    def times(row: dict[str, float], digits: int) -> list[Entry]:
        ours, theirs = (number_entry(row[f"{who}_ms"], digits=digits) for who in WHO)
        return [ours, theirs, number_entry(row["ratio"])]

    rows = [
        [name, *times(row, 2), number_entry(gpu["corruptions"][name]["images_per_s"], digits=0)]
        for name, row in cpu["corruptions"].items()
    ]
    rows.append(["all 19", *times(cpu["together"], 1), ""])
    header = ["corruption", "ours, ms", "reference, ms", "ratio", "GPU, images/s"]
    return Table(rows, header).markdown()


def pixels_table() -> str:
    """Agreement of images and of draws, the worst of the severities measured."""
    parts = _stored("corruption_pixels.json")["parts"]
    rows: list[list[Entry]] = []
    for name in dict.fromkeys(part.split(":")[0] for part in parts):
        own = [row for part, row in parts.items() if part.split(":")[0] == name]
        if "largest" in own[0]:
            apart = max(row["percentile_99.9"] for row in own)
            rows.append([name, Number(f"{apart:g}", apart), "", "", ""])
        else:
            apart = max((row["mean_apart_in_standard_errors"] for row in own), key=abs)
            variances = [row["variance_ratio"] for row in own]
            rings = [ring for row in own for ring in row["spectrum_ratio"]]
            rows.append([name, "", number_entry(apart), _range(variances), _range(rings)])
    header = [
        "corruption",
        "grey levels apart, 99.9 % of values",
        "mean, standard errors apart",
        "variance, ratio",
        "spectrum, ratio",
    ]
    return Table(rows, header).markdown()


def network_table() -> str:
    """A trained network's error under both."""
    rows = []
    for name, row in _stored("corruption_network.json")["parts"].items():
        low, high = row["difference_interval"]
        errors = (number_entry(row[who]) for who in WHO)
        rows.append([name, *errors, f"{low:.1f} to {high:.1f}"])
    header = [
        "corruption", "error ours, %", "error reference, %", "difference, 95 % interval",
    ]  # fmt: skip
    return Table(rows, header).markdown()


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def devices_table() -> str:
    """How often the GPU's result differs from the CPU's, for those where it ever does."""
    rows = [
        [name, f"{1e6 * row['differing_from_cpu']:.0f} in a million"]
        for name, row in _stored("corruptions_gpu.json")["corruptions"].items()
        if row["differing_from_cpu"]
    ]
    return Table(rows, ["corruption", "values that differ, by one grey level"]).markdown()


TABLES = (speed_table, pixels_table, network_table, devices_table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    for measure in (speed, pixels, network):
        command = commands.add_parser(measure.__name__)
        command.set_defaults(measure=measure)
        command.add_argument("--out", type=Path)
        if measure is speed:
            command.add_argument("--device", default="cpu")
            command.add_argument("--batch", type=int, default=1024, help="on a GPU: images at once")
        elif measure is pixels:
            command.add_argument("--draws", type=int, default=64)
            command.add_argument("--severities", type=int, nargs="+", default=[1, 2, 3, 4, 5])
        else:
            command.add_argument("--model", required=True)
            command.add_argument("--weights")
            command.add_argument("--images", required=True)
            command.add_argument("--limit", type=int, default=500)
            command.add_argument("--severity", type=int, default=3)
    commands.add_parser("report").set_defaults(measure=report)
    args = parser.parse_args()
    record = args.measure(args)
    if record is not None:
        text = json.dumps(record, indent=1)
        print(text)
        if args.out:
            args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
