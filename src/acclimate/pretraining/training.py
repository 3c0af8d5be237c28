"""The one training loop: epochs over examples on the device, a checkpoint after each, resume."""

from __future__ import annotations

import ast
import operator
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from acclimate.checkpoint import read_checkpoint, write_checkpoint
from acclimate.errors import AcclimateError
from acclimate.learner.state import pack, under, unpack
from acclimate.lock import claimed
from acclimate.pretraining.data import Examples
from acclimate.pretraining.methods import Method
from acclimate.pretraining.plan import Plan
from acclimate.pretraining.stepping import Stepper

__all__ = ["CHECKPOINT", "Trained", "differences", "pretrain"]

CHECKPOINT = "pretrain.safetensors"


@dataclass
class Progress:
    """How far a training is: epochs, their mean losses, and the seconds they took."""

    epoch: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


def _save(path: Path, stepper: Stepper, identity: Mapping[str, Any], progress: Progress) -> None:
    """Write all of a training or, where that fails, nothing."""
    tensors = {f"state/{k}": v for k, v in stepper.together.state_dict().items()}
    tensors |= {f"optimizer/{k}": v for k, v in pack(stepper.optimizer).items()}
    record = {
        **identity,
        "plan": asdict(stepper.plan),
        "method": repr(stepper.method),
        "revision": stepper.method.revision,
        **asdict(progress),
    }
    write_checkpoint(path, tensors, record)


def _restored(path: Path, stepper: Stepper, identity: Mapping[str, Any]) -> Progress:
    """Put back what was saved, if it is of this training; a file that is not is left alone."""
    try:
        found = read_checkpoint(path)
    except AcclimateError as error:
        raise AcclimateError(f"{error}; delete that file to start anew") from error
    if found is None:
        return Progress()
    tensors, record = found
    try:
        progress = Progress(
            epoch=operator.index(record["epoch"]),
            losses=[float(each) for each in record["losses"]],
            seconds=float(record["seconds"]),
        )
        others = differences(record, stepper.plan, stepper.method, identity)
        if others:
            raise AcclimateError(
                f"{path} is of another training ({', '.join(others)}); choose another folder"
            )
        try:
            stepper.together.load_state_dict(under("state/", tensors))
        except RuntimeError as error:
            first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
            raise AcclimateError(f"{path} is of another architecture: {first}") from error
        unpack(stepper.optimizer, under("optimizer/", tensors))
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise AcclimateError(
            f"{path} is damaged or no checkpoint of pretrain ({type(error).__name__}: "
            f"{error}); delete that file to start anew"
        ) from error
    return progress


def differences(
    record: Mapping[str, Any], plan: Plan, method: Method, identity: Mapping[str, Any]
) -> list[str]:
    """In what a stored training differs from the one asked for, option by option.

    Options that came later had their defaults, so that older trainings can be resumed.

    >>> from acclimate.pretraining import Vanilla
    >>> record = {"plan": {"epochs": 5}, "method": "Vanilla(margin=2)", "data": "abc"}
    >>> differences(record, Plan(epochs=6), Vanilla(), {"data": "abc"})
    ['epochs: 5, now 6', 'margin: 2, now 4']
    """
    call = ast.parse(record["method"], mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError(f"expected a method with its options, got {record['method']!r}")
    kind, now = ast.unparse(call.func), type(method).__name__
    pairs = [(name, record.get(name), value) for name, value in identity.items()]
    pairs += _options(record["plan"], plan)
    pairs.append(("method", kind, now))
    if kind == now:
        pairs += _options({str(k.arg): ast.literal_eval(k.value) for k in call.keywords}, method)
        revision = f"the computation of {kind}, by revision"
        pairs.append((revision, record.get("revision", 1), method.revision))
    return [f"{name}: {then}, now {value}" for name, then, value in pairs if then != value]


def _options(stored: Mapping[str, Any], options: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, stored value and value now of the fields of a dataclass."""
    before = {each.name: each.default for each in fields(options)} | dict(stored)
    return ((name, value, getattr(options, name, "no option")) for name, value in before.items())


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        losses: the mean of each epoch.
        seconds: spent on the epochs, in all processes if it was resumed.
        files: what the method leaves beside the model, tensors by file name.
    """

    losses: list[float]
    seconds: float
    files: dict[str, dict[str, Tensor]] = field(default_factory=dict)


def pretrain(
    model: nn.Module,
    examples: Examples,
    method: Method,
    plan: Plan,
    *,
    target: Tensor | None = None,
    out: Path | None = None,
    identity: Mapping[str, Any] | None = None,
    compiled: bool | str = False,
    progress: bool = True,
) -> Trained:
    """Train a model in place, on the device of the examples.

    ``target`` has images of the other domain, uint8 on the same device, for methods that use them.
    After every epoch a checkpoint goes to the folder ``out``, from which the same call resumes;
    ``identity`` is what else must be the same for that (the data). ``compiled`` runs the model
    through ``torch.compile``, worth it on a GPU for many epochs; a string names the backend.
    """
    if len(examples) < 2:
        raise AcclimateError(f"expected at least two images to train on, got {len(examples)}")
    if method.uses_target and (target is None or len(target) < 2):
        raise AcclimateError(
            f"{type(method).__name__} learns from images of a target, too; give them (--target)"
        )
    stepper = Stepper(model, examples, method, plan, target=target, compiled=compiled)
    checkpoint, identity = None if out is None else out / CHECKPOINT, identity or {}
    held = ExitStack()
    try:
        if out is not None:
            held.enter_context(claimed(out))
        so_far = Progress()
        if checkpoint is not None:
            so_far = _restored(checkpoint, stepper, identity)
        bar = tqdm(
            total=plan.epochs, initial=so_far.epoch, unit="epoch", disable=not progress, delay=0.5
        )
        with bar:
            for epoch in range(so_far.epoch, plan.epochs):
                began = time.perf_counter()
                loss = _train_epoch(stepper, epoch)
                so_far.epoch += 1
                so_far.losses.append(loss)
                so_far.seconds += time.perf_counter() - began
                bar.set_postfix(loss=f"{loss:.3f}")
                bar.update()
                if checkpoint is not None:
                    _save(checkpoint, stepper, identity, so_far)
        method.finish(model, stepper.heads)
    finally:
        held.close()
        stepper.release()
    return Trained(so_far.losses, so_far.seconds, method.files(stepper.heads))


def _train_epoch(stepper: Stepper, epoch: int) -> float:
    """One pass in a new order; the mean loss."""
    examples, plan = stepper.examples, stepper.plan
    device = examples.images.device
    size = min(plan.batch_size, len(examples))
    per_epoch = len(examples) // size
    # By epoch, so that a resumed run draws what an unbroken one would have drawn.
    stepper.generator.manual_seed(plan.seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples), generator=stepper.generator, device=device)
    stepper.together.train()
    total = torch.zeros((), device=device)
    steps = plan.epochs * per_epoch
    for index, chosen in enumerate(order.split(size)[:per_epoch], start=epoch * per_epoch):
        total += stepper.step(chosen, index, steps=steps)
    loss = float(total) / per_epoch
    if not torch.isfinite(total):
        raise AcclimateError(
            f"the loss is {loss} in epoch {epoch + 1}; use a smaller lr, or set clip"
        )
    return loss
