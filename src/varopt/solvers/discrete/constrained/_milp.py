r"""A mixed-integer programme, solved by HiGHS: products of bits are variables of their own [McCormick76].

    y_ij >= x_i + x_j - 1,    y_ij <= x_i,    y_ij <= x_j,    y_ij >= 0,

of which a positive coefficient needs the first and the last, and a negative one the two between.

[McCormick76] G. P. McCormick. Computability of global solutions to factorable nonconvex programs: Part I. Mathematical
Programming 10, 1976.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.constrained._limits import Limits

__all__ = ["MixedInteger", "mixed_integer"]

Vector = NDArray[np.float64]

_MOST_PRODUCTS = 4000  # of bits, a variable each, up to which HiGHS is asked


class MixedInteger(NamedTuple):
    """A point, where one was found, and a lower bound."""

    x: Vector | None
    lower: float


def mixed_integer(energy: Energy, limits: Limits, seconds: float) -> MixedInteger | None:
    """What HiGHS makes of it in so many seconds; None where there are products of three, or too many of two."""
    if energy.degree > 2 or energy.products:
        return None
    upper = sp.triu(sp.csr_array(energy.quadratic), 1).tocoo()
    if upper.nnz > _MOST_PRODUCTS:
        return None
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, m = energy.size, upper.nnz
    cost = np.concatenate([energy.linear, upper.data])
    parts = [_padded(limits.matrix, m)]
    low = [np.where(limits.equal, -limits.offset, -np.inf)]
    high = [-limits.offset]
    widths = np.bincount(energy.site)
    choices = np.flatnonzero(widths > 1)
    if choices.size:
        sites = sp.csr_array((np.ones(n), (energy.site, np.arange(n))))[choices]
        parts.append(_padded(sites, m))
        low.append(np.ones(choices.size))
        high.append(np.ones(choices.size))
    if m:
        product, first, second = sp.eye_array(m), _picked(upper.row, n), _picked(upper.col, n)
        rising = upper.data > 0
        both = sp.hstack([first + second, -product]).tocsr()[rising]
        parts.append(both)
        low.append(np.full(both.shape[0], -np.inf))
        high.append(np.ones(both.shape[0]))
        for one in (first, second):
            below = sp.hstack([-one, product]).tocsr()[~rising]
            parts.append(below)
            low.append(np.full(below.shape[0], -np.inf))
            high.append(np.zeros(below.shape[0]))
    found = milp(
        cost, constraints=LinearConstraint(sp.vstack(parts).tocsr(), np.concatenate(low), np.concatenate(high)),
        integrality=np.r_[np.ones(n), np.zeros(m)], bounds=Bounds(0.0, 1.0),
        options={"time_limit": max(seconds, 0.01), "mip_rel_gap": 1e-9},
    )  # fmt: skip
    bound = found.get("mip_dual_bound")
    begun = found.status == 0 or bool(
        found.get("mip_node_count")
    )  # else the bound is a number that nobody has computed
    known = begun and bound is not None and np.isfinite(bound)
    lower = float(bound) + energy.constant if known else -np.inf
    x = None if found.x is None else np.round(found.x[:n])
    return MixedInteger(x, lower)


def _padded(matrix: sp.csr_array, more: int) -> sp.csr_array:
    return sp.csr_array(sp.hstack([matrix, sp.csr_array((matrix.shape[0], more))]))


def _picked(index: NDArray[np.int32], size: int) -> sp.csr_array:
    return sp.csr_array((np.ones(index.size), (np.arange(index.size), index)), shape=(index.size, size))
