r"""A lower bound without a linear system: where variables have rows of their own, these take what the others leave.

Lassos, ridges and signals are such problems. Subgradients v of the other rows are chosen freely; what they leave of the
equation of variable j, ``-(g + A'v)_j``, is the subgradient of its own row ``rho_j(+-x_j + d_j)``, known up to rounding
of one product. A square takes any number; kinks take numbers of an interval, and v is scaled until they do. One
variable, as an intercept, may have none: its equation is balanced by a move of one of the v.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import EXTENDED, SLACK, TINY, UNIT, Ball, down, total
from varopt.certificates.enclosures import DualRows, Norms, conjugate_above, entries
from varopt.terms import PiecewisePolynomial

__all__ = ["Caps", "direct_lower", "excess_of", "has_own_rows", "is_own"]

Vector = NDArray[np.float64]

# Shares by which subgradients are made smaller first, where kinks have to take what they leave: of few numbers, many.
_INWARD_OF_FEW, _INWARD, _INWARD_ROUGH = 2.0**-44, 2.0**-38, 2.0**-35
_MANY, _DEAR = 1 << 13, 1e-12  # numbers whose sum in double precision will do where it is as close as that


def is_own(r: DualRows) -> bool:
    """Whether each row is a variable of its own, or its negative, plus a number."""
    if r.single is None:
        return False
    index, factor = r.single
    one = np.abs(factor.middle) == 1.0
    return bool(one.all()) and not factor.radius.any() and int(np.bincount(index).max(initial=0)) <= 1


def has_own_rows(rows: Sequence[DualRows], size: int) -> list[bool] | None:
    """Which rows are variables of their own, where together they are all of them but one; else None."""
    if sum(r.offset.size for r in rows if r.single is not None) < size - 1:
        return None
    own = [is_own(r) for r in rows]
    return own if np.count_nonzero(_owned(rows, own, size)) >= size - 1 else None


def _owned(rows: Sequence[DualRows], own: Sequence[bool], size: int) -> NDArray[np.bool_]:
    """The variables that have rows of their own."""
    owned = np.zeros(size, dtype=bool)
    for r, mine in zip(rows, own, strict=True):
        if mine and r.single is not None:
            owned[r.single[0]] = True
    return owned


class Caps(NamedTuple):
    """What rows of single variables take at most, and the share of other subgradients that is tried first."""

    low: Vector
    high: Vector
    owned: NDArray[np.bool_]
    bounded: bool  # whether there is a limit to what some of them take
    inward: float

    @classmethod
    def of(cls, rows: Sequence[DualRows], own: Sequence[bool], size: int, *, rough: bool = False) -> Caps:
        """Of rows of which some are variables of their own; with `rough` there is more room for rounding."""
        mine = [r for r, is_mine in zip(rows, own, strict=True) if is_mine]
        owned = _owned(rows, own, size)
        bounded = any(_is_finite(end) for r in mine for end in r.ends)
        low, high = _caps(mine, size) if bounded else (np.zeros(0), np.zeros(0))
        bounded = bounded and bool(np.any((np.isfinite(low) | np.isfinite(high)) & owned))
        products = (r.linear.shape[0] * r.linear.shape[1] for r, is_mine in zip(rows, own, strict=True) if not is_mine)
        few = all(n <= EXTENDED for n in products)
        return cls(low, high, owned, bounded, _INWARD_OF_FEW if few else _INWARD_ROUGH if rough else _INWARD)

    @property
    def scale(self) -> float:
        """What subgradients are multiplied by first."""
        return 1.0 - self.inward if self.bounded else 1.0


def direct_lower(
    rows: Sequence[DualRows], own: Sequence[bool], fixed: Ball, scalar: float, norms: Norms, caps: Caps
) -> float:
    """A number below ``g'y + s + sum_k c_k rho_k(a_k'y + d_k)`` for every y; minus infinity where none is proved.

    The duals of rows that are variables of their own are of no account.
    """
    others = [r for r, mine in zip(rows, own, strict=True) if not mine]
    mine = [r for r, is_mine in zip(rows, own, strict=True) if is_mine]
    # Those that take any number come last: what is left then is theirs.
    mine.sort(key=lambda r: bool(np.isinf(r.ends[1][:1]).any()))
    free = np.flatnonzero(~caps.owned)
    scale = caps.scale
    for _ in range(2):
        duals = [np.clip(scale * r.weights * r.dual, *r.ends) for r in others]
        left = fixed
        for r, v in zip(others, duals, strict=True):
            left = left.plus(r.gradient(v, norms))
        moved = None
        if free.size and (left.middle[free[0]] != 0.0 or left.radius[free[0]] != 0.0):
            moved, left = _moved(others, duals, left, int(free[0]), norms)
            if moved is None:
                return -math.inf
        if (excess := excess_of(left, caps)) <= 1.0:
            return _value(others, duals, moved, mine, Ball(-left.middle, left.radius), scalar)
        scale *= (1.0 - caps.inward) / excess
    return -math.inf


def _is_finite(values: Vector) -> bool:
    """Whether some numbers are finite, of an array that may be one number for all."""
    return bool(np.isfinite(values[:1] if values.strides == (0,) else values).any())


class _Move(NamedTuple):
    """The interval in which the subgradient of one row is after its move."""

    block: int
    row: int
    ends: Vector


def _moved(
    others: Sequence[DualRows], duals: Sequence[Vector], left: Ball, free: int, norms: Norms
) -> tuple[_Move | None, Ball]:
    """A move of the subgradient with the most room that balances one variable's equation, and what is left then."""
    rooms = [r.room(v) for r, v in zip(others, duals, strict=True)]
    most = [(float(room.max(initial=0.0)), b) for b, room in enumerate(rooms)]
    if not most or max(most)[0] <= 0.0:
        return None, left
    block = max(most)[1]
    row = int(np.argmax(rooms[block]))
    line = entries(others[block].linear.rows(np.array([row])), norms)
    entry, spread = float(line.middle[0, free]), float(line.radius[0, free])
    if abs(entry) <= 2.0 * spread:
        return None, left
    move = -float(left.middle[free]) / entry
    # |(l + dl) / (e + de) + m| <= (|l + e m| + dl + |m| de) / (|e| - de)
    error = 4.0 * UNIT * abs(float(left.middle[free])) + float(left.radius[free]) + abs(move) * spread + TINY
    radius = error / (abs(entry) - spread) * SLACK
    change = line.middle[0] * move
    lost = radius * np.abs(line.middle[0]) + line.radius[0] * (abs(move) + radius)
    middle = left.middle + change
    lost += UNIT * (np.abs(change) + np.abs(middle)) + TINY * (line.middle[0] != 0.0)
    rest = Ball(middle, (left.radius + lost) * SLACK)
    rest.middle[free] = rest.radius[free] = 0.0
    v = float(duals[block][row])
    wide = (radius + 4.0 * UNIT * (abs(v) + abs(move) + radius)) * SLACK
    ends = np.array([v + move - wide, v + move + wide])
    inside = ends[0] >= others[block].ends[0][row] and ends[1] <= others[block].ends[1][row]
    return (_Move(block, row, ends) if inside else None), rest


