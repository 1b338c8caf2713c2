"""Numbers in double precision for which steep equations nearly hold: close points of a lattice.

The numbers next to a point are a lattice, and what it costs to leave the point a norm of it: steep terms count much,
and along what they do not see there are many points to choose from. A basis that is nearly orthogonal [LLL82] tells a
close one, coordinate by coordinate [Babai86].
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick

__all__ = ["close_point"]

Numbers = list[Fraction]
_CONTEXT = Context(prec=76, rounding=ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
_SWAP = Decimal("0.75")
_SWAPS = 400  # after which the basis is good enough


def close_point(
    x: Numbers, start: Numbers, grid: Numbers, held: Sequence[tuple[Fraction, Numbers]], reach: Fraction
) -> Numbers:
    """A point ``start + n * grid``, n whole numbers, with small ``sum_k (s_k a_k'(point - x))^2`` of pairs (s_k, a_k).

    It may be farther from x than the grid is wide, by about a share `reach` of its coordinates.
    """
    size = len(x)
    with localcontext(_CONTEXT):
        lines = [(_decimal(s), [_decimal(a) for a in line]) for s, line in held if s > 0]
        steps, away = [_decimal(g) for g in grid], [_decimal(a - b) for a, b in zip(x, start, strict=True)]
        width = [_decimal(reach * abs(v)) + g for v, g in zip(x, steps, strict=True)]
        basis = np.array(
            [[s * line[j] * steps[j] for s, line in lines] + [steps[j] / width[j] if i == j else Decimal(0)
              for i in range(size)] for j in range(size)], dtype=object,
        )  # fmt: skip
        target = np.array(
            [s * sum((a * d for a, d in zip(line, away, strict=True)), Decimal(0)) for s, line in lines]
            + [d / w for d, w in zip(away, width, strict=True)], dtype=object,
        )  # fmt: skip
        whole = _coordinates(basis, target)
    return [v + int(n) * g for v, n, g in zip(start, whole, grid, strict=True)]


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _coordinates(basis: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers that take the rows of a basis close to the target."""
    size = len(basis)
    moves = np.array([[Decimal(int(i == j)) for j in range(size)] for i in range(size)], dtype=object)
    k, swaps = 1, 0
    while k < size and swaps < _SWAPS:
        tick()
        for j in reversed(range(k)):
            orthogonal = _orthogonal(basis[: j + 1])
            share = _rounded(basis[k] @ orthogonal[j] / (orthogonal[j] @ orthogonal[j]))
            if share:
                basis[k], moves[k] = basis[k] - share * basis[j], moves[k] - share * moves[j]
        orthogonal = _orthogonal(basis[: k + 1])
        before = orthogonal[k - 1] @ orthogonal[k - 1]
        mu = basis[k] @ orthogonal[k - 1] / before
        if orthogonal[k] @ orthogonal[k] >= (_SWAP - mu * mu) * before:
            k += 1
        else:
            basis[[k - 1, k]], moves[[k - 1, k]] = basis[[k, k - 1]], moves[[k, k - 1]]
            k, swaps = max(k - 1, 1), swaps + 1
    orthogonal, found = _orthogonal(basis), moves[0] * 0
    for j in reversed(range(size)):
        share = _rounded(target @ orthogonal[j] / (orthogonal[j] @ orthogonal[j]))
        target, found = target - share * basis[j], found + share * moves[j]
    return np.asarray(found)


def _rounded(value: Decimal) -> Decimal:
    return value.to_integral_value()


def _orthogonal(basis: NDArray[Any]) -> list[NDArray[Any]]:
    """The rows, each without what those before have of it."""
    found: list[NDArray[Any]] = []
    for row in basis:
        for other in found:
            row = row - (row @ other / (other @ other)) * other
        found.append(row)
    return found
