"""The page as text: style, script and contents are in it."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from varopt.search.page._follow import Follower

__all__ = ["journal_page", "page_of"]


def journal_page(path: str | Path) -> str:
    """The page of a journal, which is only read.

    Parameters
    ----------
    path : path
        The journal.

    Returns
    -------
    str
        One HTML page that needs nothing else.
    """
    return page_of(Follower(Path(path)).read())


def page_of(contents: dict[str, Any], *, follow: bool = False) -> str:
    """The page with these contents; if it follows, it asks its server for newer ones."""
    asset = files("varopt.search.page")
    style, script = (asset.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    data = json.dumps(contents, allow_nan=False).replace("<", "\\u003c")  # nothing in it ends the script
    return f"""<!DOCTYPE html>
<html lang="en"{' data-follow="1"' if follow else ""}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(contents["name"])}: a search by varopt</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<button type="button" id="theme" title="Switch between dark and light">dark / light</button>
<h1 id="name"></h1>
<p id="note" role="status"></p>
<dl id="facts"></dl>
</header>
<main id="main"><noscript>This page draws its figures with a script, which is switched off.</noscript></main>
<script type="application/json" id="contents">{data}</script>
<script>
{script}</script>
</body>
</html>
"""
