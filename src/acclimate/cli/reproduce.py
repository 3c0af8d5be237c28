"""``acclimate reproduce``: the paper's tables, run again with the available data and weights."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.cli.options import add_choice, add_command, add_engine, add_json, add_quiet
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.text import user_path

if TYPE_CHECKING:
    from acclimate.bench import Job, Result
    from acclimate.bench.choices import Choices
    from acclimate.paper import Comparison, Scope, Table, TablePlan

__all__ = ["add_parser"]

_DESCRIPTION = """\
Run the paper's tables and figures again, with the data and weights available
here, and print what was measured beside what the paper prints. Where data or
weights are missing, it prints which, and how to get them.

With cifar10 (or imagenet) and no cifar10-c (imagenet-c), the corruptions are
made on the fly. Exit status: 0; 1 when jobs failed; 2 for a mistake in the
call.

examples:
  acclimate reproduce --list --root cifar10=data/cifar10
  acclimate reproduce --status --store results.db
  acclimate reproduce tbl:groupnorm --root cifar10=data/cifar10 --dry-run
  acclimate reproduce groupnorm --root cifar10=data/cifar10 \\
      --images-per-shift 500 --severities 5
  acclimate reproduce tbl:table-2 --root cifar10-c=data/c \\
      --weights 'WRN-28-10 vanilla=wrn.pt'
  acclimate reproduce tab:epochs --root imagenet=val/ \\
      --model paper:resnet50=timm:resnet50.tv_in1k
