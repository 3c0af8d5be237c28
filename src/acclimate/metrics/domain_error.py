"""mDE, the mean domain error of ImageNet-D: error relative to AlexNet's, by domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acclimate.metrics.measured import Errors, figure_of
from acclimate.metrics.published import ALEXNET_DOMAINS, DOMAINS
from acclimate.metrics.relative_error import RelativeError, read_errors, relative_parts

__all__ = ["MeanDomainError", "mde"]


@dataclass(frozen=True, kw_only=True)
class MeanDomainError(RelativeError):
    """The mDE, and of what it is the mean."""

    @property
    def domains(self) -> Mapping[str, float]:
        """The domain error (DE) of each domain, in percent of the baseline's error."""
        return self.parts


def mde(
    errors: Errors,
    *,
    baseline: Mapping[str, float] = ALEXNET_DOMAINS,
    partial: bool = False,
    images: int | None = None,
    interval: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> MeanDomainError:
    """Mean over the six domains of the model's error over the baseline's, in percent.

    The paper's formula prints the mean of the errors themselves; its text, and the numbers of
    unadapted models, mean that of the relative errors. Arguments are those of :func:`mce`.

    >>> print(mde({"clipart": 76.0, "infograph": 89.6, "painting": 65.1, "quickdraw": 99.2,
    ...            "real": 40.1, "sketch": 82.0}))
    mDE 88.2 % (number of images not stated)
    """
    measured = read_errors(
        errors, kind="domain", metric="mDE", names=DOMAINS, partial=partial, severities=1
    )
    parts = relative_parts(measured, kind="domain", baseline=baseline)
    missing = len(parts) < len(DOMAINS)
    figure = figure_of(
        measured,
        weights=[100 / baseline[m.name] / len(measured) for m in measured],
        images=images,
        interval=interval,
        draws=draws,
        seed=seed,
    )
    return MeanDomainError(
        metric="mDE",
        figure=figure,
        parts=parts,
        expected=len(DOMAINS),
        notes=(f"over {len(parts)} of {len(DOMAINS)} domains",) if missing else (),
    )
