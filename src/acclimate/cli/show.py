"""``acclimate show model NAME``: what would learn in it, with which numbers, and its weights."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from acclimate.cli.tables import table
from acclimate.errors import AcclimateError

if TYPE_CHECKING:
    from torch import nn

    from acclimate.models import LoadedModel
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
    """Print what is known of a model; nothing is downloaded for that."""
    from acclimate.models.loading import load, outline
    from acclimate.models.paper import find_record

    # What a user's own model prints must not get between us and whoever reads the JSON.
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        if args.weights is None:
            loaded = outline(args.name)
        else:
            loaded = load(args.name, weights=args.weights, unsafe_pickle=args.unsafe_pickle)
    record = find_record(args.name) if args.name.startswith("paper:") else None
    description = loaded.describe()
    facts = _facts(loaded, record)
    if args.json:
        print(json.dumps(facts, ensure_ascii=False))
        return 0
    print(description)
    print(f"\nParameters that would learn, by selector\n{_selectors(facts['selectors'])}")
    print(f"\nPresets of the paper\n{_presets(facts['presets'])}")
    if record is not None:
        print(f"\nRecord\n{_record(record)}")
    for note in facts["notes"]:
        print(f"\nNote: {note}.")
    return 0


def _facts(loaded: LoadedModel, record: PaperModel | None) -> dict[str, Any]:
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
        "weights": loaded.source,
        "selectors": selectors,
        "presets": _found_presets(loaded.name),
        "record": None if record is None else asdict(record),
        "notes": _notes(selectors),
    }


def _counts(model: nn.Module) -> dict[str, Any]:
    """Parameters by selector: {"parameters": n, "added": those that are new}, or why not any."""
    import torch

    from acclimate.adapters import insert_adapters
    from acclimate.parts import PARTS
    from acclimate.selectors import Adapters

    names = sorted(PARTS["selector"].names(), key=lambda name: name == "adapters")
    counts: dict[str, Any] = {}
    for name in names:
        selector = cast("Selector", PARTS["selector"][name]())
        before = sum(p.numel() for p in model.parameters())
        try:
            selector.check(model)
            if isinstance(selector, Adapters):
                insert_adapters(model, width=selector.width, generator=torch.Generator())
            sizes = {key: value.numel() for key, value in model.named_parameters()}
            learning = sum(sizes[key] for key in selector.names(model))
        except AcclimateError as error:
            counts[name] = {"parameters": 0, "added": 0, "why": str(error)}
        else:
            counts[name] = {"parameters": learning, "added": sum(sizes.values()) - before}
    return counts


def _found_presets(name: str) -> list[dict[str, Any]]:
    from acclimate.models.paper import preset_name
    from acclimate.presets import PRESETS, find_preset

    recipes = dict.fromkeys(preset.recipe for preset in PRESETS)
    found = [find_preset(recipe, model_name=preset_name(name)) for recipe in recipes]
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


def _record(record: PaperModel) -> str:
    error = "not published"
    if record.clean_error is not None:
        error = f"{record.clean_error:g} % of ImageNet validation ({record.clean_error_from})"
    by = "a file you give" if record.weights == "file" else f"{record.weights} fetches them"
    hashes = " or ".join(record.sha256)
    rows = {
        "model": record.title,
        "architecture": record.architecture,
        "weights": f"{by}; {record.page}",
        "files": ", ".join(record.files),
        "layout": record.layout,
        "licence": record.license,
        "checksum": f"sha256 begins with {hashes}" if hashes else "not published",
        "clean error": error,
        "note": record.note,
    }
    return table([[f"  {key}", value] for key, value in rows.items() if value])
