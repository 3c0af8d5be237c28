"""The templates of pages that need nothing else: no server, no network, no other file."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from acclimate._version import __version__
from acclimate.text import printable

__all__ = ["Bar", "rendered", "why_no_pages"]

_MISSING = "pages need jinja2: pip install 'acclimate[report]'"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A value in percent of the track, with an interval where there is one."""

    name: str
    words: str
    value: float
    low: float | None = None
    high: float | None = None


def why_no_pages() -> str | None:
    """What is missing, in words; None where pages can be written."""
    return None if find_spec("jinja2") else _MISSING


def rendered(template: str, **values: Any) -> str:
    """A page of ``report_assets``. All text in it is escaped, control characters written out."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("acclimate.report", "report_assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template(template).render(version=__version__, **values)
