"""REM, ranked entropy minimisation (Han, Na & Hwang, ICML 2025), for vision transformers.

An image is shown again without the tokens that the class token of the last block attends to most,
and again without more of them. The less is shown, the less may the prediction be certain: with z_0
the logits for the whole image and z_i those without a share of i m of the tokens, i < n,

    L = Σ_{j<i} CE(z_i, z_j) + λ Σ_{i<j} max(0, H(z_i) - H(z_j) + margin · log C),

where no gradient flows through the z_j. The first makes predictions for less follow those for more,
the second keeps their entropies in order.

Over scale and shift of the layer norms, but those of the last quarter of the blocks and behind.
Defaults are the authors' for ImageNet-C and a ViT-B/16: Adam at 0.001, batches of 50, m = 0.1,
n = 3, λ = 1, no margin.

What differs: nothing in the formulas; the number of tokens follows from the model. It takes timm's
vision transformers, and others built like them: blocks whose attention has one layer ``qkv``, and
one token before those of the patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.methods.sar import EarlyAffine
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective, entropy, tempered_cross_entropy
from acclimate.parts.optimizers import Adam
from acclimate.recipe import Recipe

__all__ = ["REM", "RankedEntropy"]


def transformer(model: nn.Module) -> Any:
    """The module with the blocks, in a model or behind wrappers; or the reason there is none."""
    for module in model.modules():
        blocks = getattr(module, "blocks", None)
        if not isinstance(blocks, nn.Sequential) or not len(blocks):
            continue
        plain = isinstance(getattr(getattr(blocks[-1], "attn", None), "qkv", None), nn.Linear)
        if plain and getattr(module, "num_prefix_tokens", 1) == 1:
            return module
    raise AcclimateError(
        f"expected a vision transformer with a class token, as timm has them, got "
        f"{type(model).__name__}; REM leaves tokens out. Choose another recipe (sar, come, roid)"
    )


class Watch:
    """Hooks on the first and the last block; not closures, which no copy would follow."""

    def __init__(self) -> None:
        self.kept: Tensor | None = None
        self.attended: Tensor | None = None

    def drop(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Leave out what is not kept, of the tokens behind the first."""
        if self.kept is None:
            return None
        tokens, *rest = inputs
        places = self.kept[:, :, None].expand(-1, -1, tokens.shape[2])
        return torch.cat([tokens[:, :1], tokens[:, 1:].gather(1, places)], dim=1), *rest

    def see(self, attention: Any, inputs: tuple[Tensor, ...]) -> None:
        """How much the first token attends to each other, on average over the heads."""
        if self.kept is not None or not torch.is_grad_enabled():  # the student's own pass counts
            return
        with torch.no_grad():
            x = inputs[0]
            images, tokens, _ = x.shape
            qkv = attention.qkv(x).view(images, tokens, 3, attention.num_heads, -1)
            q, k, _ = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            q = getattr(attention, "q_norm", nn.Identity())(q[:, :, :1])
            k = getattr(attention, "k_norm", nn.Identity())(k)
            weights = (q @ k.transpose(2, 3) * attention.scale).softmax(dim=3)
            self.attended = weights.mean(dim=1)[:, 0, 1:]


@dataclass
class Hooked:
    """The hooks, to be taken off again."""

    _watch: Watch
    _handles: list[Any] = field(default_factory=list)


@PARTS["objective"].register("ranked-entropy")
@dataclass(frozen=True, kw_only=True)
class RankedEntropy(Objective):
    """Predictions without the tokens attended to most follow, and are less certain than, the rest.

    Of ``levels``, the whole image among them, each leaves out ``share`` more of the tokens.
    """

    share: float = option(0.1, low=0, high=1, open_low=True, open_high=True)
    levels: int = option(3, low=2)
    ranking: float = option(1.0, low=0)
    margin: float = option(0.0, low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share * (self.levels - 1) >= 1:
            raise AcclimateError(
                f"expected share · (levels - 1) < 1, or no token is left, got {self.share:g} and "
                f"{self.levels}"
            )

    def check(self, model: nn.Module) -> None:
        """Refuse a model without tokens to leave out."""
        transformer(model)

    def prepare(self, learner: LearnerLike) -> Hooked:
        blocks, watch = transformer(learner.model).blocks, Watch()
        first = blocks[0].register_forward_pre_hook(watch.drop)
        return Hooked(watch, [first, blocks[-1].attn.register_forward_pre_hook(watch.see)])

    def export(self, state: Hooked, learner: LearnerLike) -> None:
        """Take the hooks off."""
        for handle in state._handles:
            handle.remove()

    def loss(self, state: Hooked, step: Step) -> Tensor:
        logits = [step.student.logits]
        attended = state._watch.attended
        assert attended is not None
        for level in range(1, self.levels):
            logits.append(self._without(level, state._watch, attended, step))
        margin = self.margin * math.log(logits[0].shape[1])
        entropies = [entropy(each) for each in logits]
        total = torch.zeros_like(entropies[0])
        for more in range(len(logits)):
            for less in range(more + 1, len(logits)):
                total = total + tempered_cross_entropy(logits[less], logits[more].detach())
                gap = entropies[more] - entropies[less].detach() + margin
                total = total + self.ranking * gap.relu()
        return total

    def _without(self, level: int, watch: Watch, attended: Tensor, step: Step) -> Tensor:
        """The logits where only the least attended tokens are shown."""
        count = int(attended.shape[1] * (1 - level * self.share))
        watch.kept = attended.topk(count, dim=1, largest=False).indices
        try:
            return step.learner.forward(step.images, learning=step.learning).logits
        finally:
            watch.kept = None


REM = Recipe(
    name="rem",
    summary="REM: entropies ranked by how many tokens are shown, for ViTs (Han et al. 2025)",
    objective=RankedEntropy(),
    selector=EarlyAffine(),
    optimizer=Adam(lr=0.001),
    batch_size=50,
)
