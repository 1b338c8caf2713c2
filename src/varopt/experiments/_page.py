"""A page of the tour: prose, tables and the checks that stand behind their numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["WIDTH", "Check", "Page", "Section"]

WIDTH = 96


@dataclass(frozen=True)
class Check:
    """A statement about printed numbers, and whether it was found to hold."""

    statement: str
    holds: bool


@dataclass(frozen=True)
class Section:
    """A finished page."""

    title: str
    lines: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """The statements that did not hold."""
        return tuple(check.statement for check in self.checks if not check.holds)

    def text(self, number: int) -> str:
        """The page as it is printed."""
        heading = f"{number}. {self.title}"
        count = len(self.checks)
        verdict = [f"FAILED: {failure}." for failure in self.failures]
        verdict = verdict or [f"[{count} check{'' if count == 1 else 's'} held]"]
        return "\n".join([heading, "-" * len(heading), *self.lines, *verdict, ""])


class Page:
    """Collects what a section says. Statements are sentences without their full stop; they are printed if they fail."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[str] = []
        self._checks: list[Check] = []

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self._lines += [*textwrap.wrap(" ".join(text.split()), WIDTH), ""]

    def table(self, columns: dict[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table; `columns` maps each heading to the format of its entries, as in ``format(value, ".3f")``."""
        cells = [[format(value, spec) for value, spec in zip(row, columns.values(), strict=True)] for row in rows]
        text = [isinstance(value, str) for value in rows[0]]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for line in [list(columns), *cells]:
            aligned = (c.ljust(w) if left else c.rjust(w) for c, w, left in zip(line, widths, text, strict=True))
            self._lines.append(("  " + "   ".join(aligned)).rstrip())
        self._lines.append("")

    def check(self, statement: str, holds: Any) -> None:
        """Record a statement; an array holds where all of it does."""
        self._checks.append(Check(statement, bool(np.all(holds))))

    def equal(self, statement: str, value: Any, reference: Any, *, rtol: float = 1e-12, atol: float = 0.0) -> None:
        """Record that numbers agree with an independent reference; where they do not, the statement tells how far."""
        value, reference = np.asarray(value, dtype=np.float64), np.asarray(reference, dtype=np.float64)
        holds = np.allclose(value, reference, rtol=rtol, atol=atol)
        apart = float(np.max(np.abs(value - reference)))
        self.check(statement if holds else f"{statement} (they differ by {apart:.1e})", holds)

    def finish(self) -> Section:
        """The section, with all that was said and checked."""
        return Section(self._title, tuple(self._lines), tuple(self._checks))
