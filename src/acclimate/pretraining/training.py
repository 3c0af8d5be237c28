"""The one training loop: mixed precision, everything on the device, checkpoints, resume."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from acclimate.checkpoint import read_tensors, tensors_writer, write_files
from acclimate.errors import AcclimateError
from acclimate.pretraining.examples import Examples
from acclimate.pretraining.methods import Batch, Method
from acclimate.pretraining.schedule import learning_rate

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
        momentum: of SGD, in Nesterov's form.
        seed: order, augmentation; the caller's for the initial weights.
    """

    epochs: int = 30
    batch_size: int = 256
    lr: float = 0.4
    weight_decay: float = 5e-4
    momentum: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr"):
            if getattr(self, name) <= 0:
                raise AcclimateError(f"expected {name} > 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class Trained:
    """A finished training: the losses of its epochs, and the seconds it took in this process."""

    losses: list[float]
    seconds: float


def pretrain(
    model: nn.Module,
    examples: Examples,
    method: Method,
    plan: Plan,
    *,
    out: Path | None = None,
    compiled: bool = False,
    progress: bool = True,
) -> Trained:
    """Train a model in place, on the device the examples lie on.

    Args:
        model: a classifier with at least as many outputs as there are classes.
        examples: labelled pictures on the device.
        method: what is minimised.
        plan: how long and how fast.
        out: a folder for a checkpoint after every epoch; the same call goes on from it.
        compiled: run the model through ``torch.compile`` (worth it on a GPU, for many epochs).
        progress: show a bar on stderr.
    """
    if len(examples) < 2:
        raise AcclimateError(f"expected at least two pictures to train on, got {len(examples)}")
    run = _Run(model, examples, method, plan, compiled=compiled)
    path = None if out is None else out / CHECKPOINT
    if path is not None and path.exists():
        run.resume(path)
    began = time.perf_counter()
    with tqdm(
        total=plan.epochs, initial=run.epoch, unit="epoch", disable=not progress, delay=0.5
    ) as bar:
        while run.epoch < plan.epochs:
            bar.set_postfix(loss=f"{run.train_epoch():.3f}")
            bar.update()
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                run.save(path)
    model.eval()
    return Trained(run.losses, time.perf_counter() - began)


class _Run:
    def __init__(
        self, model: nn.Module, examples: Examples, method: Method, plan: Plan, *, compiled: bool
    ) -> None:
        device = examples.images.device
        self.model = model.to(device)
        if device.type == "cuda":
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._examples, self._method, self._plan = examples, method, plan
        self._forward: Callable[[Tensor], Tensor] = self.model
        if compiled:
            self._forward = torch.compile(self.model)
        self._generator = torch.Generator(device)
        self._optimizer = torch.optim.SGD(
            _groups(self.model, plan.weight_decay), lr=plan.lr, momentum=plan.momentum,
            nesterov=plan.momentum > 0,
        )  # fmt: skip
        self._size = min(plan.batch_size, len(examples))
        self._per_epoch = len(examples) // self._size
        self.epoch = 0
        self.losses: list[float] = []

    def train_epoch(self) -> float:
        """One pass in a new order; the mean loss."""
        device = self._examples.images.device
        # By epoch, so that a run that goes on draws what an unbroken one would have drawn.
        self._generator.manual_seed(self._plan.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self._examples), generator=self._generator, device=device)
        self.model.train()
        total = torch.zeros((), device=device)
        for number in range(self._per_epoch):
            chosen = order[number * self._size : (number + 1) * self._size]
            total += self._step(chosen, self.epoch * self._per_epoch + number)
        self.epoch += 1
        loss = float(total) / self._per_epoch
        if not torch.isfinite(total):
            raise AcclimateError(f"the loss is {loss} in epoch {self.epoch}; use a smaller lr")
        self.losses.append(loss)
        return loss

    def _step(self, chosen: Tensor, number: int) -> Tensor:
        steps = self._plan.epochs * self._per_epoch
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(number, steps=steps, peak=self._plan.lr)
        examples = self._examples
        batch = Batch(
            examples.images[chosen], examples.labels[chosen], self._normalize, self._generator
        )
        with _mixed_precision(examples.images.device):
            loss = self._method.loss(self._forward, batch)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def _normalize(self, images: Tensor) -> Tensor:
        record = self._examples.preprocessing
        mean = torch.tensor(record.mean, device=images.device).view(1, -1, 1, 1)
        std = torch.tensor(record.std, device=images.device).view(1, -1, 1, 1)
        return ((images - mean) / std).contiguous(memory_format=torch.channels_last)

    # What a checkpoint holds.

    def save(self, path: Path) -> None:
        """Model, momentum and how far it is, whole or not at all."""
        tensors = {f"model/{k}": v for k, v in self.model.state_dict().items()}
        for index, parameter in enumerate(self.model.parameters()):
            buffer = self._optimizer.state.get(parameter, {}).get("momentum_buffer")
            if buffer is not None:
                tensors[f"momentum/{index}"] = buffer
        record = {"plan": asdict(self._plan), "epoch": self.epoch, "losses": self.losses}
        write_files({path: tensors_writer(tensors, {**record, "method": repr(self._method)})})

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same plan and method."""
        tensors, record = read_tensors(path)
        asked: dict[str, Any] = {"plan": asdict(self._plan), "method": repr(self._method)}
        for key, value in asked.items():
            if record.get(key) != value:
                raise AcclimateError(
                    f"{path} is of another training ({key}: {record.get(key)}, now {value}); "
                    "choose another folder"
                )
        states = {k.removeprefix("model/"): v for k, v in tensors.items() if k[:6] == "model/"}
        try:
            self.model.load_state_dict(states)
        except RuntimeError as error:
            first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
            raise AcclimateError(f"{path} is of another architecture: {first}") from error
        for index, parameter in enumerate(self.model.parameters()):
            if f"momentum/{index}" in tensors:
                buffer = tensors[f"momentum/{index}"].to(parameter)
                self._optimizer.state[parameter]["momentum_buffer"] = buffer
        self.epoch, self.losses = record["epoch"], record["losses"]


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
