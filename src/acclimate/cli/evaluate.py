"""``acclimate evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from acclimate.cli.images import check_path, check_source, load_model, want_record
from acclimate.cli.options import (
    add_command,
    add_device,
    add_images,
    add_json,
    add_model,
    add_quiet,
    add_recipe,
    assignments,
)
from acclimate.errors import AcclimateError
from acclimate.registry import parse_assignments
from acclimate.table import Table

if TYPE_CHECKING:
    from acclimate.bench.evaluate import Report
    from acclimate.bench.shifts import Part
    from acclimate.models import LoadedModel

__all__ = ["add_parser"]

_DESCRIPTION = """\
Score a classifier on labelled images: errors by shift and severity, mCE, mDE,
calibration.

examples:
  acclimate evaluate --model timm:resnet50.a1_in1k --dataset imagenet-c \\
      --root data/imagenet-c
  acclimate evaluate --model acclimate:digits --images clean/ \\
      --shift cifar/test --out scores/
  acclimate evaluate --model acclimate:wrn-40-2-augmix-cifar10 \\
      --dataset cifar10-c --root data/cifar10-c --shift dev --recipe rpl
"""


def add_parser(commands: Any) -> None:
    """``acclimate evaluate`` and its options."""
    groups = add_command(
        commands,
        "evaluate",
        run,
        summary="score a classifier on a labelled data set, shift by shift",
        description=_DESCRIPTION,
        resumes_from="out",
    )
    add_model(groups)
    add_images(groups, many=True)
    clean = "with --recipe: source images, to measure forgetting on"
    groups.data.add_argument("--clean", metavar="PATH", help=clean)
    add_recipe(groups, default="the unadapted model; a recipe adapts to each shift anew")
    size = "images at a time (default: 128)"
    groups.method.add_argument("--batch-size", type=int, metavar="N", help=size)
    add = groups.output.add_argument
    add("--interval", type=float, metavar="LEVEL", help="bootstrap interval, such as 0.95")
    add("--out", metavar="DIR", help="store results there; the same command resumes from them")
    add_json(groups)
    add_quiet(groups)
    add_device(groups)


def run(args: argparse.Namespace) -> int:
    """Score, print the tables, and keep them if asked to."""
    if args.model is None or (args.images is None and args.dataset is None):
        raise AcclimateError("expected --model, and --images or --dataset with --root")
    for option in ("set", "lr", "epochs", "clean"):
        if getattr(args, option) is not None and args.recipe is None:
            raise AcclimateError(f"--{option} needs --recipe")
    if args.interval is not None and not 0 < args.interval < 1:
        raise AcclimateError(f"expected --interval between 0 and 1, got {args.interval}")
    check_source(args)
    _check_shifts(args)
    if args.clean is not None:
        check_path(args.clean, "--clean")
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        report = _evaluate(args)
    if args.json:
        print(json.dumps(report.to_dict(interval=args.interval)))
    else:
        print(_text(report, args.interval))
        if args.out:
            print(f"written to {args.out}: evaluation.json")
    return 0


def _evaluate(args: argparse.Namespace) -> Report:
    from acclimate.bench.evaluate import evaluate_parts
    from acclimate.data import open_images
    from acclimate.methods.registry import get_recipe

    options = parse_assignments(assignments(args))
    if args.recipe is not None:
        get_recipe(args.recipe, options)  # a typo shows before a model is loaded
    loaded = load_model(args)
    if not args.json:
        print(loaded.describe(), end="\n\n", flush=True)
    clean = None
    if args.clean is not None:
        want_record(args.clean, loaded)
        clean = open_images(
            args.clean,
            preprocessing=loaded.preprocessing,
            classes=loaded.classes,
            progress=not args.quiet,
        )
    return evaluate_parts(
        loaded,
        _parts(args, loaded),
        data=_data(args),
        recipe=args.recipe,
        options=options,
        clean=clean,
        batch_size=args.batch_size,
        out=args.out,
        device=args.device,
        seed=args.seed,
        progress=not args.quiet,
    )


def _parts(args: argparse.Namespace, loaded: LoadedModel) -> list[Part]:
    from acclimate.bench.shifts import dataset_parts, image_parts
    from acclimate.data import open_images
    from acclimate.models.device import choose_device

    shifts, device = args.shift or [], choose_device(args.device)
    if args.dataset is not None:
        return dataset_parts(
            args.dataset,
            args.root,
            shifts,
            split=args.split,
            preprocessing=loaded.preprocessing,
            classes=loaded.classes,
            incomplete=bool(args.incomplete),
            progress=not args.quiet,
            device=device,
        )
    want_record(args.images, loaded)
    source = open_images(
        args.images,
        preprocessing=loaded.preprocessing,
        classes=loaded.classes,
        progress=not args.quiet,
    )
    return image_parts(source, shifts, device=device)


def _check_shifts(args: argparse.Namespace) -> None:
    """A typo shows before a model is loaded."""
    from acclimate.bench.shifts import made_shifts, own_shifts
    from acclimate.data.benchmarks import find_dataset

    record = None if args.dataset is None else find_dataset(args.dataset)
    if record is not None and record.shifts:
        own_shifts(record, args.shift or [])
    else:
        made_shifts(args.shift or [])


def _data(args: argparse.Namespace) -> Mapping[str, Any]:
    """What is evaluated, for the record."""
    if args.dataset is None:
        return {"images": str(Path(args.images).expanduser().resolve())}
    root = str(Path(args.root).expanduser().resolve())
    return {"dataset": args.dataset, "root": root, "split": args.split}


def _text(report: Report, interval: float | None) -> str:
    lines = [Table(_rows(report), header=_header(report)).text(), ""]
    lines.append(f"mean error {report.error(interval=interval)}")
    relative = report.relative_error(interval=interval)
    if relative is not None:
        lines.append(str(relative))
    figures = {
        "mean top-5 error": report.top5_error(interval=interval),
        "mean error unadapted": report.mean_of("unadapted_error"),
        "mean error before update": report.mean_of("before_update_error"),
        "mean expected calibration error, 15 bins:": report.mean_of("ece", unit=""),
    }
    lines += [f"{words} {figure}" for words, figure in figures.items() if figure is not None]
    return "\n".join([*lines, *_forgotten(report)])


def _forgotten(report: Report) -> list[str]:
    lost = [part["forgetting"] for part in report.parts if "forgetting" in part]
    if not lost:
        return []
    after = [each["after"] for each in lost]
    spread = f" ± {stdev(after):.1f}" if len(after) > 1 else ""
    images = f"{lost[0]['images']:,} clean images"
    before = f"{lost[0]['before']:.1f} % before"
    return [f"error on the source {before}, {mean(after):.1f}{spread} % after ({images})"]


def _header(report: Report) -> list[str]:
    errors = report.table()
    if errors is not None:
        return ["error %", *map(str, errors.severities()), "mean", "images"]
    mapped = []
    if "filtered_error" in report.parts[0]:
        mapped = ["filtered %", "unmappable %", "most predicted"]
    return ["", "error %", *mapped, "images"]


def _rows(report: Report) -> list[list[str]]:
    errors = report.table()
    if errors is None:
        return [
            _plain_row(part, counts.error().value)
            for part, counts in zip(report.parts, report.counts(), strict=True)
        ]
    rows = []
    for name, together in errors.by_corruption().items():
        cells = [errors.cells.get((name, severity)) for severity in errors.severities()]
        shown = ["-" if cell is None else f"{cell.error().value:.1f}" for cell in cells]
        rows.append([name, *shown, f"{together.value:.1f}", f"{together.images:,}"])
    return rows


def _plain_row(part: dict[str, Any], error: float) -> list[str]:
    mapped = []
    if "filtered_error" in part:
        filtered = part["filtered_error"]
        mapped = ["-" if filtered is None else f"{filtered:.1f}"]
        mapped.append(f"{part['unmappable_percent']:.1f}")
        most = part["most_predicted"][:3]
        mapped.append(", ".join(f"{m['name'].split(',')[0]} {m['percent']:.0f} %" for m in most))
    return [part["shift"], f"{error:.1f}", *mapped, f"{part['labelled']:,}"]
