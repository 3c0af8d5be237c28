"""On which images hyper-parameters may be chosen, and why not on others."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.experiments.job import Job

__all__ = ["check_leave_one_out", "check_selection", "refused"]

_VALIDATION = "val"
_ONLY_TESTS = (
    "imagenet-a", "imagenet-d", "imagenet-r", "imagenet-sketch", "imagenetv2", "cifar10.1",
)  # fmt: skip
"""Data sets that are there to report on; a corruption on top of them leaves their labels."""


def refused(job: Job) -> str | None:
    """Why nothing may be chosen on the images of a job; None where it may.

    >>> refused(Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/spatter:1")) is None
    True
    >>> refused(Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/fog:1"))
    'fog of cifar10 is a test corruption; choose on dev: --shifts cifar/dev'
    """
    data, splits = job.dataset, find_dataset(job.dataset).splits
    if _VALIDATION in splits:  # WILDS: other hospitals, places or batches than those of the test
        if job.split == _VALIDATION:
            return None
        return (
            f"{data} has a validation set from other domains to choose on, got its split "
            f"{job.split or splits[0]!r}; --split {_VALIDATION}"
        )
    if data in _ONLY_TESTS:
        more = ", or --leave-one-out" if find_dataset(data).shift_kind == "domain" else ""
        return (
            f"all of {data} is for reporting, and none of it for choosing; choose on "
            f"--datasets imagenet-c --shifts dev (CIFAR: cifar10-c), as the paper does{more}"
        )
    if job.group == "dev":
        return None
    dev = "dev" if job.preset is None and job.shift is not None else f"{job.preset or 'cifar'}/dev"
    if job.group == "test":
        what = f"{job.corruption} of {data} is a test corruption"
    elif job.shift is None:
        what = f"{data} without a shift is no hold-out set"
    else:
        what = f"{job.shift} of {data} is none of the hold-out corruptions"
    return f"{what}; choose on dev: --shifts {dev}"


def check_selection(jobs: Sequence[Job]) -> None:
    """Refuse to choose on images that results are reported on."""
    reasons = list(dict.fromkeys(reason for job in jobs if (reason := refused(job)) is not None))
    if reasons:
        more = f"\n  … and {len(reasons) - 3} more like this" if len(reasons) > 3 else ""
        listed = "".join(f"\n  - {reason}" for reason in reasons[:3])
        raise AcclimateError(
            "errors on the images that options were chosen on are too good to report, and these "
            f"are reported on:{listed}{more}\n--selection oracle chooses on them all the same, and "
            "marks the choice"
        )


def check_leave_one_out(jobs: Sequence[Job]) -> None:
    """Refuse to leave one out of what are not the domains of a data set, or of fewer than two."""
    for name in dict.fromkeys(job.dataset for job in jobs):
        kind, shifts = find_dataset(name).shift_kind, {j.shift for j in jobs if j.dataset == name}
        if kind != "domain" or len(shifts) < 2:
            raise AcclimateError(
                "expected two or more domains of one data set (imagenet-d) to leave each out in "
                f"turn, got {len(shifts)} {kind}(s) of {name}"
            )
    if len({job.dataset for job in jobs}) > 1:
        raise AcclimateError("expected one data set to leave each domain of it out in turn")
