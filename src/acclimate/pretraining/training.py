"""The one training loop: mixed precision, everything on the device, checkpoints, resume."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from acclimate.checkpoint import read_tensors, tensors_writer, write_files
from acclimate.errors import AcclimateError
from acclimate.outputs import find_classifier, logits_of
from acclimate.pretraining.examples import Examples
from acclimate.pretraining.methods import Batch, Method
from acclimate.pretraining.schedule import learning_rate
from acclimate.state import pack, under, unpack

__all__ = ["CHECKPOINT", "Plan", "Trained", "pretrain"]

CHECKPOINT = "pretrain.safetensors"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how fast to train.

    Attributes:
        epochs: passes over the pictures.
        batch_size: pictures per step.
        lr: the peak of the learning rate.
        weight_decay: of all weights but scales, shifts and biases.
        optimizer: "sgd", or "adam" with decoupled weight decay.
        momentum: of SGD, in Nesterov's form.
        seed: order, augmentation; the caller's for the initial weights.
    """

    epochs: int = 30
    batch_size: int = 256
    lr: float = 0.4
    weight_decay: float = 5e-4
    optimizer: str = "sgd"
    momentum: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise AcclimateError(f"expected {name} > 0, got {value}")
        if self.optimizer not in ("sgd", "adam"):
            raise AcclimateError(f"expected an optimizer sgd or adam, got {self.optimizer!r}")
        if not 0 <= self.seed < 2**40:
            raise AcclimateError(f"expected a seed >= 0 and < 2**40, got {self.seed}")


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
    compiled: bool = False,
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
        compiled: run the model through ``torch.compile`` (worth it on a GPU, for many epochs).
        progress: show a bar on stderr.
    """
    if len(examples) < 2:
        raise AcclimateError(f"expected at least two pictures to train on, got {len(examples)}")
    if method.uses_target and (target is None or len(target) < 2):
        raise AcclimateError(
            f"{type(method).__name__} learns from pictures of a target, too; give them (--target)"
        )
    run = _Run(model, examples, method, plan, target=target, compiled=compiled)
    run.identity = dict(identity or {})
    path = None if out is None else out / CHECKPOINT
    if path is not None and path.exists():
        run.resume(path)
    try:
        run.train(path, progress=progress)
        method.finish(model, run.heads)
    finally:
        run.release()
    return Trained(run.losses, run.seconds, method.files(run.heads))


class _Run:
    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        method: Method,
        plan: Plan,
        *,
        target: Tensor | None,
        compiled: bool,
    ) -> None:
        device = examples.images.device
        self.model = model.to(device)
        if device.type == "cuda":
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._examples, self._method, self._plan = examples, method, plan
        self._target = target if method.uses_target else None
        _, classifier = find_classifier(self.model)
        outputs = getattr(classifier, "out_features", getattr(classifier, "out_channels", None))
        if outputs is not None and outputs < examples.classes:
            raise AcclimateError(
                f"expected a model with at least {examples.classes} outputs for these labels, got "
                f"{outputs}"
            )
        features = int(getattr(classifier, "in_features", getattr(classifier, "in_channels", 0)))
        self.heads = method.heads(self.model, features).to(device)
        # Features matter to methods with heads alone; a compiled model has no place to tap them.
        taps = any(True for _ in self.heads.parameters())
        called: Callable[[Tensor], Any] = torch.compile(self.model) if compiled else self.model
        self._tap = _Tap(classifier if taps else None)
        self._called = called
        self._together = nn.ModuleDict({"model": self.model, "heads": self.heads})
        self._generator = torch.Generator(device)
        self._optimizer = _optimizer(self._together, plan)
        self._size = min(plan.batch_size, len(examples))
        self._per_epoch = len(examples) // self._size
        self.epoch = 0
        self.seconds = 0.0
        self.losses: list[float] = []
        self.identity: dict[str, Any] = {}

    def train(self, path: Path | None, *, progress: bool) -> None:
        """All epochs that are left, with a checkpoint after each."""
        epochs = self._plan.epochs
        with tqdm(
            total=epochs, initial=self.epoch, unit="epoch", disable=not progress, delay=0.5
        ) as bar:
            while self.epoch < epochs:
                bar.set_postfix(loss=f"{self.train_epoch():.3f}")
                bar.update()
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self.save(path)

    def release(self) -> None:
        """Leave the model as a plain one, ready to be used."""
        self._tap.remove()
        self.model.eval()

    def train_epoch(self) -> float:
        """One pass in a new order; the mean loss."""
        began, device = time.perf_counter(), self._examples.images.device
        # By epoch, so that a run that goes on draws what an unbroken one would have drawn.
        self._generator.manual_seed(self._plan.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self._examples), generator=self._generator, device=device)
        self._together.train()
        total = torch.zeros((), device=device)
        for number in range(self._per_epoch):
            chosen = order[number * self._size : (number + 1) * self._size]
            total += self._step(chosen, self.epoch * self._per_epoch + number)
        self.epoch += 1
        loss = float(total) / self._per_epoch
        if not torch.isfinite(total):
            raise AcclimateError(f"the loss is {loss} in epoch {self.epoch}; use a smaller lr")
        self.losses.append(loss)
        self.seconds += time.perf_counter() - began
        return loss

    def _step(self, chosen: Tensor, number: int) -> Tensor:
        steps = self._plan.epochs * self._per_epoch
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(number, steps=steps, peak=self._plan.lr)
        examples = self._examples
        batch = Batch(
            examples.images[chosen],
            examples.labels[chosen],
            self._normalize,
            self._generator,
            target=self._some_of_the_target(len(chosen)),
            progress=number / steps,
        )
        with _mixed_precision(examples.images.device):
            loss = self._method.loss(self._forward, self.heads, batch)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._method.after_step(self.model, self.heads, progress=number / steps)
        return loss.detach()

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits_of(self._called(images))
        return logits, self._tap.features(logits)

    def _some_of_the_target(self, count: int) -> Tensor | None:
        if self._target is None:
            return None
        device = self._target.device
        numbers = torch.randint(
            0, len(self._target), (count,), generator=self._generator, device=device
        )
        return self._target[numbers]

    def _normalize(self, images: Tensor) -> Tensor:
        ready = self._examples.preprocessing.standardize(images)
        return ready.contiguous(memory_format=torch.channels_last)

    # What a checkpoint holds.

    def save(self, path: Path) -> None:
        """Model, optimiser and how far it is, whole or not at all."""
        tensors = {f"state/{k}": v for k, v in self._together.state_dict().items()}
        tensors |= {f"optimizer/{k}": v for k, v in pack(self._optimizer).items()}
        record = {
            **self._asked(),
            "epoch": self.epoch,
            "losses": self.losses,
            "seconds": self.seconds,
        }
        write_files({path: tensors_writer(tensors, record)})

    def _asked(self) -> dict[str, Any]:
        """What two calls have to share for one to go on where the other stopped."""
        return {"plan": asdict(self._plan), "method": repr(self._method), **self.identity}

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same plan and method."""
        tensors, record = read_tensors(path)
        for key, value in self._asked().items():
            if record.get(key) != value:
                raise AcclimateError(
                    f"{path} is of another training ({key}: {record.get(key)}, now {value}); "
                    "choose another folder"
                )
        try:
            self._together.load_state_dict(under("state/", tensors))
        except RuntimeError as error:
            first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
            raise AcclimateError(f"{path} is of another architecture: {first}") from error
        unpack(self._optimizer, under("optimizer/", tensors))
        self.epoch, self.losses = record["epoch"], record["losses"]
        self.seconds = record["seconds"]


class _Tap:
    """What the classifier was fed in the last forward pass; nothing where nobody asked."""

    def __init__(self, classifier: nn.Module | None) -> None:
        self._fed: Tensor | None = None
        self._hook = (
            None if classifier is None else classifier.register_forward_pre_hook(self._keep)
        )

    def _keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._fed = inputs[0].flatten(1)

    def features(self, logits: Tensor) -> Tensor:
        """N × features; N × 0 where they are not tapped."""
        return logits[:, :0] if self._fed is None else self._fed

    def remove(self) -> None:
        """Leave the model as it was."""
        self._fed = None
        if self._hook is not None:
            self._hook.remove()


def _optimizer(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    groups = _groups(model, plan.weight_decay)
    if plan.optimizer == "adam":
        return torch.optim.AdamW(groups, lr=plan.lr)
    momentum, on_gpu = plan.momentum, next(model.parameters()).is_cuda
    return torch.optim.SGD(
        groups, lr=plan.lr, momentum=momentum, nesterov=momentum > 0, fused=on_gpu
    )


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weights decay; scales, shifts and biases, which have one dimension, do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _mixed_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """bfloat16 on a GPU; on a CPU single precision, which is exact and often as fast there."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()
