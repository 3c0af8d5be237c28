"""EATA, efficient test-time adaptation without forgetting (Niu et al., ICML 2022).

ETA's loss (see :mod:`acclimate.methods.eta`) and an anchor that holds each parameter to its source
value as strongly as the source model's predictions depend on it:

    L + β Σ_i ω_i (θ_i - θ_i°)²,     ω_i = mean of (∂ CE(f(x; θ°), ŷ) / ∂ θ_i°)²

with ŷ the model's own hard label before anything was learnt. Defaults are the paper's for ImageNet:
β = 2,000, and 2,000 images for ω; for CIFAR-10 it takes β = 1. Everything else is ETA's.

Where these images come from is yours to say. The paper takes unlabelled images like those the model
was trained on: name a folder or an array file, ``regularizer.images=PATH``. Without one the first
images of the target stand in for them, labelled by the source's parameters; while they are gathered
each batch costs one more forward and one more backward pass.

What differs: the text's ω is a mean over single images; the authors' code, which gave the paper's
numbers, squares the gradient of a batch's mean loss. The first is ``regularizer.per_image=true`` (a
backward pass for each image); the second is the default, since β was chosen with it. In batches of
64 the text's ω is about 50 times larger on the digits of this package, and holds back as much more:
with β = 2,000 it is sound at the printed rate and diverges at 0.03, where the other bears 0.1. Both
take the batch's statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate import parallel
from acclimate.data import batches, open_images
from acclimate.errors import AcclimateError
from acclimate.methods.eta import ETA
from acclimate.models.device import floating_dtype
from acclimate.models.given import given_preprocessing
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.regularizers import Regularizer

__all__ = ["EATA", "FisherAnchor"]


@dataclass
class Importance:
    """Squared gradients by parameter, added up over images, and how many images so far."""

    squares: dict[str, Tensor]
    seen: int = 0

    def add(self, learner: LearnerLike, images: Tensor, *, per_image: bool) -> None:
        """Count a batch in: how the source's loss on its own labels depends on the parameters."""
        source = {n: t.detach().clone().requires_grad_() for n, t in learner.source.items()}
        with torch.enable_grad():
            logits = learner.forward(images, weights=source, learning=False).logits
            labels, reduction = logits.detach().argmax(dim=1), "none" if per_image else "mean"
            losses = F.cross_entropy(logits, labels, reduction=reduction).flatten()
            share = len(images) / len(losses)
            for loss in losses:
                gradients = torch.autograd.grad(
                    loss, list(source.values()), allow_unused=True, retain_graph=per_image
                )
                learner.backwards += 1
                for name, gradient in zip(source, gradients, strict=True):
                    if gradient is not None:
                        self.squares[name] = self.squares[name] + share * gradient.square()
        self.seen += len(images)


@PARTS["regularizer"].register("fisher")
@dataclass(frozen=True, kw_only=True)
class FisherAnchor(Regularizer):
    """A pull to the source's parameters, by what ``samples`` images say of their importance.

    ``images`` is a folder or array file to draw them from; without, the target's first are taken.
    ``per_image`` squares the gradient of each image, not that of a batch's mean.
    """

    weight: float = option(2000.0, low=0)
    samples: int = option(2000, low=1)
    images: str | None = None
    per_image: bool = False

    def prepare(self, learner: LearnerLike) -> Importance:
        if parallel.active():
            raise AcclimateError(
                "the Fisher anchor squares the gradients of whole batches and is one number for "
                "all images, neither of which several processes can share; adapt in one process, "
                "or each by itself: with acclimate.parallel.alone()"
            )
        return Importance({name: torch.zeros_like(p) for name, p in learner.learning.items()})

    def start_epoch(self, state: Importance, learner: LearnerLike) -> None:
        """Before the first, go through the images where they are given."""
        if self.images is None or state.seen:
            return
        model = learner.model
        known = given_preprocessing(model)
        opened = open_images(self.images, preprocessing=known, progress=False)
        order = torch.randperm(len(opened), generator=learner.generator)[: self.samples]
        device = next(model.parameters()).device
        for batch in batches(opened, batch_size=learner.batch_size, order=order, device=device):
            images = batch.images.to(floating_dtype(model))
            state.add(learner, images, per_image=self.per_image)

    def loss(self, state: Importance, step: Step) -> Tensor | None:
        """β Σ ω (θ - θ°)²."""
        if not state.seen:  # as on the first batch: nothing has moved yet
            return None
        learning, source = step.learner.learning, step.learner.source
        pulls = [
            (squares * (learning[name] - source[name]).square()).sum()
            for name, squares in state.squares.items()
        ]
        return self.weight / state.seen * torch.stack(pulls).sum()

    def after_step(self, state: Importance, step: Step) -> None:
        """Count the target's first images in, where no others were given."""
        if self.images is None and state.seen < self.samples:
            state.add(step.learner, step.images, per_image=self.per_image)


EATA = replace(
    ETA,
    name="eata",
    summary="EATA: ETA, and an anchor to the source by Fisher information (Niu et al. 2022)",
    regularizer=FisherAnchor(),
)
