r"""Quantile regressions with an L1 penalty along a sequence of its strengths, from vertex to vertex.

With z = Xw - y the problem is

    sum_i v_i ((z_i)_+ - q z_i) + l1 sum_j (2 (w_j)_+ - w_j),                                                       (1)

a sum of kinks, whose minimiser is the same vertex for a whole stretch of strengths: from one strength to the next it
takes a few exchanges of its basis.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.finish import best_vertex

__all__ = ["vertices_along"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_LEVEL_EXCHANGES = 10  # the most a variable, and a hundred


def vertices_along(
    X: Matrix, y: Vector, weight: Vector, level: float, l1: Vector, free: NDArray[np.bool_], start: Vector
) -> Iterator[Vector | None]:
    """Minimise (1) for one strength after the other; None where no few exchanges lead there.

    Parameters
    ----------
    X, y, weight : array
        The data and v, positive.
    level : float
        q.
    l1 : array
        The strengths.
    free : array of bool
        The variables that are not penalised.
    start : array
        A point near the first minimiser.
    """
    w, rows = start, np.vstack([X, np.eye(start.size)[~free]])
    d = np.concatenate([-y, np.zeros(len(rows) - y.size)])
    base, counts = -level * (weight @ X), [y.size, len(rows) - y.size]
    for strength in l1:
        held = slice(None if strength > 0.0 else y.size)
        high = np.concatenate([weight, np.full(counts[1], 2.0 * strength)])
        away = np.abs(rows @ w + d)
        typical = np.repeat([away[: y.size].max(initial=0.0), away[y.size :].max(initial=0.0)], counts)
        distance = np.divide(away, typical, out=np.zeros_like(away), where=typical > 0.0)
        gradient = base - strength * ~free
        found = best_vertex(gradient, rows[held], d[held], high[held], distance[held], _LEVEL_EXCHANGES * (w.size + 10))
        w = w if found is None else found[0]
        yield None if found is None else w
