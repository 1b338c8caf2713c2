"""How results show themselves: in words, as HTML in a notebook, and as a line of progress."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

__all__ = [
    "Panels", "Progress", "bracket_drawing", "bracket_words", "card", "curves", "duration", "fold", "not_echoed",
    "plain", "table",
]  # fmt: skip

_WIDTH, _HEIGHT = 360, 90  # of drawings, in pixels
_SHOWN_ROWS = 12


def escape(text: str) -> str:
    """Text as HTML has it."""
    from html import escape as escaped  # its table of entities takes long to load, and most results are not shown so

    return escaped(text)


def duration(seconds: float) -> str:
    """A time as a person would say it: ``31 ms``, ``2.4 s``, ``3 min``."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.{0 if seconds >= 0.01 else 1}f} ms"
    return f"{seconds:.2g} s" if seconds < 100.0 else f"{seconds / 60.0:.0f} min"


def bracket_words(lower: float, upper: float, value: float | None = None) -> str:
    """Where the optimum lies, with as many digits as are known; as a value inside where the ends are so close.

    >>> bracket_words(1060.0, 1122.0), bracket_words(2.0, 2.0 + 1e-13), bracket_words(-math.inf, 3.5)
    ('between 1060 and 1122', '2, to 13 digits', 'at most 3.5')
    """
    if lower == upper and math.isinf(lower):
        return "none: no point satisfies the constraints"
    if not math.isfinite(lower) and not math.isfinite(upper):
        return "nothing is known of it"
    if not math.isfinite(lower):
        return f"at most {upper:.10g}"
    if not math.isfinite(upper):
        return f"at least {lower:.10g}"
    gap, size = upper - lower, max(abs(lower), abs(upper))
    if gap <= 0.0 and upper == round(upper):
        return f"{upper:.12g}, exactly"
    known = math.floor(-math.log10(gap / size)) if gap > 0.0 else 16
    if known >= 10:
        return f"{upper if value is None else value:.12g}, to {min(known, 16)} digits"
    shown = max(4, known + 3)
    return f"between {lower:.{shown}g} and {upper:.{shown}g}"


# -- HTML -------------------------------------------------------------------------------------------------------------
# Colours are the reader's own (`currentColor`), so that light and dark notebooks both show them.


def card(title: str, rows: Iterable[tuple[str, str]], *parts: str) -> str:
    """A heading, lines of a name and a value, and what follows them; values are escaped, parts are HTML."""
    lines = "".join(
        f'<tr><td style="text-align:left;padding:0 1em 0 0;opacity:.7">{escape(name)}</td>'
        f'<td style="text-align:left;padding:0">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return (
        f'<div style="line-height:1.5"><strong>{escape(title)}</strong>'
        f'<table style="border:0;margin:.3em 0;background:none">{lines}</table>{"".join(parts)}</div>'
    )


def fold(title: str, content: str) -> str:
    """What is shown when someone clicks; `content` is HTML."""
    return f'<details><summary style="cursor:pointer">{escape(title)}</summary>{content}</details>'


def plain(text: str) -> str:
    """Lines as they are, folded between words where there is no room for them."""
    return f'<pre style="white-space:pre-wrap;word-break:normal">{escape(text)}</pre>'


def table(columns: Mapping[str, Any], most: int = _SHOWN_ROWS) -> str:
    """Columns by name; of a long table, `most` rows at even distances, with the first and the last."""
    length = min((len(values) for values in columns.values()), default=0)
    rows = np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int)).tolist() if length else []
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    cells = ["".join(f"<td>{_cell(values[i])}</td>" for values in columns.values()) for i in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.6g}" if math.isfinite(value) else "–"
    return escape(str(value))


