"""``acclimate pretrain``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

from acclimate._version import __version__
from acclimate.errors import AcclimateError, unknown_name
from acclimate.options import parse_assignments, parse_value

__all__ = ["add_options", "run"]

MODEL, SUMMARY = "model.safetensors", "summary.json"


def add_options(parser: Any) -> None:
    """The options of the command."""
    add = parser.add_argument
    add("--model", metavar="SPEC", required=True, help="an architecture, acclimate:wrn-40-2, ...")
    add("--method", metavar="NAME", default="vanilla", help="vanilla, augmix, dann, uda-ss, ...")
    add("--set", metavar="OPTION=VALUE", action="append", help="change the method or the plan")
    add("--dataset", metavar="NAME", default="cifar10", help="default: %(default)s")
    add("--root", metavar="DIR", required=True, help="where it lies; nothing is downloaded")
    add("--target", metavar="NAME", help="of dann, uda-ss, self-ensembling: the other domain")
    add("--target-root", metavar="DIR", help="where that lies (default: --root)")
    add("--epochs", type=int, default=30, help="default: %(default)s")
    add("--batch-size", type=int, default=256, metavar="N", help="default: %(default)s")
    add("--lr", type=float, default=0.4, help="peak of the learning rate (default: %(default)s)")
    add("--compile", action="store_true", help="torch.compile the model: worth it on a GPU")
    add("--incomplete", action="store_true", help="take a data set with gaps")
    add("--out", metavar="DIR", required=True, help="checkpoint, model and summary go there")


def run(args: argparse.Namespace) -> int:
    """Train, score on the test split, and write model and summary."""
    import torch

    from acclimate.checkpoint import json_writer, tensors_writer, write_files
    from acclimate.copying import choose_device
    from acclimate.data import open_dataset
    from acclimate.evaluation import evaluate
    from acclimate.models import load
    from acclimate.pretraining import METHODS, Plan, load_examples, pretrain, read_pictures

    kind = METHODS[args.method]
    for_plan, for_method = _sorted_options(args.set or [], Plan, kind)
    asked = {"epochs": args.epochs, "batch_size": args.batch_size, "lr": args.lr}
    plan, method = Plan(**asked, seed=args.seed, **for_plan), kind(**for_method)
    device, out = choose_device(args.device), _folder(args.out)
    torch.manual_seed(args.seed)
    loaded = load(args.model)
    opened = {"preprocessing": loaded.preprocessing, "incomplete": args.incomplete}
    opened |= {"progress": not args.quiet}
    source = open_dataset(args.dataset, args.root, split="train", **opened)
    scored = {"source": open_dataset(args.dataset, args.root, split="test", **opened)}
    target = None
    if args.target is not None:
        root = args.target_root or args.root
        target = open_dataset(args.target, root, split="train", **opened)
        scored["target"] = open_dataset(args.target, root, split="test", **opened)
    trained = pretrain(
        loaded.model,
        load_examples(source, device),
        method,
        plan,
        target=None if target is None else read_pictures(target, device),
        out=out,
        identity={
            "model": args.model,
            "data": source.fingerprint(),
            "target": None if target is None else target.fingerprint(),
        },
        compiled=args.compile,
        progress=not args.quiet,
    )
    # What is scored is what is written: the same numbers, rounded to half precision.
    half = {
        key: value.half() if value.is_floating_point() else value
        for key, value in loaded.model.state_dict().items()
    }
    if not all(bool(torch.isfinite(value.float()).all()) for value in half.values()):
        raise AcclimateError("the training diverged: weights are not finite; use a smaller --lr")
    loaded.model.load_state_dict(half)
    errors = {
        domain: evaluate(loaded.model, images, device=device, progress=not args.quiet)
        .errors.error(interval=0.95)
        for domain, images in scored.items()
    }  # fmt: skip
    summary = {
        "model": args.model,
        "method": repr(method),
        "plan": vars(plan),
        "dataset": args.dataset,
        "train_images": len(source),
        "train_fingerprint": source.fingerprint(),
        "preprocessing": loaded.preprocessing.describe() if loaded.preprocessing else None,
        "target": args.target,
        "error": {domain: vars(error) for domain, error in errors.items()},
        "losses": trained.losses,
        "seconds": round(trained.seconds, 1),
        "device": device.type,
        "command": " ".join(["acclimate", *sys.argv[1:]]),
        "versions": {
            "acclimate": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    write_files({out / MODEL: tensors_writer(half), out / SUMMARY: json_writer(summary)})
    if args.json:
        print(json.dumps({"out": str(out), **summary}))
    else:
        for domain, error in errors.items():
            print(f"{args.model}, {args.method}: error on the {domain} {error}")
        print(f"{trained.seconds:.0f} s of training")
        print(f"written to {out}: {MODEL}, {SUMMARY}")
    return 0


def _sorted_options(words: list[str], *kinds: Any) -> list[dict[str, Any]]:
    """What ``--set`` changes, as the options of each of several dataclasses, in their types."""
    found: list[dict[str, Any]] = [{} for _ in kinds]
    for key, value in parse_assignments(words).items():
        for kind, options in zip(kinds, found, strict=True):
            field = kind.__dataclass_fields__.get(key)
            if field is not None:
                several = str(field.type).startswith("tuple")
                parsed = value.split(",") if several else parse_value(key, value, str(field.type))
                options[key] = tuple(parsed) if several else parsed
                break
        else:
            known = [name for kind in kinds for name in kind.__dataclass_fields__]
            raise unknown_name("option", key, known)
    return found


def _folder(out: str) -> Path:
    """Where to write, tried before an hour of training is spent."""
    folder = Path(out).expanduser()
    probe = folder / ".probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise AcclimateError(f"cannot write to --out {out!r}: {error.strerror}") from error
    return folder
