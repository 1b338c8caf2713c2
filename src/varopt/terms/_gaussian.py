r"""Expectations of piecewise polynomials under a Gaussian [SB12, section 1], without cancellation.

For :math:`z \sim N(\nu, s^2)` write the term as the polynomial of the piece that holds :math:`\nu` plus, for every knot t, the jump polynomial
beyond the knot, :math:`\sum_m d_m (z - t)^m`, on the side away from :math:`\nu`. The first has elementary moments, the second
is a sum of normal tails :math:`J_m(|u|)`, :math:`u = (\nu - t)/s` (see `_tails`):

    E = <P_local> + sum_t sum_m d_tm s^m (+1 or -1) J_m(|u_t|)

Every tail is small where it should be, so far from the knots E keeps the digits of the polynomial, the gap those of the tail. Differentiating
``s^m I_m(u)`` in the mean gives ``m s^(m-1) I_(m-1)(u)``, and ``phi(u)/s`` for a jump of what is differentiated.

One case is left: knots much closer than s. There the jumps of neighbouring knots cancel, and the pieces are integrated one by one instead
(`_piece_by_piece`), so that an expectation of positive numbers is again a sum of positive numbers.

Accuracy: relative to the expectation of the absolute value of what is averaged (the term or its derivative), a few units in the last
place of ``exp(-u^2/2)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_numpy_namespace

from varopt._array import Array, as_float, blocked
from varopt.terms._polynomial import differentiate, is_zero, shift, subtract
from varopt.terms._tails import NEAR, density, half_minus_tail, tails

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["expectations", "worst_gap"]

Order = int | str  # a derivative in the mean, or "gap"

_FAR = 40.0  # standard deviations at which every tail has underflowed
_NARROW = 0.25  # knots closer than this many standard deviations are integrated piece by piece
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def expectations(term: PiecewisePolynomial, mean: Array, sigma: Array, orders: Sequence[Order]) -> tuple[Array, ...]:
    """The requested derivatives of the expectation in the mean (0, 1, 2) and ``"gap"``, sharing one evaluation of the tails."""
    xp, (mean, sigma) = as_float(mean, sigma)
    if bool(xp.any(sigma < 0)):
        raise ValueError("sigma must be >= 0.")
    term = term.on(xp, mean)

    def evaluate(start: int | None, stop: int | None, nu: Array, s: Array) -> tuple[Array, ...]:
        part = term if start is None else term.take(slice(start, stop))
        results = _local_and_tails(xp, part, nu, s, orders)
        narrow = _narrow_rows(part, s)
        if narrow is not None and bool(xp.any(narrow)):
            fixed = _piece_by_piece(xp, part, nu, xp.where(narrow, s, xp.ones_like(s)), orders)
            results = [xp.where(narrow, f, r) for r, f in zip(results, fixed, strict=True)]
        return tuple(results)

    # Overflow of a piece or a quotient that is not selected is no news to the caller.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        return blocked(evaluate, len(orders), mean, sigma)


def _as_array(xp: Any, value: Any, like: Array) -> Array:
    return xp.asarray(value, dtype=like.dtype, device=like.device) if isinstance(value, float) else value


def _pick(xp: Any, values: Sequence[Any], beyond: Sequence[Array], like: Array) -> Any:
    """Of one value per piece, the one of the piece each row lies in; a float where all pieces agree."""
    if all(isinstance(v, float) for v in values) and len(set(values)) == 1:
        return values[0]
    result = _as_array(xp, values[0], like)
    for right, value in zip(beyond, values[1:], strict=True):
        result = xp.where(right, _as_array(xp, value, like), result)
    return result


def _falling(m: int, k: int) -> float:
    """``m (m-1) ... (m-k+1)``, the factor of the k-th derivative of ``x^m``."""
    return float(math.perm(m, k))


def _combine(coefficients: Sequence[Any], moments: Sequence[Any], start: Array) -> Array:
    total = start
    for c, h in zip(coefficients, moments, strict=False):
        if not is_zero(c):
            total = total + (h if isinstance(c, float) and c == 1.0 else c * h)
    return total


def _moments(x: Array, s: Array, degree: int) -> tuple[list[Any], list[Any]]:
    """``<X^m>`` and ``<X^m> - x^m`` for ``X ~ N(x, s^2)``, m = 0 .. degree."""
    moments: list[Any] = [1.0, x]
    gaps: list[Any] = [0.0, 0.0]
    for m in range(2, degree + 1):
        spread = (m - 1) * (s * s) * moments[m - 2]
        moments.append(x * moments[m - 1] + spread)
        gaps.append(x * gaps[m - 1] + spread)
    return moments[: degree + 1], gaps[: degree + 1]


def _local_and_tails(xp: Any, term: PiecewisePolynomial, nu: Array, s: Array, orders: Sequence[Order]) -> list[Array]:
    shape = np.broadcast_shapes(nu.shape, s.shape)
    zero = xp.zeros(shape, dtype=nu.dtype, device=nu.device) if shape != nu.shape else xp.zeros_like(nu)
    offsets = [nu - t for t in term.knots]
    beyond = [x > 0 if term.at_knot == "left" else x >= 0 for x in offsets]
    width = max(map(len, term.pieces))
    local = [
        _pick(xp, [p[m] if m < len(p) else 0.0 for p in term.pieces], beyond, nu) for m in range(width)
    ]  # coefficients of the piece that holds nu, in powers of (z - its centre)
    centre = _pick(xp, term.centres, beyond, nu)
    x_local = offsets[0] if offsets and centre is term.knots[0] else nu if is_zero(centre) else nu - centre
    moments, gaps = _moments(x_local, s, width - 1)
    results = []
    for k in orders:
        if k == "gap":
            results.append(_combine(local, gaps, zero))
        else:
            derivative = [_scaled(_falling(m, int(k)), local[m]) for m in range(int(k), width)]
            results.append(_combine(derivative, moments, zero))
    if not term.knots:
        return results

    degenerate = bool(xp.any(s == 0))  # a row that does not move: its term is exact and has no tails
    positive = xp.where(s == 0, xp.ones_like(s), s) if degenerate else s
    levels = [0 if k == "gap" else int(k) for k in orders]
    for j, jump in enumerate(term.jumps):
        live = [m for m, d in enumerate(jump) if not is_zero(d)]
        order = max((m - k for m in live for k in levels), default=-1)
        u = offsets[j] / positive
        if degenerate:
            u = xp.where(s == 0, xp.full_like(u, _FAR), u)
        a = xp.minimum(xp.abs(u), xp.asarray(_FAR, dtype=u.dtype, device=u.device))
        phi, *tail = tails(xp, a, order) if order >= 0 else [density(xp, a)]
        # +1 where nu is left of the knot, -1 right of it: the sign of an even tail.
        sign = 1.0 - 2.0 * xp.astype(beyond[j], nu.dtype)
        near = None
        for i, k in enumerate(levels):
            for m in live:
                d = jump[m]
                if m == k and orders[i] != "gap" and term.balanced[j][k]:
                    if near is None:
                        near = a < NEAR
                        odd = xp.where(near, -half_minus_tail(xp, a, phi), tail[0])
                        half = 0.5 * sign * xp.astype(near, nu.dtype)
                    d = _falling(m, k) * d
                    results[i] = (results[i] + d * half) + d * (sign * odd)
                elif m >= k:
                    piece = tail[m - k] if (m - k) % 2 else sign * tail[m - k]
                    factor = _falling(m, k) * d
                    if m > k:
                        piece = piece * (positive ** (m - k) if m - k > 1 else positive)
                    results[i] = results[i] + (piece if isinstance(factor, float) and factor == 1.0 else factor * piece)
                else:
                    results[i] = results[i] + d * _spike(k, m, u, phi, positive)
    return results


def _scaled(factor: float, coefficient: Any) -> Any:
    return coefficient if factor == 1.0 else factor * coefficient


def _spike(k: int, m: int, u: Array, phi: Array, s: Array) -> Array:
    """k-th derivative in the mean of ``<(z - t)_+^m>`` for k > m: the density, or its derivative."""
    if k == m + 1:
        return math.factorial(m) * phi / s
    return -(u * phi) / s / s  # k = 2, m = 0


# -- Knots closer than sigma ------------------------------------------------------------------------------------------


def _narrow_rows(term: PiecewisePolynomial, s: Array) -> Array | None:
    """Rows in which some piece is narrower than `_NARROW` standard deviations."""
    rows = None
    for left, right in zip(term.knots[:-1], term.knots[1:], strict=True):
        narrow = (right - left) < _NARROW * s
        rows = narrow if rows is None else rows | narrow
    return rows


def _piece_by_piece(xp: Any, term: PiecewisePolynomial, nu: Array, s: Array, orders: Sequence[Order]) -> list[Array]:
    """Expectations as a sum over pieces of the integral of the piece."""
    us = [(nu - t) / s for t in term.knots]
    sides = [_both_sides(xp, u, max(map(len, term.pieces)) - 1) for u in us]
    results = []
    for k in orders:
        if k == "gap":
            # Among the knots the gap is of the size of the value. Beyond them it is the integral of the term minus its outer polynomial,
            # and what that polynomial adds itself.
            total = _integral(xp, term, term.pieces, nu, s, us, sides) - term.value(nu)
            for end, here in ((0, us[0] < 0), (-1, us[-1] >= 0)):
                outer, centre = term.pieces[end], term.centres[end]
                others = [subtract(p, shift(outer, c - centre), abs(c - centre)) for p, c in zip(term.pieces, term.centres, strict=True)]
                gaps = _moments(nu - centre, s, len(outer) - 1)[1]
                total = xp.where(here, _combine(outer, gaps, _integral(xp, term, others, nu, s, us, sides)), total)
            results.append(total)
            continue
        pieces = term.pieces
        for _ in range(int(k)):
            pieces = tuple(differentiate(p) for p in pieces)
        total = _integral(xp, term, pieces, nu, s, us, sides)
        for j, jump in enumerate(term.jumps):
            for m in range(min(int(k), len(jump))):
                if not is_zero(jump[m]):
                    total = total + jump[m] * _spike(int(k), m, us[j], density(xp, us[j]), s)
        results.append(total)
    return results


def _integral(
    xp: Any, term: PiecewisePolynomial, pieces: Sequence[Any], nu: Array, s: Array, us: list[Array], sides: list[Any]
) -> Array:
    """``sum_i <p_i(z) 1[z in piece i]>`` for polynomials `pieces` on the intervals, and around the centres, of `term`."""
    first = shift(pieces[0], term.knots[0] - term.centres[0])
    last = shift(pieces[-1], term.knots[-1] - term.centres[-1])
    total = _power_sum(first, sides[0][1], s, alternating=True) + _power_sum(last, sides[-1][0], s)
    for i in range(1, len(pieces) - 1):
        if all(is_zero(c) for c in pieces[i]):
            continue
        width = (term.knots[i] - term.knots[i - 1]) / s
        # Where the interval is wide the ends do not cancel and their difference is exact; else Gauss-Legendre is.
        wide = width * (1.0 + xp.minimum(xp.abs(us[i - 1]), xp.abs(us[i]))) >= 8.0
        left, right = (shift(pieces[i], t - term.centres[i]) for t in term.knots[i - 1 : i + 1])
        inside = (us[i - 1] >= 0) & (us[i] < 0)
        moments, _ = _moments(nu - term.centres[i], s, len(pieces[i]) - 1)
        ends = xp.where(inside, _combine(pieces[i], moments, xp.zeros_like(nu)), xp.zeros_like(nu))
        ends = ends + _one_tail(xp, left, us[i - 1], sides[i - 1], s) - _one_tail(xp, right, us[i], sides[i], s)
        start = term.knots[i - 1] - term.centres[i]
        narrow = xp.where(wide, xp.zeros_like(width), width)
        total = total + xp.where(wide, ends, _quadrature(xp, pieces[i], start, us[i - 1], narrow, s))
    return total


def _both_sides(xp: Any, u: Array, degree: int) -> tuple[list[Array], list[Array]]:
    """``I_m(u)`` and ``I_m(-u)``: a tail on one side, on the other the recurrence, which there adds positive numbers."""
    a = xp.minimum(xp.abs(u), xp.asarray(_FAR, dtype=u.dtype, device=u.device))
    phi, *tail = tails(xp, a, degree)
    body = [1.0 - tail[0]]
    if degree >= 1:
        body.append(xp.abs(u) * body[0] + phi)
    for m in range(2, degree + 1):
        body.append(xp.abs(u) * body[m - 1] + (m - 1) * body[m - 2])
    right = u >= 0
    return (
        [xp.where(right, b, t) for b, t in zip(body, tail, strict=True)],
        [xp.where(right, t, b) for b, t in zip(body, tail, strict=True)],
    )


def _power_sum(polynomial: Sequence[Any], integrals: Sequence[Array], s: Array, *, alternating: bool = False) -> Array:
    """``sum_m c_m s^m I_m``, with signs (-1)^m for the piece left of its knot."""
    total = 0.0 * integrals[0]
    for m, c in enumerate(polynomial):
        if not is_zero(c):
            total = total + (-c if alternating and m % 2 else c) * (s**m * integrals[m])
    return total


def _one_tail(xp: Any, polynomial: Sequence[Any], u: Array, both: tuple[list[Array], list[Array]], s: Array) -> Array:
    """What ``polynomial(z - t) 1[z > t]`` adds on the side of the knot away from the mean."""
    right = u >= 0
    return xp.where(right, -_power_sum(polynomial, both[1], s, alternating=True), _power_sum(polynomial, both[0], s))


def _quadrature(xp: Any, polynomial: Sequence[Any], start: Any, u: Array, width: Array, s: Array) -> Array:
    """``int_0^width p(start + s x) phi(x - u) dx`` by 16 Gauss-Legendre nodes: exact to rounding for width (1 + |u|) < 8."""
    total = 0.0 * (u + width)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        x = (0.5 + 0.5 * float(node)) * width
        value = 0.0 * x
        for c in reversed(polynomial):
            value = value * (start + s * x) + c
        total = total + float(weight) * (value * density(xp, x - u))
    return 0.5 * width * total


# -- The worst gap ----------------------------------------------------------------------------------------------------


def worst_gap(term: PiecewisePolynomial, sigma: Array) -> tuple[Array, Array]:
    """Supremum over the mean of expectation minus value, and where it is reached (NumPy only).

    For a convex piecewise linear term the gap is convex between knots, so one of the knots is the place: K evaluations. Otherwise a
    grid around and between the knots is refined; about 500 evaluations a row.
    """
    s = np.asarray(sigma, dtype=np.float64)
    if not np.all(np.isfinite(s)) or np.any(s < 0):
        raise ValueError("sigma must be finite and >= 0.")
    shape = np.broadcast_shapes(s.shape, () if term.rows is None else (term.rows,))
    s = np.broadcast_to(s, shape)
    best, where = np.full(shape, -np.inf), np.zeros(shape)

    def consider(gap: Array, mean: Array) -> None:
        nonlocal best, where
        better = gap > best + 1e-12 * np.where(np.isfinite(best), np.abs(best), 0.0)  # prefer the first of equals
        best, where = np.where(better, gap, best), np.where(better, mean, where)

    if not term.knots:
        consider(term.gap(np.zeros(shape), s), np.zeros(shape))
    for j, knot in enumerate(term.knots):
        mean = np.broadcast_to(np.asarray(knot, dtype=float), shape)
        below = np.maximum(np.asarray(term.jumps[j][0]), 0.0)  # the limit from the lower side of a jump
        above = np.minimum(np.asarray(term.jumps[j][0]), 0.0)
        consider(term.gap(mean, s) + (below if term.at_knot == "right" else -above), mean)
    if not (term.curvature.is_convex and term.degree <= 1):
        for end, piece in ((-1.0, term.pieces[0]), (1.0, term.pieces[-1])):  # towards infinity the gap is the polynomial's
            if len(piece) == 3:
                consider(np.broadcast_to(np.asarray(piece[2], dtype=float) * s * s, shape), np.full(shape, end * np.inf))
            elif len(piece) > 3:
                grows = np.asarray(piece[-1]) * end ** (len(piece) - 1) > 0
                consider(np.broadcast_to(np.where(grows & (s > 0), np.inf, -np.inf), shape), np.full(shape, end * np.inf))
        grid = np.linspace(-9.0, 9.0, 73)
        lattice = [np.asarray(t) + np.multiply.outer(grid, s) for t in term.knots]
        lattice += [
            np.asarray(a) + np.multiply.outer(np.linspace(0, 1, 33), np.broadcast_to(np.asarray(b) - np.asarray(a), shape))
            for a, b in zip(term.knots[:-1], term.knots[1:], strict=True)
        ]
        for means in lattice:
            for mean in means:
                consider(_one_sided_gap(term, mean, s), mean)
        step = np.where(np.isfinite(where), s / 4.0, 0.0)
        for _ in range(12):
            centre = np.where(np.isfinite(where), where, 0.0)
            for fraction in np.linspace(-1.0, 1.0, 9):
                consider(np.where(step > 0, _one_sided_gap(term, centre + fraction * step, s), -np.inf), centre + fraction * step)
            step = step / 4.0
    return best, where


def _one_sided_gap(term: PiecewisePolynomial, mean: Array, s: Array) -> Array:
    return np.asarray(term.expectation(mean, s) - term.value(mean))
