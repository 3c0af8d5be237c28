"""Options for models and images that several commands share."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.errors import AcclimateError

if TYPE_CHECKING:
    from acclimate.data import Preprocessing
    from acclimate.models import LoadedModel

__all__ = [
    "add_image_options",
    "add_model_options",
    "check_path",
    "check_source",
    "images_to_adapt",
    "load_model",
    "want_record",
]


def add_model_options(parser: Any) -> None:
    """--model and how to fill and feed it."""
    add = parser.add_argument
    prefixes = "torchvision:, timm:, hf:, paper:, acclimate: or py:package.module:function"
    add("--model", metavar="SPEC", help=prefixes)
    add("--weights", metavar="FILE", help="weights to fill it with: safetensors or a state dict")
    count = "the class count of --weights, where it is not the architecture's own"
    add("--num-classes", type=int, metavar="N", help=count)
    trust = "trust --weights enough to unpickle it"
    add("--unsafe-pickle", action="store_true", default=None, help=trust)
    add("--size", type=int, metavar="PX", help="input size, where the model has no record of it")
    add("--resize", type=int, metavar="PX", help="with --size: shorter side before the centre crop")
    scale = "with --size: one value per channel (default: ImageNet's)"
    add("--mean", type=float, nargs="+", metavar="X", help=scale)
    add("--std", type=float, nargs="+", metavar="X", help=scale)


def add_image_options(parser: Any, *, many: bool) -> None:
    """--images or --dataset, and the shift to see them through."""
    add = parser.add_argument
    add("--images", metavar="PATH", help="a folder of images, an .npz or .npy file, .tar shards")
    add("--dataset", metavar="NAME", help="a benchmark instead (see acclimate list datasets)")
    add("--root", metavar="DIR", help="with --dataset: where it lies; nothing is downloaded")
    add("--split", metavar="NAME", help="with --dataset: which part (default: its test split)")
    add("--incomplete", action="store_true", default=None, help="take a data set with gaps")
    own = "fog:3 of a benchmark that has it, or made on the way: imagenet/fog:3 (@7: another draw)"
    if many:
        groups = "; also fog, dev, test, all"
        add("--shift", metavar="SHIFT", action="append", help=f"repeatable: {own}{groups}")
    else:
        add("--shift", metavar="SHIFT", help=own)


def check_path(images: str, option: str = "--images") -> None:
    """Refuse a path where nothing is, before anything slow happens."""
    if not Path(images).expanduser().exists() and "{" not in images and "*" not in images:
        raise AcclimateError(f"no such folder or file: {images}; check {option}")


def check_source(args: argparse.Namespace) -> None:
    """Either --images or --dataset with --root, and nothing that needs the other."""
    if args.images is not None and args.dataset is not None:
        raise AcclimateError("expected --images or --dataset, got both")
    if args.dataset is None:
        for option in ("root", "split", "incomplete"):
            if getattr(args, option) is not None:
                raise AcclimateError(f"--{option} needs --dataset")
    elif args.root is None:
        from acclimate.data.benchmarks import find_dataset

        how = find_dataset(args.dataset).how_to_get(Path("ROOT"))
        raise AcclimateError(f"--dataset {args.dataset} needs --root\n{how}")
    if args.images is not None:
        check_path(args.images)
        if isinstance(args.shift, str):
            from acclimate.data import Shift

            Shift.parse(args.shift)  # a typo shows before a model is loaded


def images_to_adapt(args: argparse.Namespace, loaded: LoadedModel) -> tuple[Any, str | None]:
    """What to adapt to, and the shift to see it through, if it does not bring its own."""
    if args.dataset is None:
        want_record(args.images, loaded)
        return args.images, args.shift
    from acclimate.data.benchmarks import find_dataset, open_dataset

    record = find_dataset(args.dataset)
    own, severity = _own_shift(args.shift) if record.shifts else (None, None)
    source = open_dataset(
        args.dataset,
        args.root,
        split=args.split,
        shift=own,
        severity=severity,
        preprocessing=loaded.preprocessing,
        classes=loaded.classes,
        progress=not args.quiet,
        incomplete=bool(args.incomplete),
    )
    return source, None if record.shifts else args.shift


def _own_shift(shift: str | None) -> tuple[str | None, int | None]:
    if shift is not None and "/" in shift:
        raise AcclimateError(
            f"this data set brings its own shifts, got {shift!r}; leave out the preset"
        )
    name, colon, severity = (shift or "").partition(":")
    if colon and not severity.isdecimal():
        raise AcclimateError(f"expected a shift as NAME or NAME:SEVERITY, got {shift!r}")
    return name or None, int(severity) if colon else None


def want_record(images: str, loaded: LoadedModel) -> None:
    """Refuse a folder for a model that nobody knows how to feed."""
    if loaded.preprocessing is None and Path(images).is_dir():
        raise AcclimateError(
            f"{loaded.name} has no record of how it wants its images; say so with --size 224 "
            "--resize 256 --mean ... --std ..., or let the py: function return a LoadedModel"
        )


def load_model(args: argparse.Namespace, *, trained: bool = True) -> LoadedModel:
    """The model, with the preprocessing that was asked for or its own."""
    from acclimate.models import load, want_trained

    if trained:
        want_trained(args.model, args.weights)
    preprocessing = _preprocessing(args)
    loaded = load(
        args.model,
        weights=args.weights,
        num_classes=args.num_classes,
        unsafe_pickle=bool(args.unsafe_pickle),
    )
    return replace(loaded, preprocessing=preprocessing or loaded.preprocessing)


def _preprocessing(args: argparse.Namespace) -> Preprocessing | None:
    from acclimate.data import Preprocessing

    if args.size is None:
        for option in ("resize", "mean", "std"):
            if getattr(args, option) is not None:
                raise AcclimateError(f"--{option} needs --size")
        return None
    asked = Preprocessing(size=(args.size, args.size), resize=args.resize)
    mean, std = tuple(args.mean or asked.mean), tuple(args.std or asked.std)
    return replace(asked, mean=mean, std=std)
