"""The paper's hyper-parameters per model (``tab:hyperparams``), and defaults for all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from acclimate.learner.learner import DEFAULT_LR, Learner
from acclimate.models.layers import batch_norm_layers
from acclimate.models.paper import preset_name
from acclimate.parts.normalization import Source
from acclimate.parts.objectives import GeneralizedCrossEntropy
from acclimate.parts.optimizers import SGD
from acclimate.recipe import Recipe

__all__ = [
    "PRESETS",
    "Preset",
    "Rate",
    "default_rate",
    "find_preset",
    "scaling_note",
    "tuned_recipe",
]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What the paper found best on hold-out corruptions for one model and method."""

    models: tuple[str, ...]
    recipe: str
    lr: float
    batch_size: int
    epochs: int
    source_statistics: bool = False


_IG = ("*ig_resnext101*", "*resnext101_32x8d*wsl*", "*resnext101_32x8d*ig1b*")
_DAUG = ("*resnext101*deepaug*", "*resnext101*daug*", "*resnext101*augmix*")
_EFFICIENTNET_L2 = ("*efficientnet_l2*", "*efficientnet-l2*")
_BIT = ("*resnetv2_50x1_bit*", "*bit_resnet50*", "*resnetv2_50x1*goog*")
_RESNEXT = ("*resnext101_32x8d*",)
_RESNET = ("*:resnet50", "*:resnet50[.@]*", "*/resnet-50")

# The first pattern that fits counts. ResNeXt ran at batch 32: the table prints 128, but the text
# and the learning rates (scaled from 1e-3 at 128) say 32.
PRESETS: tuple[Preset, ...] = (
    Preset(models=_IG, recipe="ent", lr=2.5e-4, batch_size=32, epochs=4),
    Preset(models=_IG, recipe="rpl", lr=2.5e-3, batch_size=32, epochs=2),
    Preset(models=_DAUG, recipe="ent", lr=2.5e-4, batch_size=32, epochs=1),
    Preset(models=_DAUG, recipe="rpl", lr=2.5e-4, batch_size=32, epochs=4),
    Preset(models=_RESNEXT, recipe="ent", lr=2.5e-4, batch_size=32, epochs=1),
    Preset(models=_RESNEXT, recipe="rpl", lr=2.5e-4, batch_size=32, epochs=4),
    Preset(
        models=_EFFICIENTNET_L2, recipe="ent", lr=4.6e-5, batch_size=8, epochs=1,
        source_statistics=True,
    ),
    Preset(
        models=_EFFICIENTNET_L2, recipe="rpl", lr=4.6e-4, batch_size=8, epochs=1,
        source_statistics=True,
    ),
    # tbl:app-bit-tuning, best on the hold-out corruptions.
    Preset(models=_BIT, recipe="ent", lr=7.5e-5, batch_size=96, epochs=5),
    Preset(models=_BIT, recipe="rpl", lr=7.5e-4, batch_size=96, epochs=2),
    Preset(models=_RESNET, recipe="ent", lr=1e-3, batch_size=128, epochs=1),
    Preset(models=_RESNET, recipe="rpl", lr=1e-3, batch_size=128, epochs=5),
)  # fmt: skip


def find_preset(recipe: str, *, model_name: str) -> Preset | None:
    """The paper's numbers for this recipe and model, if it has any.

    Only for a model loaded by name: the class of a user's own module says nothing of its weights.

    >>> find_preset("rpl", model_name="torchvision:resnet50").epochs
    5
    >>> find_preset("rpl", model_name="ResNet50")
    """
    if ":" not in model_name:
        return None
    name = preset_name(model_name).lower()
    for preset in PRESETS:
        if preset.recipe == recipe and any(fnmatchcase(name, p) for p in preset.models):
            return preset
    return None


TUNED_ON = 50_000
"""How many images the presets hold for: on less than half as many they learn too little."""

STREAM = 150_000
"""A stream of unknown length learns as fast as if it brought so many images."""

