"""Figures as SVG, in colours that follow the page: light, dark, or fixed for a file of its own."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

__all__ = ["standalone_svg", "themed_svg"]

# Legible on white and, where the page is dark, replaced by the lighter variables of the style sheet.
_SERIES = ("#1a66b0", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#0e7490", "#be185d", "#4b5563")
_INK, _RULE = "#1c1917", "#d6d3d1"


def standalone_svg(draw: Callable[[Any], None], title: str, size: tuple[float, float] = (4.6, 3.4)) -> str:
    """One panel as a whole SVG file, on white."""
    return _svg(draw, title, size, "#ffffff")


def themed_svg(draw: Callable[[Any], None], title: str, size: tuple[float, float] = (4.6, 3.4)) -> str:
    """One panel to be set into a page, its colours variables of the page: ``--ink``, ``--rule``, ``--series-1`` ..."""
    svg = _svg(draw, title, size, "none")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
    names = {_INK: "--ink", _RULE: "--rule"} | {colour: f"--series-{k}" for k, colour in enumerate(_SERIES, start=1)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var({name})")
    return svg


def _svg(draw: Callable[[Any], None], title: str, size: tuple[float, float], face: str) -> str:
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",  # text stays text: it scales, can be searched, and takes the page's font
        "svg.hashsalt": title,  # the same figure twice is the same file, and two figures share no identifiers
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9.5,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.prop_cycle": cycler(color=_SERIES),
        "axes.edgecolor": _RULE,
        "axes.labelcolor": _INK,
        "axes.titlecolor": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": _RULE,
        "grid.linewidth": 0.6,
        "text.color": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "axes.formatter.min_exponent": 3,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained", facecolor=face)
        axes = figure.add_subplot(facecolor="none")
        axes.set_title(title, loc="left")
        draw(axes)
        if (legend := axes.get_legend()) is not None:
            legend.set_zorder(3)
        file = io.StringIO()
        figure.savefig(file, format="svg", facecolor=face, metadata={"Date": None})
    return file.getvalue()
