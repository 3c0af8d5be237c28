"""ETA, efficient test-time adaptation (Niu et al., ICML 2022): EATA without its anchor.

Entropy minimisation over the normalisation layers' scale and shift, from some images only and from
the confident ones more, L = mean over those that count of S(x) H(p(x)):

    S(x) = exp(E0 - H(p)) · [H(p) < E0] · [cos(p, m) < d],      E0 = 0.4 log C

with m the moving average (0.9 old, 0.1 new) of the predictions that counted; S has no
gradient. Where no image counts there is no backward pass.

Defaults are the paper's for ImageNet and a ResNet-50: SGD with momentum 0.9, rate 0.00025, batches
of 64; d is 0.05 for 1,000 classes and 0.4 for 10 there, and a power law between here (see
:class:`~acclimate.parts.filters.ReliableDiverse`).

What differs: the margin is the text's, 0.4 log C, for any number of classes, where ports of the
code carry log(1000) / 2 - 1 along. The images that do not count are skipped as a whole batch only:
batch statistics couple them with the rest, so one forward and at most one backward pass of the
batch are needed.
"""

from __future__ import annotations

from dataclasses import replace

from acclimate.methods.tent import TENT
from acclimate.parts.filters import ReliableDiverse

__all__ = ["ETA"]

ETA = replace(
    TENT,
    name="eta",
    summary="ETA: entropy of the reliable and not redundant images (Niu et al. 2022)",
    filter=ReliableDiverse(),
)
