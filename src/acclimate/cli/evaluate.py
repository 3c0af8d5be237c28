"""``acclimate evaluate``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
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
    from acclimate.bench.evaluate import EvaluationReport
    from acclimate.bench.record import Result

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
    if args.clean is not None:
        check_path(args.clean, "--clean")
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        report = _evaluate(args)
    if args.json:
        print(json.dumps(report.to_dict(interval=args.interval)))
    else:
        print(_text(report, args.interval))
        if args.out:
            print(f"written to {args.out}: results.db, evaluation.json")
    return 0


def _evaluate(args: argparse.Namespace) -> EvaluationReport:
    from acclimate.bench.evaluate import evaluate_shifts, evaluated_shifts
    from acclimate.bench.job import UNADAPTED
    from acclimate.data.benchmarks.own_images import FOLDER
    from acclimate.methods.registry import get_recipe

    # A typo shows before a model is loaded.
    dataset, shifts = args.dataset or FOLDER, args.shift or []
    evaluated_shifts(dataset, shifts)
    options = parse_assignments(assignments(args))
    get_recipe(args.recipe or UNADAPTED, options)
    loaded = load_model(args)
    if not args.json:
        print(loaded.describe(), end="\n\n", flush=True)
    for images in (args.images, args.clean):
        if images is not None:
            want_record(images, loaded)
    return evaluate_shifts(
        loaded,
        args.images or args.root,
        dataset=dataset,
        shifts=shifts,
        split=args.split,
        recipe=args.recipe or UNADAPTED,
        options=options,
        clean=args.clean,
        batch_size=args.batch_size,
        weights=args.weights,
        out=args.out,
        device=args.device,
        seed=args.seed,
        incomplete=bool(args.incomplete),
        progress=not args.quiet,
    )


def _text(report: EvaluationReport, interval: float | None) -> str:
    lines = [Table(_rows(report), header=_header(report)).text(), ""]
    lines.append(f"mean error {report.error(interval=interval)}")
    relative = report.relative_error(interval=interval)
    if relative is not None:
        lines.append(str(relative))
    records = [result.record for result in report.results]
    figures = {"mean top-5 error": report.top5_error(interval=interval)}
    if any(record.recipe for record in records):
        unadapted = [record.errors.unadapted for record in records]
        before = [next(iter(record.errors.before_update), None) for record in records]
        figures["mean error unadapted"] = report.mean_of(unadapted)
        figures["mean error before update"] = report.mean_of(before)
    calibration = report.mean_of([record.ece for record in records], unit="")
    figures["mean expected calibration error, 15 bins:"] = calibration
    lines += [f"{words} {figure}" for words, figure in figures.items() if figure is not None]
    notes = dict.fromkeys(note for record in records for note in record.notes)
    return "\n".join([*lines, *_forgotten(report), *(f"note: {note}" for note in notes)])


def _forgotten(report: EvaluationReport) -> list[str]:
    lost = [result.record.forgetting for result in report.results]
    before, images = lost[0].before, lost[0].images
    after = [each.after for each in lost if each.after is not None]
    if before is None or not after:
        return []
    spread = f" ± {stdev(after):.1f}" if len(after) > 1 else ""
    return [
        f"error on the source {before:.1f} % before, {mean(after):.1f}{spread} % after "
        f"({images:,} clean images)"
    ]


def _header(report: EvaluationReport) -> list[str]:
    errors = report.table()
    if errors is not None:
        return ["error %", *map(str, errors.severities()), "mean", "images"]
    mapped = []
    if report.results[0].record.most_predicted:
        mapped = ["filtered %", "unmappable %", "most predicted"]
    return ["", "error %", *mapped, "images"]


def _rows(report: EvaluationReport) -> list[list[str]]:
    errors = report.table()
    if errors is None:
        return [_plain_row(result) for result in report.results]
    rows, blank = [], ["-" for _ in errors.severities()]
    for result in report.results:
        if result.job.shift is None:  # clean images, which the means leave out
            name, *found = _plain_row(result)
            rows.append([name, *blank, *found])
    for name, together in errors.by_corruption().items():
        cells = [errors.cells.get((name, severity)) for severity in errors.severities()]
        shown = ["-" if cell is None else f"{cell.error().value:.1f}" for cell in cells]
        rows.append([name, *shown, f"{together.value:.1f}", f"{together.images:,}"])
    return rows


def _plain_row(result: Result) -> list[str]:
    record, mapped = result.record, []
    if record.most_predicted:
        filtered = record.filtered_error
        mapped = ["-" if filtered is None else f"{filtered:.1f}"]
        mapped.append(f"{record.unmappable_percent or 0.0:.1f}")
        most = record.most_predicted[:3]
        mapped.append(", ".join(f"{m['name'].split(',')[0]} {m['percent']:.0f} %" for m in most))
    name = result.corruption or "clean"
    return [name, f"{result.error:.1f}", *mapped, f"{record.labelled:,}"]
