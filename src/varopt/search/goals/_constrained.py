"""Constraints that are measured with the objective: an augmented Lagrangian around any rule that goes by values [A17].

A17: A. Atamna, A. Auger and N. Hansen, *Linearly convergent evolution strategies via augmented Lagrangian constraint
handling*, FOGA 2017; the multipliers and penalties follow its updates, at the average of the better half of a
generation instead of the mean, which would have to be evaluated. H74: M. R. Hestenes and M. J. D. Powell's augmented
Lagrangian for inequalities is that of R. T. Rockafellar, SIAM Journal on Control 12, 1974.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.natural_gradient import AroundUpdate, Update

__all__ = ["ConstrainedUpdate", "violations"]

Array = NDArray[np.float64]

DAMPING = 5.0  # of the multipliers [A17]
GROWTH = 2.0 ** (1.0 / 5.0)  # of the penalties in a generation


def violations(measured: Array, objectives: int = 1) -> Array:
    """By how much measured constraints are broken, in all; infinite where an evaluation failed."""
    excess = np.maximum(measured[..., objectives:], 0.0).sum(axis=-1)
    return np.where(np.isfinite(measured[..., 0]), excess, np.inf)


class ConstrainedUpdate(AroundUpdate):
    """An update that is told ``f + sum_k max(l_k + w_k g_k, 0)^2 / (2 w_k) - l_k^2 / (2 w_k)`` for f and g.

    Parameters
    ----------
    inner : Update
        The rule.
    count : int
        How many constraints are measured.
    """

    def __init__(self, inner: Update, count: int) -> None:
        self.inner = inner
        self.multipliers, self.penalties = np.zeros(count), np.full(count, math.nan)
        self._run = inner.epoch
        self._before: Array | None = None  # objective and constraints in the middle of the last generation

    def refresh(self, rng: np.random.Generator) -> None:
        super().refresh(rng)
        if self.inner.epoch != self._run:
            self._run, self._before = self.inner.epoch, None
            self.multipliers, self.penalties = np.zeros_like(self.multipliers), np.full_like(self.penalties, math.nan)

    def tell(self, points: Array, values: Array) -> None:
        finite = np.isfinite(values).all(axis=1)
        if finite.any():
            self._begin(values[finite])
        merit = np.full(len(values), np.inf)
        merit[finite] = self.merit(values[finite])
        self.inner.tell(points, merit)
        if finite.any():
            self._adapt(values[finite], merit[finite])

    def merit(self, values: Array) -> Array:
        """The augmented Lagrangian of evaluations, one in a row."""
        with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest number
            updated = np.maximum(self.multipliers + self.penalties * values[:, 1:], 0.0)
            merit = values[:, 0] + ((updated**2 - self.multipliers**2) / (2.0 * self.penalties)).sum(axis=1)
        return np.asarray(np.nan_to_num(merit, nan=np.inf, posinf=np.inf, neginf=-np.finfo(np.float64).max))

    def _begin(self, values: Array) -> None:
        """First penalties: what balances the spreads of objective and constraint in a generation."""
        fresh = np.isnan(self.penalties)
        if not fresh.any():
            return
        f, g = values[:, 0], values[:, 1:]
        scale = np.maximum(np.median(np.abs(g - np.median(g, axis=0)), axis=0), np.abs(g).mean(axis=0) * 1e-3)
        spread = max(float(np.median(np.abs(f - np.median(f)))), 1e-12 * max(1.0, float(np.abs(f).max())))
        weights = np.where(scale > 0.0, spread / np.maximum(scale, 1e-150) ** 2, 1.0)
        self.penalties = np.where(fresh, np.clip(10.0 * weights, 1e-100, 1e100), self.penalties)

    def _adapt(self, values: Array, merit: Array) -> None:
        better = np.argsort(merit, kind="stable")[: max(1, len(merit) // 2)]
        middle = values[better].mean(axis=0)
        g = middle[1:]
        self.multipliers = np.maximum(0.0, self.multipliers + self.penalties / DAMPING * g)
        if self._before is not None:
            # A penalty grows where it moves the value by little, or where its constraint is hardly approached [A17].
            change = abs(float((self.merit(middle[None]) - self.merit(self._before[None]))[0]))
            d = self.inner.mean.size
            small = self.penalties * g * g < 3.0 * change / d
            stuck = 5.0 * np.abs(g - self._before[1:]) < np.abs(self._before[1:])
            active = self.multipliers + self.penalties * g > 0.0
            grow = np.where(small | stuck, GROWTH, GROWTH**-0.25)
            self.penalties = np.clip(np.where(active, self.penalties * grow, self.penalties), 1e-100, 1e100)
        self._before = middle
