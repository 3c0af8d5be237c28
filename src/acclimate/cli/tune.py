"""``acclimate tune``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from acclimate.cli.options import (
    add_command,
    add_engine,
    add_json,
    add_plan,
    add_quiet,
    assignments,
)
from acclimate.cli.output import write_file
from acclimate.data.shift import GROUPS, SEVERITIES, Shift
from acclimate.errors import AcclimateError
from acclimate.table import Table
from acclimate.text import DEFAULTS, counted, option_words, user_path

if TYPE_CHECKING:
    from acclimate.bench import Job, Plan
    from acclimate.bench.selection import Entry, Searched, Sensitivity, Way

__all__ = ["add_parser"]

_RECIPES = ("ent", "rpl")


@dataclass(frozen=True, kw_only=True)
class _Search:
    """What is searched where the options do not say.

    Attributes:
        corruptions: none are the hold-out ones, or what there is to choose on instead.
        severities: of these.
        rates: the learning rates.
        epochs: the most to choose from.
    """

    corruptions: tuple[str, ...] = ()
    severities: tuple[int, ...] = SEVERITIES
    rates: tuple[str, ...]
    epochs: int


_USUAL = _Search(rates=("1e-4", "1e-3", "1e-2", "5e-2"), epochs=5)  # the paper's, of its ResNet50
_PRESETS = {
    # The paper does not name its three hold-out corruptions: one each of noise, blur and colour.
    "efficientnet-l2": _Search(
        corruptions=("speckle_noise", "gaussian_blur", "saturate"),
        severities=(1, 3, 5),
        rates=("4.6e-2", "4.6e-3", "4.6e-4", "4.6e-5"),
        epochs=1,
    )
}

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
    most = f"the most to choose from; includes all smaller numbers (default: {_USUAL.epochs})"
    add_plan(groups, type=int, metavar="N", help=most)
    severities = "only these (default: all)"
    groups.data.add_argument("--severities", nargs="+", metavar="N[,...]", help=severities)
    add = groups.method.add_argument
    search = "the paper's smaller search: 3 hold-out corruptions at severities 1, 3, 5, one epoch"
    add("--preset", choices=list(_PRESETS), help=search)
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
    from acclimate.bench.selection import entry_of, jobs_by_recipe, sensitivity, settings_of
    from acclimate.cli import sweep

    asked: list[Way] = ["leave-one-out"] if args.leave_one_out else []
    asked += [way for way in (args.select, args.selection) if way not in ("labels", "dev")]
    if len(asked) > 1:
        raise AcclimateError(
            "expected one way to choose: --leave-one-out, --select label-free or --selection oracle"
        )
    way = asked[0] if asked else "dev"
    if args.out is not None:
        _check_target(args.out)
    plan = plan_of(args)
    jobs = plan.jobs()
    _check_choice(jobs, way)
    if args.dry_run:
        return sweep.dry_run(jobs, args)
    store, outcome = sweep.sweep_plan(plan, jobs, args)
    if outcome is None:
        return sweep.INTERRUPTED
    results = {job.key: found for job in jobs if (found := store.get(job.key)) is not None}
    chosen: dict[str, dict[str, Entry]] = {}
    tables, texts, complete = [], [], True
    for (model, recipe), each in jobs_by_recipe(jobs).items():
        settings = settings_of(each, results)
        entry = entry_of(settings, way)
        if entry is None:
            complete = False
        else:
            chosen.setdefault(model, {})[recipe] = {**entry, "images_per_shift": args.images}
        shown = sensitivity(settings, None if entry is None else entry.get("options"))
        tables += [{"model": model, "recipe": recipe, **part.to_dict()} for part in shown]
        title = f"{model} {recipe}: mean error % by epoch and learning rate"
        left = [setting for setting in settings if not setting.complete]
        texts.append(f"{title}\n{_text(entry, shown, left)}")
    if args.out is not None and chosen:
        text = json.dumps(chosen, indent=2, ensure_ascii=False)
        write_file(user_path(args.out), f"{text}\n".encode())
    if args.json:
        failed = sweep.plain_failures(outcome)
        record = {"store": args.store, "choice": chosen, "sensitivity": tables, "failed": failed}
        print(json.dumps(record, ensure_ascii=False))
    else:
        ended = sweep.failures(outcome, args)
        if args.out is not None:
            next_step = f"use it with acclimate bench --choice {args.out}"
            ended.append(
                f"{args.out}: {next_step if chosen else 'not written, nothing was chosen'}"
            )
        print("\n\n".join([*texts, "\n".join(ended)]))
    return sweep.OK if complete and not outcome.failed else sweep.SOME_FAILED


def _check_target(path: str) -> None:
    """Before a long search rather than after it."""
    target = user_path(path)
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise AcclimateError(f"cannot write {path}: {what}; check --out")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise AcclimateError(f"cannot write {path}: permission denied; check --out")


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan of the search."""
    from acclimate.bench.job import UNADAPTED
    from acclimate.cli import sweep
    from acclimate.data.benchmarks import find_dataset
    from acclimate.methods.registry import get_recipe

    if args.models is None or args.datasets is None:
        raise AcclimateError("expected --models and --datasets, got none")
    recipes = args.recipes or list(_RECIPES)
    if UNADAPTED in recipes:
        raise AcclimateError("the recipe 'none' adapts nothing: there is nothing to choose for it")
    words = assignments(argparse.Namespace(set=args.set, lr=args.lr, epochs=None))
    asked = {word.partition("=")[0].strip(): word.partition("=")[2] for word in words}
    for option, values in asked.items():
        if option == "epochs" or (option.endswith(":epochs") and "," in values):
            most = max(values.split(","), key=lambda word: (len(word.strip()), word)).strip()
            raise AcclimateError(
                f"expected --epochs {most}, got --set {option}={values}: one run covers all "
                "smaller numbers of epochs"
            )
    search = _USUAL if args.preset is None else _PRESETS[args.preset]
    rates = [
        f"{recipe}:optimizer.lr={','.join(search.rates)}"
        for recipe in dict.fromkeys(recipes)
        if get_recipe(recipe).objective is not None
        and not asked.keys() & {"optimizer.lr", f"{recipe}:optimizer.lr"}
    ]
    epochs = search.epochs if args.epochs is None else args.epochs
    split = args.split
    if split is None and all("val" in find_dataset(name).splits for name in args.datasets):
        split = "val"  # WILDS: the domains that are there to choose on
    changed = {
        "recipes": recipes,
        "set": [f"epochs={epochs}", *words, *rates],
        "shifts": {name: _shifts(name, args, search) for name in args.datasets},
        "split": split,
    }
    return sweep.plan_of(
        argparse.Namespace(**{**vars(args), "lr": None, "epochs": None, **changed})
    )


