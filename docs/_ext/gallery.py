"""Animations of the gallery with buttons of their own: Matplotlib's load a font of icons from another host."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

ICONS = {
    "minus": "−", "plus": "+", "play": "▶", "pause": "❚❚", "fast-backward": "«", "fast-forward": "»",
    "step-backward": "❙◀", "step-forward": "▶❙",
}  # fmt: skip


def own_icons(app: Sphinx, pagename: str, templatename: str, context: dict[str, str], doctree: object) -> None:
    """Write characters where icons would be drawn, and leave the link to their font out."""
    if pagename.startswith("gallery/") and "font-awesome" in context.get("body", ""):
        body = re.sub(r'<link rel="stylesheet"\s+href="https://[^"]*font-awesome[^"]*">', "", context["body"])
        body = re.sub(r'<i class="fa fa-play fa-flip-horizontal"></i>', "◀", body)
        context["body"] = re.sub(r'<i class="fa fa-([a-z-]+)"></i>', lambda m: ICONS[m[1]], body)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the hook."""
    app.connect("html-page-context", own_icons)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
