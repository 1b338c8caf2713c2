"""Expectations of piecewise polynomials to 50 digits, straight from the definition: by mpmath, piece by piece."""

from __future__ import annotations

import math
from functools import lru_cache

import mpmath as mp

from varopt.terms import PiecewisePolynomial

DIGITS = 50
FAR = 10**4  # standard deviations beyond which a tail, 1e-21714741, is nothing


@lru_cache(maxsize=64)
def _tail(x, precision):
    """``Phi(-x)`` and ``phi(x)``: neighbouring pieces, derivatives and scales ask for the same ones."""
    return mp.erfc(x / mp.sqrt(2)) / 2, mp.npdf(x)


def _interval_moments(a, b, u, degree):
    """``int_a^b (x + u)^m phi(x) dx`` for m = 0 .. degree, by integration by parts."""
    side = 1 if a > 0 else -1  # take the tails that the interval lies in: they do not cancel
    ends = [(x, *((mp.mpf(x * side < 0), 0) if abs(x) > FAR else _tail(side * x, mp.mp.prec))) for x in (a, b)]
    moments = [side * (ends[0][1] - ends[1][1])]
    for m in range(1, degree + 1):
        following = u * moments[m - 1] + (m - 1) * (moments[m - 2] if m >= 2 else 0)
        for sign, (x, _, phi) in zip((1, -1), ends, strict=True):
            if phi:
                following += sign * (x + u) ** (m - 1) * phi
        moments.append(following)
    return moments


def _digits(term: PiecewisePolynomial, mean: float, sigma: float) -> int:
    """Working digits that leave `DIGITS` after the integration by parts.

    Each step of it cancels by ``u^2`` far from a knot, and by the width of the piece where that is small.
    """
    ratios = [min(abs(mp.mpf(mean) - mp.mpf(t)) / mp.mpf(sigma), FAR) for t in (*term.knots, *term.centres)]
    ratios += [mp.mpf(sigma) / (b - a) for a, b in zip(term.knots[:-1], term.knots[1:], strict=True)]
    return DIGITS + 10 + math.ceil(4 * (term.degree + 1) * mp.log10(2 + sum(ratios)))


def _intervals(term: PiecewisePolynomial, mean, sigma, derivative: int):
    """For each piece its ends in standard units, the mean from its centre, and ``c_m s^m`` of the derivative."""
    ends = [-mp.inf, *((mp.mpf(t) - mean) / sigma for t in term.knots), mp.inf]
    for i, piece in enumerate(term.pieces):
        coefficients = [mp.mpf(c) for c in piece]
        for _ in range(derivative):
            coefficients = [m * c for m, c in enumerate(coefficients)][1:] or [mp.mpf(0)]
        scaled = [c * sigma**m for m, c in enumerate(coefficients)]
        yield ends[i], ends[i + 1], (mean - mp.mpf(term.centres[i])) / sigma, scaled


def _dot(coefficients, moments):
    return mp.fsum(c * h for c, h in zip(coefficients, moments, strict=True))


def _mean_of(term: PiecewisePolynomial, mean, sigma, derivative: int):
    return mp.fsum(
        _dot(c, _interval_moments(a, b, u, len(c) - 1)) for a, b, u, c in _intervals(term, mean, sigma, derivative)
    )


def expectation(term: PiecewisePolynomial, mean: float, sigma: float, derivative: int = 0):
    """The derivative in the mean of the expectation, and its scale.

    The scale is the expectation of the sum of the absolute values of the monomials of the declaration: no formula that
    starts from rounded coefficients can do better than a few units in the last place of it.
    """
    with mp.workdps(_digits(term, mean, sigma)):
        mean, sigma = mp.mpf(mean), mp.mpf(sigma)
        total, scale = _mean_of(term, mean, sigma, derivative), mp.mpf(0)
        for a, b, u, coefficients in _intervals(term, mean, sigma, derivative):
            for sign, left, right in ((-1, a, min(b, -u)), (1, max(a, -u), b)):  # on each side of the centre
                if left < right:
                    absolute = [abs(c) * sign**m for m, c in enumerate(coefficients)]
                    scale += _dot(absolute, _interval_moments(left, right, u, len(absolute) - 1))
        for j, knot in enumerate(term.knots):
            u = (mean - mp.mpf(knot)) / sigma
            jump = [mp.mpf(d) for d in term.jumps[j]] + [mp.mpf(0)] * 2
            spikes = {0: [], 1: [jump[0] / sigma], 2: [jump[1] / sigma, -jump[0] * u / sigma**2]}[derivative]
            total += sum(spikes) * mp.npdf(u)
            scale += sum(map(abs, spikes)) * mp.npdf(u)
        return total, scale


def _piece_at(term: PiecewisePolynomial, z) -> int:
    return sum(z > mp.mpf(t) if term.at_knot == "left" else z >= mp.mpf(t) for t in term.knots)


def value(term: PiecewisePolynomial, z: float, digits: int = 420):
    """The term at z, by the pieces as declared."""
    with mp.workdps(digits):
        z = mp.mpf(z)
        i = _piece_at(term, z)
        return mp.fsum(mp.mpf(c) * (z - mp.mpf(term.centres[i])) ** m for m, c in enumerate(term.pieces[i]))


def gap(term: PiecewisePolynomial, mean: float, sigma: float):
    """Expectation minus value, and its scale: the absolute parts from the local monomials and from each knot."""
    nearest = min((abs(mp.mpf(mean) - t) / mp.mpf(sigma) for t in term.knots), default=0)
    # 30 standard deviations from the knots the gap is 1e-200 of the value.
    extra = math.ceil(0.22 * min(nearest, 45) ** 2) + 2 * math.ceil(abs(math.log10(sigma)))
    with mp.workdps(_digits(term, mean, sigma) + extra):
        nu, s = mp.mpf(mean), mp.mpf(sigma)
        total = _mean_of(term, nu, s, 0) - value(term, mean, mp.mp.dps)
        i = _piece_at(term, nu)
        x = abs(nu - mp.mpf(term.centres[i]))  # where all monomials and their gaps add up
        moments = _interval_moments(-mp.inf, mp.inf, x / s, term.degree)
        parts = [
            abs(mp.mpf(c)) * (s**m * h - x**m) for m, (c, h) in enumerate(zip(term.pieces[i], moments, strict=False))
        ]
        for j, knot in enumerate(term.knots):
            distance = abs(nu - mp.mpf(knot)) / s
            tails = _interval_moments(distance, mp.inf, -distance, len(term.jumps[j]) - 1)
            parts += [abs(mp.mpf(d)) * s**m * h for m, (d, h) in enumerate(zip(term.jumps[j], tails, strict=True))]
        return total, mp.fsum(parts)
