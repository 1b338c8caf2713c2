r"""A quadratic energy of bits as a convex function of real numbers that agrees with it wherever constraints hold.

    x'Px + c'x  =  x'(P + s I + m E'E) x + (c - s - 2 m E'e)'x + m e'e        for bits x with E x = e,

since a bit is its own square. The right-hand side is convex for a large s; the less of the space P has to be lifted in,
the smaller s may be, and the closer its minimum over ``0 <= x <= 1`` is to that over bits [BEP09].

[BEP09] A. Billionnet, S. Elloumi, M.-C. Plateau. Improving the performance of standard solvers for quadratic 0-1
programs by a tight convex reformulation: the QCR method. Discrete Applied Mathematics 157, 2009.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._verified import gamma
from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._matrices import as_dense
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["Convexified", "convexified"]

Vector = NDArray[np.float64]

_MOST_DENSE_BITS = 400  # bits, whose matrix is dense here
_LIFTED = 8.0  # m, in units of the largest entry of P and of rows of length one
_MARGIN = 1e-9  # by which s is more than it has to be, so that a proof of convexity has room


class Convexified(NamedTuple):
    """``x'Px + c'x + constant``, P positive semidefinite; for bits it is off by `rounding` at most."""

    matrix: Vector
    vector: Vector
    constant: float
    rounding: float


def convexified(energy: Energy, limits: Limits) -> Convexified | None:
    """The convex function; None where there are products of three, or too many bits."""
    if energy.products or energy.degree != 2 or energy.size > _MOST_DENSE_BITS:
        return None
    quadratic = 0.5 * np.array(as_dense(energy.quadratic), dtype=np.float64)
    quadratic = 0.5 * (quadratic + quadratic.T)
    rows, sides = _equations(energy, limits)
    lengths = np.linalg.norm(rows, axis=1)
    rows, sides = rows[lengths > 0.0] / lengths[lengths > 0.0, None], sides[lengths > 0.0] / lengths[lengths > 0.0]
    lifted = _LIFTED * float(np.abs(quadratic).max(initial=0.0)) * max(1.0, np.sqrt(energy.size))
    matrix = quadratic + lifted * (rows.T @ rows)
    least = float(scipy.linalg.eigvalsh(matrix, subset_by_index=(0, 0))[0])
    size = float(np.abs(matrix).max(initial=0.0))
    shift = max(_MARGIN * size - least, 0.0)
    matrix[np.diag_indices(energy.size)] += shift
    vector = energy.linear - shift - 2.0 * lifted * (rows.T @ sides)
    constant = energy.constant + lifted * float(sides @ sides)
    sizes = float(np.abs(quadratic).sum() + np.abs(energy.linear).sum()) + abs(energy.constant)
    sizes += 2.0 * shift * energy.size + lifted * float(((np.abs(rows).sum(axis=1) + np.abs(sides)) ** 2).sum())
    return Convexified(matrix, vector, constant, 2.0 * gamma(len(rows) + 16) * sizes)  # products may have cancelled


def _equations(energy: Energy, limits: Limits) -> tuple[Vector, Vector]:
    """The equations that all states satisfy: those of the constraints, and of choices."""
    equal = np.flatnonzero(limits.equal)
    rows, sides = [limits.matrix[equal].toarray()], [-limits.offset[equal]]
    widths = np.bincount(energy.site)
    if np.any(widths > 1):
        sites = sp.csr_array((np.ones(energy.size), (energy.site, np.arange(energy.size))))
        rows.append(sites[np.flatnonzero(widths > 1)].toarray())
        sides.append(np.ones(np.count_nonzero(widths > 1)))
    return np.vstack(rows), np.concatenate(sides)
