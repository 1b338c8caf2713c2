"""`certify`: how far above the optimum anybody's point can be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt.certificates import PointGap, Verifier
from varopt.model import Objective, as_objective, flattened, split
from varopt.model.blocks import LargestBlock
from varopt.optimize._largest_entries import LargestEntries
from varopt.optimize._minimize import minimize

__all__ = ["certify"]


def certify(
    f: Any, x: Any, *, tol: float = 1e-9, memory: int | str | None = None, progress: bool = False,
    time_limit: float | None = None,
) -> PointGap:  # fmt: skip
    """Bracket the optimum of an objective by a point that you have, wherever it came from.

    Parameters
    ----------
    f : objective
        As for `minimize`.
    x : point
        A flat array or a mapping from variables.
    tol : float
        How close the lower bound is to the optimum, as for `minimize`.
    memory, progress, time_limit
        As for `minimize`: the lower bound comes from a run of it.

    Returns
    -------
    PointGap
        ``upper`` is the value at x with its rounding, ``lower`` a bound that no point is below, ``excess`` the share
        of the optimum by which x is above it at most.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(name="w")
    >>> f = vo.sum(vo.abs(np.array([1.0, 2.0, 6.0]) - w))
    >>> print(vo.certify(f, {w: 3.0}))
    The point is at most 20 % above the optimum, which lies in [5, 6].
    """
    objective = as_objective(f).checked
    if not objective.variables:
        raise ValueError(f"f must depend on a variable for there to be a point; got {objective}.")
    if discrete := [str(v) for v in objective.variables if v.kind != "real"]:
        raise ValueError(
            f"certify is for real variables; got {discrete[0]}: of bits vo.minimize(f, x0=x) has a bracket."
        )
    values = split(objective.variables, (x,))
    point = np.concatenate([np.ravel(as_finite("x", values[v])).astype(np.float64) for v in objective.variables])
    result = minimize(objective, tol=tol, memory=memory, progress=progress, time_limit=time_limit)
    if any(block.stored for block in objective.blocks):
        from varopt.optimize.anywhere import enclosed_stored  # most data are in memory

        upper = enclosed_stored(objective, point, memory)[1]
    else:
        upper = _upper(objective, point)
    return PointGap(min(result.lower, upper), upper, result.certificate.assumption)


def _upper(objective: Objective, point: NDArray[np.float64]) -> float:
    """The value at a point, with its rounding; infinite where it overflows, or where the rounding is not known."""
    if any(isinstance(block, LargestBlock) for block in objective.blocks):
        lifted = LargestEntries(objective, ())  # at whatever threshold, it is no less
        point = flattened(lifted.objective.variables, lifted.start(point))
        objective = lifted.objective
    with np.errstate(over="ignore", invalid="ignore"):  # of a point so far away the value is infinite
        value, error = Verifier(objective, point).value
        upper = float(np.nextafter(value + error, math.inf)) if math.isfinite(error) else float(objective.at(point))
    return math.inf if math.isnan(upper) else upper