def bracket_drawing(lower: float, upper: float) -> str:
    """A line with the bracket on it; an end that is unknown is an arrow, a closed bracket a dot."""
    if not math.isfinite(lower) and not math.isfinite(upper):
        return ""
    left, right, middle = 50, _WIDTH - 50, _WIDTH / 2
    closed = math.isfinite(lower) and upper - lower <= 1e-9 * max(1.0, abs(upper))
    stroke = 'stroke="currentColor" fill="none"'
    text = 'fill="currentColor" font-size="12" text-anchor="middle"'
    marks = [f'<path d="M5 25H{_WIDTH - 5}" {stroke} stroke-width="2" opacity=".25"/>']
    if closed:
        marks += [f'<circle cx="{middle}" cy="25" r="5" fill="currentColor"/>']
        marks += [f'<text x="{middle}" y="50" {text}>{upper:.10g}</text>']
    else:
        marks += [f'<path d="M{left} 25H{right}" {stroke} stroke-width="6" opacity=".6"/>']
        for value, x, end in ((lower, left, "l8 -8m-8 8l8 8"), (upper, right, "l-8 -8m8 8l-8 8")):
            known = math.isfinite(value)
            marks += [f'<path d="M{x} {13 if known else 25}{"v24" if known else end}" {stroke} stroke-width="2"/>']
            marks += [f'<text x="{x}" y="50" {text}>{f"{value:.6g}" if known else "?"}</text>']
    label = escape(bracket_words(lower, upper))
    return f'<svg width="{_WIDTH}" height="58" role="img" aria-label="the optimum is {label}">{" ".join(marks)}</svg>'


def curves(x: Any, lines: Mapping[str, Any]) -> str:
    """Small curves over a common axis, as a drawing; nothing where there are fewer than two finite points."""
    x = np.asarray(x, dtype=float)
    series = {name: np.asarray(y, dtype=float) for name, y in lines.items()}
    finite = np.concatenate([y[np.isfinite(y)] for y in series.values()]) if series else np.empty(0)
    if x.size < 2 or finite.size < 2 or x[-1] == x[0]:
        return ""
    low, high = float(finite.min()), float(finite.max())
    scale = (_HEIGHT - 24) / ((high - low) or 1.0)
    drawn = []
    for number, y in enumerate(series.values()):
        shown = np.isfinite(y)
        across = 10 + (_WIDTH - 20) * (x[shown] - x.min()) / (x.max() - x.min())
        points = " ".join(f"{a:.1f},{12 + (high - v) * scale:.1f}" for a, v in zip(across, y[shown], strict=True))
        dash = ' stroke-dasharray="4 3"' if number % 2 else ""
        drawn.append(f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"{dash}/>')
    names = escape(", ".join(series))
    caption = f'<div style="opacity:.7">{names}: {low:.6g} to {high:.6g}</div>'
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{names}">{"".join(drawn)}</svg>{caption}'


# -- Plots and progress -----------------------------------------------------------------------------------------------


class Panels(np.ndarray[Any, Any]):
    """Axes of a plot, as an array that a notebook does not echo: the picture is what was asked for."""

    @classmethod
    def of(cls, axes: Any) -> Self:
        """The axes, in an array of this type."""
        return np.asarray(axes).view(cls)

    @property
    def figure(self) -> Any:
        """The figure they are in, as axes have it: ``r.plot().figure.savefig("run.png")``."""
        return self.flat[0].figure

    def __repr__(self) -> str:
        return f"<{' x '.join(map(str, self.shape))} axes>"

    def _ipython_display_(self) -> None:
        """Show nothing."""


def not_echoed(axes: Any) -> Any:
    """The axes of one picture, which a notebook does not echo either."""
    axes._ipython_display_ = lambda: None
    return axes


class Progress:
    """One line that is written over: in a terminal by a carriage return, in a notebook by updating its output.

    Lines come at most ten times a second, the last one always. In a file only the last one is written.
    """

    def __init__(self, shown: bool) -> None:
        self._shown, self._due, self._line = shown, 0.0, ""
        self._handle: Any = None
        self._notebook = shown and _in_notebook()

    @property
    def shown(self) -> bool:
        """Whether lines are written at all."""
        return self._shown

    def show(self, line: str) -> None:
        """Write a line, unless one was written a moment ago."""
        now = time.monotonic()
        if not self._shown or now < self._due:
            return
        self._due = now + 0.1
        self._write(line)

    def end(self, line: str) -> None:
        """Write the last line."""
        if not self._shown:
            return
        if self._notebook:
            self._write(line)
        elif sys.stderr.isatty():
            self._write(line)
            sys.stderr.write("\n")
        else:
            sys.stderr.write(f"  {line}\n")
        sys.stderr.flush()

    def _write(self, line: str) -> None:
        if self._notebook:
            self._update(line)
        elif sys.stderr.isatty():
            sys.stderr.write(f"\r  {line.ljust(len(self._line))}")
            sys.stderr.flush()
            self._line = line

    def _update(self, line: str) -> None:
        display = importlib.import_module("IPython.display").display  # there, since a notebook is

        content = {"text/plain": line}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _in_notebook() -> bool:
    """Whether output goes to a notebook, which keeps every line that is written to it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")
