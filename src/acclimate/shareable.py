"""What several processes can do together as one would."""

from __future__ import annotations

from torch import nn

from acclimate import parallel
from acclimate.errors import AcclimateError
from acclimate.parts import Part
from acclimate.recipe import Recipe

__all__ = ["check_shareable"]


def check_shareable(model: nn.Module, recipe: Recipe) -> None:
    """Refuse what several processes cannot do as one would."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise AcclimateError(
            "expected the plain model, got one wrapped in DistributedDataParallel; pass "
            "model.module: gradients and statistics are shared here already"
        )
    alone = (
        f"which {parallel.world()} processes would do differently from one; adapt in one process, "
        "or each by itself: with acclimate.parallel.alone()"
    )
    if recipe.episode is not None:
        raise AcclimateError(f"recipe {recipe.name!r} forgets after each {recipe.episode}, {alone}")
    for slot, part in recipe.parts().items():
        kind = type(part)
        if (kind.views, kind.collect, kind.predict) != (Part.views, Part.collect, Part.predict):
            raise AcclimateError(
                f"the {slot} of recipe {recipe.name!r} draws views of each image, keeps images or "
                f"compares them, {alone}"
            )
