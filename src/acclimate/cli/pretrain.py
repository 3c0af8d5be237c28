"""``acclimate pretrain``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate._version import __version__
from acclimate.cli.images import load_model
from acclimate.cli.options import add_command, add_device, add_json, add_model, add_quiet
from acclimate.errors import AcclimateError
from acclimate.lock import claimed
from acclimate.text import user_path

if TYPE_CHECKING:
    from torch import Tensor, nn

    from acclimate.models import LoadedModel
    from acclimate.pretraining import Method, Plan

__all__ = ["add_parser", "plan_and_method"]

_DESCRIPTION = """\
Train a source model on a benchmark data set on this machine.

OUT/model.safetensors (half precision) is what --weights takes;
OUT/summary.json records how it was made. The same command resumes where it
was stopped.

examples:
  acclimate pretrain --model acclimate:wrn-40-2 --method augmix --root data/ \\
      --out wrn/
  acclimate pretrain --model acclimate:wrn-26-2-bn --method uda-ss \\
      --dataset mnist --target mnist-m --root data/ --out digits/
"""

MODEL, SUMMARY = "model.safetensors", "summary.json"


def add_parser(commands: Any) -> None:
    """``acclimate pretrain`` and its options."""
    groups = add_command(
        commands,
        "pretrain",
        run,
        summary="train a source model: plainly, with AugMix, or on two domains",
        description=_DESCRIPTION,
        usage="--model SPEC --root DIR --out DIR [options]",
        resumes_from="out",
    )
    add_model(groups)
    add = groups.data.add_argument
    add("--dataset", metavar="NAME", default="cifar10", help="default: %(default)s")
    add("--root", metavar="DIR", required=True, help="its folder; nothing is downloaded")
    other = "the other domain: dann, uda-ss, self-ensembling learn from it, others only score it"
    add("--target", metavar="NAME", help=other)
    add("--target-root", metavar="DIR", help="folder of the target (default: --root)")
    shifts = "corrupt the target, as cifar/fog:3; repeatable"
    add("--target-shift", metavar="SHIFT", action="append", default=[], help=shifts)
    add("--incomplete", action="store_true", help="accept a data set with missing files")
    add = groups.method.add_argument
    add("--method", metavar="NAME", default="vanilla", help="vanilla, augmix, dann, uda-ss, ...")
    change = "an option of the method or the plan: margin=2; repeatable"
    add("--set", metavar="OPTION=VALUE", action="append", help=change)
    add("--epochs", type=int, metavar="N", default=30, help="default: %(default)s")
    add("--batch-size", type=int, default=256, metavar="N", help="default: %(default)s")
    peak = "peak of the learning rate (default: %(default)s)"
    add("--lr", type=float, metavar="X", default=0.4, help=peak)
    out = "checkpoint, model and summary go there"
    groups.output.add_argument("--out", metavar="DIR", required=True, help=out)
    add_json(groups)
    add_quiet(groups)
    add_device(groups)
    compiled = "torch.compile the model: worth it on a GPU"
    groups.running.add_argument("--compile", action="store_true", help=compiled)


def run(args: argparse.Namespace) -> int:
    """Train, score on the test split, and write model and summary."""
    if args.model is None:
        raise AcclimateError("expected --model, an architecture such as acclimate:wrn-40-2")
    plan, method = plan_and_method(args)
    with claimed(user_path(args.out)) as out:  # tried before an hour of training is spent
        return _run(args, plan, method, out)


def _run(args: argparse.Namespace, plan: Plan, method: Method, out: Path) -> int:
    import torch

    from acclimate.bench.scoring import evaluate
    from acclimate.checkpoint import tensors_writer
    from acclimate.files import json_writer, write_files
    from acclimate.models.device import choose_device
    from acclimate.models.record import model_metadata
    from acclimate.pretraining import load_examples, open_case, pretrain
    from acclimate.pretraining.starting import fitted_to, trained_before

    device = choose_device(args.device)
    torch.manual_seed(args.seed)
    loaded = load_model(args, trained=False)
    case = open_case(
        args.dataset,
        args.root,
        target=args.target,
        target_root=args.target_root,
        target_shifts=args.target_shift,
        preprocessing=loaded.preprocessing,
        device=device,
        learnt_from=method.uses_target,
        incomplete=args.incomplete,
        progress=not args.quiet,
    )
    loaded = fitted_to(case.source, loaded, seed=args.seed)
    before, notes = trained_before(loaded), []
    if before is not None:
        notes.append(
            f"{args.model} starts from weights that were trained before ({before}); to train "
            "from scratch, name a bare architecture (acclimate list models)"
        )
    if args.target is not None and not method.uses_target:
        notes.append(f"{args.method} does not learn from the target; {args.target} is only scored")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    data = case.identity()  # read once: it hashes every image
    trained = pretrain(
        loaded.model,
        load_examples(case.source, device),
        method,
        plan,
        target=case.target_images(device),
        out=out,
        identity=_identity(args, loaded, method, data),
        compiled=args.compile,
        progress=not args.quiet,
    )
    half = _rounded(loaded.model)
    errors = {
        domain: evaluate(loaded.model, images, device=device, progress=not args.quiet)
        .errors.error(interval=0.95)
        for domain, images in case.scored.items()
    }  # fmt: skip
    summary = {
        "model": args.model,
        "starts_from": before,
        "method": repr(method),
        "plan": vars(plan),
        "dataset": args.dataset,
        "train_images": len(case.source),
        "train_fingerprint": data["data"],
        "preprocessing": loaded.preprocessing.describe() if loaded.preprocessing else None,
        "target": args.target,
        "target_shifts": args.target_shift,
        "target_learnt_from": bool(case.targets),
        "error": {domain: vars(error) for domain, error in errors.items()},
        "losses": trained.losses,
        "seconds": round(trained.seconds, 1),
        "notes": notes,
        "device": device.type,
        "command": " ".join(["acclimate", *sys.argv[1:]]),
        "versions": {
            "acclimate": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
    files = {out / name: tensors_writer(tensors) for name, tensors in trained.files.items()}
    files[out / MODEL] = tensors_writer(half, model_metadata(loaded))
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
    from acclimate.pretraining.plan import sorted_options

    kind = METHODS[args.method]
    asked = {name: getattr(args, name) for name in ("epochs", "batch_size", "lr", "seed")}
    for_plan, for_method = sorted_options(args.set or [], kind, elsewhere=asked)
    return Plan(**asked, **for_plan), kind(**for_method)


def _rounded(model: nn.Module) -> dict[str, Tensor]:
    """The weights in half precision, which the model is given: what is scored is what is kept."""
    import torch

    half = {
        key: value.half() if value.is_floating_point() else value
        for key, value in model.state_dict().items()
    }
    if not all(bool(torch.isfinite(value.float()).all()) for value in half.values()):
        raise AcclimateError("the training diverged: weights are not finite; use a smaller --lr")
    model.load_state_dict(half)
    return half


def _identity(
    args: argparse.Namespace, loaded: LoadedModel, method: Method, data: dict[str, Any]
) -> dict[str, Any]:
    """What two commands have to share, beside plan and method, for one to resume the other."""
    fed = loaded.preprocessing if args.size is not None else None
    identity = {
        "model": args.model,
        "weights": args.weights,
        "preprocessing": None if fed is None else fed.describe(),
        **data,
    }
    if not method.uses_target:
        del identity["target"]  # it is scored at the end, by whichever command is the last
    return identity
