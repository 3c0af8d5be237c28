"""Pages of the documentation as code that can run: their blocks, and a folder to run them in."""

from __future__ import annotations

import doctest
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ROOT", "Block", "blocks_of", "commands_of", "pages", "run_python"]

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|:{3,})(?P<kind>[^`\n]*)\n"
    r"(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    flags=re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """A fenced block: its language, its code, the line it begins at."""

    kind: str
    text: str
    line: int


def pages() -> list[Path]:
    """README and every page of the site."""
    written = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in written if "_site" not in page.parts)]


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, cells of notebooks among them."""
    text = page.read_text()
    for found in _FENCE.finditer(text):
        kind = found["kind"].strip().removeprefix("{code-cell} ")
        code = "\n".join(
            line for line in textwrap.dedent(found["text"]).splitlines() if line[:2] != ":t"
        )
        yield Block(kind, code + "\n", text[: found.start()].count("\n") + 2)


def run_python(page: Path, names: dict[str, Any]) -> int:
    """Run a page's Python from top to bottom, as a reader would; returns how many blocks there are.

    Lines of code keep their numbers, so that a traceback points into the page.
    """
    count = 0
    for block in blocks_of(page):
        if block.kind != "python":
            continue
        count += 1
        if block.text.startswith(">>>"):
            _run_doctest(page, block)
        else:
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, str(page), "exec", dont_inherit=True), names)
    return count


def _run_doctest(page: Path, block: Block) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    parsed = doctest.DocTestParser().get_doctest(block.text, {}, page.name, str(page), block.line)
    failed: list[str] = []
    runner.run(parsed, out=failed.append)
    assert not failed, "".join(failed)


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words after ``acclimate`` of every command in a page's shell blocks."""
    for block in blocks_of(page):
        if block.kind != "bash":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "acclimate" in words and "pip" not in words:
                after = words[words.index("acclimate") + 1 :]
                yield [word for word in after if word != "..."]
