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

__all__ = ["Caps", "direct_lower", "excess_of", "has_own_rows", "lower_at_hand"]

Vector = NDArray[np.float64]

# Shares by which subgradients are made smaller first, where kinks have to take what they leave: of few numbers, many.
_DUAL_INWARD_OF_FEW, _DUAL_INWARD, _DUAL_INWARD_ROUGH = 2.0**-44, 2.0**-38, 2.0**-35
_CACHED_ROWS = 1 << 14  # rows at a time of what needs a dozen numbers of each, which the cache should hold
_MANY, _DEAR_SUM = 1 << 13, 1e-12  # numbers whose sum in double precision will do where it is as close as that


def has_own_rows(rows: Sequence[DualRows], size: int) -> list[bool] | None:
    """Which rows are variables of their own, where together they are all of them but one; else None."""
    own = [r.is_own for r in rows]
    if sum(r.offset.size for r, mine in zip(rows, own, strict=True) if mine) < size - 1:
        return None
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
        return cls(
            low, high, owned, bounded, _DUAL_INWARD_OF_FEW if few else _DUAL_INWARD_ROUGH if rough else _DUAL_INWARD
        )

    @property
    def scale(self) -> float:
        """What subgradients are multiplied by first."""
        return 1.0 - self.inward if self.bounded else 1.0


Start = tuple[list[Vector], list[Ball]]  # weighted duals of rows, and their gradients


def direct_lower(
    rows: Sequence[DualRows], own: Sequence[bool], fixed: Ball, scalar: float, norms: Norms, caps: Caps
) -> float:
    """A number below ``g'y + s + sum_k c_k rho_k(a_k'y + d_k)`` for every y; minus infinity where none is proved.

    The duals of rows that are variables of their own are of no account.
    """
    others = [r for r, mine in zip(rows, own, strict=True) if not mine]
    duals = [np.clip(caps.scale * r.weights * r.dual, *r.ends) for r in others]
    gradients = [r.gradient(v, norms) for r, v in zip(others, duals, strict=True)]
    return _lower(rows, own, (duals, gradients), fixed, scalar, norms, caps)


def lower_at_hand(
    rows: Sequence[DualRows], own: Sequence[bool], fixed: Ball, scalar: float, norms: Norms, caps: Caps
) -> float:
    """The same from products that the run has at hand; minus infinity where one is missing."""
    others = [r for r, mine in zip(rows, own, strict=True) if not mine]
    duals, gradients = [np.clip(r.weights * r.dual, *r.ends) for r in others], []
    for r, v in zip(others, duals, strict=True):
        if (gradient := r.gradient_at_hand(v, norms)) is None:
            return -math.inf
        gradients.append(gradient)
    return _lower(rows, own, (duals, gradients), fixed, scalar, norms, caps)


def _lower(
    rows: Sequence[DualRows], own: Sequence[bool], start: Start, fixed: Ball, scalar: float, norms: Norms, caps: Caps
) -> float:
    """The bound of given duals, or of a share of them."""
    duals, gradients = start
    others = [r for r, mine in zip(rows, own, strict=True) if not mine]
    mine = [r for r, is_mine in zip(rows, own, strict=True) if is_mine]
    # Those that take any number come last: what is left then is theirs.
    mine.sort(key=lambda r: bool(np.isinf(r.ends[1][:1]).any()))
    free = np.flatnonzero(~caps.owned)
    for room in (1.0, 8.0, None):  # as a share has roundings of its own
        left, moved = fixed, None
        for gradient in gradients:
            left = left.plus(gradient)
        if free.size and (left.middle[free[0]] != 0.0 or left.radius[free[0]] != 0.0):
            moved, left = _moved(others, duals, left, int(free[0]), norms)
            if moved is None:
                return -math.inf
        if (excess := excess_of(left, caps)) <= 1.0:
            needed = None if _are_norms(mine, caps) else Ball(-left.middle, left.radius)
            return _value(others, duals, moved, mine, needed, scalar)
        if room is None or not others:
            break
        duals, gradients = _shrunk(others, duals, gradients, (1.0 - room * caps.inward) / excess, norms)
    return -math.inf


def _shrunk(
    others: Sequence[DualRows], duals: Sequence[Vector], gradients: Sequence[Ball], share: float, norms: Norms
) -> Start:
    shrunk = [r.shrunk(v, g, share, norms) for r, v, g in zip(others, duals, gradients, strict=True)]
    return [v for v, _ in shrunk], [g for _, g in shrunk]


def _are_norms(mine: Sequence[DualRows], caps: Caps) -> bool:
    """Whether the rows are weighted sizes of the variables: what these take, within their caps, costs nothing."""
    if len(mine) != 1 or not caps.bounded or mine[0].offset.size != np.count_nonzero(caps.owned):
        return False
    term, offset = mine[0].term, mine[0].offset
    if term.rows is not None or term.kink is None or any(term.centres) or any(piece[0] for piece in term.pieces):
        return False
    return term.knots[0] == 0.0 and not (offset[:1] if offset.strides == (0,) else offset).any()


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
    others: Sequence[DualRows], duals: Sequence[Vector], moved: _Move | None, mine: Sequence[DualRows],
    needed: Ball | None, scalar: float,
) -> float:  # fmt: skip
    """The value of the dual point: ``v d`` minus conjugates; of many in double precision, where that will do.

    Without what is `needed` of rows of single variables, these add nothing.
    """
    many = (0 if needed is None else needed.middle.size) + sum(v.size for v in duals) > _MANY
    lower, lost = _summed(others, duals, moved, mine, needed, scalar, np.float64 if many else np.longdouble)
    if many and not lost <= _DEAR_SUM * abs(lower):
        lower, _ = _summed(others, duals, moved, mine, needed, scalar, np.longdouble)
    return float(down(lower)) if math.isfinite(lower) else -math.inf


