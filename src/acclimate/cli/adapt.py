"""``acclimate adapt``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, get_args

from acclimate.cli.images import check_source, load_model, open_source
from acclimate.cli.options import (
    SCORE,
    SPEED,
    add_command,
    add_device,
    add_images,
    add_json,
    add_labels,
    add_model,
    add_quiet,
    add_recipe,
    assignments,
)
from acclimate.cli.output import write_page
from acclimate.cli.processes import launched_processes
from acclimate.errors import AcclimateError
from acclimate.registry import parse_assignments
from acclimate.table import Table
from acclimate.text import Action, Keep, Score, Speed, user_path

if TYPE_CHECKING:
    from acclimate.data import ImageSource
    from acclimate.guard.history import EpochRecord
    from acclimate.models import LoadedModel
    from acclimate.result import AdaptationResult

__all__ = ["add_parser"]

_DESCRIPTION = """\
Adapt a trained classifier to unlabelled images.

Without --model and --images it runs a small example: handwritten digits in
fog. Exit status: 0; 2 for a mistake in the call; 3 when the guard refused the
adapted model; 4 when it is unclear whether adaptation helped.

examples:
  acclimate adapt
  acclimate adapt --model timm:resnet50.a1_in1k --images photos/ --out run/
  acclimate adapt --model py:mypackage.nets:build --weights net.safetensors \\
      --images photos/ --recipe ent --lr 1e-3 --epochs 2
  acclimate adapt --model paper:resnet50 --images photos/ \\
      --set normalization=source
