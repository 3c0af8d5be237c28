"""One step of a training: a batch on the device, its loss in mixed precision, an update."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.acceleration import Acceleration
from acclimate.errors import AcclimateError
from acclimate.outputs import find_classifier, logits_of
from acclimate.pretraining.examples import Examples
from acclimate.pretraining.methods import Batch, Method
from acclimate.pretraining.optimizer import make_optimizer
from acclimate.pretraining.plan import Plan
from acclimate.pretraining.schedule import learning_rate
from acclimate.pretraining.tapping import Tap

__all__ = ["Stepper", "output_count"]


class Stepper:
    """A model that learns, and all that goes along with it.

    Attributes:
        model: the plain one, never its compiled form.
        heads: the method's.
        together: both, as one module.
        optimizer: over both.
        generator: for everything random, on the device.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        method: Method,
        plan: Plan,
        *,
        target: Tensor | None,
        compiled: bool | str,
    ) -> None:
        device = examples.images.device
        self.model = model.to(device)
        if device.type == "cuda":
            Acceleration(channels_last=True).prepare(self.model)
        self._examples, self._method, self._plan = examples, method, plan
        self._target = target if method.uses_target else None
        _, classifier = find_classifier(self.model)
        _check_outputs(self.model, examples)
        features = int(getattr(classifier, "in_features", getattr(classifier, "in_channels", 0)))
        self.heads = method.heads(self.model, features).to(device)
        has_heads = any(True for _ in self.heads.parameters())
        # Before the first call of a compiled model, which looks for hooks only then.
        self._tap = Tap(classifier if has_heads else None)
        self._called = _compiled(self.model, compiled)
        self.together = nn.ModuleDict({"model": self.model, "heads": self.heads})
        self.generator = torch.Generator(device)
        self.optimizer = make_optimizer(self.together, plan)

    def step(self, chosen: Tensor, number: int, *, steps: int) -> Tensor:
        """Learn from some examples, as step ``number`` of so many; the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, steps=steps, peak=self._plan.lr)
        examples = self._examples
        batch = Batch(
            examples.images[chosen],
            examples.labels[chosen],
            self._normalize,
            self.generator,
            target=self._some_of_the_target(len(chosen)),
            progress=number / steps,
        )
        with _mixed_precision(examples.images.device):
            loss = self._method.loss(self._forward, self.heads, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self._plan.clip is not None:
            nn.utils.clip_grad_norm_(self.together.parameters(), self._plan.clip)
        self.optimizer.step()
        self._method.after_step(self.model, self.heads, progress=number / steps)
        return loss.detach()

    def release(self) -> None:
        """Leave the model as a plain one, ready to be used."""
        self._tap.remove()
        self.model.eval()

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits_of(self._called(images))
        return logits, self._tap.features(logits)

    def _some_of_the_target(self, count: int) -> Tensor | None:
        if self._target is None:
            return None
        device = self._target.device
        numbers = torch.randint(
            0, len(self._target), (count,), generator=self.generator, device=device
        )
        return self._target[numbers]

    def _normalize(self, images: Tensor) -> Tensor:
        ready = self._examples.preprocessing.standardize(images)
        return ready.contiguous(memory_format=torch.channels_last)


def output_count(model: nn.Module) -> int | None:
    """How many classes a model tells apart; None where its last layer does not say.

    >>> output_count(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    3
    """
    _, classifier = find_classifier(model)
    found = getattr(classifier, "out_features", getattr(classifier, "out_channels", None))
    return None if found is None else int(found)


def _check_outputs(model: nn.Module, examples: Examples) -> None:
    outputs = output_count(model)
    if outputs is not None and outputs < examples.classes:
        raise AcclimateError(
            f"expected a model with at least {examples.classes} outputs for these labels, got "
            f"{outputs}"
        )


def _compiled(model: nn.Module, how: bool | str) -> Callable[[Tensor], Any]:
    if not how:
        return model
    return torch.compile(model, backend=how) if isinstance(how, str) else torch.compile(model)


def _mixed_precision(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """bfloat16 on a GPU; on a CPU single precision, which is exact and often as fast there."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()
