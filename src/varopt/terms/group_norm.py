r"""The Euclidean norm of an isotropic Gaussian vector: expectation, derivatives and smoothing gap.

For x ~ N(m, s^2 I_d), the mean E(r, s, d) = <||x||> depends on m only through r = ||m||.  With rho = r/s it is the mean
of the noncentral chi distribution (for d = 2, of the Rice distribution [1]_ [2]_),

    E = s c_d M(-1/2, d/2, -rho^2/2),    c_d = sqrt(2) Gamma((d+1)/2) / Gamma(d/2),    M = 1F1.

**Positive integrals.**  Differentiating as in DLMF 13.3(ii) [3]_ and writing every M as Euler's integral (DLMF 13.4.1,
t = u^2) cancels all Gamma functions.  With <f> = sqrt(2/pi) int_0^1 exp(-rho^2 u^2/2) f(u) du,

    T = s E'/r  = c_d/d M(1/2, d/2+1, -rho^2/2) = < (1-u^2)^((d-1)/2) >                  (tangential curvature)
    C = s E''   = c_d/d M(3/2, d/2+1, -rho^2/2) = (d-1) < u^2 (1-u^2)^((d-3)/2) >        (radial curvature)
    dE/ds       = C + (d-1) T                   (the heat equation dE/ds = s * Laplacian E; = c_d M(1/2, d/2, -rho^2/2))
    E/s         = dE/ds + rho^2 T               (Euler: E is homogeneous of degree one in (r, s))

so two integrals give everything by sums of positive terms.  For d = 1 the second is its limit, C = 2 phi(rho).
Since E' -> 1 and 1/rho = sqrt(2/pi) int_0^inf exp(-rho^2 u^2/2) du, integrating 1 - E' from rho to infinity gives

    gap/s = (E-r)/s = sqrt(2/pi) int_0^inf exp(-rho^2 u^2/2) (1 - max(1-u^2, 0)^((d-1)/2)) / u^2 du,

again positive: no cancellation.  Its part over u > 1 is the gap for d = 1.

**Evaluation.**  rho >= max(10, 4 sqrt(d)): the asymptotic series DLMF 13.7.2.  Otherwise u = sin(theta) turns the
integrand into w(theta) exp(-rho^2/2 sin^2 + d log cos), entire in theta and of width 1/sqrt(W), W = rho^2 + d; `_rule`
has one set of nodes for each octave of W, so that a node costs one exponential per element.

References
----------
.. [1] S. O. Rice, "Mathematical analysis of random noise", Bell System Technical Journal 24 (1945) 46-156.
.. [2] J. H. Park, "Moments of the generalized Rayleigh distribution", Quarterly of Applied Mathematics 19 (1961) 45-49.
.. [3] NIST Digital Library of Mathematical Functions, chapter 13, https://dlmf.nist.gov/13.
.. [4] L. N. Trefethen and J. A. C. Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56 (2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx

__all__ = ["derivatives", "expectation", "gap", "radial", "sigma_derivative", "worst_gap"]

Array: TypeAlias = NDArray[np.float64]
Rule: TypeAlias = tuple[Array, Array, Array]
Kernel: TypeAlias = Callable[[Array, Array, Array], tuple[Array, ...]]

_ELEMENTS_AT_ONCE = 4096  # elements at a time: with at most 29 nodes each, a work array has at most 1 MB
_TERMS = 22  # of the asymptotic series: the first one left out is below 1e-16 where the series is used
_MEAN_LENGTH = math.sqrt(2 / math.pi)


def expectation(r: ArrayLike, s: ArrayLike, d: ArrayLike) -> NDArray[np.floating[Any]]:
    """Mean of ||x|| for x ~ N(m, s^2 I_d) with ||m|| = r.

    Parameters
    ----------
    r : array_like
        Norm of the mean, r >= 0.
    s : array_like
        Standard deviation of every coordinate, s >= 0; s = 0 gives the limit.
    d : array_like of int
        Dimension, d >= 1.  The three broadcast.

    Returns
    -------
    ndarray
        E(r, s, d), in the floating type of `r` and `s`.  Here as in all functions of this module, a result too large
        for that type is replaced by its largest finite number.
    """
    return _map(_moments, r, s, d)[0]


def derivatives(
    r: ArrayLike, s: ArrayLike, d: ArrayLike
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """E and its first and second derivative in `r`, in one pass.

    Parameters
    ----------
    r, s, d : array_like
        As in `expectation`.

    Returns
    -------
    value, first, second : ndarray
        ``0 <= first <= 1`` and ``second >= 0``.  For s = 0 they are r, 1 and 0, except at the kink r = s = 0, where
        the first is 0 (its value at r = 0 for every s > 0) and the second, which has no finite limit, is set to 0.
    """
    value, first, second, _, _ = _map(_moments, r, s, d)
    return value, first, second


def radial(r: ArrayLike, s: ArrayLike, d: ArrayLike) -> NDArray[np.floating[Any]]:
    """E'/r, continued to r = 0 by E''(0).

    The Hessian of m -> E(||m||, s, d) is ``radial * (I - m m'/r^2) + E'' m m'/r^2``.

    Parameters
    ----------
    r, s, d : array_like
        As in `expectation`.

    Returns
    -------
    ndarray
        E'/r > 0; for s = 0 it is 1/r, and set to 0 at the kink r = s = 0.
    """
    return _map(_moments, r, s, d)[3]


def sigma_derivative(r: ArrayLike, s: ArrayLike, d: ArrayLike) -> NDArray[np.floating[Any]]:
    """Return the derivative of E in `s`, s (E'' + (d-1) E'/r).

    Parameters
    ----------
    r, s, d : array_like
        As in `expectation`.

    Returns
    -------
    ndarray
        dE/ds >= 0; for s = 0 the limit at fixed `r`: 0, or c_d if r = 0.
    """
    return _map(_moments, r, s, d)[4]


def gap(r: ArrayLike, s: ArrayLike, d: ArrayLike) -> NDArray[np.floating[Any]]:
    """Smoothing gap E - r, to full relative accuracy also where it is tiny.

    Parameters
    ----------
    r, s, d : array_like
        As in `expectation`.

    Returns
    -------
    ndarray
        E - r >= 0.  For r >> s it is close to (d-1) s^2 / (2r), or, if d = 1, to 2 s^3 phi(r/s) / r^2.
    """
    return _map(_gap, r, s, d)[0]


def worst_gap(s: ArrayLike, d: ArrayLike) -> NDArray[np.floating[Any]]:
    """Largest smoothing gap over all r >= 0, s c_d.

    Parameters
    ----------
    s, d : array_like
        As in `expectation`.

    Returns
    -------
    ndarray
        ``gap(0, s, d)``, which is also E(0, s, d).
    """
    # The gap is largest at r = 0: in its integral (module docstring) only exp(-rho^2 u^2/2) depends on r, and falls.
    # Equivalently, E' <= 1, for E is an average of translates of the norm, and the norm is 1-Lipschitz.
    return expectation(0, s, d)


def _map(kernel: Kernel, r: ArrayLike, s: ArrayLike, d: ArrayLike) -> list[NDArray[np.floating[Any]]]:
    """`kernel` over the broadcast float64 arguments, chunk by chunk; results in the type of `r` and `s`, all finite."""
    dtype = np.result_type(*(v if isinstance(v, int | float) else np.asarray(v) for v in (r, s)))
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    args = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (r, s, d)))
    flat = [a.ravel() for a in args]
    with np.errstate(all="ignore"):
        starts = range(0, max(flat[0].size, 1), _ELEMENTS_AT_ONCE)
        parts = zip(*(kernel(*(a[i : i + _ELEMENTS_AT_ONCE] for a in flat)) for i in starts), strict=True)
        whole = (np.concatenate(part).reshape(args[0].shape) for part in parts)
        return [np.minimum(a, np.finfo(dtype).max).astype(dtype)[()] for a in whole]


def _moments(r: Array, s: Array, d: Array) -> tuple[Array, ...]:
    """E, E', E'', E'/r and dE/ds."""
    far, rho = _far(r, s, d), _ratio(r, s)
    # Lengths are in units of r where far and of s elsewhere: so no intermediate overflows, and s = 0 needs no care.
    unit = np.where(far, r, s)
    p, q = np.where(far, 1.0, rho), np.where(far, s / r, 1.0)  # r/unit, s/unit
    tangential, curvature = np.empty_like(r), np.empty_like(r)  # unit * E'/r, unit * E''
    y, n = 2 * q[far] ** 2, d[far]  # y = 2 s^2/r^2
    tangential[far] = _asymptotic(0.5, (1 - n) / 2, 1, y)
    curvature[far] = _asymptotic(1.5, (3 - n) / 2, 1, y) * y * (n - 1) / 2
    for at, (exponents, weights, _) in _octaves(~far, rho**2 + d):
        terms = exponents @ np.stack([rho[at] ** 2, d[at]])
        tangential[at], curvature[at] = weights @ np.exp(terms, out=terms)
        curvature[at] *= d[at] - 1
    one = d == 1
    if one.any():  # E'' = 2 phi(rho)/s, which is 0 for q < 1/39
        curvature[one] = _MEAN_LENGTH * _gauss(r[one], s[one]) / np.maximum(q[one], 0.01)
    sigma_derivative = q * (curvature + (d - 1) * tangential)
    first = np.minimum(p * tangential, 1.0)
    second, ratio = (np.where(unit == 0, 0.0, a / unit) for a in (curvature, tangential))
    return s * sigma_derivative + r * first, first, second, ratio, sigma_derivative


def _gap(r: Array, s: Array, d: Array) -> tuple[Array, ...]:
    """E - r."""
    far, rho = _far(r, s, d), _ratio(r, s)
    result = np.zeros_like(r)
    # The integral over u < 1 has the two widths 1/rho and 1/sqrt(d), and no rule resolves both if they are small and
    # far apart.  But where rho^2 <= 2d, the difference E - r itself loses no more than a factor of six.
    wide = rho**2 + d < 64
    plain = (rho**2 <= 2 * d) & ~wide
    if plain.any():
        result[plain] = _moments(r[plain], s[plain], d[plain])[0] - r[plain]
    # Elsewhere the integral over u > 1, which is the gap for d = 1, ...
    tail = ~plain & ~(rho >= 39)
    result[tail] = _gap_1(r[tail], s[tail])
    # ... and that over u < 1: asymptotically rho sum_{k>=1} (-1/2)_k ((1-d)/2)_k / k! (2/rho^2)^k.
    t, n = s[far] / r[far], d[far]
    result[far] += s[far] * t * (n - 1) / 2 * _asymptotic(0.5, (3 - n) / 2, 2, 2 * t**2)
    for at, (exponents, _, weights) in _octaves(~far & ~plain & (d > 1), rho**2 + np.where(wide, d, 0)):
        terms = np.outer(exponents[:, 0], rho[at] ** 2)
        np.exp(terms, out=terms)
        terms *= np.expm1(np.outer(exponents[:, 1], d[at] - 1))
        result[at] -= s[at] * (weights @ terms)
    return (result,)


def _gap_1(r: Array, s: Array) -> Array:
    """E - r for d = 1: s sqrt(2/pi) exp(-x) J(x), J(x) = 1 - rho Mills(rho) = U(1, 1/2, x)/2, x = rho^2/2."""
    rho = _ratio(r, s)
    x = rho**2 / 2
    fraction = np.zeros_like(x)  # for exp(x) Gamma(-1/2, x), the even part of DLMF 8.9.2, from the bottom
    for k in range(14, 0, -1):
        fraction = k * (k + 0.5) / (x + 2 * k + 1.5 - fraction)
    j = np.where(rho < 4, 1 - rho * erfcx(rho * math.sqrt(0.5)) / _MEAN_LENGTH, 0.5 / (x + 1.5 - fraction))
    result: Array = _MEAN_LENGTH * s * _gauss(r, s) * j
    return result


def _gauss(r: Array, s: Array) -> Array:
    """exp(-(r/s)^2/2), to full relative accuracy: the rounding of r/s alone would cost 1e-13 at r/s = 30."""
    rho = _ratio(r, s)
    tiny = rho >= 39  # the result underflows
    # r/s = high + low and mantissa = m + rest with high and m of 24 bits, so that the products below are exact.
    mantissa, exponent = np.frexp(np.where(s == 0, 1.0, s))
    high, m = (a.astype(np.float32).astype(np.float64) for a in (np.where(tiny, 0.0, rho), mantissa))
    low = (np.ldexp(np.where(tiny, 0.0, r), -exponent) - high * m - high * (mantissa - m)) / mantissa
    return np.where(tiny, 0.0, np.exp(-0.5 * high**2) * np.exp(-low * (high + 0.5 * low)))


def _ratio(r: Array, s: Array) -> Array:
    """r/s, and 0 for r = s = 0."""
    return np.where(r == 0, 0.0, r / s)


def _far(r: Array, s: Array, d: Array) -> NDArray[np.bool_]:
    """Where the asymptotic series is used."""
    far: NDArray[np.bool_] = r > s * np.maximum(10.0, 4 * np.sqrt(d))
    return far


def _asymptotic(a: float, b: Array, c: float, y: Array) -> Array:
    """sum_k (a)_k (b)_k / (c)_k y^k (c = 1: the 2F0 of DLMF 13.7.2), by Horner's scheme."""
    total = np.ones_like(y)
    for k in range(_TERMS - 1, -1, -1) if y.size else ():
        total *= (b + k) * y
        total *= (a + k) / (c + k)
        total += 1
    return total


def _octaves(mask: NDArray[np.bool_], width: Array) -> Iterator[tuple[NDArray[np.intp], Rule]]:
    """Yield the true elements of `mask` by the octave of `width`, each time with the quadrature rule for them."""
    index = np.flatnonzero(mask)
    octave = np.maximum(np.frexp(width[index])[1], 3)
    for e in np.unique(octave):
        yield index[octave == e], _rule(int(e))


@lru_cache(maxsize=128)
def _rule(e: int) -> Rule:
    """Quadrature in theta for 2^(e-1) <= W < 2^e (e = 3: for all W < 8).

    Returns
    -------
    exponents : ndarray, (nodes, 2)
        -sin^2/2 and log cos, the factors of rho^2 and d.
    weights : ndarray, (2, nodes)
        For T and C/(d-1).
    gap_weights : ndarray, (nodes,)
        For the gap.
    """
    if e < 7:  # Gauss-Legendre over [0, pi/2]
        t, w = np.polynomial.legendre.leggauss(4 * e + 5)
        theta, w = math.pi / 4 * (1 + t), math.pi / 4 * w
    else:  # The integrand is even, and below 1e-16 at `end`: the trapezoidal rule converges geometrically [4]_.
        end = math.asin(min(math.sqrt(38 / 2.0 ** (e - 2)), 1))
        count = math.ceil(end * 2 ** (e / 2) / 0.63)
        theta, w = end * (np.arange(count) + 0.5) / count, np.full(count, end / count)
    w = _MEAN_LENGTH * w
    sine2, cosine = np.sin(theta) ** 2, np.cos(theta)
    logcos = np.where(sine2 < 0.5, 0.5 * np.log1p(-sine2), np.log(cosine))
    return np.stack([-0.5 * sine2, logcos], axis=1), np.stack([w, w * sine2 / cosine**2]), w * cosine / sine2