"""

PAGE = "report.html"
REFUSED, UNCLEAR = 3, 4
EPOCHS_SHOWN = 10
OBSERVED = 200  # images that the drift on the page is measured on
EVENTS_SHOWN = 5
EPOCH_HEADER = (
    "epoch",
    "loss",
    "error before update %",
    "error after epoch %",
    "agreement",
    "classes",
)


def add_parser(commands: Any) -> None:
    """``acclimate adapt`` and its options."""
    groups = add_command(
        commands,
        "adapt",
        run,
        summary="adapt a classifier to unlabelled images",
        description=_DESCRIPTION,
        resumes_from="out",
    )
    add_model(groups)
    add_images(groups, many=False)
    add_labels(groups)
    add_recipe(groups, default="auto, which decides by the images")
    add = groups.method.add_argument
    add("--batch-size", type=int, metavar="N", help="images per step; the learning rate follows")
    add("--guard", choices=get_args(Action), help="when adaptation harms (default: rollback)")
    add(
        "--keep",
        choices=get_args(Keep),
        help="which state to return (auto: best, else last)",
    )
    add = groups.output.add_argument
    add("--out", metavar="DIR", help="write model, predictions.csv, summary and a page there")
    add_json(groups)
    add_quiet(groups)
    add = groups.running.add_argument
    add("--score", choices=get_args(Score), help=SCORE)
    add("--speed", choices=get_args(Speed), help=f"{SPEED} (default: auto)")
    add_device(groups)


def run(args: argparse.Namespace) -> int:
    """Adapt, print a summary, and report with the exit status how it went.

    Under torchrun the processes share the work, and only the first one prints.
    """
    with launched_processes(args):
        if args.model is None and args.images is None and args.dataset is None:
            return _embedded_default(args)
        return _adapt(args)


def _adapt(args: argparse.Namespace) -> int:
    if args.model is None or (args.images is None and args.dataset is None):
        missing = "--model SPEC" if args.model is None else "--images PATH"
        raise AcclimateError(f"expected both --model and --images; add {missing}")
    from acclimate.adaptation.adapt import adapt
    from acclimate.adaptation.auto import AUTO
    from acclimate.methods.registry import get_recipe

    options, recipe = parse_assignments(assignments(args)), args.recipe or AUTO
    if recipe != AUTO:
        get_recipe(recipe, options)  # a typo shows before a model is loaded
    check_source(args)
    # What a user's own model prints must not get between us and whoever reads the JSON.
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        loaded = load_model(args)
        if not args.json:
            print(loaded.describe(), end="\n\n", flush=True)
        images = open_source(args, loaded)
        result = adapt(
            loaded,
            images,
            recipe,
            options=options,
            batch_size=args.batch_size,
            guard=args.guard or "rollback",
            keep=args.keep,
            score=args.score or "epochs",
            out=args.out,
            device=args.device,
            seed=args.seed,
            speed=args.speed or "auto",
            progress=not args.quiet,
        )
    written = [] if args.out is None else _write_page(args, result, images, loaded)
    if args.json:
        print(json.dumps({"model": loaded.name, **result.summary()}))
    else:
        print(_summary(result, loaded, args.out, written, plan_shown=not args.quiet))
    return {"refused": REFUSED, "unclear": UNCLEAR}.get(result.verdict.word, 0)


def _write_page(
    args: argparse.Namespace, result: AdaptationResult, images: ImageSource, loaded: LoadedModel
) -> list[str]:
    from acclimate import parallel

    path = user_path(args.out) / PAGE
    if result.cost is None and path.exists():  # of the finished run that was read
        return [PAGE]
    if not parallel.is_main():
        return []

    def page() -> str:
        from acclimate.guard.drift import layer_drift
        from acclimate.models.layers import batch_norm_layers
        from acclimate.report.run import run_page
        from acclimate.result import RECORD

        layers = []
        if batch_norm_layers(loaded.model):  # others store nothing to compare with
            layers = layer_drift(
                loaded.model, images, most=OBSERVED, device=args.device, seed=args.seed
            )
        made = run_page(result, images, layers)
        if not (path.parent / RECORD).is_file():  # alone, the page would be in the next run's way
            raise AcclimateError(
                f"{path.parent} was taken away before its {PAGE} was written; run it again"
            )
        return made

    return write_page(path, page)


def _summary(
    result: AdaptationResult,
    loaded: LoadedModel,
    out: str | None,
    written: Sequence[str],
    *,
    plan_shown: bool,
) -> str:
    from acclimate.result import HISTORY, MODEL, PREDICTIONS, SUMMARY

    history = result.history
    shown = result.record.plan if plan_shown else ()
    lines = [f"note: {note}" for note in result.notes if note not in shown]
    if history.epochs:
        rows, half = [_row(record) for record in history.epochs], EPOCHS_SHOWN // 2
        if len(rows) > EPOCHS_SHOWN:  # history.json has them all
            rows[half:-half] = [["..."] * len(EPOCH_HEADER)]
        lines += ["", Table(rows, header=EPOCH_HEADER).text()]
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    images = f"{len(result.predictions):,} images{skipped}"
    lines += ["", f"{loaded.name}, recipe {result.recipe.name}, {images}"]
    if history.final is not None and result.error_after is not None:
        errors = f"{_percent(result.error_before)} % unadapted -> {_percent(result.error_after)} %"
        lines.append(f"error {errors} ({history.final.labelled:,} labelled images)")
    if result.temperature is not None:
        calibrated = float(result.probabilities.mean())
        lines.append(
            f"mean confidence {float(result.confidence.mean()):.2f}, calibrated {calibrated:.2f} "
            f"(temperature {result.temperature:.2f})"
        )
    if history.kept_epoch is not None:
        kept = f"the state after epoch {history.kept_epoch}"
        lines.append(f"kept: {kept if history.kept_epoch else 'the unadapted state'}")
    if history.statistics_gap is not None and history.statistics_shift:
        gap = f"{history.statistics_gap:.1%} of the images"
        lines.append(f"stored and batch statistics predict different classes for {gap}")
    lines += map(str, history.events[:EVENTS_SHOWN])
    if len(history.events) > EVENTS_SHOWN:
        lines.append(f"and {len(history.events) - EVENTS_SHOWN} more of these")
    lines.append(f"guard: {result.verdict}")
    if out:
        files = ", ".join((*written, MODEL, PREDICTIONS, HISTORY, SUMMARY))
        lines.append(f"written to {out}: {files}")
    return "\n".join(lines)


def _row(record: EpochRecord) -> list[str]:
    before, after = record.before_update, record.after_epoch
    return [
        str(record.epoch),
        "-" if before.loss is None else f"{before.loss:.4f}",
        _percent(before.error),
        _percent(after.error if after else None),
        "-" if before.agreement is None else f"{before.agreement:.0%}",
        f"{before.diversity:.1f}",
    ]


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:.1f}"


def _embedded_default(args: argparse.Namespace) -> int:
    model = ("weights", "num_classes", "unsafe_pickle", "size", "resize", "mean", "std")
    images = ("root", "split", "incomplete", "shift", "labels")
    method = ("recipe", "set", "lr", "epochs", "batch_size", "guard", "keep", "score")
    own = (*model, *images, *method, "out")
    given = [name for name in own if getattr(args, name) is not None]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise AcclimateError(
            f"{option} needs --model and --images; alone, acclimate adapt runs a small example"
        )
    from acclimate.demo import run_demo

    demo = run_demo(device=args.device, seed=args.seed, progress=not args.quiet)
    if args.json:
        print(json.dumps(demo.to_dict()))
        return 0
    print(demo.title, end="\n\n")
    scale = 24 / max(*demo.error.values(), 1)
    rows = [
        [name, f"{error:5.1f}  {'#' * round(error * scale)}", demo.meaning[name]]
        for name, error in demo.error.items()
    ]
    print(Table(rows, header=["recipe", "error %", "what it does"]).text())
    print(f"\nguard: {demo.verdict}\n{demo.seconds:.1f} s. Your own images: acclimate adapt --help")
    return 0
