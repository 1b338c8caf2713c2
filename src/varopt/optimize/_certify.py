"""`certify`: how far above the optimum anybody's point can be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from varopt._domains import as_finite
from varopt.certificates import PointGap, Verifier
from varopt.model import as_objective, split
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
    values = split(objective.variables, (x,))
    point = np.concatenate([np.ravel(as_finite("x", values[v])).astype(np.float64) for v in objective.variables])
    result = minimize(objective, tol=tol, memory=memory, progress=progress, time_limit=time_limit)
    if any(block.stored for block in objective.blocks):
        from varopt.optimize.anywhere import enclosed_stored  # most data are in memory

        upper = enclosed_stored(objective, point, memory)[1]
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # of a point so far away the value is infinite
            value, error = Verifier(objective, point).value
            upper = float(np.nextafter(value + error, math.inf)) if math.isfinite(error) else float(objective.at(point))
        upper = math.inf if math.isnan(upper) else upper
    return PointGap(min(result.lower, upper), upper, result.certificate.assumption)
