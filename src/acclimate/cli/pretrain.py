"""``acclimate pretrain``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate._version import __version__
from acclimate.errors import AcclimateError, unknown_name
from acclimate.options import parse_assignments, parse_value

if TYPE_CHECKING:
    from acclimate.data import ImageSource
    from acclimate.models import LoadedModel
    from acclimate.pretraining import Method, Plan

__all__ = ["add_options", "plan_and_method", "run"]

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
    shifts = "see the target through a corruption, cifar/fog:3; repeatable"
    add("--target-shift", metavar="SHIFT", action="append", default=[], help=shifts)
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
    from acclimate.evaluation import evaluate
    from acclimate.models import load
    from acclimate.models.written import written_record
    from acclimate.pretraining import load_examples, open_case, pretrain

    plan, method = plan_and_method(args)
    device, out = choose_device(args.device), _folder(args.out)
    torch.manual_seed(args.seed)
    loaded = load(args.model)
    case = open_case(
        args.dataset,
        args.root,
        target=args.target,
        target_root=args.target_root,
        target_shifts=args.target_shift,
        preprocessing=loaded.preprocessing,
        device=device,
        incomplete=args.incomplete,
        progress=not args.quiet,
    )
    loaded = _for_classes_of(case.source, loaded, seed=args.seed)
    data = case.identity()  # read once: it hashes every picture
    trained = pretrain(
        loaded.model,
        load_examples(case.source, device),
        method,
        plan,
        target=case.target_pictures(device),
        out=out,
        identity={"model": args.model, **data},
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
        for domain, images in case.scored.items()
    }  # fmt: skip
    summary = {
        "model": args.model,
        "method": repr(method),
        "plan": vars(plan),
        "dataset": args.dataset,
        "train_images": len(case.source),
        "train_fingerprint": data["data"],
        "preprocessing": loaded.preprocessing.describe() if loaded.preprocessing else None,
        "target": args.target,
        "target_shifts": args.target_shift,
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
    files = {out / name: tensors_writer(tensors) for name, tensors in trained.files.items()}
    files[out / MODEL] = tensors_writer(half, written_record(loaded))
    files[out / SUMMARY] = json_writer(summary)
    write_files(files)
    if args.json:
        print(json.dumps({"out": str(out), **summary}))
    else:
        for domain, error in errors.items():
            print(f"{args.model}, {args.method}: error on the {domain} {error}")
        print(f"{trained.seconds:.0f} s of training")
        print(f"written to {out}: {', '.join(path.name for path in files)}")
    return 0


def plan_and_method(args: argparse.Namespace) -> tuple[Plan, Method]:
    """What the options ask for."""
    from acclimate.pretraining import METHODS, Plan

    kind = METHODS[args.method]
    for_plan, for_method = _sorted_options(args.set or [], Plan, kind)
    asked = {"epochs": args.epochs, "batch_size": args.batch_size, "lr": args.lr}
    return Plan(**asked, seed=args.seed, **for_plan), kind(**for_method)


def _for_classes_of(source: ImageSource, loaded: LoadedModel, *, seed: int) -> LoadedModel:
    """The model with an output for every class of the data, made anew if it has others."""
    import torch

    from acclimate.data import ClassList
    from acclimate.models import load

    names = source.class_names
    if not names or loaded.classes is None:
        return loaded
    if len(names) != len(loaded.classes):
        torch.manual_seed(seed)
        loaded = load(loaded.name, num_classes=len(names))
    return replace(loaded, classes=ClassList(tuple(names)))


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
