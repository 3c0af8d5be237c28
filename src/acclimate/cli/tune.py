"""``acclimate tune``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.cli.options import add_command, add_engine, add_json, add_plan, add_quiet
from acclimate.cli.output import write_file
from acclimate.errors import AcclimateError

if TYPE_CHECKING:
    from acclimate.bench import Job, Result
    from acclimate.bench.selection import Setting

__all__ = ["add_parser"]

_DESCRIPTION = """\
Choose learning rate, epochs and other options on the hold-out corruptions, as
the paper does.

A run of 5 epochs covers 1, 2, 3 and 4 too: the number of epochs is part of the
choice. Without --lr the paper's rates are searched: 1e-4, 1e-3, 1e-2, 5e-2.
Test corruptions, ImageNet-R, -A and -D and the test splits of WILDS are
refused; WILDS chooses on its split val. Exit status: 0; 1 when jobs failed or
nothing could be chosen; 2 for a mistake in the call.

examples:
  acclimate tune --models acclimate:wrn-40-2-augmix-cifar10 \\
      --datasets cifar10 --root data/ --recipes ent rpl \\
      --lr 1e-2,1e-3,1e-4 --epochs 5 --store tune.db --out choice.json
  acclimate bench --choice choice.json \\
      --models acclimate:wrn-40-2-augmix-cifar10 --datasets cifar10 \\
      --root data/ --shifts cifar/test --recipes ent rpl --store test.db
"""


def add_parser(commands: Any) -> None:
    """``acclimate tune`` and its options: those of bench, and how to choose."""
    groups = add_command(
        commands,
        "tune",
        run,
        summary="choose a recipe's options on hold-out corruptions",
        description=_DESCRIPTION,
        usage="--store FILE [options]",
        resumes_from="store",
        plan=None,
        forgetting=None,
    )
    add_plan(groups)
    severities = "only these (default: all)"
    groups.data.add_argument("--severities", nargs="+", metavar="N[,...]", help=severities)
    add = groups.method.add_argument
    most = "the most to choose from; includes all smaller numbers (default: 5)"
    add("--epochs", type=int, metavar="N", help=most)
    search = "the paper's smaller search: 3 hold-out corruptions at severities 1, 3, 5, one epoch"
    add("--preset", choices=["efficientnet-l2"], help=search)
    oracle = "oracle chooses on test data too, and marks the choice (default: dev)"
    add("--selection", choices=["dev", "oracle"], default="dev", help=oracle)
    free = "label-free: for each shift by the guard's score; prints what that costs"
    add("--select", choices=["labels", "label-free"], default="labels", help=free)
    others = "imagenet-d: choose for each domain on the others, and mark the choice"
    add("--leave-one-out", action="store_true", help=others)
    add = groups.output.add_argument
    add("--out", metavar="FILE", help="the choice as JSON, for acclimate bench --choice")
    add("--store", metavar="FILE", required=True, help="file of results, made where missing")
    add_json(groups)
    add_quiet(groups)
    dry = "print what would be run, and run nothing"
    groups.running.add_argument("--dry-run", action="store_true", help=dry)
    add_engine(groups)


def run(args: argparse.Namespace) -> int:
    """Run what is missing of the search, print how much depends on it, and choose."""
    from acclimate.cli.sweep import (
        INTERRUPTED,
        OK,
        SOME_FAILED,
        dry_run,
        failures,
        plain_failures,
        sweep_plan,
    )
    from acclimate.cli.tune_plan import tune_plan

    ways = (args.leave_one_out, args.select != "labels", args.selection == "oracle")
    if sum(ways) > 1:
        raise AcclimateError(
            "expected one way to choose: --leave-one-out, --select label-free or --selection oracle"
        )
    if args.out is not None:
        _check_target(args.out)
    plan = tune_plan(args)
    jobs = plan.jobs()
    if args.dry_run:
        return dry_run(jobs, args)
    store, outcome = sweep_plan(plan, jobs, args)
    if outcome is None:
        return INTERRUPTED
    results = {job.key: found for job in jobs if (found := store.get(job.key)) is not None}
    chosen, tables, texts = _choose(jobs, results, args)
    if args.out is not None and chosen:
        text = json.dumps(_by_model(chosen), indent=2, ensure_ascii=False)
        write_file(Path(args.out).expanduser(), f"{text}\n".encode())
    if args.json:
        print(json.dumps(_plain(chosen, tables, plain_failures(outcome), args), ensure_ascii=False))
    else:
        where = []
        if args.out is not None:
            said = f"for acclimate bench --choice {args.out}"
            where.append(f"{args.out}: {said if chosen else 'not written, nothing was chosen'}")
        print("\n\n".join([*texts, "\n".join([*failures(outcome, args), *where])]))
    return OK if len(chosen) == len(texts) and not outcome.failed else SOME_FAILED


def _choose(
    jobs: Sequence[Job], results: Mapping[str, Result], args: argparse.Namespace
) -> tuple[dict[tuple[str, str], dict[str, Any]], list[dict[str, Any]], list[str]]:
    """What was chosen for each model and recipe, and the tables, plain and as text."""
    from acclimate.bench.selection import choose_from, jobs_by_recipe, sensitivity, settings_of
    from acclimate.cli.tune_plan import tuned_text

    chosen: dict[tuple[str, str], dict[str, Any]] = {}
    tables, texts = [], []
    for (model, recipe), each in jobs_by_recipe(jobs).items():
        settings = settings_of(each, results)
        entry = _entry(settings, args)
        if entry is not None:
            entry["images_per_shift"] = args.images
            chosen[model, recipe] = entry
        one_for_all = args.select == "labels" and not args.leave_one_out
        shown = sensitivity(settings, choose_from(settings) if one_for_all else None)
        tables += [{"model": model, "recipe": recipe, **part.to_dict()} for part in shown]
        texts.append(tuned_text(model, recipe, tables=shown, settings=settings, entry=entry))
    return chosen, tables, texts


def _entry(settings: Sequence[Setting], args: argparse.Namespace) -> dict[str, Any] | None:
    from acclimate.bench import selection as entries
    from acclimate.bench.selection import choose_from, choose_label_free, leave_one_out

    if args.leave_one_out:
        others = leave_one_out(settings)
        return entries.left_out(others, settings) if others else None
    if args.select == "label-free":
        found = choose_label_free(settings)
        return entries.label_free_entry(found, settings) if found.by_shift else None
    choice = choose_from(settings)
    if choice is None:
        return None
    return entries.entry(choice, settings, oracle=args.selection == "oracle")


def _check_target(path: str) -> None:
    """Before a long search rather than after it."""
    target = Path(path).expanduser()
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise AcclimateError(f"cannot write {path}: {what}; check --out")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise AcclimateError(f"cannot write {path}: permission denied; check --out")


def _plain(
    chosen: Mapping[tuple[str, str], Mapping[str, Any]],
    tables: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
    args: argparse.Namespace,
) -> dict[str, Any]:
    return {
        "store": args.store,
        "choice": _by_model(chosen),
        "sensitivity": list(tables),
        "failed": list(failed),
    }


def _by_model(
    chosen: Mapping[tuple[str, str], Mapping[str, Any]],
) -> dict[str, dict[str, Mapping[str, Any]]]:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for (model, recipe), entry in chosen.items():
        found.setdefault(model, {})[recipe] = entry
    return found
