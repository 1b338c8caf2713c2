"""What a report is made of, whatever it is rendered to.

Prose is a small Markdown: backquotes for code, asterisks for emphasis, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

__all__ = [
    "Agreement",
    "Block",
    "Check",
    "ClaimVerdict",
    "Column",
    "Figure",
    "Page",
    "ReportTable",
    "Section",
    "Text",
    "number",
]


class Agreement(Enum):
    """How a measurement stands to what the paper says; the value is what the report shows."""

    AGREES = "agrees"
    PARTLY = "agrees in part"
    CONTRADICTS = "contradicts"
    OPEN = "undecided"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", " ".join(self.text.split()))


@dataclass(frozen=True)
class Column:
    """A column: its heading, and how its values are written.

    Parameters
    ----------
    title : str
        The heading.
    write : callable or str, optional
        A format such as ``".3f"``, or a function from the value to its text. A column without one is text. A value may
        be a pair of a mean and its deviation, each written so; the mean is what the column is sorted by.
    """

    title: str
    write: Callable[[Any], str] | str | None = None

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers, aligned to the right."""
        return self.write is not None

    def text(self, value: Any) -> str:
        """A value as it is shown; a dash for what there is none of."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        if self.write is None:
            return str(value)
        if isinstance(value, tuple):
            return " ± ".join(self.text(part) for part in value)
        return format(value, self.write) if isinstance(self.write, str) else self.write(value)

    def key(self, value: Any) -> float | None:
        """What a column of numbers is sorted by; None sorts last."""
        return None if value is None else float(value[0] if isinstance(value, tuple) else value)


@dataclass(frozen=True)
class ReportTable:
    """Rows of values under columns; sortable where the medium can."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Figure:
    """One or more panels, each drawn by a function of Matplotlib axes, with one caption."""

    name: str
    caption: str
    panels: Mapping[str, Callable[[Any], None]]


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim of the paper, what was measured here, whether the two agree, and by which rule that was decided."""

    claim: str
    measured: str
    outcome: Agreement
    rule: str
    kept: str = ""  # what a longer run found, where it was something else


@dataclass(frozen=True)
class Check:
    """A statement about the numbers of the report that has to hold; where it does not, the run fails."""

    statement: str
    holds: bool


Block = Text | ReportTable | Figure | ClaimVerdict | Check


@dataclass
class Section:
    """A part of the report."""

    name: str
    title: str
    blocks: list[Block] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.blocks.append(Text(text))

    def table(self, name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table."""
        self.blocks.append(ReportTable(name, caption, columns, rows))

    def figure(self, name: str, caption: str, panels: Mapping[str, Callable[[Any], None]]) -> None:
        """Add a figure."""
        self.blocks.append(Figure(name, caption, panels))

    def verdict(self, claim: str, measured: str, outcome: Agreement | bool, *, rule: str) -> None:
        """Add a claim with what was measured and the rule that decides; a bool means that it agrees or contradicts."""
        if isinstance(outcome, (bool, np.bool_)):
            outcome = Agreement.AGREES if outcome else Agreement.CONTRADICTS
        self.blocks.append(ClaimVerdict(claim, " ".join(measured.split()), outcome, rule))

    def check(self, statement: str, holds: Any) -> None:
        """Add a statement that has to hold; an array holds where all of it does."""
        self.blocks.append(Check(statement, bool(np.all(holds))))

    def equal(self, statement: str, value: Any, reference: Any, *, rtol: float = 1e-12, atol: float = 0.0) -> None:
        """Check that numbers agree with an independent reference; where they do not, say how far they are apart."""
        value, reference = np.asarray(value, dtype=np.float64), np.asarray(reference, dtype=np.float64)
        holds = bool(np.allclose(value, reference, rtol=rtol, atol=atol))
        apart = float(np.max(np.abs(value - reference)))
        self.check(statement if holds else f"{statement} (they differ by {apart:.1e})", holds)

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """The blocks of one kind."""
        return [block for block in self.blocks if isinstance(block, kind)]


@dataclass(frozen=True)
class Page:
    """The whole report."""

    title: str
    lead: str
    facts: Mapping[str, str]  # mode, seed, machine, versions
    sections: Sequence[Section]

    @property
    def verdicts(self) -> list[tuple[Section, ClaimVerdict]]:
        """Every claim with its section."""
        return [(section, verdict) for section in self.sections for verdict in section.of_kind(ClaimVerdict)]

    @property
    def failures(self) -> list[str]:
        """The checks that do not hold."""
        return [
            f"{section.title}: {check.statement}"
            for section in self.sections
            for check in section.of_kind(Check)
            if not check.holds
        ]


def number(value: float) -> str:
    """A number to read: three digits, with a power of ten where it is small or large."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