MANY_CLASSES = 100
MOST_EPOCHS = 10


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How fast, and for how long: ``total`` is learning rate × images × epochs.

    The rate, for batches of 128 by SGD with momentum 0.9, is ``usual``, and up to ``highest``
    where there are too few images to see the total in ten epochs.
    """

    usual: float
    highest: float
    total: float

    def spread(self, images: int) -> tuple[float, int]:
        """Learning rate and epochs for so many images.

        >>> rate = Rate(usual=0.05, highest=0.1, total=500)
        >>> [rate.spread(images) for images in (200, 500, 5_000, 50_000)]
        [(0.1, 10), (0.1, 10), (0.05, 2), (0.01, 1)]
        """
        epochs = min(MOST_EPOCHS, max(1, round(self.total / (self.usual * images))))
        return min(self.highest, self.total / (images * epochs)), epochs


def default_rate(recipe: Recipe, *, classes: int | None, new_statistics: bool) -> Rate:
    """What models the paper did not tune get; docs/defaults.md has the measurements.

    What counts is rate × steps. With new batch-norm statistics learning takes a lot of it, and more
    with few classes. With the source's statistics, or none to choose (group and layer norm), it
    collapses early, entropy minimisation before robust labels.

    >>> default_rate(Recipe(name="mine"), classes=1000, new_statistics=True)
    Rate(usual=0.05, highest=0.1, total=500)
    """
    if new_statistics:
        few = classes is not None and classes <= MANY_CLASSES
        return (
            Rate(usual=3e-2, highest=3e-2, total=1500)
            if few
            else Rate(usual=5e-2, highest=1e-1, total=500)
        )
    robust = isinstance(recipe.objective, GeneralizedCrossEntropy)
    usual, total = (2e-3, 100) if robust else (1e-3, 10)
    return Rate(usual=usual, highest=usual, total=total)


def tuned_recipe(
    recipe: Recipe,
    options: Mapping[str, Any],
    *,
    model_name: str,
    images: int | None,
    model: nn.Module | None = None,
    classes: int | None = None,
) -> tuple[Recipe, list[str]]:
    """The recipe with options, and the paper's or the default numbers where they name none.

    Also a note that says so. A recipe that brings its own learning rate is complete. ``model``
    tells whether there are batch-norm statistics, ``classes`` how many it predicts; ``images`` is
    None for a stream, whose length nobody knows.
    """
    over = f"{images} images" if images is not None else "a stream"
    images = STREAM if images is None else images
    asked = recipe.with_options(options)
    if not asked.learns or recipe.optimizer.lr is not None:
        return asked, []
    preset = find_preset(recipe.name, model_name=model_name)
    fixed = {key.partition(".")[0] for key in options}
    values: dict[str, Any] = {}
    if preset and "batch_size" not in fixed:
        values["batch_size"] = preset.batch_size
    if preset and preset.source_statistics and "normalization" not in fixed:
        values["normalization"] = Source()
    tuned = replace(asked, **values)
    applies = preset is not None and 2 * images > TUNED_ON
    if preset is not None and applies:
        lr, epochs, own_size = preset.lr, preset.epochs, preset.batch_size
    else:
        new = tuned.normalization.adapts and (model is None or bool(batch_norm_layers(model)))
        rate = default_rate(tuned, classes=classes, new_statistics=new)
        (lr, epochs), own_size = rate.spread(images), recipe.batch_size
        if "batch_size" in values:
            lr, own_size = lr * tuned.batch_size / own_size, tuned.batch_size
    if asked.optimizer.lr is not None:
        if preset is None:
            return asked, []  # the number of epochs depends on the rate
        lr = asked.optimizer.lr
    else:
        if not isinstance(asked.optimizer, SGD):  # what is known of rates is known of SGD
            lr = DEFAULT_LR
        if "batch_size" in fixed:
            lr *= asked.batch_size / own_size
    tuned = replace(
        tuned,
        optimizer=replace(asked.optimizer, lr=lr),
        epochs=asked.epochs if "epochs" in fixed else epochs,
    )
    if applies:
        origin = f"the paper's preset for {model_name}"
    elif preset:
        origin = f"the paper's preset for {model_name} is for {TUNED_ON:,} images"
    else:
        origin = f"no preset for {model_name}"
    said = (
        f"your learning rate {lr:g}" if asked.optimizer.lr is not None else f"learning rate {lr:g}"
    )
    follows = "batch_size" in fixed and asked.optimizer.lr is None
    scaled = f", scaled linearly from batches of {own_size}" if follows else ""
    return tuned, [
        f"{origin}: {said} for batches of {tuned.batch_size}{scaled}, "
        f"{tuned.epochs} epoch(s) over {over}"
    ]


def scaling_note(learner: Learner) -> list[str]:
    """A note where the learning rate was scaled with the batch size."""
    recipe, size = learner.recipe, learner.batch_size
    if not recipe.learns or size == recipe.batch_size or recipe.episode == "image":
        return []
    return [
        f"learning rate {learner.lr * recipe.batch_size / size:g} holds for batches of "
        f"{recipe.batch_size}; scaled linearly to {learner.lr:g} for batches of {size}"
    ]
