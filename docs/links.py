"""``python docs/links.py docs/_site`` lists the local links of a built site that lead nowhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links of a page, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called for every tag."""
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def dead_links(site: Path) -> Iterator[str]:
    """Links to a file, or to a place in a file, that is not there."""
    pages = {path.resolve(): Page(path.read_text()) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            target = urlsplit(link)
            if target.scheme or target.netloc:
                continue
            file = (path.parent / unquote(target.path)).resolve() if target.path else path
            at = unquote(target.fragment)
            missing = not file.exists() or (at and file in pages and at not in pages[file].anchors)
            if missing:
                yield f"{path.relative_to(site.resolve())}: {link}"


def main(site: str) -> int:
    """Print dead links; the exit status is 1 if there are any."""
    found = sorted(dead_links(Path(site)))
    print("\n".join(found) or "all local links lead somewhere", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
