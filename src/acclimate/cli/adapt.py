"""``acclimate adapt``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acclimate.cli.tables import table
from acclimate.errors import AcclimateError
from acclimate.options import parse_assignments

if TYPE_CHECKING:
    from acclimate.models import LoadedModel
    from acclimate.result import AdaptationResult

__all__ = ["run"]

REFUSED = 3


def run(args: argparse.Namespace) -> int:
    """Adapt, print a summary, and say with the exit status how it went."""
    if args.model is None and args.images is None:
        return _embedded_default(args)
    if args.model is None or args.images is None:
        missing = "--model" if args.model is None else "--images"
        raise AcclimateError(f"expected both --model and --images, got no {missing}")
    return _adapt(args)


def _adapt(args: argparse.Namespace) -> int:
    from acclimate.adaptation import adapt
    from acclimate.models import load

    options = parse_assignments(args.set)
    _check_path(args.images)
    loaded = load(args.model, weights=args.weights, unsafe_pickle=args.unsafe_pickle)
    if not args.json:
        print(loaded.describe(), end="\n\n", flush=True)
    result = adapt(
        loaded,
        args.images,
        args.recipe or "rpl",
        options=options,
        batch_size=args.batch_size,
        guard=args.guard,
        keep=args.keep,
        out=args.out,
        device=args.device,
        seed=args.seed,
        progress=not args.quiet,
    )
    if args.json:
        print(json.dumps({"model": loaded.name, **result.summary()}))
    else:
        print(_summary(result, loaded, args.out))
    return REFUSED if result.verdict.word == "refused" else 0


def _check_path(images: str) -> None:
    if not Path(images).exists():
        raise AcclimateError(f"no such folder or file: {images}; check --images")


def _summary(result: AdaptationResult, loaded: LoadedModel, out: str | None) -> str:
    lines = [f"note: {note}" for note in result.notes]
    rows = []
    for record in result.history.epochs:
        before, after = record.before_update, record.after_epoch
        rows.append(
            [
                str(record.epoch),
                "-" if before.loss is None else f"{before.loss:.4f}",
                _percent(before.error),
                _percent(after.error if after else None),
                "-" if before.agreement is None else f"{before.agreement:.0%}",
                f"{before.diversity:.1f}",
            ]
        )
    if rows:
        header = ["epoch", "loss", "error before update %", "error after epoch %", "agreement", "classes in use"]
        lines += ["", table(rows, header=header)]
    images = f"{len(result.predictions):,} images"
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    lines += ["", f"{loaded.name}, recipe {result.recipe.name}, {images}{skipped}"]
    if result.error_after is not None:
        before, after = _percent(result.error_before), _percent(result.error_after)
        labelled = result.history.final.labelled if result.history.final else 0
        lines.append(f"error {before} % unadapted -> {after} % ({labelled:,} labelled images)")
    if result.history.statistics_gap is not None:
        gap = result.history.statistics_gap
        lines.append(f"stored statistics answer {gap:.1%} of the images differently from batches")
    for event in result.history.events[:5]:
        lines.append(f"step {event.step}: {event.trouble}; {event.action}")
    lines.append(f"guard: {result.verdict}")
    if out:
        lines.append(f"written to {out}: model.safetensors, predictions.csv, history.json, summary.json")
    return "\n".join(lines)


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:.1f}"


def _embedded_default(args: argparse.Namespace) -> int:
    given = [name for name in ("weights", "recipe", "set", "batch_size", "out") if getattr(args, name)]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise AcclimateError(
            f"{option} needs --model and --images; alone, acclimate adapt runs the embedded default"
        )
    from acclimate.demo.run import run_demo

    demo = run_demo(device=args.device, seed=args.seed, progress=not args.quiet)
    if args.json:
        print(json.dumps(demo.to_dict()))
        return 0
    print(demo.title, end="\n\n")
    scale = 40 / max(*demo.error.values(), 1)
    rows = [
        [name, f"{error:5.1f}", demo.meaning[name], "#" * round(error * scale)]
        for name, error in demo.error.items()
    ]
    print(table(rows, header=["recipe", "error %", "what it does", ""]))
    print(f"\nguard: {demo.verdict}\n{demo.seconds:.1f} s. Your own images: acclimate adapt --help")
    sys.stdout.flush()
    return 0