class _Own(NamedTuple):
    """Rows of single variables: of which, or of their negatives, and what they take."""

    term: PiecewisePolynomial
    weights: Vector
    offset: Vector
    ends: tuple[Vector, Vector]
    places: NDArray[np.intp]
    sign: Vector

    @classmethod
    def of(cls, r: DualRows) -> _Own:
        return cls(r.term, np.asarray(r.weights, dtype=np.float64), r.offset, r.ends, *_signs(r))

    def is_in_order(self, stretches: Sequence[slice]) -> bool:
        """Whether there is a row of every variable, in their order."""
        if self.places.size != stretches[-1].stop:
            return False
        first = np.arange(_CACHED_ROWS)
        return all(np.array_equal(self.places[s] - s.start, first[: s.stop - s.start]) for s in stretches)

    def part(self, part: slice) -> _Own:
        """A stretch of rows, each of the variable in its place."""
        ends = self.ends[0][part], self.ends[1][part]
        return _Own(
            self.term.take(part), self.weights[part], self.offset[part], ends, self.places[part] - part.start,
            self.sign[part],
        )  # fmt: skip


class _Sum:
    """A sum of many numbers, added up a stretch at a time, with a bound of its error."""

    def __init__(self, scalar: float, precision: Any) -> None:
        self.precision, self.unit = precision, 4.0 * float(np.finfo(precision).eps)
        self.values, self.lost = [scalar], self.unit * abs(scalar)

    def add(self, part: NDArray[Any], size: float, lost: float = 0.0) -> None:
        """Add numbers, the sizes of whose products add up to `size`."""
        value, rounding = total(part, size * SLACK)
        self.values.append(value)
        self.lost += rounding + self.unit * size * SLACK + lost + TINY * part.size

    def below(self) -> tuple[float, float]:
        """A number that the sum is not below, and what rounding has taken of it."""
        value, rounding = total(np.array(self.values))
        lost = (self.lost + rounding) * SLACK
        return value - lost, lost


def _summed(
    others: Sequence[DualRows], duals: Sequence[Vector], moved: _Move | None, mine: Sequence[DualRows],
    needed: Ball | None, scalar: float, precision: Any,
) -> tuple[float, float]:  # fmt: skip
    """A number that the value is not below, and what rounding takes of it, where products are of so many digits."""
    whole = _Sum(scalar, precision)
    for b, (r, v) in enumerate(zip(others, duals, strict=True)):
        _add_dual(whole, r, v, moved if moved is not None and b == moved.block else None)
    if needed is None:
        return whole.below()
    own, size = [_Own.of(r) for r in mine], needed.middle.size
    stretches = _stretches(size)
    if len(stretches) > 1 and not all(r.is_in_order(stretches) for r in own):
        stretches = [slice(0, size)]
    for part in stretches:
        rest = Ball(needed.middle[part], needed.radius[part])
        for rows in own:
            here = rows if len(stretches) == 1 else rows.part(part)
            taken, rest = _taken(here, rest)
            least = _least_within(here, taken)
            whole.add(least.astype(precision, copy=False), float(np.abs(least).sum()), TINY * least.size)
        if rest.middle.any() or rest.radius.any():
            return -math.inf, 0.0
    return whole.below()


def _stretches(count: int) -> list[slice]:
    return [slice(start, min(start + _CACHED_ROWS, count)) for start in range(0, count, _CACHED_ROWS)]


def _add_dual(whole: _Sum, r: DualRows, v: Vector, moved: _Move | None) -> None:
    """Add ``v d`` minus conjugates of rows; of one that has moved, the least of its interval."""
    weights = np.asarray(r.weights, dtype=np.float64)
    for part in _stretches(v.size):
        offset, above = r.offset[part], conjugate_above(r.term.take(part), weights[part], v[part])
        here = moved is not None and part.start <= moved.row < part.stop
        if not (here or offset.any() or above.any()):
            continue  # nothing, and exactly so
        product = v[part].astype(whole.precision) * offset
        size = float(np.abs(product).sum() + np.abs(above).sum())
        product -= above
        if moved is not None and here:
            index = np.array([moved.row, moved.row])
            least = _least(r.term.take(index), weights[index], r.offset[index], moved.ends)
            product[moved.row - part.start] = least.min()
            size += float(np.abs(least).sum())
        whole.add(product, size)


def _least_within(r: _Own, taken: Ball) -> Vector:
    """`_least` for all subgradients within a radius: it is concave, and least at an end."""
    if not taken.radius.any():
        return _least(r.term, r.weights, r.offset, taken.middle)
    return np.minimum(
        *(_least(r.term, r.weights, r.offset, taken.middle + side * taken.radius) for side in (-1.0, 1.0))
    )


def _least(term: PiecewisePolynomial, weights: Vector, offset: Vector, v: Vector) -> Vector:
    """``v d`` minus the conjugate at v, row by row, and no more."""
    product, above = v * offset, conjugate_above(term, weights, v)
    return np.asarray(product - above - 4.0 * UNIT * (np.abs(product) + np.abs(above)))


def _taken(r: _Own, rest: Ball) -> tuple[Ball, Ball]:
    """The subgradients that rows of variables take, and what they leave."""
    index, sign, (low, high) = r.places, r.sign, r.ends
    wanted, radius = sign * rest.middle[index], _wide(rest.middle[index], rest.radius[index])
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
