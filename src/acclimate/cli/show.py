"""``acclimate show``: what is known of a model or a recipe. Nothing is downloaded for that."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from textwrap import fill
from typing import TYPE_CHECKING, Any, cast

from acclimate.cli.options import add_command, add_json
from acclimate.errors import AcclimateError
from acclimate.table import Table
from acclimate.text import value_word

if TYPE_CHECKING:
    from torch import nn

    from acclimate.models import LoadedModel
    from acclimate.models.checkpoints import Checkpoint
    from acclimate.models.paper import PaperModel
    from acclimate.parts.selectors import Selector
    from acclimate.recipe import Recipe

__all__ = ["add_parser"]

_DESCRIPTION = """\
Print what is known of a model: its layers, how many parameters each selector
would train, the paper's presets and where the weights come from. Nothing is
downloaded for that. Of a recipe: its parts and options, and the alternatives
to each part.

examples:
  acclimate show model paper:resnet50
  acclimate show model timm:vit_small_patch16_224.augreg_in1k --json
  acclimate show model paper:resnet50-augmix --weights checkpoint.pth.tar
  acclimate show recipe rpl
"""


def add_parser(commands: Any) -> None:
    """``acclimate show`` and its options."""
    groups = add_command(
        commands,
        "show",
        run,
        summary="describe a model or a recipe",
        description=_DESCRIPTION,
        usage="{model,recipe} NAME [options]",
        data="arguments",
    )
    add = groups.data.add_argument
    add("what", choices=["model", "recipe"], metavar="WHAT", help="model or recipe")
    named = "a model with its prefix (see acclimate list models 'paper:*'), or a recipe"
    add("name", metavar="NAME", help=named)
    add("--weights", metavar="FILE", help="also load these, to see whether the file fits")
    add("--num-classes", type=int, metavar="N", help="where it differs from the architecture's")
    trust = "unpickle --weights, which can run code: only for files you trust"
    add("--unsafe-pickle", action="store_true", help=trust)
    add_json(groups)


# tbl:table-9 of the paper prints other numbers of parameters than a ResNet-50 has.
_RESNET50 = {"affine": 53_120, "all": 25_557_032}
_TABLE_9 = (
    "tbl:table-9 of the paper prints 5.3k affine parameters and 22.6M in all for a ResNet50; it "
    "has 53,120 and 25,557,032, as counted here"
)


def run(args: argparse.Namespace) -> int:
    """Print what is known of a model or a recipe."""
    return _show_recipe(args) if args.what == "recipe" else _show_model(args)


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
    description = loaded.describe()  # before selectors put their layers in
    facts = _facts(loaded)
    if args.json:
        known = {"origin": fetched and asdict(fetched), "record": record and asdict(record)}
        print(json.dumps({**facts, **known}, ensure_ascii=False))
        return 0
    print(description)
    print(f"\nParameters that would be trained, by selector\n{_selectors(facts['selectors'])}")
    print(f"\nPresets of the paper\n{_presets(facts['presets'])}")
    if fetched is not None:
        print(f"\nWhere the weights come from\n{_lines(asdict(fetched))}")
    if record is not None:
        print(f"\nRecord\n{_lines(_record_words(record))}")
    for note in facts["notes"]:
        print("\n" + fill(f"Note: {note}.", width=79))
    return 0


def _record(name: str, *, own_weights: bool) -> PaperModel | Checkpoint | None:
    """The stored record of the weights; a user's own have none."""
    from acclimate.models.checkpoints import checkpoints
    from acclimate.models.paper import find_record

    if name.startswith("paper:"):
        return find_record(name)
    return None if own_weights else checkpoints().get(name.removeprefix("acclimate:"))


def _record_words(record: PaperModel | Checkpoint) -> Mapping[str, str | None]:
    from acclimate.models.paper import PaperModel

    if not isinstance(record, PaperModel):
        return {
            "architecture": f"acclimate:{record.architecture}",
            "trained on": record.trained_on,
            "error": f"{record.error:g} % of {record.images:,} images of {record.error_on}",
            "command": record.command,
            "file": f"{record.name}.safetensors, {record.size:,} bytes, half precision",
            "checksum": f"sha256 {record.sha256}",
        }
    error = "not published"
    if record.clean_error is not None:
        error = f"{record.clean_error:g} % of ImageNet validation ({record.clean_error_from})"
    file = record.weights == "file"
    hashes = " or ".join(record.sha256)
    return {
        "model": record.title,
        "architecture": record.architecture,
        "weights": f"{'--weights FILE' if file else f'from {record.weights}'}; {record.page}",
        "files": ", ".join(record.files),
        "layout": record.layout,
        "licence": record.licence,
        "checksum": f"sha256 begins with {hashes}" if hashes else "not published",
        "clean error": error,
        "note": record.note,
    }


