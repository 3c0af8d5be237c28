"""``acclimate pretrain``."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.options import parse_assignments

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

    options = parse_assignments(args.set or [])
    method = _made(METHODS[args.method], options, f"method {args.method}")
    plan = Plan(epochs=args.epochs, batch_size=args.batch_size, lr=args.lr, seed=args.seed)
    device = choose_device(args.device)
    torch.manual_seed(args.seed)
    loaded = load(args.model)
    out = Path(args.out).expanduser()
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
        compiled=args.compile,
        progress=not args.quiet,
    )
    errors = {
        domain: evaluate(loaded.model, images, device=device, progress=not args.quiet)
        .errors.error(interval=0.95)
        for domain, images in scored.items()
    }  # fmt: skip
    half = {
        key: value.half() if value.is_floating_point() else value
        for key, value in loaded.model.state_dict().items()
    }
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
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
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


def _made(kind: Any, options: dict[str, Any], what: str) -> Any:
    try:
        return kind(**options)
    except TypeError as error:
        fields = ", ".join(kind.__dataclass_fields__)
        raise AcclimateError(
            f"{what} has the options {fields}; got {', '.join(options)}"
        ) from error