def _check_choice(jobs: Sequence[Job], way: Way) -> None:
    """Refuse to choose on test data unasked."""
    from acclimate.bench import selection

    if way == "leave-one-out":
        selection.check_leave_one_out(jobs)
    elif way == "dev":
        selection.check_selection(jobs)
    # A choice on hold-out images must not be marked as one on test data.
    elif way == "oracle" and all(selection.refused(job) is None for job in jobs):
        raise AcclimateError(
            "expected test data with --selection oracle, got hold-out images alone; name them "
            "with --shifts (test, or clean for a data set that is itself the shift) or "
            "--split test (WILDS), or leave --selection out"
        )


def _shifts(dataset: str, args: argparse.Namespace, search: _Search) -> list[str]:
    """The single shifts that were asked for, at the severities asked for."""
    from acclimate.bench.shifts import job_shifts
    from acclimate.data.benchmarks import find_dataset

    record = find_dataset(dataset)
    if args.shifts or search.corruptions:
        words = args.shifts or search.corruptions
    elif args.leave_one_out or "val" in record.splits or (record.shifts and not record.dev):
        words = ["all"] if args.leave_one_out or record.shifts else []
    else:
        words = ["dev"]
    if not record.shifts:
        # Corruptions made on the fly need a preset, which follows from the data set.
        constants = "imagenet" if dataset.startswith("imagenet") else "cifar"
        bare = (*GROUPS, *search.corruptions)
        words = [f"{constants}/{word}" if word in bare else word for word in words]
    if not words:
        return []
    severities = _severities(args.severities) or search.severities
    shifts = [shift and Shift.parse(shift) for shift in job_shifts(dataset, words)]
    kept = [s for s in shifts if not s or s.severity is None or s.severity in severities]
    if not kept:
        raise AcclimateError(
            f"no shift of {dataset} is left at the severities {', '.join(map(str, severities))}"
        )
    # What results call frost-procedural is asked for as frost.
    asked = kept if record.shifts else [s and replace(s, name=s.plain) for s in kept]
    return [str(shift or "clean") for shift in asked]


