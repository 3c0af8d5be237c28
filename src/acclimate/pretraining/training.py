"""The one training loop: epochs over examples on the device, a checkpoint after each, resume."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from acclimate.errors import AcclimateError
from acclimate.pretraining.checkpointing import CHECKPOINT, Checkpoint, Progress
from acclimate.pretraining.examples import Examples
from acclimate.pretraining.methods import Method
from acclimate.pretraining.plan import Plan
from acclimate.pretraining.stepping import Stepper

__all__ = ["Trained", "pretrain"]


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
    """Train a model in place, on the device the examples lie on.

    Args:
        model: a classifier with at least as many outputs as there are classes.
        examples: labelled pictures on the device.
        method: what is minimised.
        plan: how long and how fast.
        target: pictures of the other domain, uint8 on the same device, for methods that use them.
        out: a folder for a checkpoint after every epoch; the same call goes on from it.
        identity: what else must be the same for a checkpoint to be gone on with (the data).
        compiled: run the model through ``torch.compile`` (worth it on a GPU, for many epochs); a
            word names the backend, as there.
        progress: show a bar on stderr.
    """
    if len(examples) < 2:
        raise AcclimateError(f"expected at least two pictures to train on, got {len(examples)}")
    if method.uses_target and (target is None or len(target) < 2):
        raise AcclimateError(
            f"{type(method).__name__} learns from pictures of a target, too; give them (--target)"
        )
    stepper = Stepper(model, examples, method, plan, target=target, compiled=compiled)
    checkpoint = (
        None
        if out is None
        else Checkpoint(
            path=out / CHECKPOINT, plan=plan, method=method, identity=dict(identity or {})
        )
    )
    try:
        so_far = Progress()
        if checkpoint is not None:
            so_far = checkpoint.restore(stepper.together, stepper.optimizer)
        _train(stepper, examples, plan, so_far, checkpoint, progress=progress)
        method.finish(model, stepper.heads)
    finally:
        stepper.release()
    return Trained(so_far.losses, so_far.seconds, method.files(stepper.heads))


def _train(
    stepper: Stepper,
    examples: Examples,
    plan: Plan,
    so_far: Progress,
    checkpoint: Checkpoint | None,
    *,
    progress: bool,
) -> None:
    """All epochs that are left, with a checkpoint after each."""
    with tqdm(
        total=plan.epochs, initial=so_far.epoch, unit="epoch", disable=not progress, delay=0.5
    ) as bar:
        while so_far.epoch < plan.epochs:
            began = time.perf_counter()
            loss = _train_epoch(stepper, examples, plan, so_far.epoch)
            so_far.epoch += 1
            so_far.losses.append(loss)
            so_far.seconds += time.perf_counter() - began
            bar.set_postfix(loss=f"{loss:.3f}")
            bar.update()
            if checkpoint is not None:
                checkpoint.save(stepper.together, stepper.optimizer, so_far)


def _train_epoch(stepper: Stepper, examples: Examples, plan: Plan, epoch: int) -> float:
    """One pass in a new order; the mean loss."""
    device = examples.images.device
    size = min(plan.batch_size, len(examples))
    per_epoch = len(examples) // size
    # By epoch, so that a run that goes on draws what an unbroken one would have drawn.
    stepper.generator.manual_seed(plan.seed * 1_000_003 + epoch)
    order = torch.randperm(len(examples), generator=stepper.generator, device=device)
    stepper.together.train()
    total = torch.zeros((), device=device)
    for number in range(per_epoch):
        chosen = order[number * size : (number + 1) * size]
        total += stepper.step(chosen, epoch * per_epoch + number, steps=plan.epochs * per_epoch)
    loss = float(total) / per_epoch
    if not torch.isfinite(total):
        raise AcclimateError(
            f"the loss is {loss} in epoch {epoch + 1}; use a smaller lr, or set clip"
        )
    return loss
