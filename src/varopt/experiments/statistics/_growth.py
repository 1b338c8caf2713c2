"""How times grow with the size: an exponent with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from varopt.experiments._tasks import Row
from varopt.experiments.report import Agreement

__all__ = ["Growth", "growth"]

_FEWEST_SIZES = 4  # below which a slope says nothing


@dataclass(frozen=True)
class Growth:
    """``seconds ~ c N^exponent``, with the standard error of the exponent; NaN where there are too few sizes."""

    exponent: float
    error: float
    sizes: int
    first: int | None  # the smallest size that counts
    freedom: int = 1  # degrees of freedom of the error

    def __str__(self) -> str:
        return "unknown" if math.isnan(self.exponent) else f"{self.exponent:.2f} ± {self.error:.2f}"

    def against(self, other: Growth) -> Agreement:
        """Whether it grows more slowly than the other, as far as a 95 % interval of the difference can tell."""
        apart = other.exponent - self.exponent
        reach = float(t.ppf(0.975, min(self.freedom, other.freedom))) * math.hypot(self.error, other.error)
        if not abs(apart) > reach:
            return Agreement.OPEN
        return Agreement.AGREES if apart > 0.0 else Agreement.CONTRADICTS


def growth(rows: Sequence[Row], method: str) -> Growth:
    """The slope of log seconds on log N.

    Only sizes at which every repetition arrived count: the others would say how fast the lucky ones were. Fewer than
    four sizes give no slope.
    """
    mine = [row for row in rows if row["method"] == method]
    missed = {row["size"] for row in mine if row["seconds"] is None}
    used = [row for row in mine if row["size"] not in missed]
    sizes = {row["size"] for row in used}
    if len(sizes) < _FEWEST_SIZES:
        return Growth(math.nan, math.nan, len(sizes), min(sizes, default=None))
    x = np.log([row["size"] for row in used])
    y = np.log([row["seconds"] for row in used])
    spread = x - x.mean()
    rate = float(spread @ y / (spread @ spread))
    residual = y - y.mean() - rate * spread
    error = math.sqrt(float(residual @ residual) / (len(used) - 2) / float(spread @ spread))
    return Growth(rate, error, len(sizes), min(sizes), len(used) - 2)
