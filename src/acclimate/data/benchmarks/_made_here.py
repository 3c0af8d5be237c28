"""Data sets that ``acclimate corrupt`` wrote in the layout of a published one."""

from __future__ import annotations

import json
from pathlib import Path

from acclimate.errors import AcclimateError

__all__ = ["images_made_here"]


def images_made_here(root: Path) -> int | None:
    """How many clean pictures the manifest of a set says it was made from; None without one."""
    manifest = root / "manifest.json"
    if not manifest.is_file():
        return None
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AcclimateError(f"expected JSON in {manifest}, got: {error}") from error
    images = content.get("images") if isinstance(content, dict) else None
    return images if type(images) is int else None