def _severities(words: Sequence[str] | None) -> tuple[int, ...]:
    """``1,3,5`` or ``1 3 5``.

    >>> _severities(["1,3", "5"])
    (1, 3, 5)
    """
    parts = [part for word in words or () for part in word.split(",")]
    known = {str(severity): severity for severity in SEVERITIES}
    for part in parts:
        if part not in known:
            raise AcclimateError(f"expected severities from 1 to 5, such as 1,3,5, got {part!r}")
    return tuple(known[part] for part in parts)


def _text(entry: Entry | None, shown: Sequence[Sensitivity], left: Sequence[Searched]) -> str:
    """How much depends on the options, what was chosen, and what could not be."""
    from acclimate.bench.selection import LEGEND

    lines = []
    for each in shown:
        others = option_words(each.options, between=" ")
        lines += [f"with {others}"] if others else []
        lines += [Table(each.rows, header=each.header).text() if each.rows else "no results", ""]
    lines += [LEGEND, *_chosen(entry)]
    return "\n".join(
        [*lines, *(f"not chosen from: {setting.words}: {setting.missing}" for setting in left)]
    )


def _chosen(entry: Entry | None) -> list[str]:
    if entry is None:
        return ["nothing chosen: no setting has a finite run for every shift"]
    if "by_shift" not in entry:
        error = entry.get("dev_error", entry.get("test_error"))
        on = f"{error:.2f} % over {counted(len(entry['chosen_on']), 'shift')}"
        mark = "" if entry["selection"] == "dev" else f"; {entry['selection']}"
        lines = [
            f"chosen: {_words(entry['options'])}: {on}, of {entry['candidates']} candidates{mark}"
        ]
        if entry["alike"] > 1:
            same = "have the same error: more images would separate them"
            lines.append(f"{entry['alike']} of them {same}")
        return [*lines, *_edge(entry)]
    rows = [
        [name, _words(each["options"]), _number(each.get("error"))]
        for name, each in entry["by_shift"].items()
    ]
    lines = ["", Table(rows, header=["shift", "chosen", "error %"]).text()]
    lines.append(f"mean error: {_number(entry['error'])} %; {entry['selection']}")
    if (labelled := entry.get("labelled")) is not None:
        lines.append(
            f"regret: {_number(entry['regret'])} points against {_words(labelled['options'])}, "
            f"the one choice with labels for all shifts ({labelled['error']:.2f} %)"
        )
    return lines


def _edge(entry: Entry) -> list[str]:
    """A warning where the best may lie beyond what was searched; nothing lies below one epoch.

    >>> searched = {"optimizer.lr": [0.01, 0.1], "epochs": [1, 2, 3]}
    >>> _edge({"options": {"optimizer.lr": 0.1, "epochs": 1}, "searched": searched})
    ['optimizer.lr=0.1 is at the edge of what was searched: values beyond it may do better']
    """
    at = []
    for name, least in (("optimizer.lr", None), ("epochs", 1)):
        values, chosen = entry["searched"].get(name, []), entry["options"].get(name)
        if len(values) > 1 and chosen in (min(values), max(values)) and chosen != least:
            at.append(f"{name}={chosen:g}")
    if not at:
        return []
    edge = "is at the edge" if len(at) == 1 else "are at the edge"
    return [f"{' and '.join(at)} {edge} of what was searched: values beyond it may do better"]


def _words(options: Mapping[str, Any]) -> str:
    return option_words(options.items(), between=" ", none=DEFAULTS)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
