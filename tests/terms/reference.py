"""Expectations of piecewise polynomials at 50 digits, straight from the definition: one integral per piece, in mpmath."""

from __future__ import annotations

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


def expectation(term: PiecewisePolynomial, mean: float, sigma: float, derivative: int = 0):
    """The derivative in the mean of the expectation, and the scale of its parts (the sum of their absolute values)."""
    # Far in the tails the integration by parts cancels by u^(2 degree); extra digits pay for it.
    with mp.workdps(420):
        mean, sigma = mp.mpf(mean), mp.mpf(sigma)
        knots = [mp.mpf(t) for t in term.knots]
        ends = [-mp.inf, *knots, mp.inf]
        parts = []
        for i, piece in enumerate(term.pieces):
            coefficients = [mp.mpf(c) for c in piece]
            for _ in range(derivative):
                coefficients = [m * c for m, c in enumerate(coefficients)][1:] or [mp.mpf(0)]
            centre = mp.mpf(term.centres[i])
            low, high = (ends[i] - centre) / sigma, (ends[i + 1] - centre) / sigma
            moments = _interval_moments(low, high, (mean - centre) / sigma, len(coefficients) - 1)
            parts.append(mp.fsum(c * sigma**m * h for m, (c, h) in enumerate(zip(coefficients, moments, strict=True))))
        for j, knot in enumerate(knots):
            u = (mean - knot) / sigma
            jump = [mp.mpf(d) for d in term.jumps[j]] + [mp.mpf(0)] * 2
            if derivative == 1:
                parts.append(jump[0] * mp.npdf(u) / sigma)
            elif derivative == 2:
                parts.append(jump[1] * mp.npdf(u) / sigma - jump[0] * u * mp.npdf(u) / sigma**2)
        return mp.fsum(parts), mp.fsum(map(abs, parts))


def value(term: PiecewisePolynomial, z: float):
    """The term at z, by the pieces as declared."""
    with mp.workdps(420):
        z = mp.mpf(z)
        inside = [z > mp.mpf(t) if term.at_knot == "left" else z >= mp.mpf(t) for t in term.knots]
        i = sum(inside)
        return mp.fsum(mp.mpf(c) * (z - mp.mpf(term.centres[i])) ** m for m, c in enumerate(term.pieces[i]))
