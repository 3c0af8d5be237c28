"""Directives: ``public``, a package's names, each on one page only; ``commands``, their help."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from acclimate.cli.parser import build_parser

PACKAGES = (
    "acclimate", "acclimate.data", "acclimate.models", "acclimate.methods", "acclimate.parts",
    "acclimate.learner", "acclimate.metrics", "acclimate.bench", "acclimate.pretraining",
    "acclimate.theory", "acclimate.parallel", "acclimate.callbacks", "acclimate.serve",
)  # fmt: skip
"""With a page each; a name that several have is described by the first."""


def public_names(package: str) -> Iterator[tuple[str, Any]]:
    """Names and objects of ``__all__``, without packages, which have pages of their own."""
    module = import_module(package)
    for name in module.__all__:
        found = getattr(module, name)
        if not isinstance(found, ModuleType) and name != "__version__":
            yield name, found


def home(package: str, name: str, found: Any) -> str:
    """The package whose page describes it."""
    for other in PACKAGES[: PACKAGES.index(package)]:
        if any(found is each for same, each in public_names(other) if same == name):
            return other
    return package


def first_sentence(name: str, found: Any) -> str:
    """What a table says of it."""
    if not callable(found):
        return _data_words(name, found).partition("\n")[0]
    return (inspect.getdoc(found) or "").partition("\n")[0]


def _data_words(name: str, found: Any) -> str:
    """The string below a constant, in whichever module defines it."""
    for module in sorted(m for m in sys.modules if m.startswith("acclimate")):
        if getattr(sys.modules[module], name, None) is found:
            documented = ModuleAnalyzer.for_module(module).find_attr_docs()
            if ("", name) in documented:
                return "\n".join(documented["", name]).strip()
    return ""


def describe(package: str) -> str:
    """A table of the names, then each in full, in reStructuredText."""
    table, full = [], []
    for name, found in public_names(package):
        at = f"{home(package, name, found)}.{name}"
        role = "class" if inspect.isclass(found) else "func" if callable(found) else "data"
        if inspect.isclass(found) and issubclass(found, BaseException):
            role = "exc"
        link = f":py:{role}:`{name} <{at}>`"
        table.append(f"   * - {link}\n     - {first_sentence(name, found)}")
        if at != f"{package}.{name}":
            continue
        defined = ".".join(str(getattr(found, "__module__", package)).split(".")[:2])
        if not package.startswith(defined) and not defined.startswith(package):
            # Pages of source code link to the package that a module lies in.
            full.append(f'.. raw:: html\n\n   <span id="{defined}.{name}"></span>\n')
        if inspect.isclass(found):
            full.append(f".. autoclass:: {at}\n   :members:\n   :show-inheritance:\n")
        elif callable(found):
            full.append(f".. autofunction:: {at}\n")
        else:
            words = textwrap.indent(_data_words(name, found), "   ")
            full.append(f".. py:data:: {at}\n\n{words}\n")
    head = ".. list-table::\n   :widths: 30 70\n   :class: names\n\n"
    return head + "\n".join(table) + "\n\n" + "\n".join(full)


class Public(SphinxDirective):
    """``.. public:: acclimate.data``"""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The package's docstring, and its names."""
        package = self.arguments[0]
        about = inspect.getdoc(import_module(package)) or ""
        return self.parse_text_to_nodes(
            f"{about}\n\n{describe(package)}", allow_section_headings=True
        )


class Commands(SphinxDirective):
    """``.. commands::``"""

    def run(self) -> list[nodes.Node]:
        """A section for each command, with its help."""
        found: list[nodes.Node] = []
        parser = build_parser()
        subparsers = next(
            action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        )
        with mock.patch.dict(os.environ, COLUMNS="80"):
            for name, command in subparsers.choices.items():
                section = nodes.section(ids=[nodes.make_id(f"command-{name}")])
                section += nodes.title("", f"acclimate {name}")
                text = command.format_help()
                section += nodes.literal_block(text, text, language="text")
                found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("public", Public)
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
