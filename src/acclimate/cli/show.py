"""``acclimate show model NAME``: what would learn in it, with which numbers, and its weights."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from acclimate.cli.records import Rows, checkpoint_rows, origin_rows, paper_rows, rows_text
from acclimate.cli.tables import table
from acclimate.errors import AcclimateError

if TYPE_CHECKING:
    from torch import nn

    from acclimate.models import LoadedModel
    from acclimate.models.own import Checkpoint
    from acclimate.models.paper import PaperModel
    from acclimate.selectors import Selector

__all__ = ["run"]

# tbl:table-9 of the paper counts a ResNet50's parameters otherwise than they are.
_RESNET50 = {"affine": 53_120, "all": 25_557_032}
_TABLE_9 = (
    "tbl:table-9 of the paper prints 5.3k affine parameters and 22.6M in all for a ResNet50; it "
    "has 53,120 and 25,557,032, as counted here"
)


def run(args: argparse.Namespace) -> int:
    """Print what is known of a model or a recipe; nothing is downloaded for that."""
    if args.what == "recipe":
        from acclimate.cli.show_recipe import run as show_recipe

        return show_recipe(args)
    return _show_model(args)


def _show_model(args: argparse.Namespace) -> int:
    from acclimate.models.loading import load, origin, outline

    # What a user's own model prints must not get between us and whoever reads the JSON.
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        if args.weights is None:
            loaded = outline(args.name, num_classes=args.num_classes)
        else:
            loaded = load(
                args.name,
                weights=args.weights,
                num_classes=args.num_classes,
                unsafe_pickle=args.unsafe_pickle,
            )
    record = _record(args.name, own_weights=args.weights is not None)
    fetched = origin(args.name) if args.weights is None else None
    description = loaded.describe()
    facts = _facts(loaded)
    facts["origin"] = None if fetched is None else asdict(fetched)
    facts["record"] = None if record is None else asdict(record)
    if args.json:
        print(json.dumps(facts, ensure_ascii=False))
        return 0
    print(description)
    print(f"\nParameters that would learn, by selector\n{_selectors(facts['selectors'])}")
    print(f"\nPresets of the paper\n{_presets(facts['presets'])}")
    if fetched is not None:
        print(f"\nWhere the weights come from\n{rows_text(origin_rows(fetched))}")
    if record is not None:
        print(f"\nRecord\n{rows_text(_rows(record))}")
    for note in facts["notes"]:
        print(f"\nNote: {note}.")
    return 0


def _record(name: str, *, own_weights: bool) -> PaperModel | Checkpoint | None:
    """What is written down of the weights; a user's own are not those of a shipped network."""
    from acclimate.models.own import checkpoints
    from acclimate.models.paper import find_record

    if name.startswith("paper:"):
        return find_record(name)
    return None if own_weights else checkpoints().get(name.removeprefix("acclimate:"))


def _rows(record: PaperModel | Checkpoint) -> Rows:
    from acclimate.models.paper import PaperModel

    if isinstance(record, PaperModel):
        return paper_rows(record)
    return checkpoint_rows(record)


def _facts(loaded: LoadedModel) -> dict[str, Any]:
    from acclimate.models import norm_layers

    model = loaded.model
    norms = norm_layers(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    selectors = _counts(model)  # last of all: it puts adapters into the model
    return {
        "name": loaded.name,
        "architecture": type(model).__name__,
        "parameters": parameters,
        "normalisation": norms,
        "preprocessing": loaded.preprocessing.describe() if loaded.preprocessing else None,
        "classes": list(loaded.classes.names) if loaded.classes else None,
        "weights": loaded.source,
        "selectors": selectors,
        "presets": _found_presets(loaded.name),
        "notes": _notes(selectors),
    }


def _counts(model: nn.Module) -> dict[str, Any]:
    """Parameters by selector: {"parameters": n, "added": those that are new}, or why not any."""
    import torch

    from acclimate.parts import known_parts

    selectors = known_parts("selector")
    names = sorted(selectors.names(), key=lambda name: selectors[name].changes_architecture)
    counts: dict[str, Any] = {}
    for name in names:
        selector = cast("Selector", selectors[name]())
        before = sum(p.numel() for p in model.parameters())
        try:
            selector.check(model)
            selector.extend(model, torch.Generator())
            sizes = {key: value.numel() for key, value in model.named_parameters()}
            learning = sum(sizes[key] for key in selector.names(model))
        except AcclimateError as error:
            counts[name] = {"parameters": 0, "added": 0, "why": str(error)}
        else:
            counts[name] = {"parameters": learning, "added": sum(sizes.values()) - before}
    return counts


def _found_presets(name: str) -> list[dict[str, Any]]:
    from acclimate.presets import PRESETS, find_preset

    recipes = dict.fromkeys(preset.recipe for preset in PRESETS)
    found = [find_preset(recipe, model_name=name) for recipe in recipes]
    return [
        {key: value for key, value in asdict(preset).items() if key != "models"}
        for preset in found
        if preset is not None
    ]


def _notes(selectors: dict[str, Any]) -> list[str]:
    counted = {name: selectors[name]["parameters"] for name in _RESNET50}
    return [_TABLE_9] if counted == _RESNET50 else []


def _selectors(counts: dict[str, Any]) -> str:
    rows = []
    for name, count in counts.items():
        added = f"of which {count['added']:,} are added" if count["added"] else ""
        why = count.get("why", added).partition(";")[0]
        rows.append([f"  {name}", f"{count['parameters']:,}", why])
    return table(rows)


def _presets(presets: list[dict[str, Any]]) -> str:
    if not presets:
        return "  none; rates and epochs are chosen by the number of images"
    rows = [
        [
            f"  {each['recipe']}",
            f"learning rate {each['lr']:g}",
            f"batches of {each['batch_size']}",
            f"{each['epochs']} epoch(s)",
            "source statistics" if each["source_statistics"] else "",
        ]
        for each in presets
    ]
    return table(rows)
