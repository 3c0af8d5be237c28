"""A plan from the options of ``acclimate tune``: what the choice is made from, and on what."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acclimate.bench import Job, Plan
from acclimate.bench.job import UNADAPTED
from acclimate.bench.plan import job_shifts
from acclimate.bench.selection import (
    LEGEND,
    Sensitivity,
    Setting,
    check_leave_one_out,
    check_selection,
    refused,
)
from acclimate.cli.bench_plan import plan_of
from acclimate.cli.options import assignments
from acclimate.data.benchmarks import find_dataset
from acclimate.data.names import SEVERITIES, STAND_INS
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe
from acclimate.table import Table
from acclimate.text import AS_IT_IS, counted, option_words

__all__ = ["PRESETS", "Preset", "tune_plan", "tuned_text"]

EPOCHS = 5
_RECIPES = ("ent", "rpl")
_RATES = ("1e-4", "1e-3", "1e-2", "5e-2")  # the paper's, for its ResNet50
_GROUPS = ("dev", "test", "all")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A search of the paper's that was smaller than the others."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    rates: tuple[str, ...]
    epochs: int


PRESETS = {
    # The paper says three hold-out corruptions, and not which: one of noise, blur and colour.
    "efficientnet-l2": Preset(
        corruptions=("speckle_noise", "gaussian_blur", "saturate"),
        severities=(1, 3, 5),
        rates=("4.6e-2", "4.6e-3", "4.6e-4", "4.6e-5"),
        epochs=1,
    )
}


def tune_plan(args: argparse.Namespace) -> Plan:
    """The plan of the sweep, refused where it would choose on what is reported on."""
    if args.models is None or args.datasets is None:
        raise AcclimateError("expected --models and --datasets, got none")
    given = argparse.Namespace(**vars(args))
    preset = None if args.preset is None else PRESETS[args.preset]
    given.recipes = args.recipes or list(_RECIPES)
    if UNADAPTED in given.recipes:
        raise AcclimateError("the recipe 'none' adapts nothing: there is nothing to choose for it")
    usual = preset.epochs if preset else EPOCHS
    epochs = usual if args.epochs is None else args.epochs
    # One run of so many epochs tells of all shorter ones.
    words = assignments(argparse.Namespace(set=args.set, lr=args.lr, epochs=None))
    given.lr = given.epochs = None
    given.set = [f"epochs={epochs}", *words]
    asked = {word.partition("=")[0].strip(): word.partition("=")[2] for word in words}
    for option, values in asked.items():
        if option == "epochs" or (option.endswith(":epochs") and "," in values):
            most = max(values.split(","), key=lambda word: (len(word.strip()), word)).strip()
            raise AcclimateError(
                f"expected --epochs {most}, got --set {option}={values}: one run tells of all "
                "smaller numbers of epochs"
            )
    rates = ",".join(preset.rates if preset else _RATES)
    given.set += [
        f"{recipe}:optimizer.lr={rates}"
        for recipe in dict.fromkeys(given.recipes)
        if get_recipe(recipe).objective is not None
        and not asked.keys() & {"optimizer.lr", f"{recipe}:optimizer.lr"}
    ]
    severities = _severities(args.severities) or (preset.severities if preset else SEVERITIES)
    given.shifts = {
        name: _shifts(name, args, preset=preset, severities=severities) for name in args.datasets
    }
    if args.split is None and all("val" in find_dataset(name).splits for name in args.datasets):
        given.split = "val"  # WILDS: the domains that are there to choose on
    plan = plan_of(given)
    if args.leave_one_out:
        check_leave_one_out(plan.jobs())
    elif args.selection == "oracle":
        _check_oracle(plan.jobs())
    elif args.select == "labels":
        check_selection(plan.jobs())
    return plan


def _check_oracle(jobs: Sequence[Job]) -> None:
    """A choice on hold-out images is not to be marked as one on test data."""
    if all(refused(job) is None for job in jobs):
        raise AcclimateError(
            "expected test data with --selection oracle, got hold-out images alone; say which with "
            "--shifts (test, or clean for a data set that is itself the shift) or --split test "
            "(WILDS), or leave it out"
        )


def _shifts(
    dataset: str, args: argparse.Namespace, *, preset: Preset | None, severities: Sequence[int]
) -> list[str]:
    """The single shifts that words ask for, at the severities asked for."""
    record = find_dataset(dataset)
    words = args.shifts or (preset.corruptions if preset else _usual(dataset, args))
    if not record.shifts:
        # What is made on the way says by whose constants; the data set tells where nobody does.
        constants = "imagenet" if dataset.startswith("imagenet") else "cifar"
        bare = (*_GROUPS, *(preset.corruptions if preset else ()))
        words = [f"{constants}/{word}" if word in bare else word for word in words]
    if not words:
        return []
    shifts = job_shifts(dataset, words)
    kept = [s for s in shifts if s is None or ":" not in s or _severity(s) in severities]
    if not kept:
        raise AcclimateError(
            f"no shift of {dataset} is left at the severities {', '.join(map(str, severities))}"
        )
    # What results call frost-procedural is asked for as frost.
    asked = kept if record.shifts else [s and _as_asked(s) for s in kept]
    return ["clean" if shift is None else shift for shift in asked]


def _as_asked(shift: str) -> str:
    for ours, theirs in STAND_INS.items():
        shift = shift.replace(ours, theirs)
    return shift


def _usual(dataset: str, args: argparse.Namespace) -> list[str]:
    """Without a word: what there is to choose on."""
    record = find_dataset(dataset)
    if args.leave_one_out:
        return ["all"]
    if "val" in record.splits or (record.shifts and not record.dev):
        return ["all"] if record.shifts else []
    return ["dev"]


def _severity(shift: str) -> int:
    return int(shift.rpartition(":")[2].partition("@")[0])


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


def tuned_text(
    model: str,
    recipe: str,
    *,
    tables: Sequence[Sensitivity],
    settings: Sequence[Setting],
    entry: Mapping[str, Any] | None,
) -> str:
    """The tables, the choice, and what could not be chosen."""
    lines = [f"{model} {recipe}: mean error % by epoch and learning rate"]
    for each in tables:
        others = option_words(each.options, between=" ")
        lines += [*([f"with {others}"] if others else [])]
        lines += [Table(each.rows, header=each.header).text() if each.rows else "no results", ""]
    lines += [LEGEND, *_chosen(entry)]
    left = [setting for setting in settings if not setting.complete]
    lines += [f"not chosen from: {setting.words}: {setting.missing}" for setting in left]
    return "\n".join(lines)


def _chosen(entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return ["nothing chosen: no setting has a finite run for every shift"]
    if "by_shift" not in entry:
        error = entry.get("dev_error", entry.get("test_error"))
        on = f"{error:.2f} % over {counted(len(entry['chosen_on']), 'shift')}"
        mark = "" if entry["selection"] == "dev" else f"; {entry['selection']}"
        chosen = f"chosen: {_words(entry['options'])}: {on}, of {entry['candidates']} candidates"
        alike = f"{entry['alike']} of them have that very error: more images would tell them apart"
        return [chosen + mark, *([alike] if entry["alike"] > 1 else []), *_edge(entry)]
    rows = [[name, _words(each["options"]), _number(each.get("error"))]
            for name, each in entry["by_shift"].items()]  # fmt: skip
    lines = ["", Table(rows, header=["shift", "chosen", "error %"]).text()]
    lines.append(f"mean error: {_number(entry['error'])} %; {entry['selection']}")
    if "regret" in entry:
        labelled = entry["labelled"]
        if labelled is not None:
            lines.append(
                f"regret: {_number(entry['regret'])} points against {_words(labelled['options'])}, "
                f"the one choice that labels make for all shifts ({labelled['error']:.2f} %)"
            )
    return lines


def _edge(entry: Mapping[str, Any]) -> list[str]:
    """Where the best may lie beyond what was searched; nothing lies below one epoch.

    >>> searched = {"optimizer.lr": [0.01, 0.1], "epochs": [1, 2, 3]}
    >>> _edge({"options": {"optimizer.lr": 0.1, "epochs": 1}, "searched": searched})
    ['optimizer.lr=0.1 is at the edge of what was searched: others beyond it may do better']
    """
    at = []
    for name, least in (("optimizer.lr", None), ("epochs", 1)):
        values, chosen = entry["searched"].get(name, []), entry["options"].get(name)
        if len(values) > 1 and chosen in (min(values), max(values)) and chosen != least:
            at.append(f"{name}={chosen:g}")
    if not at:
        return []
    said = " and ".join(at) + (" is" if len(at) == 1 else " are")
    return [f"{said} at the edge of what was searched: others beyond it may do better"]


def _words(options: Mapping[str, Any]) -> str:
    return option_words(options.items(), between=" ", none=AS_IT_IS)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