"""

OK, SOME_FAILED = 0, 1
_STORE = "results.db"


def add_parser(commands: Any) -> None:
    """``acclimate reproduce`` and its options."""
    groups = add_command(
        commands,
        "reproduce",
        run,
        summary="run the paper's tables and figures again",
        description=_DESCRIPTION,
        usage="NAME ... [options]",
        resumes_from="store",
    )
    add = groups.data.add_argument
    label = "a label of the paper, with or without tbl: and the like; wildcards"
    add("names", metavar="NAME", nargs="*", help=label)
    add(
        "--list", action="store_true", help="count what is measured of each table, and can run here"
    )
    state = "the same, and for each cell: measured, can run, needs data, not measurable"
    add("--status", action="store_true", help=f"{state}; runs nothing")
    add("--rows", nargs="+", metavar="ROW", default=[], help="only these rows; wildcards")
    add("--columns", nargs="+", metavar="COLUMN", default=[], help="only these columns; wildcards")
    root = "folder of the data sets, or of one; repeatable; nothing is downloaded"
    add("--root", metavar="[NAME=]DIR", action="append", default=[], help=root)
    weights = "of a model, or of the rows with this name ('WRN-26-16 vanilla*'); repeatable"
    add("--weights", metavar="MODEL=FILE", action="append", default=[], help=weights)
    instead = "run this model in place of one of the paper's, marked as such; repeatable"
    add("--model", metavar="MODEL=OTHER", action="append", default=[], dest="models", help=instead)
    few = "use only N of each shift: a small version, marked as such"
    add("--images-per-shift", type=int, metavar="N", dest="images", help=few)
    add("--severities", nargs="+", type=int, metavar="N", help="only these, marked as such")
    only = "only these corruptions or domains, marked as such"
    add("--shifts", nargs="+", metavar="NAME", default=[], help=only)
    gaps = "accept data sets with missing files, marked as such"
    add("--incomplete", action="store_true", help=gaps)
    own = 'JSON of chosen options, {"ent": {"optimizer.lr": 1e-3}}, before those that ship'
    add_choice(groups.method, own)
    add = groups.output.add_argument
    stored = (
        "file of results, made where missing (default: %(default)s); --status: or a .json of it"
    )
    add("--store", metavar="FILE", default=_STORE, help=stored)
    formats = ["text", "markdown", "latex"]
    add("--format", choices=formats, default="text", help="default: %(default)s")
    add_json(groups)
    add_quiet(groups)
    dry = "print what can run and what is missing, and run nothing"
    groups.running.add_argument("--dry-run", action="store_true", help=dry)
    add_engine(groups)


def run(args: argparse.Namespace) -> int:
    """List tables, or run what can be run of them and print it beside what the paper prints."""
    from acclimate.bench import Store
    from acclimate.cli.sweep import INTERRUPTED, engine_of, plain_failures, sweep
    from acclimate.paper import (
        Available,
        compare,
        find_tables,
        jobs_of,
        only_cells,
        plan_tables,
        read_choices,
        with_models,
        with_shipped,
    )
    from acclimate.paper.estimate import estimate, seconds_an_image

    if not (args.names or args.list or args.status):
        raise AcclimateError("expected the label of a table; acclimate reproduce --list has them")
    found = [table for name in args.names or ["*"] for table in find_tables(name)]
    unique = list({table.label: table for table in found}.values())
    models = _pairs(args.models, "--model MODEL=OTHER")
    tables = with_models(only_cells(unique, rows=args.rows, columns=args.columns), models)
    weights = _pairs(args.weights, "--weights MODEL=FILE")
    available = Available(roots=_roots(args, tables), weights=weights, incomplete=args.incomplete)
    scope = _scope(args)
    available.check(tables)
    choices = with_shipped(read_choices(*args.choice) if args.choice else None)
    plans = plan_tables(tables, available=available, scope=scope, choices=choices)
    if args.list or args.status:
        _print_states(plans, choices, args)
        return OK
    jobs = jobs_of(plans)
    known = _results(args.store, jobs)
    todo = [job for job in jobs if job.key not in known or known[job.key].status == "failed"]
    engine = None if args.dry_run or not todo else engine_of(available.roots, args)
    workers = engine.workers if engine is not None else args.workers or 1
    time_image = partial(seconds_an_image, device=args.device)
    expected = estimate(
        todo, known.values(), workers=workers, time_image=time_image, count=available.images_of
    )
    if not args.json:  # a table for a paper has nothing before it
        print(f"{expected}\n", flush=True, file=None if args.format == "text" else sys.stderr)
    ran, summary, status = None, "", OK
    if engine is not None:
        outcome = sweep(jobs, Store(args.store), engine, args)
        if outcome is None:
            return INTERRUPTED
        known = _results(args.store, jobs)
        ran = {"done": outcome.done, "failed": plain_failures(outcome)}
        counts = f"{outcome.done:,} jobs run, {len(outcome.failed):,} failed"
        summary = f"; {counts}, results in {args.store}"
        status = SOME_FAILED if outcome.failed else OK
    shown = [compare(plan, known) for plan in plans]
    if args.json:
        record = {
            "store": args.store,
            "small": scope.to_dict(),
            "estimate": expected.to_dict(),
            "ran": ran,
            "tables": [each.to_dict() for each in shown],
        }
        print(json.dumps(record, ensure_ascii=False))
    else:
        small = f" SMALL VERSION ({scope.words})." if scope.small else ""
        print(_text(shown, f"{summary}.{small}", args.format))
    return status


def _roots(args: argparse.Namespace, asked: Sequence[Table]) -> dict[str, str]:
    """The folder of each data set: the one named, else where it is found."""
    from acclimate.bench.available import datasets_in
    from acclimate.bench.plan import MADE_FROM
    from acclimate.paper.tables import NO_RUN

    cells = [cell for table in asked for cell in table.to_run if cell.metric not in NO_RUN]
    wanted = {name for cell in cells for name in (cell.dataset, cell.scored_on) if name}
    wanted |= {clean for name, (clean, _) in MADE_FROM.items() if name in wanted}
    named = _pairs([word for word in args.root if "=" in word], "--root NAME=DIR")
    found: dict[str, str] = {}
    for folder in (word for word in args.root if "=" not in word):
        if not user_path(folder).exists():
            raise AcclimateError(f"there is no folder {folder}; check --root")
        here = datasets_in(folder, sorted(wanted), incomplete=args.incomplete)
        if wanted and not here:
            missing = f"none of the data sets that are needed is in {folder}: "
            warnings.warn(missing + ", ".join(sorted(wanted)), AcclimateWarning, stacklevel=2)
        found |= here
    return found | named


def _scope(args: argparse.Namespace) -> Scope:
    from acclimate.data.corruptions import DEV, SEVERITIES, TEST
    from acclimate.errors import unknown_name
    from acclimate.metrics import DOMAINS
    from acclimate.paper import Scope

    known = (*TEST, *DEV, *DOMAINS)
    for name in args.shifts:
        if name not in known:
            raise unknown_name("corruption or domain", name, known)
    return Scope(
        images=args.images,
        severities=tuple(args.severities or SEVERITIES),
        shifts=tuple(args.shifts),
        incomplete=args.incomplete,
    )


def _pairs(words: Sequence[str], what: str) -> dict[str, str]:
    """``NAME=PATH`` words.

    >>> _pairs(["cifar10=data/cifar10"], "--root NAME=DIR")
    {'cifar10': 'data/cifar10'}
    """
    found: dict[str, str] = {}
    for word in words:
        name, _, path = word.partition("=")
        if not name or not path:
            raise AcclimateError(f"expected {what}, got {word!r}")
        found[name] = path
    return found


def _print_states(plans: Sequence[TablePlan], choices: Choices, args: argparse.Namespace) -> None:
    from acclimate.bench.store import results_in
    from acclimate.paper import StoredResults, compare, with_stored
    from acclimate.paper.rendering import by_table, close, listed, status

    no_store = args.store == _STORE and not Path(_STORE).exists()
    weights = _pairs(args.weights, "--weights MODEL=FILE")
    models = _pairs(args.models, "--model MODEL=OTHER")
    known = [] if no_store else results_in(args.store)
    stored = StoredResults(known, weights=weights, models=models)
    found = with_stored(plans, stored, choices)
    shown = [compare(plan, stored.by_key, simulate=False) for plan in found]
    if args.json:
        tables = [listed(each) for each in shown]
        cells = [{**row.to_dict(), "state": row.state, "reason": row.reason}
                 for each in shown for row in each.rows]  # fmt: skip
        record = {"store": args.store, "tables": tables, "cells": cells}
        print(json.dumps(record if args.status else tables, ensure_ascii=False))
        return
    parts = [by_table(shown, needs=not args.status), *([status(shown)] if args.status else [])]
    texts = [getattr(part, args.format)() for part in parts]
    texts.insert(1, close(shown))
    if not args.status:
        texts.append(
            "acclimate reproduce LABEL --dry-run prints what is missing, and how to get it"
        )
    print("\n\n".join(texts))


def _results(path: str, jobs: Sequence[Job]) -> dict[str, Result]:
    """Results of the models in question, by key; none where there is no store yet."""
    from acclimate.bench import Condition, Store
    from acclimate.bench.store import is_made

    models = tuple(dict.fromkeys(job.model for job in jobs))
    if not models or not is_made(user_path(path)):
        return {}
    found = Store(path, create=False).results([Condition("model", models)])
    return {result.key: result for result in found}


def _text(shown: Sequence[Comparison], end: str, form: str) -> str:
    from acclimate.paper.rendering import FORMATS, counts

    comment = "% " if form == "latex" else ""
    summary = counts([row for each in shown for row in each.rows])
    return "\n\n".join([*map(FORMATS[form], shown), f"{comment}{summary}{end}"])
