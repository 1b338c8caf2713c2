"""The crossover within bounds: variables at a bound are held there, and the others have nothing to do with bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import dual_gap
from varopt.composite import Bounds, Composite, Restriction, restricted
from varopt.solvers.finish._crossover import Exact, cross_over

__all__ = ["cross_over_inside"]

Vector = NDArray[np.float64]

_HELD_EXCHANGES = 8  # after which the variables that are held are taken not to settle
_TIED_DERIVATIVE = 1e-9  # share of the largest derivative below which that of a variable that is held does not free it


def cross_over_inside(
    problem: Composite, box: Bounds, x: Vector, reach: Sequence[float], tol: float, *, most: int
) -> Exact | None:
    """Solve `problem` exactly from a point near its optimum, in the variables between their bounds; see `cross_over`.

    Variables that end beyond a bound are held there, and those that are held in vain are freed, all at once, until
    there are none. None where that does not settle, or all variables are held.
    """
    inside = box.inside
    held = (x <= box.low) | (x >= box.high)
    for _ in range(_HELD_EXCHANGES):
        free = np.flatnonzero(~held)
        if not free.size:
            return None
        small = restricted(inside, free, np.where(held, x, 0.0))
        if not small.problem.rows and small.problem.hessian is None:
            return None
        exact = cross_over(small.problem, x[free], _reaches(small, reach), tol, most=most)
        if exact is None or not np.all(np.isfinite(exact.x)):
            return None
        x = x.copy()
        x[free] = exact.x
        beyond = ~held & ((x < box.low) | (x > box.high))
        x = box.clip(x)
        dual = _whole(inside, small, x, exact.dual)
        gradient = inside.quadratic_gradient(x) + 0.0
        for r, u in zip(inside.rows, dual, strict=True):
            gradient += r.linear.transpose_apply(r.weights * u)
        least = _TIED_DERIVATIVE * float(np.abs(gradient).max(initial=0.0))
        inward = np.where(x >= box.high, gradient > least, gradient < -least)
        freed = held & inward & (box.low < box.high)
        if not (beyond | freed).any():
            return _proved(problem, box, x, gradient, dual)
        held = (held & ~freed) | beyond
    return None


def _reaches(small: Restriction, reach: Sequence[float]) -> list[float]:
    """Of the blocks that are left."""
    return [far for far, kept in zip(reach, small.kept, strict=True) if isinstance(kept, slice) or kept.size]


def _whole(inside: Composite, small: Restriction, x: Vector, dual: Sequence[Vector]) -> list[Vector]:
    """Subgradients of all rows: derivatives where the variable of a row is held."""
    rest, whole = iter(dual), []
    for r, kept, z in zip(inside.rows, small.kept, inside.positions(x), strict=True):
        if isinstance(kept, slice):
            whole.append(next(rest))
            continue
        u = np.array(r.term.derivative(z))
        if kept.size:
            u[kept] = next(rest)
        whole.append(u)
    return whole


def _proved(problem: Composite, box: Bounds, x: Vector, gradient: Vector, inner: Sequence[Vector]) -> Exact:
    positions, dual = problem.positions(x), box.dual(problem, x, gradient, inner)
    gap, assumption = dual_gap(problem, x, positions, dual)
    return Exact(x, problem.value(x, positions), gap, assumption, dual)
