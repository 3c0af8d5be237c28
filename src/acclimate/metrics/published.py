"""What the paper prints, row by row, with the label of each table in its .tex file.

Values are kept as printed, also where they do not follow from each other; docs/metrics.md says
where. A row whose numbers stand under the wrong column heads is read in its true order here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

from acclimate.data.shift import DEV, TEST

__all__ = [
    "ALEXNET_CORRUPTIONS",
    "ALEXNET_DOMAINS",
    "CORRUPTIONS",
    "DEV_CORRUPTIONS",
    "DOMAINS",
    "PublishedRow",
    "published_corruptions",
    "published_domains",
]


def _read(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


_CORRUPTIONS = _read("paper_corruptions.json")
_DOMAINS = _read("paper_domains.json")

CORRUPTIONS = TEST
"""The fifteen corruptions that make the mCE, in the order of the benchmark."""

DEV_CORRUPTIONS = DEV
"""The four hold-out corruptions, on which hyper-parameters are chosen."""

DOMAINS: tuple[str, ...] = tuple(_DOMAINS["domains"])
"""The six domains that make the mDE."""

ALEXNET_CORRUPTIONS: Mapping[str, float] = MappingProxyType(_CORRUPTIONS["alexnet"]["errors"])
"""AlexNet's top-1 error in percent on ImageNet-C, mean of five severities (tab:alexnet_in_c)."""

ALEXNET_DOMAINS: Mapping[str, float] = MappingProxyType(_DOMAINS["alexnet"]["errors"])
"""AlexNet's top-1 error in percent on ImageNet-D (tab:alexnet-in-d)."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A row of a table of the paper.

    Attributes:
        label: of the table, in the .tex file.
        dataset: ImageNet-C, CIFAR10-C or ImageNet-D.
        model: the model, with how it was trained.
        recipe: none, bn, ent or rpl as here; mt3 for that method's own row.
        errors: top-1 error in percent by corruption or domain.
        metric: what is printed at the end of the row: mCE, mean error or mDE.
        printed: that number.
        reordered: whether the paper has its numbers under the wrong column heads.
        note: which layers learn, or whose numbers these are, where it is not plain.
    """

    label: str
    dataset: str
    model: str
    recipe: str
    errors: Mapping[str, float]
    metric: str
    printed: float
    reordered: bool = False
    note: str = ""


def published_corruptions() -> list[PublishedRow]:
    """Every per-corruption row of the paper on ImageNet-C and CIFAR10-C.

    >>> row = published_corruptions()[2]
    >>> row.model, row.recipe, row.errors["fog"], row.printed
    ('ResNet50', 'rpl', 32.5, 50.5)
    """
    orders = {"benchmark": TEST, "swapped": _CORRUPTIONS["swapped"]}
    return [_row(row, orders[row["order"]]) for row in _CORRUPTIONS["rows"]]


def published_domains() -> list[PublishedRow]:
    """Every per-domain row of the paper on ImageNet-D.

    >>> row = published_domains()[0]
    >>> row.model, row.recipe, row.errors["real"], row.printed
    ('ResNet50 vanilla', 'none', 40.1, 88.2)
    """
    return [_row(row, DOMAINS) for row in _DOMAINS["rows"]]


def _row(row: dict[str, Any], names: tuple[str, ...] | list[str]) -> PublishedRow:
    unread = ("row", "errors", "order")
    facts = {key: value for key, value in row.items() if key not in unread}
    errors = dict(zip(names, row["errors"], strict=True))
    # In the order of the benchmark, whatever the order they were printed in.
    ordered = {name: errors[name] for name in (*CORRUPTIONS, *DOMAINS) if name in errors}
    return PublishedRow(errors=ordered, reordered=row.get("order") == "swapped", **facts)
