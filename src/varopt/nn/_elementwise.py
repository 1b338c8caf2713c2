"""Terms averaged under Gaussian noise, elementwise: steps, signs, kinks and grids with a gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from varopt._array import Array
from varopt.nn._library import library, numbers, positive, prepared, require
from varopt.nn._rules import CDF, Expectation
from varopt.terms import REGISTRY, PiecewisePolynomial, piecewise

__all__ = ["clip", "expect", "gap", "hinge", "pinball", "relu", "round", "sign", "step", "zero_one"]


_SIGN = piecewise([0.0], [[-1.0], [1.0]], name="sign")
_ALSO = {"sign": "sign", "relu": "pos"}  # names of layers that are no names of terms


def _as_term(term: Any, *arrays: Array) -> Any:
    if isinstance(term, str):
        known = {*REGISTRY, *_ALSO}
        require(term in known, f"term must be one of {', '.join(sorted(known))}; got {term!r}.")
        return _SIGN if term == "sign" else library(*arrays).named(_ALSO.get(term, term))
    if not isinstance(term, PiecewisePolynomial):
        raise ValueError(f"term must be a name or a term such as varopt.terms.hinge(); got {type(term).__name__}.")
    return term


def expect(term: str | PiecewisePolynomial, mean: Array, sigma: Array) -> Array:
    """The average of a term under Gaussian noise, ``<term(z)>`` with ``z ~ N(mean, sigma^2)``, exactly.

    Parameters
    ----------
    term : str or PiecewisePolynomial
        A name of `varopt.terms.REGISTRY` (its parameters at their defaults), ``"sign"`` or ``"relu"``, a term such as
        ``varopt.terms.huber(2.0)`` or one of your own: ``varopt.terms.piecewise(knots, pieces)``.
    mean, sigma : array or number
        Of PyTorch, JAX or NumPy; they broadcast. Sigma is positive, and may be learned.

    Returns
    -------
    array
        Of the library, dtype and device given, differentiable at every order in `mean` and `sigma`.

    Notes
    -----
    It bounds what it smooths: its smallest value over the mean is at least the smallest value of the term, and `gap`
    says by how much it is larger at most. Cost: one pass over the numbers for each knot; memory: a few arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import nn
    >>> nn.expect("step", np.array([-1.0, 0.0, 1.0]), 0.5).round(4)
    array([0.0228, 0.5   , 0.9772])
    """
    return _expect(_as_term(term, mean, sigma), mean, sigma)


def _expect(declared: Any, mean: Array, sigma: Array) -> Array:
    positive("sigma", sigma)
    lib, (nu, s), restored = prepared(mean, sigma)
    declared = lib.facts(declared)
    if declared.shape:
        nu = lib.xp.broadcast_to(nu, np.broadcast_shapes(tuple(nu.shape), declared.shape))
    return restored(lib.elementwise(Expectation(declared), nu, s))


def step(x: Array, sigma: Array) -> Array:
    """The average of ``1[x >= 0]``: the probability that x plus noise is not negative."""
    return expect("step", x, sigma)


def sign(x: Array, sigma: Array) -> Array:
    """The average of the sign, between -1 and 1."""
    return _expect(_SIGN, x, sigma)


def zero_one(margin: Array, sigma: Array) -> Array:
    """The average of ``1[margin <= 0]``: the probability of an error."""
    return expect("zero_one", margin, sigma)


def relu(x: Array, sigma: Array) -> Array:
    """The average of ``max(x, 0)``."""
    return expect("pos", x, sigma)


def hinge(margin: Array, sigma: Array) -> Array:
    """The average of ``max(1 - margin, 0)``."""
    return expect("hinge", margin, sigma)


def pinball(residual: Array, level: float, sigma: Array) -> Array:
    """The average of the check loss of ``residual = y - prediction`` for the quantile `level`."""
    return _expect(library(residual, sigma).named("pinball", level), residual, sigma)


def clip(x: Array, low: float, high: float, sigma: Array) -> Array:
    """The average of x held between `low` and `high`."""
    return _expect(library(x, sigma).named("clip", low, high), x, sigma)


def gap(term: str | PiecewisePolynomial, sigma: Array) -> Array:
    """The most that smoothing adds: the largest ``expect(term, x, sigma) - term(x)`` over all x.

    Not differentiable. To smooth by sigma and minimise costs at most this in the value of the term, so it says which
    sigma is small enough.

    Examples
    --------
    >>> from varopt import nn
    >>> print(f"{nn.gap('hinge', 0.1):.6f}")     # sigma / sqrt(2 pi), reached on the knot
    0.039894
    """
    positive("sigma", sigma)
    worst = _as_term(term).worst_gap(np.asarray(numbers(sigma), dtype=np.float64))[0]
    if isinstance(sigma, (int, float)):
        return float(worst)
    return library(sigma).as_array(worst, sigma.dtype, [sigma])


# The staircase of rounding has infinitely many knots. Narrow noise sees those around it, wide noise three waves.
_WIDE_GRID_STEPS = 0.5  # grid steps
_KNOTS = 6
_WAVES = 3


def round(x: Array, sigma: Array, grid: float = 1.0) -> Array:
    """The average of x rounded to the multiples of `grid`.

    Notes
    -----
    Where sigma is below half a step the sum of the 12 nearest jumps, else three terms of the Fourier series of the
    rounding error: both to rounding.
    """
    positive("sigma", sigma)
    positive("grid", grid)
    lib, (z, s), restored = prepared(x, sigma)
    xp = lib.xp
    z, s = xp.broadcast_arrays(z / grid, s / grid)
    wide = s >= _WIDE_GRID_STEPS
    # Each form gets a sigma of its own range, so that neither overflows where the other is taken.
    narrow_sigma = xp.where(wide, xp.full_like(s, _WIDE_GRID_STEPS), s)
    wide_sigma = xp.where(wide, s, xp.full_like(s, _WIDE_GRID_STEPS))
    nearest = xp.round(lib.hold(z))
    total = nearest
    for j in range(_KNOTS):
        jump = j + 0.5
        total = total + lib.elementwise(CDF, (z - (nearest + jump)) / narrow_sigma)
        total = total - lib.elementwise(CDF, ((nearest - jump) - z) / narrow_sigma)
    waves = z
    for m in range(1, _WAVES + 1):  # z - round(z) = sum_m (-1)^(m+1) sin(2 pi m z) / (pi m)
        damped = xp.exp(-2.0 * (math.pi * m) ** 2 * wide_sigma * wide_sigma)
        # The offset from the nearest integer keeps the digits of the phase.
        waves = waves + (-1) ** m / (math.pi * m) * xp.sin(2.0 * math.pi * m * (z - nearest)) * damped
    return restored(grid * xp.where(wide, waves, total))
