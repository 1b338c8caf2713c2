"""Tails of the normal distribution, to full relative accuracy on every backend.

For ``a >= 0`` and ``x ~ N(-a, 1)`` let ``J_m(a) = <(x)_+^m>`` (so ``J_0`` is the upper tail ``Phi(-a)``). These are all that the
expectation of a piecewise polynomial needs [SB12, section 1]. The textbook recurrence ``J_m = (m-1) J_{m-2} - a J_{m-1}``
cancels: forward from ``erfc`` it has lost 11 digits of ``J_2`` at ``a = 30``. Backward it only adds and divides positive
numbers (Gautschi, 1961), so one polynomial for the ratio of the two highest orders and one exponential give all of them:

    r_m = J_m / J_{m-1},    r_{m-1} = (m-1) / (a + r_m),    J_0 = phi(a) / (a + r_1),    J_m = r_m J_{m-1}

No special function of any backend is called, which is also why PyTorch, JAX and the GPU get the same digits.
"""

from __future__ import annotations

import math
from typing import Any

from varopt._array import Array

__all__ = ["MAX_ORDER", "density", "half_minus_tail", "tails"]

MAX_ORDER = 8
NEAR = 0.125  # below this, 1/2 - Phi(-a) is summed as a series: the difference would lose digits

_SHIFT, _LIMIT = 4.0, 40.0  # phi(40) underflows in float64, so larger arguments all behave alike
_SLOPE = 2.0 * (_LIMIT + _SHIFT) / _LIMIT  # t = _SLOPE a / (a + _SHIFT) - 1 maps [0, _LIMIT] to [-1, 1]
_INVERSE_ROOT_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)

# (a + _SHIFT) r_m(a) as a polynomial in t, highest power first; printed by tools/tail_coefficients.py.
_RATIO: dict[int, tuple[float, ...]] = {
    2: (
        -1.987620778311807e-08,
        1.8124912813334562e-08,
        2.163115848123024e-07,
        -1.782333114259906e-07,
        -1.2309722174132943e-06,
        8.497654269274512e-07,
        5.102581114476963e-06,
        -2.572105664704022e-06,
        -1.7944907604802725e-05,
        4.941443575784598e-06,
        5.779920645770766e-05,
        -1.6401126509669e-06,
        -0.00017608232967996157,
        -3.773474414204892e-05,
        0.0005141032300571063,
        0.00022574417232566497,
        -0.0014541354820961337,
        -0.0009241456119315791,
        0.004046719530299846,
        0.0031848811805898517,
        -0.011333041479549234,
        -0.009796557254936467,
        0.032926708934871395,
        0.02710674280762548,
        -0.10322134839384396,
        -0.061910908583198844,
        0.3693288685095427,
        0.017456313936203314,
        -1.699357521226329,
        3.629268988113577,
    ),
    8: (
        -2.2529398426845254e-06,
        -1.0726028640540135e-06,
        2.2430072677814464e-05,
        1.5187074856860508e-05,
        -9.962025119212421e-05,
        -9.495732214721458e-05,
        0.0002449788095351724,
        0.000344194925649578,
        -0.0002918034741619123,
        -0.0007661890966622167,
        -0.00015439286307133737,
        0.0008940557259471681,
        0.001224700179330878,
        0.00029535653528749633,
        -0.0017241912224427065,
        -0.003134015453912777,
        -0.0011088872248468462,
        0.0045850932196214705,
        0.00844000645807104,
        0.002608371885429639,
        -0.012872484449753427,
        -0.022549799946579633,
        -0.005083476984684931,
        0.038094933152100614,
        0.06148244109027769,
        0.004379293461703024,
        -0.12259894625976597,
        -0.173021034224357,
        0.04042806233883298,
        0.4523582913112424,
        0.5017245669376624,
        -0.5319811275171258,
        -2.199553399083244,
        -0.8797364988573072,
        11.588711052648128,
    ),
}


def density(xp: Any, a: Array) -> Array:
    """phi(a), the standard normal density."""
    return _INVERSE_ROOT_TWO_PI * xp.exp(-0.5 * (a * a))


def tails(xp: Any, a: Array, order: int) -> list[Array]:
    """``[phi(a), J_0(a), ..., J_order(a)]`` for ``a >= 0``, each to a few units in the last place.

    Cost: one ``exp``, about 30 multiplications and additions, ``order + 2`` divisions a number.
    """
    if order > MAX_ORDER:
        raise ValueError(f"pieces must have degree at most {MAX_ORDER}; got {order}.")
    top = 2 if order <= 2 else MAX_ORDER
    a = xp.minimum(a, xp.asarray(_LIMIT, dtype=a.dtype))
    shifted = a + _SHIFT
    t = _SLOPE * (a / shifted) - 1.0
    first, *rest = _RATIO[top]
    ratio = t * first + rest[0]
    for coefficient in rest[1:]:
        ratio = ratio * t + coefficient
    ratio = ratio / shifted
    ratios = [ratio]  # r_top, r_{top-1}, ..., r_1
    for m in range(top - 1, 0, -1):
        ratios.append(m / (a + ratios[-1]))
    values = [density(xp, a)]
    values.append(values[0] / (a + ratios[-1]))
    for m in range(1, order + 1):
        values.append(ratios[top - m] * values[-1])
    return values


def half_minus_tail(xp: Any, a: Array, phi: Array) -> Array:
    """``1/2 - J_0(a)`` for ``0 <= a < NEAR``: ``phi(a) (a + a^3/3 + a^5/15 + ...)``, all terms positive."""
    square = a * a
    total = 1.0 / 135135.0 * square + 1.0 / 10395.0
    for inverse in (945.0, 105.0, 15.0, 3.0, 1.0):
        total = total * square + 1.0 / inverse
    return a * (phi * total)
