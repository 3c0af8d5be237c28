"""How the site is built; ``./docs/build`` does it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from acclimate import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the directive below is a file beside this one

project = "acclimate"
author = "The acclimate developers"
copyright = "The acclimate developers, Apache-2.0"
release = __version__

extensions = [
    "myst_nb",  # pages in Markdown; notebooks as text, run while the site is built
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "reference_pages",
]
exclude_patterns = ["_site", "jupyter_execute", "releasing.md"]  # myst-nb leaves its notebooks
default_role = "literal"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.xref_missing_heading"]

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_site/.notebooks")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 240
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"acclimate {__version__}"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False


def offer_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Pages of the repository that are not of the site are offered as files."""
    folder = (HERE / page).parent

    def offered(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        return found[0] if target.is_relative_to(HERE) else f"](path:{found[1]})"

    source[0] = re.sub(r"\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)", offered, source[0])


def write_formula(writer: HTML5Translator, node: nodes.Element) -> None:
    """A formula as MathML, which browsers draw: the site asks the network for nothing."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", offer_files)