def _lines(words: Mapping[str, str | None]) -> str:
    """Indented lines, without those that nothing is known for.

    >>> print(_lines({"library": "timm", "licence": None}))
      library  timm
    """
    return Table([[f"  {key}", value] for key, value in words.items() if value]).text()


def _facts(loaded: LoadedModel) -> dict[str, Any]:
    from acclimate.models import norm_layers
    from acclimate.presets import PRESETS, find_preset

    model = loaded.model
    norms = norm_layers(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    presets = []
    for recipe in dict.fromkeys(preset.recipe for preset in PRESETS):
        if preset := find_preset(recipe, model_name=loaded.name):
            presets.append({k: v for k, v in asdict(preset).items() if k != "models"})
    selectors = _counts(model)  # last of all: it puts adapters into the model
    of_resnet50 = {name: selectors[name]["parameters"] for name in _RESNET50} == _RESNET50
    return {
        "name": loaded.name,
        "architecture": type(model).__name__,
        "parameters": parameters,
        "normalisation": norms,
        "preprocessing": loaded.preprocessing.describe() if loaded.preprocessing else None,
        "classes": list(loaded.classes.names) if loaded.classes else None,
        "weights": loaded.source,
        "selectors": selectors,
        "presets": presets,
        "notes": [_TABLE_9] if of_resnet50 else [],
    }


def _counts(model: nn.Module) -> dict[str, Any]:
    """Parameters by selector: {"parameters": n, "added": new ones among them}, or why none."""
    import torch

    from acclimate.methods import PARTS

    selectors = PARTS["selector"]
    names = sorted(selectors.names(), key=lambda name: selectors[name].changes_architecture)
    counts: dict[str, Any] = {}
    for name in names:
        selector = cast("Selector", selectors[name]())
        before = sum(p.numel() for p in model.parameters())
        try:
            selector.check(model)
            selector.extend(model, torch.Generator())
            sizes = {key: value.numel() for key, value in model.named_parameters()}
            trained = sum(sizes[key] for key in selector.names(model))
        except AcclimateError as error:
            counts[name] = {"parameters": 0, "added": 0, "why": str(error)}
        else:
            counts[name] = {"parameters": trained, "added": sum(sizes.values()) - before}
    return counts


def _selectors(counts: dict[str, Any]) -> str:
    rows = []
    for name, count in counts.items():
        added = f"of which {count['added']:,} are added" if count["added"] else ""
        why = count.get("why", added).partition(";")[0]
        rows.append([f"  {name}", f"{count['parameters']:,}", why])
    return Table(rows).text()


def _presets(presets: list[dict[str, Any]]) -> str:
    rows = []
    for each in presets:
        rate, size = f"learning rate {each['lr']:g}", f"batches of {each['batch_size']}"
        statistics = "source statistics" if each["source_statistics"] else ""
        rows.append([f"  {each['recipe']}", rate, size, f"{each['epochs']} epoch(s)", statistics])
    none = "  none; rates and epochs are chosen by the number of images"
    return Table(rows).text() if rows else none


def _show_recipe(args: argparse.Namespace) -> int:
    """Print the parts and options of a recipe, and the alternatives to each part."""
    from acclimate.methods import PARTS
    from acclimate.methods.registry import get_recipe

    for option in ("weights", "num_classes"):
        if getattr(args, option) is not None:
            raise AcclimateError(f"--{option.replace('_', '-')} is for show model")
    recipe = get_recipe(args.name)
    if args.json:
        print(json.dumps(recipe.to_dict(), ensure_ascii=False))
        return 0
    # The parts worth showing: without an objective most are empty.
    slots = [name for name in PARTS if name in {"objective", *recipe.parts()}]
    rows = dict(_options(recipe, slots))
    print(fill(f"{recipe.name}: {recipe.summary}", width=79), end="\n\n")
    print(Table(list(rows.items()), header=["option", "value"]).text())
    print("\nAlternatives")
    for slot in slots:
        others = [name for name in PARTS[slot].names() if name != rows[slot]]
        line = f"  {slot:<15}{' '.join(others)}"
        print(fill(line, width=79, subsequent_indent=" " * 17, break_on_hyphens=False))
    print(
        "\n--set OPTION=VALUE changes one: "
        f"acclimate adapt ... --recipe {recipe.name} --set epochs=3"
    )
    return 0


def _options(recipe: Recipe, slots: Collection[str]) -> Iterator[tuple[str, str]]:
    """Options as ``--set`` takes them, and their values; those of a part after its kind."""
    from acclimate.methods import PARTS

    for name, value in recipe.to_dict().items():
        if name in slots:
            options = {"kind": None} if value is None else dict(value)
            yield name, _word(name, options.pop("kind"))
            for option, each in options.items():
                yield f"{name}.{option}", _word(f"{name}.{option}", each)
        elif name not in (*PARTS, "name", "summary"):
            yield name, _word(name, value)


def _word(name: str, value: Any) -> str:
    if name == "optimizer.lr" and value is None:
        return "the paper's, or 0.001"
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return value_word(value)
