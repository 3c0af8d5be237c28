"""SVG as text: elements, and a document with words for those who do not see it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["FONTS", "document", "element", "group", "number", "text"]

FONTS = "system-ui,'DejaVu Sans','Noto Sans','Liberation Sans',Arial,Helvetica,sans-serif"
"""By name, since resvg does not ask the system which font it prefers."""

# Plain properties and no variables, so that resvg reads it too. Dark follows the reader's system.
STYLE = (
    f".fig text{{font-family:{FONTS};font-size:12px;fill:#222}}"
    """
.fig .paper{fill:#fff}.fig .rule{stroke:#555;fill:none}.fig .grid{stroke:#ddd}
.fig .title{font-weight:600;font-size:13px}
@media (prefers-color-scheme:dark){.fig text{fill:#ddd}.fig .paper{fill:#16181d}
.fig .rule{stroke:#aaa}.fig .grid{stroke:#383c44}}"""
)


def number(value: float) -> str:
    """A coordinate, to a hundredth of a pixel.

    >>> number(3.0), number(-0.001), number(12.345)
    ('3', '0', '12.35')
    """
    plain = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if plain == "-0" else plain


def element(name: str, content: str = "", **attributes: str | float) -> str:
    """One element; ``class_`` and ``stroke_width`` become ``class`` and ``stroke-width``.

    >>> element("line", x1=0, x2=2.5, class_="grid")
    '<line x1="0" x2="2.5" class="grid"/>'
    """
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{words}>{content}</{name}>" if content else f"<{name}{words}/>"


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else number(value)


def text(x: float, y: float, words: str, **attributes: str | float) -> str:
    """Words at a place; ``text_anchor`` says which end of them is there."""
    return element("text", escape(words), x=x, y=y, **attributes)


def group(parts: Sequence[str], **attributes: str | float) -> str:
    """Several elements as one."""
    return element("g", "".join(parts), **attributes)


def document(
    parts: Sequence[str], *, width: float, height: float, title: str, description: str
) -> str:
    """A whole figure; title and description are read out in its place.

    >>> "<title>A &amp; B</title>" in document(
    ...     [], width=10, height=10, title="A & B", description="an empty figure"
    ... )
    True
    """
    head = element("title", escape(title)) + element("desc", escape(description))
    paper = element("rect", class_="paper", width=width, height=height)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="fig" role="img" '
        f'viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}">'
        f"{head}<style>{STYLE}</style>{paper}{''.join(parts)}</svg>"
    )
