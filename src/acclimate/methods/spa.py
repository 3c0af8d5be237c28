"""SPA, self-bootstrapping for test-time adaptation (Niu et al., ICLR 2025).

An image with less information in it is taught by the image itself. Two such views are made: one
without a random share of its lowest frequencies, one whose patches k are mixed with noise, of which
they are α_k² parts. With z the logits of the image and z' those of a view, whose features a new
linear map W (the identity at first) goes through before the classifier,

    L = Σ over both views of the mean of KL(softmax z ‖ softmax z'),

over the images about which the model is more confident than about the view; no gradient flows
through z. The α are adversaries: they move up the loss (rate 1, momentum 0.9), then are scaled so
that their squares are ``noise`` on average, and held to [-1, 1]. All affines of the norms learn,
and W at ``rate`` times the others' rate. The model returned has no W.

Defaults are the authors' for ImageNet-C and a ViT-B/16: SGD with momentum 0.9, rate 0.01, five
times that for W, batches of 64, a fifth of the frequencies (of a fifth of the spectrum's sides),
noise of 0.4 on 14 × 14 patches. A ResNet-50 with group norm takes ``optimizer.lr=0.0025
objective.rate=10 objective.noise=0.1 objective.frequencies=0.1``.

What differs: noised images are held to the range of their batch, where the code has [-1, 1], the
range of its inputs. Where the model is more confident about no image, nothing is learnt from that
view; the code divides by 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.methods.views import generator_on, sides
from acclimate.models.outputs import Outputs, classifier_weight, find_classifier
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import SGD
from acclimate.recipe import Recipe

__all__ = ["SPA", "SelfBootstrapping", "noised", "without_low_frequencies"]

LOWEST = 0.2
"""The lowest frequencies: this share of the spectrum's height and width."""


