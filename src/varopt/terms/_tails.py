"""Tails of the normal distribution, to full relative accuracy on every backend.

For ``a >= 0`` and ``x ~ N(-a, 1)`` let ``J_m(a) = <(x)_+^m>`` (so ``J_0`` is the upper tail ``Phi(-a)``). These are all
that the expectation of a piecewise polynomial needs [SB12, section 1]. The textbook recurrence
``J_m = (m-1) J_{m-2} - a J_{m-1}`` cancels: forward from ``erfc`` it has lost 11 digits of ``J_2`` at ``a = 30``.
Backward it only adds positive numbers (Gautschi, 1961), and it is linear. So one ratio of polynomials with positive
coefficients for the two highest orders, one exponential and one division give all of them, down to ``J_{-1} = phi``:

    J_n : J_{n-1} = P(a) : Q(a),    J_{m-2} = (J_m + a J_{m-1}) / (m-1),    J_{-1} = J_1 + a J_0 = phi(a)

No special function of any backend is called, which is also why PyTorch, JAX and the GPU get the same digits.
"""

from __future__ import annotations

import math
from typing import Any

from varopt._array import Array

__all__ = ["FAR", "MAX_ORDER", "NEAR_MEAN", "density", "tail_minus_half", "tails"]

MAX_ORDER = 8
FAR = 40.0  # standard deviations at which every tail has underflowed: exp(-FAR^2 / 2) = 0
NEAR_MEAN = 0.125  # below this, Phi(-a) - 1/2 has its own polynomial: the difference would lose digits

_INVERSE_ROOT_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)

# P and Q for J_m / J_{m-1} on [0, FAR], highest power first; printed by tools/tail_coefficients.py.
# fmt: off
_RATIO: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    2: (  # relative error 1.1e-17
        (
            2.000000000005536, 69.61024500709419, 1212.1694825349825, 13716.525423614587, 110926.7774960083,
            668019.5338175101, 3035092.351414117, 10310236.142572885, 25255047.537814435, 40846644.337937936,
            34109404.22921468,
        ),
        (
            1.0, 34.805122504258456, 609.0847411837581, 6962.678085335225, 57269.64267491665, 354166.9043073306,
            1676771.0287058805, 6078613.603538371, 16578614.842004288, 32576476.49397146, 41910944.96062472,
            27215367.012674354,
        ),
    ),
    8: (  # relative error 4.0e-17
        (
            8.000000000458485, 352.9961023504854, 8025.46256152249, 121406.58297914108, 1341173.7573508297,
            11264449.632296799, 72881250.77086483, 360292039.5372589, 1315314100.7633338, 3260673419.720461,
            4372675206.741755,
        ),
        (
            1.0, 44.12451281106329, 1012.182817785977, 15572.943694226598, 176585.35274188986, 1540667.944888876,
            10530562.096241511, 56427068.64023998, 233151508.92403874, 712774968.6149184, 1470590956.3009377,
            1594921159.7095878,
        ),
    ),
}
# (J_0(a) - 1/2) / a in powers of a^2 on [0, NEAR_MEAN], highest power first.
_MINUS_HALF = (
    -0.0001150664153944429, 0.0011873231833810385, -0.009973556981962088, 0.06649038006685062, -0.39894228040143265,
)
# fmt: on


def density(xp: Any, a: Array) -> Array:
    """phi(a), the standard normal density."""
    exponent = a * a
    exponent *= -0.5
    return xp.exp(exponent) * _INVERSE_ROOT_TWO_PI


def tails(xp: Any, a: Array, order: int) -> list[Array]:
    """``[phi(a), J_0(a), ..., J_order(a)]`` for ``0 <= a <= FAR``, each to a few units in the last place.

    Cost: one ``exp``, one division, about 50 multiplications and additions a number. The caller may change the arrays.
    """
    if order > MAX_ORDER:
        raise ValueError(f"pieces must have degree at most {MAX_ORDER}; got {order}.")
    top = 2 if order <= 2 else MAX_ORDER
    numerator, denominator = _RATIO[top]
    shares = [_horner(numerator, a), _horner(denominator, a)]  # J_top, J_{top-1}, ..., up to one common factor
    for m in range(top, 0, -1):
        following = a * shares[-1]
        following += shares[-2]
        if m > 2:
            following *= 1.0 / (m - 1)
        shares.append(following)
    phi = density(xp, a)
    # The common factor is phi / J_{-1}; to divide first keeps the smallest tails from underflowing early.
    inverse = 1.0 / shares.pop()
    values = [phi]
    for share in shares[: -order - 2 : -1]:
        share *= inverse
        share *= phi
        values.append(share)
    return values


def _horner(coefficients: tuple[float, ...], a: Array) -> Array:
    """The polynomial at `a`; in place, since this is where most of the time of an expectation goes."""
    first, second, *rest = coefficients
    total = a + second if first == 1.0 else a * first + second
    for c in rest:
        total *= a
        total += c
    return total


def tail_minus_half(a: Array) -> Array:
    """``J_0(a) - 1/2`` for ``0 <= a < NEAR_MEAN``, to full relative accuracy; finite and meaningless beyond."""
    total = _horner(_MINUS_HALF, a * a)
    total *= a
    return total
