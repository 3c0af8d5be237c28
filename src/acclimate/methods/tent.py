"""TENT, fully test-time adaptation by entropy minimisation (Wang et al., ICLR 2021).

The entropy H(p) = -Σ_c p_c log p_c of the model's own prediction is minimised over scale and shift
of the normalisation layers, which take their statistics from the current batch; every batch is
predicted before it is learnt from, and seen once.

Defaults are the paper's for ImageNet and a ResNet-50: SGD with momentum 0.9, rate 0.00025, batches
of 64. On all other data sets it takes Adam at 0.001 and batches of 128: ``optimizer=adam
optimizer.lr=0.001 batch_size=128``.

What differs: group, layer and instance norm learn too, where the paper speaks of batch norm only.
The paper's own ENT (``--recipe ent``) has the same loss at other rates, and more than one epoch.
"""

from __future__ import annotations

from acclimate.parts.objectives import CrossEntropy
from acclimate.parts.optimizers import SGD
from acclimate.recipe import Recipe

__all__ = ["TENT"]

TENT = Recipe(
    name="tent",
    summary="TENT: entropy minimisation over the affines, one pass (Wang et al. 2021)",
    objective=CrossEntropy(stop_gradient=False),
    optimizer=SGD(lr=0.00025),
    batch_size=64,
)
