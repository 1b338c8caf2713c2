r"""Expectations of piecewise polynomials under a Gaussian [SB12, section 1], without cancellation.

For :math:`z \sim N(\nu, s^2)` write the term as the polynomial of the piece that holds :math:`\nu` plus, for every knot
t, the jump polynomial beyond the knot, :math:`\sum_m d_m (z - t)^m`, on the side away from :math:`\nu`. The first has
elementary moments, the second is a sum of normal tails :math:`J_m(|u|)`, :math:`u = (\nu - t)/s` (see `_tails`):

    E = <P_local> + sum_t sum_m d_tm s^m (+1 or -1) J_m(|u_t|)

Every tail is small where it should be, so far from the knots E keeps the digits of the polynomial, the gap those of the
tail. Differentiating ``s^m I_m(u)`` in the mean gives ``m s^(m-1) I_(m-1)(u)``, and ``phi(u)/s`` for a jump of what is
differentiated.

One case is left: knots much closer than s. There the jumps of neighbouring knots cancel, and the pieces are integrated
one by one instead (`_piece_by_piece`), so that an expectation of positive numbers is again a sum of positive numbers.

Accuracy: relative to the expectation of the absolute values of the monomials averaged (of the term or its derivative),
a few units in the last place of ``exp(-u^2/2)``.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from varopt._array import Array, as_float, blocked, constant, is_traced, some
from varopt.terms._tails import FAR, NEAR_MEAN, density, tail_minus_half, tails
from varopt.terms.polynomials import Polynomial, differentiate, evaluate, is_zero, shift, subtract

if TYPE_CHECKING:
    from varopt.terms._piecewise import PiecewisePolynomial

__all__ = ["expectations", "expectations_of"]

# A derivative in the mean (0, 1, 2, ...); (k, p) for s^p times the k-th derivative, of which all derivatives in s
# consist (the heat equation); "gap"; or "sigma" for the derivative in s, (2, 1) with its limit at s = 0.
Order = int | str | tuple[int, int]

# Knots closer than this many standard deviations are integrated piece by piece. By degree: the jumps of high ones
# cancel sooner.
_CLOSE_KNOTS = (0.25, 0.25, 1.0, 3.0)
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = (rule.tolist() for rule in np.polynomial.legendre.leggauss(16))


def expectations(term: PiecewisePolynomial, mean: Array, sigma: Array, orders: Sequence[Order]) -> tuple[Array, ...]:
    """What `orders` asks of the expectation, sharing one evaluation of the tails."""
    xp, (mean, sigma) = as_float(mean, sigma)
    if not is_traced(sigma) and bool(xp.any(sigma < 0)):
        raise ValueError("sigma must be >= 0.")
    term = term.on(xp, mean)

    def evaluate(start: int | None, stop: int | None, nu: Array, s: Array) -> tuple[Array, ...]:
        part = term if start is None else term.take(slice(start, stop))
        return expectations_of(xp, part, nu, s, orders)

    # Overflow of a piece or a quotient that is not selected is no news to the caller.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        return blocked(evaluate, len(orders), mean, sigma)


def expectations_of(
    xp: Any, term: PiecewisePolynomial, nu: Array, s: Array, orders: Sequence[Order]
) -> tuple[Array, ...]:
    """What `orders` asks of the expectation, for arrays of the namespace `xp` that are floating and of one dtype.

    Their values may be only traced, by ``jax.jit`` or ``torch.compile``. An order is a derivative in the mean (0, 1,
    ...), or a pair (k, p) for ``s^p`` times the k-th derivative, s > 0: by the heat equation every mixed derivative in
    the mean and sigma is a sum of these.
    """
    return tuple(_rescued(xp, term, nu, s, orders, _either_way(xp, term, nu, s, orders)))


def _either_way(xp: Any, term: PiecewisePolynomial, nu: Array, s: Array, orders: Sequence[Order]) -> list[Array]:
    results = _local_and_tails(xp, term, nu, s, orders)
    narrow = _narrow_rows(term, s)
    if narrow is None or not some(xp, narrow):
        return results
    fixed = _piece_by_piece(xp, term, nu, xp.where(narrow, s, xp.ones_like(s)), orders)
    return [xp.where(narrow, f, r) for r, f in zip(results, fixed, strict=True)]


def _level(order: Order) -> int:
    """The derivative of the term that is averaged."""
    if isinstance(order, tuple):
        return order[0]
    return {"gap": 0, "sigma": 2}[order] if isinstance(order, str) else order


def _power(order: Order) -> int:
    """The power of s by which it is multiplied."""
    return order[1] if isinstance(order, tuple) else int(order == "sigma")


def _by_power(total: Any, s: Array, power: int) -> Any:
    """``total s^power``; the power may be negative, and to divide last keeps zeros zero where 1 / s overflows."""
    if is_zero(total):
        return total
    return reduce(operator.mul if power > 0 else operator.truediv, [s] * abs(power), total)


def _falling(m: int, k: int) -> float:
    """``m (m-1) ... (m-k+1)``, the factor of the k-th derivative of ``x^m``."""
    return float(math.perm(m, k))


def _scaled(factor: float, coefficient: Any) -> Any:
    return coefficient if factor == 1.0 else factor * coefficient


def _times(coefficient: Any, array: Array) -> Array:
    """The product; the array itself where the coefficient is one, so that a pass over it is saved."""
    return array if isinstance(coefficient, float) and coefficient == 1.0 else coefficient * array


# -- The piece that holds the mean, and the tails beyond the knots ----------------------------------------------------


def _pick(values: Sequence[Any], inside: Sequence[Array]) -> Any:
    """Of one value per piece, the one of the piece each row lies in; a float where all pieces agree."""
    if len(values) == 1 or (all(isinstance(v, float) for v in values) and len(set(values)) == 1):
        return values[0]
    return reduce(operator.add, [_times(v, here) for v, here in zip(values, inside, strict=True) if not is_zero(v)])


def _inside(right: Sequence[Array]) -> list[Array]:
    """For each piece one where the row lies in it, else zero; `right` is the same for what is right of each knot."""
    return [1.0 - right[0], *(here - there for here, there in itertools.pairwise(right)), right[-1]] if right else []


def _combine(xp: Any, coefficients: Sequence[Any], moments: Sequence[Any]) -> Any:
    """``sum_m c_m h_m``; a float where nothing depends on the row."""
    total: Any = 0.0
    for m, (c, h) in enumerate(zip(coefficients, moments, strict=False)):
        if is_zero(c) or is_zero(h):
            continue
        part = _times(c, h) if not isinstance(h, float) else _scaled(h, c)
        if m >= 2 and not isinstance(c, float):  # the moment may have overflowed in rows that do not use it
            part = xp.where(c == 0, xp.zeros_like(part), part)
        total = part if is_zero(total) else total + part
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
    shape = np.broadcast_shapes(nu.shape, s.shape, term.shape)
    if nu.shape != shape:
        nu = xp.broadcast_to(nu, shape)
    offsets = [nu if is_zero(t) else nu - t for t in term.knots]
    # Numbers rather than conditions: to multiply by 0 or 1 is exact, and on data in no order several times faster than
    # `where`, which mispredicts a branch.
    right = [xp.astype(xp.asarray(x > 0 if term.at_knot == "left" else x >= 0), x.dtype) for x in offsets]
    results = _local(xp, term, nu, s, orders, offsets, _inside(right))
    if term.knots:
        still = s == 0 if some(xp, s == 0) else None  # rows that do not move: their term is exact and has no tails
        moving = s if still is None else xp.where(still, xp.ones_like(s), s)
        for j, jump in enumerate(term.jumps):
            _add_tails(xp, results, jump, term.balanced[j], offsets[j], right[j], moving, still, orders)
    return [r if not isinstance(r, float) and r.shape == shape else r + xp.zeros_like(nu) for r in results]


def _local(
    xp: Any,
    term: PiecewisePolynomial,
    nu: Array,
    s: Array,
    orders: Sequence[Order],
    offsets: list[Array],
    inside: list[Array],
) -> list[Any]:
    """The expectations of the polynomial that holds the mean, as if it went on for ever."""
    width = max(map(len, term.pieces))
    # Coefficients of the piece that holds nu, in powers of z minus its centre.
    local = [_pick([p[m] if m < len(p) else 0.0 for p in term.pieces], inside) for m in range(width)]
    centre = _pick(term.centres, inside)
    x = offsets[0] if offsets and centre is term.knots[0] else nu if is_zero(centre) else nu - centre
    moments, gaps = _moments(x, s, width - 1)
    results = []
    for order in orders:
        k = _level(order)
        derivative = [_scaled(_falling(m, k), local[m]) for m in range(k, width)]
        total = _combine(xp, derivative, gaps if order == "gap" else moments)
        results.append(_by_power(total, s, _power(order)))
    return results


def _add_tails(
    xp: Any,
    results: list[Any],
    jump: Polynomial,
    balanced: Sequence[bool],
    offset: Array,
    right: Array,
    s: Array,
    still: Array | None,
    orders: Sequence[Order],
) -> None:
    """Add to each result what the jump polynomial contributes beyond its knot, on the side away from the mean.

    Most of the time of an expectation is spent here and in `tails`, so arrays made here are changed in place.
    """
    live = [m for m, d in enumerate(jump) if not is_zero(d)]
    highest = max([-1, *(m - _level(k) for m in live for k in orders)])
    a = xp.abs(offset / s)
    a = xp.minimum(a, constant(xp, FAR, a))
    if still is not None:
        a = xp.where(still, xp.full_like(a, FAR), a)
    phi, *tail = tails(xp, a, highest) if highest >= 0 else [density(xp, a)]
    # Left of the knot the jump adds its right tail; right of it, where the jump is in P_local, its left tail is taken
    # away again, and an odd power has changed its sign.
    sign = right * -2.0
    sign += 1.0
    for power in range(0, len(tail), 2):
        tail[power] *= sign
    for i, order in enumerate(orders):
        k = _level(order)
        total: Any = 0.0
        # Horner's rule in s: where s^m overflows and the tail is small, their product need not.
        for m in range(live[-1] if live else -1, k - 1, -1):
            total = total if is_zero(total) else total * s
            if is_zero(jump[m]):
                continue
            d = _scaled(_falling(m, k), jump[m])
            if m == k and order != "gap" and k < len(balanced) and balanced[k]:
                near = a < NEAR_MEAN
                if some(xp, near):
                    # 1/2 goes to the polynomial, where it cancels exactly; what is left of the tail has all its digits.
                    weight = xp.astype(xp.asarray(near), a.dtype)
                    far = 1.0 - weight
                    far *= tail[0]
                    weight *= sign
                    part = tail_minus_half(a)
                    part *= weight
                    part += far
                    part *= d
                    weight *= 0.5 * d
                    results[i] = results[i] + _by_power(weight, s, _power(order))
                else:
                    part = d * tail[0]
            else:
                part = _times(d, tail[m - k])
            total = part if is_zero(total) else total + part
        total = _by_power(total, s, _power(order))
        if not is_zero(total):
            results[i] = total if is_zero(results[i]) else results[i] + total
        spike = _spike(order, jump, sign, a, phi if order != "sigma" else _limit(xp, phi, offset, still), s)
        if not is_zero(spike):
            results[i] = spike if is_zero(results[i]) else results[i] + spike


def _spike(order: Order, jump: Polynomial, sign: Array, a: Array, phi: Array, s: Array) -> Any:
    """What jumps of the term and its derivatives add: derivatives of the density at the knot, u = -sign a."""
    k = _level(order)
    highest = max([-1, *(k - 1 - m for m, d in enumerate(jump[:k]) if not is_zero(d))])
    if highest < 0:
        return 0.0
    # phi's n-th derivative is (-1)^n He_n(u) phi(u) = He_n(sign a) phi(a); He_{n+1}(x) = x He_n(x) - n He_{n-1}(x).
    waves = [phi] if highest == 0 else [phi, sign * a * phi]
    for n in range(1, highest):
        waves.append(sign * a * waves[n] - n * waves[n - 1])
    total: Any = 0.0
    for m, d in enumerate(jump[:k]):  # sum_m d_m m! s^(m-k) He_{k-m-1}(sign a) phi(a)
        total = _by_power(total, s, -1)
        if not is_zero(d):
            part = _scaled(_falling(m, m), d) * waves[k - m - 1]
            total = part if is_zero(total) else part + total
    return _by_power(total, s, min(k, len(jump)) - 1 - k + _power(order))


def _limit(xp: Any, phi: Array, offset: Array, still: Array | None) -> Array:
    """The density in the limit s -> 0, on the knot too."""
    return phi if still is None else xp.where(still & (offset == 0), density(xp, xp.zeros_like(phi)), phi)


# -- Knots closer than sigma ------------------------------------------------------------------------------------------


def _narrow_rows(term: PiecewisePolynomial, s: Array) -> Array | None:
    """Rows in which the jumps at the ends of some piece would cancel."""
    rows = None
    limit = _CLOSE_KNOTS[min(term.degree, 3)]
    for left, right in itertools.pairwise(term.knots):
        narrow = (right - left) < limit * s
        rows = narrow if rows is None else rows | narrow
    return rows


def _piece_by_piece(xp: Any, term: PiecewisePolynomial, nu: Array, s: Array, orders: Sequence[Order]) -> list[Array]:
    """Expectations as a sum over pieces of the integral of the piece."""
    us = [(nu - t) / s for t in term.knots]
    integrands: list[Sequence[Polynomial]] = []
    for order in orders:
        pieces = term.pieces
        for _ in range(_level(order)):
            pieces = tuple(differentiate(p) for p in pieces)
        integrands.append(pieces)
        if order == "gap":
            integrands += [_without_outer(term, end) for end in (0, -1)]
    integrals = iter(_integrals(xp, term, integrands, nu, s, us))
    results = []
    for order in orders:
        total = next(integrals)
        if order == "gap":
            # Among the knots the gap is of the size of the value. Beyond them it is the integral of the term minus its
            # outer polynomial, and what that polynomial adds itself.
            total = total - term.value(nu)
            for end, here in ((0, us[0] < 0), (-1, us[-1] >= 0)):
                gaps = _moments(nu - term.centres[end], s, len(term.pieces[end]) - 1)[1]
                total = xp.where(here, next(integrals) + _combine(xp, term.pieces[end], gaps), total)
        total = _by_power(total, s, _power(order))
        for u, jump in zip(us, term.jumps, strict=True):
            a = xp.minimum(xp.abs(u), constant(xp, FAR, nu))
            total = total + _spike(
                order, jump, 1.0 - 2.0 * xp.astype(xp.asarray(u >= 0), nu.dtype), a, density(xp, a), s
            )
        results.append(total)
    return results


def _without_outer(term: PiecewisePolynomial, end: int) -> list[Polynomial]:
    """The pieces minus the polynomial of the first or the last one."""
    outer, centre = term.pieces[end], term.centres[end]
    return [
        subtract(p, shift(outer, c - centre), abs(c - centre)) for p, c in zip(term.pieces, term.centres, strict=True)
    ]


def _integrals(
    xp: Any,
    term: PiecewisePolynomial,
    integrands: Sequence[Sequence[Polynomial]],
    nu: Array,
    s: Array,
    us: list[Array],
) -> list[Array]:
    """``sum_i <p_i(z) 1[z in piece i]>`` for each of the integrands: polynomials around the centres of `term`."""
    sides = [_both_sides(xp, nu - t, u, s, term.degree) for t, u in zip(term.knots, us, strict=True)]
    totals = []
    for pieces in integrands:
        first = shift(pieces[0], term.knots[0] - term.centres[0])
        last = shift(pieces[-1], term.knots[-1] - term.centres[-1])
        totals.append(_power_sum(first, sides[0][1], alternating=True) + _power_sum(last, sides[-1][0]))
    for i in range(1, len(term.pieces) - 1):
        live = [n for n, pieces in enumerate(integrands) if not all(is_zero(c) for c in pieces[i])]
        if not live:
            continue
        length, centre = term.knots[i] - term.knots[i - 1], term.centres[i]
        width = length / s
        # Where the integrand falls far within the interval its ends do not cancel; elsewhere the quadrature converges.
        wide = (width >= 3.0) | (width * xp.minimum(xp.abs(us[i - 1]), xp.abs(us[i])) >= 8.0)
        start, narrow = term.knots[i - 1] - centre, xp.where(wide, xp.zeros_like(width), width)
        parts = _quadratures(xp, [integrands[n][i] for n in live], start, length, us[i - 1], narrow)
        for n, part in zip(live, parts, strict=True):
            if some(xp, wide):
                part = xp.where(wide, _by_ends(xp, term, i, integrands[n][i], nu, s, us, sides), part)
            totals[n] = totals[n] + part
    return totals


def _by_ends(
    xp: Any,
    term: PiecewisePolynomial,
    i: int,
    polynomial: Polynomial,
    nu: Array,
    s: Array,
    us: list[Array],
    sides: list[tuple[list[Array], list[Array]]],
) -> Array:
    """The integral of a polynomial over interval i: what lies beyond its left knot minus what lies beyond its right."""
    left, right = (shift(polynomial, t - term.centres[i]) for t in term.knots[i - 1 : i + 1])
    moments, _ = _moments(nu - term.centres[i], s, len(polynomial) - 1)
    beyond = _one_tail(xp, left, us[i - 1], sides[i - 1]) - _one_tail(xp, right, us[i], sides[i])
    inside = (us[i - 1] >= 0) & (us[i] < 0)
    return beyond + xp.where(inside, _combine(xp, polynomial, moments) + xp.zeros_like(beyond), xp.zeros_like(beyond))


def _both_sides(xp: Any, x: Array, u: Array, s: Array, degree: int) -> tuple[list[Array], list[Array]]:
    """``s^m I_m(u)`` and ``s^m I_m(-u)``, u = x/s.

    One is a tail; for the other the recurrence adds positive numbers.
    """
    a = xp.minimum(xp.abs(u), constant(xp, FAR, u))
    phi, *tail = tails(xp, a, degree)
    for m in range(1, degree + 1):
        for _ in range(m):
            tail[m] = tail[m] * s
    body = [1.0 - tail[0]]
    if degree >= 1:
        body.append(xp.abs(x) * body[0] + s * phi)
    for m in range(2, degree + 1):
        body.append(xp.abs(x) * body[m - 1] + (m - 1) * (s * s) * body[m - 2])
    right = u >= 0
    return (
        [xp.where(right, b, t) for b, t in zip(body, tail, strict=True)],
        [xp.where(right, t, b) for b, t in zip(body, tail, strict=True)],
    )


def _power_sum(polynomial: Sequence[Any], integrals: Sequence[Array], *, alternating: bool = False) -> Array:
    """``sum_m c_m s^m I_m``, with signs (-1)^m for the piece left of its knot."""
    total = 0.0 * integrals[0]
    for m, c in enumerate(polynomial):
        if not is_zero(c):
            total = total + (-c if alternating and m % 2 else c) * integrals[m]
    return total


def _one_tail(xp: Any, polynomial: Sequence[Any], u: Array, both: tuple[list[Array], list[Array]]) -> Array:
    """What ``polynomial(z - t) 1[z > t]`` adds on the side of the knot away from the mean."""
    return xp.where(u >= 0, -_power_sum(polynomial, both[1], alternating=True), _power_sum(polynomial, both[0]))


def _quadratures(
    xp: Any, polynomials: Sequence[Polynomial], start: Any, length: Any, u: Array, width: Array
) -> list[Array]:
    """``int_0^width p(start + length x / width) phi(x - u) dx`` by 16 Gauss-Legendre nodes, for each polynomial p.

    Exact to rounding for width < 3 and width |u| < 8, where the exponent of phi changes by less than 13.
    """
    totals: list[Any] = [0.0] * len(polynomials)
    for node, weight in zip(_LEGENDRE_NODES, _LEGENDRE_WEIGHTS, strict=True):
        fraction = 0.5 + 0.5 * node
        phi = density(xp, fraction * width - u)
        for n, polynomial in enumerate(polynomials):
            totals[n] = totals[n] + weight * evaluate(polynomial, start + fraction * length) * phi
    return [0.5 * width * total for total in totals]


# -- Powers that overflow ---------------------------------------------------------------------------------------------


def _rescued(
    xp: Any, term: PiecewisePolynomial, nu: Array, s: Array, orders: Sequence[Order], results: list[Array]
) -> list[Array]:
    """The results, computed again where a part overflowed: the whole need not, and infinity less infinity is no answer.

    In units of the larger of |mean| and s nothing overflows before the last multiplications.
    """
    lost = [
        ~xp.isfinite(r) if term.degree >= 2 or _level(order) == 0 else None
        for order, r in zip(orders, results, strict=True)
    ]
    # What is only traced would pay for the second computation always, and need it beyond 1e150 (float32: 1e18).
    if not any(bad is not None and not is_traced(bad) and bool(xp.any(bad)) for bad in lost):
        return results
    finite = xp.isfinite(nu) & xp.isfinite(s)
    unit = xp.where(finite, xp.maximum(xp.maximum(xp.abs(nu), s), xp.ones_like(s)), xp.ones_like(s))
    scaled = _either_way(xp, term.in_units(unit), nu / unit, s / unit, orders)
    rescued = []
    for order, result, value, bad in zip(orders, results, scaled, lost, strict=True):
        value = _by_power(value, unit, term.degree - _level(order) + _power(order))
        rescued.append(result if bad is None else xp.where(bad & finite, value, result))
    return rescued
