"""Integers under a Gaussian: a least deviation, and samples moved to the middle of their cells [Ma24].

A function of an integer is constant on each cell of the real line. Left alone, a Gaussian that stands on such a plateau
shrinks until it never leaves its cell again. The margin of [Hm22] prevents that by the probability of leaving; here it
is done by the deviation, which is simpler, and samples from other cells are made to count fully.

With parents x_i, the mean m and c(.) the middle of a cell, coordinate by coordinate,

    x_i <- c(x_i)  where  c(x_i) != c(m),    of a shift in all of  D = sum_i (c(x_i) - x_i)  over these;             (1)
    x_i <- x_i + s (c(x_i) - x_i)  where  c(x_i) = c(m)  and that is against D, 0 <= s <= 1, so as to undo D,        (2)
    deviation >= share * (width of the cell of m).                                                                   (3)

Hm22: R. Hamano, S. Saito, M. Nomura and S. Shirakawa, *CMA-ES with margin*, GECCO 2022. Ma24: T. Marty et al.,
*LB+IC-CMA-ES: two simple modifications of CMA-ES to handle mixed-integer problems*, PPSN 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.natural_gradient._update import Array

__all__ = ["Integers"]


@dataclass(frozen=True)
class Integers:
    """Which coordinates stand for integers, and where the cells of these lie.

    Parameters
    ----------
    columns : integer array of shape (k,)
        The coordinates.
    cells : callable
        From values of these coordinates, of shape (..., k), to both ends of the cells they lie in.
    """

    columns: NDArray[np.intp]
    cells: Callable[[Array], tuple[Array, Array]]

    def center(self, parents: Array, mean: Array) -> Array:
        """Parents in other cells than the mean's, moved to the middle of these.

        What that shifts the average by is taken back by moving parents in the mean's cell towards its middle, as far as
        that goes.
        """
        low, high = self.cells(parents)
        middle = 0.5 * (low + high)
        here = middle == 0.5 * sum(self.cells(mean))
        shift = np.where(here, 0.0, middle - parents).sum(axis=0)  # D of (1)
        inward = np.where(here, middle - parents, 0.0)
        against = np.where(inward * shift < 0.0, inward, 0.0)
        room = against.sum(axis=0)
        share = np.where(room == 0.0, 0.0, np.minimum(1.0, -shift / np.where(room == 0.0, 1.0, room)))
        return np.where(here, parents + share * against, middle)  # (2), (1)

    def least_deviation(self, mean: Array, share: float) -> Array:
        """The deviation below which a coordinate must not fall: a share of the width of the mean's cell."""
        low, high = self.cells(mean)
        return np.asarray(share * (high - low))  # (3)
