"""One step of a training: a batch on the device, its loss in mixed precision, an update."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.acceleration import Acceleration
from acclimate.errors import AcclimateError
from acclimate.models.outputs import checked_logits, find_classifier, logits_of
from acclimate.pretraining.data import Examples
from acclimate.pretraining.methods import Batch, Method
from acclimate.pretraining.plan import Plan

__all__ = ["Stepper", "learning_rate", "output_count"]


def make_optimizer(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """SGD or Adam over everything in a module that learns.

    >>> type(make_optimizer(nn.Linear(2, 2), Plan(optimizer="adam"))).__name__
    'AdamW'
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [  # weights decay; scales, shifts and biases, which have one dimension, do not
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": plan.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if plan.optimizer == "adam":
        return torch.optim.AdamW(groups, lr=plan.lr)
    momentum, on_gpu = plan.momentum, next(model.parameters()).is_cuda
    return torch.optim.SGD(
        groups, lr=plan.lr, momentum=momentum, nesterov=momentum > 0, fused=on_gpu
    )


_WARM_UP = 0.2


def learning_rate(step: int, *, steps: int, peak: float) -> float:
    """Up in a straight line for a fifth of the steps, then down along a cosine to 0.

    >>> [round(learning_rate(s, steps=10, peak=1.0), 2) for s in (0, 1, 2, 6, 10)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    warm = max(1, round(_WARM_UP * steps))
    if step < warm:
        return peak * (step + 1) / (warm + 1)
    share = (step - warm) / max(1, steps - warm)
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


class Stepper:
    """A model that learns, and all that it needs for that.

    ``model`` is the plain one, never its compiled form; ``together`` has the method's heads too.
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
        self.examples, self.method, self.plan = examples, method, plan
        self._target = target if method.uses_target else None
        _, classifier = find_classifier(self.model)
        outputs, needed = output_count(self.model), int(examples.labels.max()) + 1
        if outputs is not None and outputs < needed:
            raise AcclimateError(
                f"expected a model with at least {needed} outputs for these labels, got {outputs}"
            )
        # Refused before a compiler or a method sees it, with the shape the model failed on.
        checked_logits(self.model.eval(), examples.preprocessing.normalize(examples.images[:1]))
        features = int(getattr(classifier, "in_features", getattr(classifier, "in_channels", 0)))
        self.heads = method.heads(self.model, features).to(device)
        has_heads = any(True for _ in self.heads.parameters())
        # Before the first call of a compiled model, which looks for hooks only then.
        self._fed: Tensor | None = None
        self._hook = classifier.register_forward_pre_hook(self._keep_fed) if has_heads else None
        self._called: Callable[[Tensor], Any] = self.model
        if compiled:
            how: dict[str, Any] = {"backend": compiled} if isinstance(compiled, str) else {}
            self._called = torch.compile(self.model, **how)
        self.together = nn.ModuleDict({"model": self.model, "heads": self.heads})
        self.generator = torch.Generator(device)
        self.optimizer = make_optimizer(self.together, plan)

    def step(self, chosen: Tensor, index: int, *, steps: int) -> Tensor:
        """Learn from some examples, as step ``index`` of so many; the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(index, steps=steps, peak=self.plan.lr)
        examples = self.examples
        batch = Batch(
            examples.images[chosen],
            examples.labels[chosen],
            self._normalize,
            self.generator,
            target=self._target_images(len(chosen)),
            progress=index / steps,
        )
        # bfloat16 on a GPU; on a CPU single precision, which is exact and often as fast there.
        on_gpu = examples.images.is_cuda
        with torch.autocast("cuda", dtype=torch.bfloat16) if on_gpu else nullcontext():
            loss = self.method.loss(self._forward, self.heads, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.plan.clip is not None:
            nn.utils.clip_grad_norm_(self.together.parameters(), self.plan.clip)
        self.optimizer.step()
        self.method.after_step(self.model, self.heads, progress=index / steps)
        return loss.detach()

    def release(self) -> None:
        """Leave the model as a plain one, ready to be used."""
        if self._hook is not None:
            self._hook.remove()
        self.model.eval()

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and features; N × 0 features where no head needs any."""
        logits = logits_of(self._called(images))
        return logits, logits[:, :0] if self._fed is None else self._fed

    def _keep_fed(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._fed = inputs[0].flatten(1)

    def _target_images(self, count: int) -> Tensor | None:
        if self._target is None:
            return None
        device, total = self._target.device, len(self._target)
        return self._target[torch.randint(total, (count,), generator=self.generator, device=device)]

    def _normalize(self, images: Tensor) -> Tensor:
        ready = self.examples.preprocessing.standardize(images)
        return ready.contiguous(memory_format=torch.channels_last)


def output_count(model: nn.Module) -> int | None:
    """How many outputs a model has; None where its last layer has no count.

    >>> output_count(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    3
    """
    _, classifier = find_classifier(model)
    found = getattr(classifier, "out_features", getattr(classifier, "out_channels", None))
    return None if found is None else int(found)
