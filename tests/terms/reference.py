"""Expectations of piecewise polynomials to 50 digits, straight from the definition: by mpmath, piece by piece."""

from __future__ import annotations

import math

import mpmath as mp

from varopt.terms import PiecewisePolynomial

DIGITS = 50


def _interval_moments(low, high, u, degree):
    """``int_low^high x^m phi(x - u) dx`` for m = 0 .. degree, by integration by parts."""
    a, b = low - u, high - u  # in standard units
    if a > 0:
        zeroth = (mp.erfc(a / mp.sqrt(2)) - (mp.erfc(b / mp.sqrt(2)) if b != mp.inf else 0)) / 2
    else:
        zeroth = (mp.erfc(-b / mp.sqrt(2)) if b != mp.inf else mp.mpf(2)) / 2
        zeroth -= mp.erfc(-a / mp.sqrt(2)) / 2 if a != -mp.inf else 0
    moments = [zeroth]
    for m in range(1, degree + 1):
        boundary = mp.mpf(0)
        for sign, x in ((1, low), (-1, high)):
            if abs(x) != mp.inf:
                boundary += sign * x ** (m - 1) * mp.npdf(x - u)
        following = u * moments[m - 1] + boundary
        if m >= 2:
            following += (m - 1) * moments[m - 2]
        moments.append(following)
    return moments


def _digits(term: PiecewisePolynomial, mean: float, sigma: float) -> int:
    """Working digits that leave `DIGITS` after the integration by parts.

    Each step of it cancels by ``u^2`` far from a knot, and by the width of the piece where that is small.
    """
    far = max((abs(mean - t) / sigma for t in (*term.knots, *term.centres)), default=0.0)
    narrow = max((sigma / (b - a) for a, b in zip(term.knots[:-1], term.knots[1:], strict=True)), default=0.0)
    return DIGITS + 10 + math.ceil(4 * (term.degree + 1) * math.log10(2 + far + narrow))


def expectation(term: PiecewisePolynomial, mean: float, sigma: float, derivative: int = 0, digits: int | None = None):
    """The derivative in the mean of the expectation, and its scale.

    The scale is the expectation of the sum of the absolute values of the monomials of the declaration: no formula that
    starts from rounded coefficients can do better than a few units in the last place of it.
    """
    with mp.workdps(digits or _digits(term, mean, sigma)):
        mean, sigma = mp.mpf(mean), mp.mpf(sigma)
        knots = [mp.mpf(t) for t in term.knots]
        ends = [-mp.inf, *knots, mp.inf]
        parts, scale = [], mp.mpf(0)
        for i, piece in enumerate(term.pieces):
            coefficients = [mp.mpf(c) for c in piece]
            for _ in range(derivative):
                coefficients = [m * c for m, c in enumerate(coefficients)][1:] or [mp.mpf(0)]
            centre = mp.mpf(term.centres[i])
            low, high = (ends[i] - centre) / sigma, (ends[i + 1] - centre) / sigma
            moments = _interval_moments(low, high, (mean - centre) / sigma, len(coefficients) - 1)
            parts.append(mp.fsum(c * sigma**m * h for m, (c, h) in enumerate(zip(coefficients, moments, strict=True))))
            scale += _absolute(coefficients, low, high, (mean - centre) / sigma, sigma)
        for j, knot in enumerate(knots):
            u = (mean - knot) / sigma
            jump = [mp.mpf(d) for d in term.jumps[j]] + [mp.mpf(0)] * 2
            spikes = []
            if derivative == 1:
                spikes = [jump[0] * mp.npdf(u) / sigma]
            elif derivative == 2:
                spikes = [jump[1] * mp.npdf(u) / sigma, -jump[0] * u * mp.npdf(u) / sigma**2]
            parts += spikes
            scale += mp.fsum(map(abs, spikes))
        return mp.fsum(parts), scale


def _absolute(coefficients, low, high, u, sigma):
    """``sum_m |c_m| <|x|^m>`` over an interval in standard units."""
    total = mp.mpf(0)
    for sign, a, b in ((-1, low, min(high, mp.mpf(0))), (1, max(low, mp.mpf(0)), high)):
        if a < b:
            moments = _interval_moments(a, b, u, len(coefficients) - 1)
            total += mp.fsum(
                abs(c) * (sign * sigma) ** m * h for m, (c, h) in enumerate(zip(coefficients, moments, strict=True))
            )
    return total


def value(term: PiecewisePolynomial, z: float, digits: int = 420):
    """The term at z, by the pieces as declared."""
    with mp.workdps(digits):
        z = mp.mpf(z)
        inside = [z > mp.mpf(t) if term.at_knot == "left" else z >= mp.mpf(t) for t in term.knots]
        i = sum(inside)
        return mp.fsum(mp.mpf(c) * (z - mp.mpf(term.centres[i])) ** m for m, c in enumerate(term.pieces[i]))


def gap(term: PiecewisePolynomial, mean: float, sigma: float):
    """Expectation minus value, and its scale: the absolute parts from the local monomials and from each knot."""
    nearest = min((abs(mean - t) / sigma for t in term.knots), default=0.0)
    # 30 standard deviations from the knots the gap is 1e-200 of the value.
    digits = (
        _digits(term, mean, sigma) + math.ceil(0.22 * min(nearest, 45.0) ** 2) + 2 * math.ceil(abs(math.log10(sigma)))
    )
    with mp.workdps(digits):
        here = value(term, mean, digits)
        total = expectation(term, mean, sigma, digits=digits)[0] - here
        nu, s = mp.mpf(mean), mp.mpf(sigma)
        inside = sum(nu > mp.mpf(t) if term.at_knot == "left" else nu >= mp.mpf(t) for t in term.knots)
        centre = mp.mpf(term.centres[inside])
        x = abs(nu - centre)  # around it all monomials and their gaps add up
        parts = [
            mp.mpf(c) * (s**m * h - x**m)
            for m, (c, h) in enumerate(zip(term.pieces[inside], _moments(x / s, term.degree), strict=False))
        ]
        for j, knot in enumerate(term.knots):
            away = -abs(nu - mp.mpf(knot)) / s
            tails = _interval_moments(mp.mpf(0), mp.inf, away, len(term.jumps[j]) - 1)
            parts += [mp.mpf(d) * s**m * h for m, (d, h) in enumerate(zip(term.jumps[j], tails, strict=True))]
        return total, mp.fsum(map(abs, parts))


def _moments(u, degree):
    """``<X^m>`` for ``X ~ N(u, 1)`` and m = 0 .. degree."""
    moments = [mp.mpf(1), u]
    for m in range(2, degree + 1):
        moments.append(u * moments[m - 1] + (m - 1) * moments[m - 2])
    return moments
