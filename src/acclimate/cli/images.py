"""Models and images from the options that several commands share."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.text import user_path

if TYPE_CHECKING:
    from acclimate.data import ImageSource, Preprocessing
    from acclimate.models import LoadedModel

__all__ = [
    "check_path",
    "check_source",
    "images_to_adapt",
    "load_model",
    "open_source",
    "want_record",
]


def check_path(images: str, option: str = "--images") -> None:
    """Refuse a missing path before anything slow happens."""
    if not images:
        raise AcclimateError(f"expected {option} PATH, got an empty name; '.' is this folder")
    if not user_path(images).exists() and "{" not in images and "*" not in images:
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
    labels = getattr(args, "labels", None)
    if labels is not None and args.dataset is not None:
        raise AcclimateError("--labels and --no-labels are for --images; a --dataset has its own")
    if labels not in (None, "index", "none"):
        check_path(labels, "--labels")
    if args.images is not None:
        check_path(args.images)
        if isinstance(args.shift, str):
            from acclimate.data.shifted import made_shift

            made_shift(args.shift)  # a typo shows before a model is loaded


def images_to_adapt(args: argparse.Namespace, loaded: LoadedModel) -> tuple[Any, str | None]:
    """What to adapt to, and the shift to apply, where it does not have its own."""
    if args.dataset is None:
        want_record(args.images, loaded)
        return args.images, args.shift
    from acclimate.data.benchmarks import find_dataset, open_dataset

    record = find_dataset(args.dataset)
    own = None
    if record.shifts and args.shift is not None:
        own = Shift.parse(args.shift)
        if own.preset or own.seed:
            raise AcclimateError(
                f"this data set has its own shifts, got {args.shift!r}; leave out the preset and "
                "the draw"
            )
    source = open_dataset(
        args.dataset,
        args.root,
        split=args.split,
        shift=own.name if own else None,
        severity=own.severity if own else None,
        preprocessing=loaded.preprocessing,
        classes=loaded.classes,
        progress=not args.quiet,
        incomplete=bool(args.incomplete),
    )
    return source, None if record.shifts else args.shift


def open_source(args: argparse.Namespace, loaded: LoadedModel) -> ImageSource:
    """The same, opened as ``adapt`` would; sub-folders taken for labels are announced."""
    from acclimate import parallel
    from acclimate.adaptation.adapt import announce_labels
    from acclimate.data import open_images
    from acclimate.models.device import choose_device

    with parallel.together():
        data, shift = images_to_adapt(args, loaded)
        images = open_images(
            data,
            preprocessing=loaded.preprocessing,
            labels=args.labels,
            classes=loaded.classes,
            shift=shift,
            device=choose_device(args.device),
            progress=not args.quiet and parallel.is_main(),
        )
    if args.images is not None and not args.quiet and parallel.is_main():
        announce_labels(images)
    return images


def want_record(images: str, loaded: LoadedModel) -> None:
    """Refuse a folder for a model without known preprocessing."""
    if loaded.preprocessing is None and Path(images).is_dir():
        raise AcclimateError(
            f"{loaded.name} has no record of its preprocessing; add --size 224 --resize 256 "
            "--mean ... --std ..., or let the py: function return a LoadedModel"
        )


def load_model(args: argparse.Namespace, *, trained: bool = True) -> LoadedModel:
    """The model, with the preprocessing that was asked for or its own."""
    from acclimate.models import load, want_trained

    if trained:
        want_trained(args.model, args.weights)
    _check_preprocessing(args)
    loaded = load(
        args.model,
        weights=args.weights,
        num_classes=args.num_classes,
        unsafe_pickle=bool(args.unsafe_pickle),
    )
    if args.size is None:
        return loaded
    return replace(loaded, preprocessing=_resized(args, loaded.preprocessing))


def _check_preprocessing(args: argparse.Namespace) -> None:
    """Refuse what can be refused before a model is loaded."""
    from acclimate.data import Preprocessing

    if args.size is not None:
        Preprocessing(size=(args.size, args.size), resize=args.resize)
        return
    for option in ("resize", "mean", "std"):
        if getattr(args, option) is not None:
            raise AcclimateError(f"--{option} needs --size")


def _resized(args: argparse.Namespace, own: Preprocessing | None) -> Preprocessing:
    """The model's own record at the size asked for; without one, with ImageNet's colour scale."""
    from acclimate.data import Preprocessing

    size = (args.size, args.size)
    sized = replace(own or Preprocessing(size=size), size=size, resize=args.resize)
    mean, std = tuple(args.mean or sized.mean), tuple(args.std or sized.std)
    return replace(sized, mean=mean, std=std)
