"""Brackets of an optimum. A certificate is a type: it says how its bounds came about and what they rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

__all__ = ["Certificate", "DualGap", "NoCertificate", "SmoothingGap"]


@dataclass(frozen=True)
class Certificate:
    """``lower <= optimum <= upper``, and the assumptions under which that holds."""

    lower: float
    upper: float
    assumption: str = ""

    rests_on: ClassVar[str] = ""

    @property
    def gap(self) -> float:
        """``upper - lower``; infinite where one side is unknown."""
        return self.upper - self.lower if math.isfinite(self.lower) and math.isfinite(self.upper) else math.inf

    def mirrored(self) -> Self:
        """The certificate of minus the objective."""
        return type(self)(-self.upper, -self.lower, self.assumption)

    def __str__(self) -> str:
        text = f"{type(self).__name__}: {self.rests_on}"
        return f"{text}; assumes that {self.assumption}" if self.assumption else text


@dataclass(frozen=True)
class DualGap(Certificate):
    """A point and a dual point: slopes of the terms, inside the domains of their conjugates."""

    rests_on: ClassVar[str] = "weak duality, with slopes of the terms as the dual point"


@dataclass(frozen=True)
class SmoothingGap(Certificate):
    """A minimum of the bound, less the most by which the bound exceeds the objective at its sigma: known a priori."""

    rests_on: ClassVar[str] = "the largest gap between the bound and the objective"


@dataclass(frozen=True)
class NoCertificate(Certificate):
    """One side only: the value of the best point found."""

    rests_on: ClassVar[str] = "the best point found; nothing is known of the other side"
