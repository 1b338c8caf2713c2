"""Quantiles of weighted values and one more that is not known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["upper_quantile"]

Vector = NDArray[np.float64]


def upper_quantile(values: NDArray[np.float64], weight: Vector, extra: Vector, level: float) -> Vector:
    """For each row of values, the least that has a share `level` of all weight at or below it; one row is for all.

    Beside the weights of the values there is that of one more, `extra`, which counts as infinitely large: the quantile
    is infinite where the share is not reached without it [TibshiraniFoygelBarberCandesRamdas19].
    """
    order = np.argsort(values, axis=1)
    reached = np.cumsum(weight[order], axis=1)
    wanted = level * (float(weight.sum()) + extra) * (1.0 - 1e-12)  # equality is not lost to rounding
    if len(values) == 1:
        place = np.searchsorted(reached[0], wanted)
        found = values[0, order[0, np.minimum(place, order.size - 1)]]
        return np.where(place < order.size, found, np.inf)
    place = np.sum(reached < wanted[:, None], axis=1)
    index = np.take_along_axis(order, np.minimum(place, values.shape[1] - 1)[:, None], axis=1)
    found = np.take_along_axis(values, index, axis=1)[:, 0]
    return np.where(place < values.shape[1], found, np.inf)