def _caps(mine: Sequence[DualRows], size: int) -> tuple[Vector, Vector]:
    """The least and the most that the rows of each variable take together."""
    low, high = np.zeros(size), np.zeros(size)
    for r in mine:
        index, sign = _signs(r)
        ends = sign * r.ends[0], sign * r.ends[1]
        low[index] += np.minimum(*ends)
        high[index] += np.maximum(*ends)
    return (low, high) if len(mine) == 1 else (low * (1.0 - 4.0 * UNIT), high * (1.0 - 4.0 * UNIT))


def excess_of(left: Ball, caps: Caps) -> float:
    """How many times what the rows of single variables take at most is left for them; one where they take it."""
    return _excess(Ball(-left.middle, left.radius), caps.low, caps.high) if caps.bounded else 1.0


def _excess(needed: Ball, low: Vector, high: Vector) -> float:
    """How many times what the rows take at most is needed; above one only if it is not within."""
    radius = 2.0 * _wide(*needed)
    upper, lower = needed.middle + radius, needed.middle - radius
    if np.all(upper <= high) and np.all(lower >= low):
        return 1.0
    over = np.max(np.where(upper > high, upper / high, 0.0)), np.max(np.where(lower < low, lower / low, 0.0))
    excess = float(np.maximum(*over))
    return excess if excess > 1.0 else math.inf  # as where nothing is taken, or zero is not


