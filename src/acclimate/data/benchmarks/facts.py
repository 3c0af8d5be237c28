"""What to know of each data set before getting it: the facts in ``datasets.json``."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from acclimate.data.benchmarks.registry import Dataset, register_dataset

__all__ = ["register"]

_FACTS: dict[str, dict[str, Any]] = json.loads(
    resources.files(__package__).joinpath("datasets.json").read_text(encoding="utf-8")
)


def register(name: str, **how: Any) -> None:
    """Make a data set known by its facts and by how it is opened and checked."""
    facts = {**_FACTS[name], "layout": "\n".join(_FACTS[name]["layout"])}
    register_dataset(Dataset(name=name, **facts, **how))
