"""Which sigma guarantees a tolerance: section 3 of the mathematics, with the paper's factor corrected."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from varopt.bounds._analytic import gap_bound
from varopt.bounds._layout import lay_out
from varopt.families import Gaussian
from varopt.model import as_objective
from varopt.model._blocks import TermBlock

__all__ = ["sigma_for"]


def sigma_for(f: Any, tolerance: float) -> float:
    r"""The largest sigma for which minimising the bound is guaranteed to end within `tolerance` of the optimum.

    With an isotropic Gaussian the bound exceeds the objective nowhere by more than :math:`\sigma^2 T + \sigma B`, where T collects the quadratic
    parts (for the lasso :math:`\mathrm{trace}(A)`) and :math:`B = \sum_k w_k j_k \|a_k\| / \sqrt{2\pi}` the kinks. So for every
    :math:`\sigma \le 2\Delta / (B + \sqrt{B^2 + 4 T \Delta})` the minimiser :math:`\hat x` of the bound has
    :math:`f(\hat x) \le f^* + \Delta`.

    Parameters
    ----------
    f : objective
        Of real variables; every term continuous.
    tolerance : float
        The absolute tolerance, > 0.

    Returns
    -------
    float
        Infinite where f is affine: then the bound is exact for every sigma.

    Notes
    -----
    The paper divides by :math:`\sqrt{\mathrm{trace} A}` where :math:`\mathrm{trace} A` is right; its sigma breaks the guarantee. Cost: one pass over
    the data for the row norms; the formula loses no digits for tolerances from 1e-15 to 1e15.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> w = vo.Variable(1)
    >>> f = 2 * vo.sum_squares(w) + 4 * vo.norm1(w)                 # A = 2, lambda = 4
    >>> sigma = vo.sigma_for(f, 0.1)
    >>> print(f"{2 * sigma**2 + 4 * sigma * np.sqrt(2 / np.pi):.12f}")   # the gap it allows
    0.100000000000
    """
    f = as_objective(f).checked
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float, np.number)):
        raise ValueError(f"tolerance must be a positive number; got {tolerance!r}.")
    if not (math.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance must be positive and finite; got {tolerance}.")
    discrete = [str(v) for v in f.variables if v.kind != "real"]
    if discrete:
        raise ValueError(f"sigma_for needs real variables; {', '.join(discrete)} is discrete.")
    for block in f.blocks:
        if isinstance(block, TermBlock) and not block.term.is_continuous:
            raise ValueError(
                f"sigma_for needs continuous terms: {block.describe()} jumps, and no sigma brings its bound close everywhere."
            )
    if not f.variables:
        return math.inf
    _, linear, quadratic = gap_bound(lay_out(f, Gaussian(np.zeros(f.size), 1.0)))  # B and T
    # hypot and separate roots: neither B^2 nor T Delta overflows or vanishes, and nothing is subtracted.
    denominator = linear + math.hypot(linear, 2.0 * math.sqrt(quadratic) * math.sqrt(tolerance))
    return math.inf if denominator == 0.0 else 2.0 * (float(tolerance) / denominator)
