"""Constraints that contradict each other: a combination of them that is positive everywhere, in rational arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.certificates._recession import projected
from varopt.certificates.enclosures import Undecided, entries_of
from varopt.composite import Rows

__all__ = ["contradiction", "never_broken"]

Vector = NDArray[np.float64]

# Rows up to which as many equations are solved in rational arithmetic, whose numbers grow with each, or more of fewer;
# and entries up to which whole numbers are tried for multipliers.
_MOST_RATIONAL, _MOST_ENTRIES = 40, 1 << 18
_LARGEST_DENOMINATOR = 1000  # the largest denominator of those, as shares of the largest multiplier,
_SAME_SHARE = 1e-9  # and how far they may be from what is given, relatively


def contradiction(
    rows: Sequence[Rows], equal: Sequence[bool], multipliers: Sequence[Vector]
) -> tuple[list[Vector], float] | None:
    """Multipliers close to those given with ``sum y'A = 0`` exactly, and the positive number that ``sum y'd`` is.

    Parameters
    ----------
    rows : sequence of Rows
        ``A x + d``, at most zero, or zero where `equal`.
    equal : sequence of bool
        For each of them.
    multipliers : sequence of arrays
        What is about a proof that no x satisfies them all. Zeros stay zeros.

    Returns
    -------
    multipliers, least : list of arrays, float
        None where these do not prove it, or entries are not at hand or too many.
    """
    used = [np.flatnonzero(y) for y in multipliers]
    count, columns = sum(index.size for index in used), rows[0].linear.shape[1]
    if not count or (count > _MOST_RATIONAL and count * columns > _MOST_ENTRIES):
        return None
    try:
        matrix, offset = _exact(rows, used)
    except Undecided:
        return None
    given = np.concatenate([y[index] for y, index in zip(multipliers, used, strict=True)])
    equations = [equation for equation in ([row[j] for row in matrix] for j in range(columns)) if any(equation)]
    y = _whole(equations, given)
    if y is None and count <= _MOST_RATIONAL and len(equations) * count**2 <= _MOST_RATIONAL**3:
        y = projected(equations, [Fraction(v) for v in given.tolist()], np.abs(given))
    same = np.concatenate([np.full(index.size, e) for index, e in zip(used, equal, strict=True)])
    if y is None or any(v < 0 and not e for v, e in zip(y, same, strict=True)):
        return None
    least = sum((a * b for a, b in zip(y, offset, strict=True)), Fraction(0))
    if least <= 0:
        return None
    return _spread(rows, used, y), float(least)


def _whole(equations: Sequence[Sequence[Fraction]], given: Vector) -> list[Fraction] | None:
    """Small whole numbers, but for a factor, that satisfy homogeneous equations exactly and are about those given.

    People add rows up, and contradict what they have added.
    """
    unit = float(np.abs(given).max())
    shares = [Fraction(v / unit).limit_denominator(_LARGEST_DENOMINATOR) for v in given.tolist()]
    if any(
        abs(share - v / unit) > _SAME_SHARE * abs(v / unit) for share, v in zip(shares, given.tolist(), strict=True)
    ):
        return None
    for equation in equations:
        tick()
        if sum((a * share for a, share in zip(equation, shares, strict=True) if a), Fraction(0)):
            return None
    return [Fraction(unit) * share for share in shares]


def never_broken(rows: Sequence[Rows], equal: Sequence[bool], direction: Vector) -> bool:
    """Whether no row that is at most zero, or zero where `equal`, rises along a direction, in rational arithmetic."""
    used = np.flatnonzero(direction)
    d = [Fraction(v) for v in direction[used].tolist()]
    try:
        for r, same in zip(rows, equal, strict=True):
            matrix, _ = _exact([replace(r, linear=r.linear.columns(used))], [np.arange(r.count)])
            slopes = [sum((a * v for a, v in zip(row, d, strict=True) if a), Fraction(0)) for row in matrix]
            if any(slope > 0 or (same and slope) for slope in slopes):
                return False
    except Undecided:
        return False
    return True


def _exact(rows: Sequence[Rows], used: Sequence[NDArray[np.intp]]) -> tuple[list[list[Fraction]], list[Fraction]]:
    """The rows that are used, and their offsets, as they are."""
    matrix: list[list[Fraction]] = []
    offset: list[Fraction] = []
    for r, index in zip(rows, used, strict=True):
        if not index.size:
            continue
        factor, dense, exact = entries_of(r.linear.rows(index))
        if not exact:
            raise Undecided
        factors = np.broadcast_to(factor, (index.size,)).tolist()
        matrix += [[Fraction(f) * Fraction(v) for v in row] for f, row in zip(factors, dense.tolist(), strict=True)]
        offset += [Fraction(v) for v in r.offset[index].tolist()]
    return matrix, offset


def _spread(rows: Sequence[Rows], used: Sequence[NDArray[np.intp]], y: Sequence[Fraction]) -> list[Vector]:
    """Multipliers in their places, rounded."""
    values, places = iter(y), []
    for r, index in zip(rows, used, strict=True):
        whole = np.zeros(r.count)
        whole[index] = [float(next(values)) for _ in index]
        places.append(whole)
    return places
