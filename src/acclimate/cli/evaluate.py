"""``acclimate evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from acclimate.cli.images import check_path, check_source, load_model, want_record
from acclimate.cli.tables import table
from acclimate.errors import AcclimateError
from acclimate.options import parse_assignments

if TYPE_CHECKING:
    from acclimate.evaluation import Part, Report
    from acclimate.models import LoadedModel

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Score, print the tables, and keep them if asked to."""
    if args.model is None or (args.images is None and args.dataset is None):
        raise AcclimateError("expected --model, and --images or --dataset with --root")
    for option in ("set", "clean"):
        if getattr(args, option) is not None and args.recipe is None:
            raise AcclimateError(f"--{option} needs --recipe")
    if args.interval is not None and not 0 < args.interval < 1:
        raise AcclimateError(f"expected --interval between 0 and 1, got {args.interval}")
    check_source(args)
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
    from acclimate.data import open_images
    from acclimate.evaluation import evaluate_parts
    from acclimate.recipes import get_recipe

    options = parse_assignments(args.set or [])
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
        data=_title(args),
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
    from acclimate.copying import choose_device
    from acclimate.data import open_images
    from acclimate.evaluation import dataset_parts, image_parts

    shifts, device = args.shift or [], choose_device(args.device)
    if args.dataset is not None:
        return dataset_parts(
            args.dataset,
            args.root,
            shifts,
            split=args.split,
            preprocessing=loaded.preprocessing,
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


def _title(args: argparse.Namespace) -> str:
    """The data in words: what was asked for, with the presets its corruptions were made by."""
    name = str(args.dataset or args.images)
    presets = sorted({word.split("/")[0] for word in args.shift or [] if "/" in word})
    split = f" {args.split}" if args.split else ""
    return f"{name}{split}" + (f" through {', '.join(presets)}" if presets else "")


def _text(report: Report, interval: float | None) -> str:
    lines = [table(_rows(report), header=_header(report)), ""]
    lines.append(f"mean error {report.error(interval=interval)}")
    relative = report.relative_error(interval=interval)
    if relative is not None:
        lines.append(str(relative))
    counts = report.counts()
    if all((each.answers or 0) >= 5 for each in counts):
        top5 = sum(each.error(5).value for each in counts) / len(counts)
        lines.append(f"mean top-5 error {top5:.1f} %")
    ece = report.mean_of("ece")
    if ece is not None:
        lines.append(f"mean expected calibration error {ece:.3f} (15 bins)")
    for key, words in (
        ("unadapted_error", "mean error unadapted"),
        ("before_update_error", "mean error before update"),
    ):
        value = report.mean_of(key)
        if value is not None:
            lines.append(f"{words} {value:.1f} %")
    lost = [part["forgetting"] for part in report.parts if "forgetting" in part]
    if lost:
        after = sum(each["after"] for each in lost) / len(lost)
        images = f"{lost[0]['images']:,} images"
        before = f"{lost[0]['before']:.1f} % before"
        lines.append(f"clean error {before}, {after:.1f} % after, on average ({images})")
    return "\n".join(lines)


def _header(report: Report) -> list[str]:
    errors = report.table()
    if errors is not None:
        return ["error %", *map(str, errors.severities()), "mean", "images"]
    mapped = ["filtered %", "unmappable %"] if "filtered_error" in report.parts[0] else []
    return ["", "error %", *mapped, "images"]


def _rows(report: Report) -> list[list[str]]:
    errors = report.table()
    if errors is None:
        return [
            _plain_row(part, counts.error().value)
            for part, counts in zip(report.parts, report.counts(), strict=True)
        ]
    rows = []
    for name, mean in errors.by_corruption().items():
        cells = [errors.cells.get((name, severity)) for severity in errors.severities()]
        shown = ["-" if cell is None else f"{cell.error().value:.1f}" for cell in cells]
        rows.append([name, *shown, f"{mean.value:.1f}", f"{mean.images:,}"])
    return rows


def _plain_row(part: dict[str, Any], error: float) -> list[str]:
    mapped = []
    if "filtered_error" in part:
        filtered = part["filtered_error"]
        mapped = ["-" if filtered is None else f"{filtered:.1f}"]
        mapped.append(f"{part['unmappable_percent']:.1f}")
    return [part["shift"], f"{error:.1f}", *mapped, f"{part['labelled']:,}"]
