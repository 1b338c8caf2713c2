"""Fail where a page of the built documentation links to a page, a file or a heading that is not there.

``python tools/check_links.py docs/_build/html``; links to other hosts are not followed.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page can be linked at, and what it links to or loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note names and addresses."""
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            elif value and name in ("href", "src"):
                self.links.append((tag, value))


@cache
def page(path: Path) -> Page:
    """A page, parsed once."""
    return Page(path)


def broken(root: Path) -> list[str]:
    """A sentence for every link within the site that leads nowhere, and for everything loaded from another host."""
    found = []
    for path in sorted(root.rglob("*.html")):
        for tag, link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if tag in ("script", "link", "img") and parts.scheme != "data":
                    found.append(f"{path.relative_to(root)}: {link} is loaded from another host")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{path.relative_to(root)}: {link} is not there")
            elif parts.fragment and target.suffix == ".html":
                fragment = unquote(parts.fragment)
                if fragment not in page(target).anchors:
                    found.append(f"{path.relative_to(root)}: {link} has no such heading")
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    wrong = broken(folder)
    print("\n".join(wrong) or f"{len(list(folder.rglob('*.html')))} pages, and no link within them is broken.")
    sys.exit(bool(wrong))