def without_low_frequencies(images: Tensor, dropped: float, *, draw: torch.Generator) -> Tensor:
    """Images without a share of their lowest frequencies, drawn for each image and channel.

    >>> flat = torch.ones(1, 3, 8, 8)
    >>> bare = without_low_frequencies(flat, 1.0, draw=torch.Generator())
    >>> bool(bare.abs().max() < 1e-6)
    True
    """
    height, width = sides(images)
    kept = torch.ones(images.shape, dtype=torch.bool, device=images.device)
    low = [max(int(LOWEST * side), 1) for side in (height, width)]
    top, left = ((side - size + 1) // 2 for side, size in zip((height, width), low, strict=True))
    shape = (*images.shape[:2], *low)
    draws = torch.rand(shape, generator=draw, device=draw.device).to(images.device)
    kept[:, :, top : top + low[0], left : left + low[1]] = draws >= dropped
    # A frequency and its mirror image go together: what is drawn above and right of the middle
    # counts. Around the middle, sides are odd.
    odd = kept[:, :, 1 - height % 2 :, 1 - width % 2 :]
    rows, columns = odd.shape[2] // 2, odd.shape[3] // 2
    odd[:, :, rows + 1 :] = True
    odd[:, :, rows, :columns] = True
    odd &= odd.flip(2, 3)
    fine = images.to(torch.promote_types(images.dtype, torch.float32))  # no spectrum in half
    spectrum = torch.fft.fft2(fine) * torch.fft.ifftshift(kept, dim=(2, 3))
    less: Tensor = torch.fft.ifft2(spectrum).real
    return less.to(images)


def noised(images: Tensor, parts: Tensor, *, draw: torch.Generator) -> Tensor:
    """Images of which each patch is ``parts`` noise, the same for all; rows × columns of parts.

    >>> x = torch.rand(2, 3, 8, 8)
    >>> torch.equal(noised(x, torch.zeros(2, 2), draw=torch.Generator()), x)
    True
    """
    noise = torch.randn(images.shape[1:], generator=draw, device=draw.device).to(images)
    mixed = F.interpolate(parts[None, None], sides(images), mode="nearest")[0]
    seen = (1 - mixed) * images + mixed * noise
    return seen.clamp(images.detach().min(), images.detach().max())


@dataclass
class Adversary:
    """What is drawn from, each patch's α and how it moves, and the map W = 1 + √rate V."""

    generator: torch.Generator
    alpha: Tensor
    speed: Tensor
    change: nn.Linear
    _classifier: nn.Module
    _leaf: Tensor | None = field(default=None)


@PARTS["objective"].register("self-bootstrapping")
@dataclass(frozen=True, kw_only=True)
class SelfBootstrapping(Objective):
    """Views with less in them follow the image, where it is predicted with more confidence."""

    needs = frozenset({"features"})
    shareable = False

    frequencies: float = option(0.2, low=0, high=1)
    noise: float = option(0.4, low=0, high=1, open_low=True)
    patches: int = option(14, low=1)
    rate: float = option(5.0, low=0)

    def check(self, model: nn.Module) -> None:
        """Refuse a model without a layer whose input would be the features."""
        find_classifier(model)

    def prepare(self, learner: LearnerLike) -> Adversary:
        weight = classifier_weight(learner.model).detach().flatten(1)
        change = nn.Linear(weight.shape[1], weight.shape[1], bias=False).to(weight)
        nn.init.zeros_(change.weight)
        alpha = weight.new_full((self.patches, self.patches), math.sqrt(self.noise))
        classifier = find_classifier(learner.model)[1]
        return Adversary(learner.generator, alpha, torch.zeros_like(alpha), change, classifier)

    def parameters(self, state: Adversary) -> Mapping[str, nn.Parameter]:
        return dict(state.change.named_parameters())

    def loss(self, state: Adversary, step: Step) -> Tensor:
        draw = generator_on(step.images.device, seeded_by=state.generator)
        state._leaf = state.alpha.detach().clone().requires_grad_()
        bare = without_low_frequencies(step.images, self.frequencies, draw=draw)
        covered = noised(step.images, state._leaf.square(), draw=draw)
        label = step.student.logits.detach()
        following = [self._following(state, step, view, label) for view in (bare, covered)]
        return following[0] + following[1]

    def _following(self, state: Adversary, step: Step, view: Tensor, label: Tensor) -> Tensor:
        """KL divergence per image, scaled to the mean over the images that count."""
        seen = step.learner.forward(view.to(step.images), learning=step.learning)
        logits = self._through(state, seen)
        confident = label.softmax(dim=1).amax(dim=1) > logits.detach().softmax(dim=1).amax(dim=1)
        p, log_q = label.softmax(dim=1), logits.log_softmax(dim=1)
        divergence = (torch.xlogy(p, p) - p * log_q).sum(dim=1)
        share = len(label) / confident.sum().clamp_min(1).to(label)
        return torch.where(confident, share * divergence, 0.0)

    def _through(self, state: Adversary, outputs: Outputs) -> Tensor:
        assert outputs.features is not None
        features = outputs.features.to(state.change.weight)
        mapped = features + math.sqrt(self.rate) * state.change(features)
        weight, bias = state._classifier.weight, state._classifier.bias
        assert isinstance(weight, Tensor)
        return F.linear(mapped, weight.flatten(1), bias if isinstance(bias, Tensor) else None)

    @torch.no_grad()
    def after_step(self, state: Adversary, step: Step) -> None:
        """The adversaries move up the loss, and back to as much noise as before."""
        if state._leaf is None or state._leaf.grad is None:
            return
        state.speed = 0.9 * state.speed + state._leaf.grad
        alpha = state.alpha + state.speed
        alpha = alpha / (alpha.square().mean() / self.noise).sqrt()
        state.alpha, state._leaf = alpha.clamp(-1, 1), None


SPA = Recipe(
    name="spa",
    summary="SPA: views with less in them follow the image, self-bootstrapping (Niu et al. 2025)",
    objective=SelfBootstrapping(),
    optimizer=SGD(lr=0.01),
    batch_size=64,
)
