"""A margin for integers under a Gaussian: the neighbours of the current cell stay within reach [Hm22]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.natural_gradient._update import Array

__all__ = ["Margin"]


@dataclass(frozen=True)
class Margin:
    """Keeps the probability of leaving a cell at or above a least value, so that a plateau cannot freeze a coordinate.

    Parameters
    ----------
    columns : integer array
        The coordinates that stand for integers.
    cells : callable
        From values of these coordinates to both ends of the cells they lie in, infinite where there is no neighbour.
    least : float
        The least probability of leaving a cell.
    """

    columns: NDArray[np.intp]
    cells: Callable[[Array], tuple[Array, Array]]
    least: float

    def correct(self, mean: Array, deviation: Array) -> tuple[Array, Array]:
        """The corrected means, and the factors by which to widen.

        With a neighbour on one side the mean moves towards it until the probability of crossing is the least one. With
        two, both tails are raised to half of it, which determines mean and deviation.
        """
        from scipy.special import ndtr, ndtri

        low, high = self.cells(mean)
        below, above = ndtr((low - mean) / deviation), ndtr((mean - high) / deviation)
        sided = np.isinf(low) | np.isinf(high)
        inner = ~sided
        new_mean, widen = mean.copy(), np.ones_like(mean)

        reach = -ndtri(self.least) * deviation
        edge = np.where(np.isinf(low), high, low)
        short = sided & (np.maximum(below, above) < self.least)
        new_mean[short] = np.where(np.isinf(low), edge - reach, edge + reach)[short]

        short = inner & (np.minimum(below, above) < 0.5 * self.least)
        if short.any():
            down, up = np.maximum(below[short], 0.5 * self.least), np.maximum(above[short], 0.5 * self.least)
            excess = np.maximum(down + up + (1.0 - below - above)[short] - 1.0, 0.0)
            room = np.maximum(down + up - self.least, 1e-300)  # taken from the tail that has some to give
            down, up = down - excess * (down - 0.5 * self.least) / room, up - excess * (up - 0.5 * self.least) / room
            a, b = -ndtri(np.clip(down, 1e-12, 0.499)), -ndtri(np.clip(up, 1e-12, 0.499))
            width = (high - low)[short]
            new_deviation = width / (a + b)
            new_mean[short] = low[short] + a * new_deviation
            widen[short] = new_deviation / deviation[short]
        return new_mean, widen