def _value(
    others: Sequence[DualRows], duals: Sequence[Vector], moved: _Move | None, mine: Sequence[DualRows], needed: Ball,
    scalar: float,
) -> float:  # fmt: skip
    """The value of the dual point: ``v d`` minus conjugates; of many in double precision, where that will do."""
    many = needed.middle.size + sum(v.size for v in duals) > _MANY
    lower, lost = _summed(others, duals, moved, mine, needed, scalar, np.float64 if many else np.longdouble)
    if many and not lost <= _DEAR * abs(lower):
        lower, _ = _summed(others, duals, moved, mine, needed, scalar, np.longdouble)
    return float(down(lower)) if math.isfinite(lower) else -math.inf


def _summed(
    others: Sequence[DualRows], duals: Sequence[Vector], moved: _Move | None, mine: Sequence[DualRows], needed: Ball,
    scalar: float, precision: Any,
) -> tuple[float, float]:  # fmt: skip
    """A number that the value is not below, and what rounding takes of it, where products are of so many digits."""
    parts: list[NDArray[Any]] = [np.array([scalar], dtype=precision)]
    sizes, lost = abs(scalar), 0.0
    for b, (r, v) in enumerate(zip(others, duals, strict=True)):
        above = conjugate_above(r.term, np.asarray(r.weights, dtype=np.float64), v)
        here = moved is not None and b == moved.block
        if not (here or r.offset.any() or above.any()):
            continue  # nothing, and exactly so
        product = v.astype(precision) * r.offset
        part = product - above
        sizes += float(np.abs(product).sum() + np.abs(above).sum()) * SLACK
        if moved is not None and here:
            index = np.array([moved.row, moved.row])
            least = _least(r.term.take(index), r.weights[index], r.offset[index], moved.ends)
            part[moved.row] = least.min()
            sizes += float(np.abs(least).sum()) * SLACK
        parts.append(part)
    rest = needed
    for r in mine:
        taken, rest = _taken(r, rest)
        least = _least_within(r, taken)
        parts.append(least.astype(precision, copy=False))
        sizes += float(np.abs(least).sum()) * SLACK
        lost += TINY * least.size
    if rest.middle.any() or rest.radius.any():
        return -math.inf, 0.0
    whole = np.concatenate(parts)
    value, rounding = total(whole, sizes)
    lost = (rounding + 4.0 * float(np.finfo(precision).eps) * sizes + lost + TINY * whole.size) * SLACK
    return value - lost, lost


def _least_within(r: DualRows, taken: Ball) -> Vector:
    """`_least` for all subgradients within a radius: it is concave, and least at an end."""
    weights, radius = np.asarray(r.weights, dtype=np.float64), taken.radius
    if not radius.any():
        return _least(r.term, weights, r.offset, taken.middle)
    return np.minimum(*(_least(r.term, weights, r.offset, taken.middle + side * radius) for side in (-1.0, 1.0)))


def _least(term: PiecewisePolynomial, weights: Vector, offset: Vector, v: Vector) -> Vector:
    """``v d`` minus the conjugate at v, row by row, and no more."""
    product, above = v * offset, conjugate_above(term, weights, v)
    return np.asarray(product - above - 4.0 * UNIT * (np.abs(product) + np.abs(above)))


def _taken(r: DualRows, rest: Ball) -> tuple[Ball, Ball]:
    """The subgradients that rows of variables take, and what they leave."""
    index, sign = _signs(r)
    wanted, radius = sign * rest.middle[index], _wide(rest.middle[index], rest.radius[index])
    low, high = r.ends
    inside = (wanted - radius >= low) & (wanted + radius <= high)
    if inside.all() and index.size == rest.middle.size:
        return Ball(wanted, radius), Ball(np.zeros(index.size), np.zeros(index.size))
    exact = np.clip(wanted, low, high)
    taken = Ball(np.where(inside, wanted, exact), np.where(inside, radius, 0.0))
    middle, spread = rest.middle.copy(), rest.radius.copy()
    change = rest.middle[index] - sign * exact
    middle[index] = np.where(inside, 0.0, change)
    spread[index] = np.where(inside, 0.0, (rest.radius[index] + UNIT * np.abs(change)) * SLACK)
    return taken, Ball(middle, spread)


def _wide(middle: Vector, radius: Vector) -> Vector:
    """A radius whose ends, rounded, are outside those of the given one."""
    return np.asarray((radius + 4.0 * UNIT * (np.abs(middle) + radius)) * SLACK)


def _signs(r: DualRows) -> tuple[NDArray[np.intp], Vector]:
    """The variables, and whether each row is one or its negative."""
    if r.single is None:
        raise TypeError("rows of several variables have no signs.")
    return r.single[0], r.single[1].middle
