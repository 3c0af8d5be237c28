"""Where a library fetches published weights from; told without fetching them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Origin"]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a library's own record says of its weights; None where it says nothing.

    ``hub`` is a name on the hub of Hugging Face, ``place`` an address or a folder.
    """

    library: str
    hub: str | None = None
    place: str | None = None
    licence: str | None = None
