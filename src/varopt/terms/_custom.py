"""Terms that users declare: knots, and what lies between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from varopt.terms._piecewise import PiecewisePolynomial
from varopt.terms.polynomials import Coefficient, Polynomial, every, scalar_or_row, shift

__all__ = ["piecewise"]


def piecewise(knots: Sequence[Any], pieces: Sequence[Sequence[Any]], *, name: str = "piecewise") -> PiecewisePolynomial:
    """Declare a term of your own.

    Parameters
    ----------
    knots : sequence of K increasing numbers
        A knot may also be an array with one entry per row.
    pieces : sequence of K + 1 sequences of numbers
        For each interval between knots, coefficients by increasing degree in powers of ``z``.

    Examples
    --------
    >>> from varopt import terms
    >>> ramp = terms.piecewise(knots=[0.0, 1.0], pieces=[[0.0], [0.0, 1.0], [1.0]])
    >>> ramp.value([-1.0, 0.25, 3.0])
    array([0.  , 0.25, 1.  ])
    >>> print(ramp.curvature)
    UNKNOWN
    """
    for argument, value in (("knots", knots), ("pieces", pieces)):
        if isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray)):
            raise ValueError(f"{argument} must be a sequence; got {value!r}.")
    if any(isinstance(p, str) or not isinstance(p, (Sequence, np.ndarray)) for p in pieces):
        raise ValueError("pieces must be a sequence of coefficient sequences, one per interval.")
    checked = [scalar_or_row("knots", t) for t in knots]
    ends = [-math.inf, *checked, math.inf]
    centres, centred = [], []
    for k, polynomial in enumerate(pieces):
        coefficients = tuple(scalar_or_row("pieces", c) for c in polynomial)
        low, high = (ends[k], ends[k + 1]) if k + 1 < len(ends) else (-math.inf, math.inf)
        centre, coefficients = _best_centre(coefficients, low, high) if coefficients else (0.0, coefficients)
        centres.append(centre)
        centred.append(coefficients)
    if len(centred) != len(checked) + 1:
        raise ValueError(f"pieces must be one more than knots; got {len(centred)} pieces for {len(checked)} knots.")
    return PiecewisePolynomial(tuple(checked), tuple(centred), tuple(centres), name)


def _best_centre(polynomial: Polynomial, low: Coefficient, high: Coefficient) -> tuple[Coefficient, Polynomial]:
    """Of zero and the ends of the interval the one where the polynomial is smallest, and the polynomial around it."""
    candidates = [c for c in (0.0, low, high) if every(np.isfinite(c))]
    written = [shift(polynomial, c) for c in candidates]
    sizes = [float(np.max(np.abs(w[0]))) for w in written]
    best = min(range(len(candidates)), key=sizes.__getitem__)
    return candidates[best], written[best]
