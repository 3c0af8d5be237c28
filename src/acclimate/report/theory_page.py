"""The interactive page: one HTML file that asks for nothing else, from disk or anywhere."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["theory_page"]

_PARTS = ("page.css", "model.js", "drawing.js", "page.js")


def theory_page() -> str:
    """The page, with its style and scripts put in.

    >>> page = theory_page()
    >>> page[:15], "page.js*/" in page, "function trajectory" in page
    ('<!doctype html>', False, True)
    """
    folder = files("acclimate.report") / "theory_assets"
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in _PARTS:
        page = page.replace(f"/*{name}*/", (folder / name).read_text(encoding="utf-8").strip())
    return page
