"""``acclimate corrupt``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.cli.images import check_path
from acclimate.cli.options import add_command, add_json, add_quiet
from acclimate.errors import AcclimateError
from acclimate.text import user_path

if TYPE_CHECKING:
    from acclimate.data import ImageSource

__all__ = ["add_parser"]

_DESCRIPTION = """\
Turn clean images into a corrupted data set on disk.

imagenet: OUT/fog/3/CLASS/NAME.JPEG, quality 85. cifar: OUT/fog.npy, five
severities in a row, and labels.npy; a single severity becomes OUT/fog-3.npz.
OUT/manifest.json holds seed and constants. Other commands need none of this:
--images clean/ --shift imagenet/fog:3 corrupts images on the fly.

examples:
  acclimate corrupt imagenet/val imagenet-c --preset imagenet
  acclimate corrupt cifar10-test.npz cifar10-c --preset cifar --shift test
  acclimate corrupt photos/ foggy/ --preset imagenet --shift fog:3
"""


def add_parser(commands: Any) -> None:
    """``acclimate corrupt`` and its options."""
    groups = add_command(
        commands,
        "corrupt",
        run,
        summary="make an ImageNet-C or CIFAR-10-C of your own images",
        description=_DESCRIPTION,
        usage="SRC OUT --preset {imagenet,cifar} [options]",
        data="images",
        resumes_from="out",
    )
    add = groups.data.add_argument
    add("source", metavar="SRC", help="a folder of images, or an .npz or .npy file")
    add("out", metavar="OUT", help="a new folder; the same command resumes in it")
    add = groups.method.add_argument
    add("--preset", choices=["imagenet", "cifar"], required=True, help="constants and layout")
    which = "all, dev, test, NAME or NAME:SEVERITY; repeatable (default: all)"
    add("--shift", metavar="SHIFT", action="append", help=which)
    add("--size", type=int, metavar="PX", help="of folders: default 224 for imagenet, 32 for cifar")
    add("--seed", type=int, default=0, metavar="N", help="default: %(default)s")
    add_json(groups)
    add_quiet(groups)
    threads = "threads (default: one for each core)"
    groups.running.add_argument("--workers", type=int, metavar="N", help=threads)


# Shorter side before the crop, and the crop: how the images of the benchmarks were prepared.
_SIDES = {"imagenet": (256, 224), "cifar": (32, 32)}


def run(args: argparse.Namespace) -> int:
    """Write the data set and print what was made."""
    from acclimate.data.corrupted import check_call, write_corrupted

    shifts, out = args.shift or ["all"], user_path(args.out)
    options = {"preset": args.preset, "shifts": shifts, "seed": args.seed, "workers": args.workers}
    check_path(args.source, "SRC")
    check_call(out, **options)  # a mistake shows before the images are read
    _check_apart(user_path(args.source), out)
    source = _open(args)
    written = write_corrupted(source, out, **options, progress=not args.quiet)
    if args.json:
        plain = {"out": str(written.out), "made": written.made, "kept": written.kept}
        print(json.dumps({**plain, "skipped": len(source.skipped)}))
        return 0
    kept = f", {written.kept:,} were there before" if written.kept else ""
    print(f"{written.made:,} images written to {written.out}{kept}")
    return 0


def _check_apart(source: Path, out: Path) -> None:
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        raise AcclimateError(
            f"expected OUT outside of SRC, got {out} in {source}, where what is written would be "
            "read as clean images the next time"
        )


def _open(args: argparse.Namespace) -> ImageSource:
    from acclimate.data import Preprocessing, open_images
    from acclimate.data.arrays import load_arrays
    from acclimate.data.decode import channels_first
    from acclimate.data.labels import BY_INDEX

    path = user_path(args.source)
    if path.suffix.lower() in (".npy", ".npz"):
        if args.size is not None:
            raise AcclimateError("--size is for folders; the images of an array keep their size")
        images, labels = load_arrays(path)
        channels, height, width = channels_first(images).shape[1:]
        mean, std = (0.0,) * channels, (1.0,) * channels
        as_they_are = Preprocessing(size=(height, width), mean=mean, std=std)
        return open_images(images, preprocessing=as_they_are, labels=labels)
    resize, side = _SIDES[args.preset]
    if args.size is not None:
        resize, side = round(args.size * resize / side), args.size
    prepared = Preprocessing(size=(side, side), resize=resize)
    return open_images(path, preprocessing=prepared, labels=BY_INDEX, progress=not args.quiet)
