"""A figure as PNG, where resvg is installed."""

from __future__ import annotations

from importlib.util import find_spec

from acclimate.errors import AcclimateError
from acclimate.report.svg import FONTS, document, text

__all__ = ["png", "why_no_png"]

_MISSING = "PNG needs resvg: pip install 'acclimate[plots]'"
_LETTER = text(0, 15, "M", font_family=FONTS)


def why_no_png() -> str | None:
    """The reason in words, or None where PNG can be made."""
    if find_spec("resvg_py") is None:
        return _MISSING
    from resvg_py import svg_to_bytes

    with_letter, blank = (
        svg_to_bytes(svg_string=document([part], width=20, height=20, title="", description=""))
        for part in (_LETTER, "")
    )
    if with_letter == blank:  # resvg leaves out words it has no font for, and says nothing
        return "PNG needs a common font on this machine, such as DejaVu Sans, and found none"
    return None


def png(svg: str, *, zoom: float = 2.0) -> bytes:
    """The figure in light colours, ``zoom`` pixels for each of the SVG's.

    >>> if why_no_png() is None:
    ...     box = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"/>'
    ...     assert png(box).startswith(b"\\x89PNG")
    """
    if find_spec("resvg_py") is None:
        raise AcclimateError(_MISSING)
    from resvg_py import svg_to_bytes

    return bytes(svg_to_bytes(svg_string=svg, zoom=zoom))
