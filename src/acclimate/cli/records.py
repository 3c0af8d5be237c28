"""What is written down of a model's weights, as rows to print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from acclimate.cli.tables import table

if TYPE_CHECKING:
    from acclimate.models.origin import Origin
    from acclimate.models.own import Checkpoint
    from acclimate.models.paper import PaperModel

__all__ = ["Rows", "checkpoint_rows", "origin_rows", "paper_rows", "rows_text"]

Rows: TypeAlias = Mapping[str, str | None]


def rows_text(rows: Rows) -> str:
    """Indented lines, without those that nothing is known for.

    >>> print(rows_text({"library": "timm", "licence": None}))
      library  timm
    """
    return table([[f"  {key}", value] for key, value in rows.items() if value])


def paper_rows(record: PaperModel) -> Rows:
    """Of a model of the paper."""
    error = "not published"
    if record.clean_error is not None:
        error = f"{record.clean_error:g} % of ImageNet validation ({record.clean_error_from})"
    by = "a file you give" if record.weights == "file" else f"{record.weights} fetches them"
    hashes = " or ".join(record.sha256)
    return {
        "model": record.title,
        "architecture": record.architecture,
        "weights": f"{by}; {record.page}",
        "files": ", ".join(record.files),
        "layout": record.layout,
        "licence": record.licence,
        "checksum": f"sha256 begins with {hashes}" if hashes else "not published",
        "clean error": error,
        "note": record.note,
    }


def checkpoint_rows(record: Checkpoint) -> Rows:
    """Of a network that comes with this package."""
    return {
        "architecture": f"acclimate:{record.architecture}",
        "trained on": record.trained_on,
        "error": f"{record.error:g} % of {record.images:,} images of {record.error_on}",
        "command": record.command,
        "file": f"{record.name}.safetensors, {record.size:,} bytes, half precision",
        "checksum": f"sha256 {record.sha256}",
    }


def origin_rows(origin: Origin) -> Rows:
    """Of weights that a library fetches."""
    return {
        "library": origin.library,
        "hub": origin.hub,
        "place": origin.place,
        "licence": origin.licence,
    }
