r"""A lower bound that assumes nothing: the value of a dual point that balances exactly.

For subgradients v of weighted convex terms, with r the residual of the balance,

    f(y) = g'y + s + sum_k c_k rho_k(a_k'y + d_k) >= s + sum_k (v_k d_k - (c rho)_k^*(v_k)) + r'y,   r = g + A'v,

and r is made zero by a correction whose size is enclosed (`Balance`). The bound holds for all of the enclosure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, tick
from varopt._linalg import solve_definite
from varopt._verified import SLACK, TINY, UNIT, Ball, dot, down, total
from varopt.certificates._balance import ENOUGH_ROOM, PLENTY, Balance, DualMove, NoProof
from varopt.certificates._moments import SquareMoments
from varopt.certificates.enclosures import DualQuadratic, DualRows, Norms, NotEnclosed, conjugate_above

__all__ = ["Proof", "lower_by_curvature", "lower_near", "lower_of_squares", "verified_lower"]

Vector = NDArray[np.float64]
Attempt = Callable[[Balance, list[Vector]], float]

_OWN_OPERATIONS = 1 << 25  # operations that an interior point of our own may take
_LEAST_MIXED = 1e-14  # share of another dual point that is mixed in first
_DEAR_SHARE = 1e-11  # beyond which sums in extended precision are tried first, that leave less to be balanced
_DEAR_DUAL_VALUE = 1e-14  # relative rounding of the dual value beyond which it is added up row by row
_MORE_ROWS, _FEW_DIGITS = 1 << 14, 1e-12  # the same where there are more rows
_SOLVED_TOGETHER = 16  # coordinates without room that are solved for together
_SHORT_AT_A_GUESS = 100.0  # times the room there is, where it is not known how much is needed
_LITTLE = 1e-6  # share of one that is only guessed that is mixed in last
_LEAST_SIZE = 1e-6  # of the largest coordinate, that counts as the size of one that is smaller


class Proof(NamedTuple):
    """What was proved: no point has a value below `lower`.

    Where nothing was, it is minus infinity, and why; `short` says how many times the room they have duals need.
    """

    lower: float
    reason: str = ""
    short: float = math.inf


def verified_lower(
    rows: Sequence[DualRows], vector: Vector | Ball, scalar: float = 0.0, quadratics: Sequence[DualQuadratic] = (),
    x: Vector | None = None, norms: Norms | None = None, enough: float = -math.inf, thorough: bool = True,
) -> Proof:  # fmt: skip
    r"""A number below ``g'y + s + sum_k c_k rho_k(a_k'y + d_k) + sum 1/2 z'Sz`` for every y, in exact arithmetic.

    Parameters
    ----------
    rows : sequence of DualRows
        The terms, with their duals: at an optimum they balance, and the bound is its value but for rounding.
    vector : array or Ball
        g, exact or enclosed.
    scalar : float
        s.
    quadratics : sequence of DualQuadratic
        Quadratic parts, with points: the optimum.
    x : array, optional
        Near an optimum: it makes the bound sharper where offsets are large, and nothing depends on it.
    norms : dict, optional
        Keeps the lengths of columns for others to use.
    enough : float
        More than one correction is tried until the bound is as high as that; by default the first will do.
    thorough : bool
        Whether to try all corrections, or only those that little hangs on: of duals that were given room on purpose.

    Returns
    -------
    Proof

    Notes
    -----
    Two passes over dense data, about one product with the transpose each; for q equations that no row of one coordinate
    takes, matrices of q x q and a pivoted QR factor of a few times as many rows.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt import terms
    >>> from varopt.certificates import DualRows, verified_lower
    >>> from varopt.model.maps import Matrix
    >>> A, y = np.ones((3, 1)), np.array([1.0, 2.0, 4.0])   # a median: duals 1, 0 and -1 balance
    >>> rows = DualRows(Matrix(A), -y, terms.abs_(), np.ones(3), np.array([1.0, 0.0, -1.0]))
    >>> round(verified_lower([rows], np.zeros(1)).lower, 12)
    3.0
    """
    with np.errstate(all="ignore"):
        try:
            balance = Balance(tuple(rows), vector, scalar, tuple(quadratics), x, norms)
            return _proved(balance, enough, _THOROUGH if thorough else _SOON)
        except TimeUp:
            return Proof(-math.inf, "time was up.")
        except NoProof as reason:
            return Proof(-math.inf, str(reason), reason.short)
        except NotEnclosed as reason:
            return Proof(-math.inf, str(reason))
        except np.linalg.LinAlgError:
            return Proof(-math.inf, "a factorisation failed.")


def lower_near(
    rows: Sequence[DualRows], vector: Vector | Ball, scalar: float, quadratics: Sequence[DualQuadratic], x: Vector,
    norms: Norms, enough: float,
) -> tuple[float, float]:  # fmt: skip
    """A number that is `enough` below the value of every point near x, and how near: for where no dual point balances.

    Near is a power of ten: points y with ``|y_j|`` no larger than so many times ``|x_j|``, or a millionth of the
    largest of these where that is more. Farther away nothing is said: what the dual leaves unbalanced, r, is charged by
    ``r'(y - x)``. Below every number, and zero, where nothing is proved.
    """
    with np.errstate(all="ignore"):
        try:
            balance = Balance(tuple(rows), vector, scalar, tuple(quadratics), x, norms)
            duals = [r.clipped(r.dual) for r in balance.rows]
            residual = balance.residual(duals)
            here = _value(balance, duals, residual, [])
        except (NoProof, NotEnclosed, TimeUp, np.linalg.LinAlgError):
            return -math.inf, 0.0
        sizes = np.abs(x)
        sizes = np.maximum(sizes, _LEAST_SIZE * (float(sizes.max(initial=0.0)) or 1.0))
        cost = float(residual.size @ sizes) * SLACK + TINY
        times = (here - enough) / cost - 2.0
        if not 1.0 <= times < math.inf:
            return -math.inf, 0.0
        reach = 10.0 ** math.floor(math.log10(times))
        return float(down(here - (reach + 1.0) * cost * SLACK)), reach


def lower_of_squares(
    rows: Sequence[DualRows], vector: Ball, scalar: float, x: Vector, norms: Norms, curvature: float, rounding: float
) -> float:
    r"""A number below the rest and all rows, some of which are squares with the derivatives at x for their dual.

    These lie above their tangents by :math:`\tfrac12 |A (y - x) + e|^2`, with e what rounding has changed in positions
    at x. With c the least curvature and r what the dual leaves unbalanced, that and :math:`r'(y - x)` together are
    not below :math:`-|r|^2 / (2 c) - |r| |e| / \sqrt c`: nothing has to be balanced.
    """
    if not curvature > 0.0:
        return -math.inf
    try:
        balance = Balance(tuple(rows), vector, scalar, (), x, norms)
        duals = [r.clipped(r.dual) for r in balance.rows]
        residual = balance.residual(duals)
        here = _value(balance, duals, residual, [])
    except (NoProof, NotEnclosed, TimeUp):
        return -math.inf
    left = float(np.linalg.norm(residual.size)) * SLACK
    cost = left * (0.5 * left / curvature + rounding / math.sqrt(curvature)) * SLACK + TINY
    return float(down(here - cost * SLACK))


def lower_by_curvature(
    rows: Sequence[DualRows], vector: Ball, scalar: float, x: Vector, norms: Norms, squares: SquareMoments,
    curvature: float,
) -> float:  # fmt: skip
    r"""A number below the same sum, of squares that are known by their moments at x, and all other rows.

    With q the squares, c the least curvature and h the gradient of the other rows' dual, and its value s,
    :math:`q(y) + h'y + s \ge q(x) + h'x + s + r'(y - x) + \tfrac c2 |y - x|^2` with :math:`r = \nabla q(x) + h`, which
    is not below :math:`q(x) + h'x + s - |r|^2 / (2 c)`. No row of the squares is read.
    """
    if not curvature > 0.0:
        return -math.inf
    try:
        balance = Balance(tuple(rows), vector, scalar, (), x, norms)
        duals = [r.clipped(r.dual) for r in balance.rows]
        line = balance.residual(duals)
        here = _value(balance, duals, line, [])
    except (NoProof, NotEnclosed, TimeUp):
        return -math.inf
    left = float(np.linalg.norm(line.plus(squares.gradient).size)) * SLACK
    lost = squares.error + 0.5 * left * left / curvature + 2.0 * UNIT * (abs(here) + abs(squares.value)) + TINY
    return float(down(here + squares.value - lost * SLACK))


def _proved(balance: Balance, enough: float, attempts: Sequence[Attempt]) -> Proof:
    """The first bound that is enough, or the best: of the given dual, or of one with a little of another mixed in."""
    best, failures = -math.inf, {}
    for attempt in attempts:
        try:
            best = max(best, attempt(balance, [r.clipped(r.dual) for r in balance.rows]))
        except NoProof as failure:
            failures[attempt] = failure
        if best > -math.inf and best >= enough:
            break
    if best == -math.inf:
        raise failures[_as_given]
    return Proof(best)


def _each_by_its_own(balance: Balance, given: list[Vector]) -> float:
    """The bound where each coordinate has a term of its own that takes any dual, as of a signal: what others leave.

    The least that such a term adds is concave in the dual, so that of all that is enclosed an end is the worst.
    """
    own = next((b for b, r in enumerate(balance.rows) if _takes_all(r, balance.size)), None)
    if own is None or balance.quadratics:
        raise NoProof("not every coordinate has a term of its own.")
    rest = balance.residual([v if b != own else np.zeros_like(v) for b, v in enumerate(given)])
    r, sign = balance.rows[own], balance.rows[own].single[1].middle  # type: ignore[index]
    weights = np.asarray(r.weights, dtype=np.float64)
    parts, size = [], abs(balance.base)
    for end in (-1.0, 1.0):
        v = -sign * (rest.middle + end * (rest.radius + UNIT * np.abs(rest.middle)) * SLACK)
        parts.append(v * r.offset - conjugate_above(r.term, weights, v))
        size += 2.0 * float(np.abs(v) @ np.abs(r.offset))
    values = [np.array([balance.base]), np.minimum(*parts)]
    for other, v in zip(balance.rows, given, strict=True):
        if other is not r:
            above = conjugate_above(other.term, np.asarray(other.weights, dtype=np.float64), v)
            values.append(v * other.offset - above)
            size += 2.0 * float(np.abs(v) @ np.abs(other.offset))
    whole = np.concatenate(values)
    value, error = total(whole)
    lower = value - (error + 2.0 * UNIT * (size + float(np.abs(whole).sum())) + TINY * whole.size) * SLACK
    if not math.isfinite(lower):
        raise NoProof("numbers overflow.")
    return float(down(lower))


def _takes_all(r: DualRows, size: int) -> bool:
    """Whether the rows are all coordinates in their order, times 1 or -1, with terms whose subgradients have no end."""
    if r.offset.size != size or r.single is None or not all(np.all(np.isinf(end)) for end in r.ends):
        return False
    index, factor = r.single
    signs = np.all(np.abs(factor.middle) == 1.0) and not factor.radius.any()
    return bool(signs and np.array_equal(index, np.arange(size)))


def _as_given(balance: Balance, given: list[Vector], least_room: float = PLENTY) -> float:
    balance.least_room = least_room
    return _value(balance, given, *balance.corrected(given))


def _with_less_room(balance: Balance, given: list[Vector]) -> float:
    return _as_given(balance, given, ENOUGH_ROOM)


def _nearly_singular(balance: Balance, given: list[Vector]) -> float:
    balance.singular = 1e-11
    return _as_given(balance, given)


def _snapped(balance: Balance, given: list[Vector]) -> float:
    return _as_given(balance, [r.snapped(v) for r, v in zip(balance.rows, given, strict=True)])


def _with_rest(balance: Balance, given: list[Vector]) -> float:
    return _mixed(balance, given, _resting(balance), _LEAST_MIXED, _LITTLE)


def _with_interior(balance: Balance, given: list[Vector]) -> float:
    inner = _interior(balance)
    if inner is None:
        raise NoProof("no dual is known to have room everywhere.")
    return _mixed(balance, given, inner, _LEAST_MIXED, 1.0)


def _mixed(balance: Balance, given: list[Vector], inner: list[Vector], share: float, most: float) -> float:
    """The bound of the given dual with a share of another mixed in, more of it until it will do."""
    while True:
        balance.least_room = min(0.25 * share, PLENTY)
        mixed = [np.clip(v + share * (u - v), *r.ends) for r, v, u in zip(balance.rows, given, inner, strict=True)]
        try:
            return _value(balance, mixed, *balance.corrected(mixed))
        except NoProof as failure:
            if share >= most:
                raise
            short = failure.short if math.isfinite(failure.short) else _SHORT_AT_A_GUESS
            more = share * min(max(1.25 * short, 2.0), 1e4)  # room grows in proportion
            if more <= _DEAR_SHARE or not balance.sharpen():
                share = min(more, most)


def _with_room_for_many(balance: Balance, given: list[Vector]) -> float:
    """The bound with a dual at rest mixed in where many coordinates lack room for what is left of them; or none.

    Few are solved for together, which costs no digits; of many, as of a lasso, the factor would cost more than the run.
    """
    balance.least_room = PLENTY
    if balance.size <= _SOLVED_TOGETHER:
        raise NoProof("there are few coordinates.")
    seen = np.zeros(balance.size, dtype=bool)
    for r in balance.rows:
        if r.single is not None:
            seen[r.single[0]] = True
    tight = np.flatnonzero(seen & (balance.private(given).room == 0.0))
    if tight.size <= _SOLVED_TOGETHER:
        raise NoProof("few coordinates lack room.")
    inner = _resting(balance)
    needed = balance.residual(given).size[tight] / balance.private(inner).room[tight]
    share = 16.0 * float(np.max(needed[np.isfinite(needed)], initial=0.0))
    return _mixed(balance, given, inner, min(max(_LEAST_MIXED, share), _LITTLE), _LITTLE)


_SOON: tuple[Attempt, ...] = (_each_by_its_own, _with_room_for_many, _as_given)
_THOROUGH: tuple[Attempt, ...] = (*_SOON, _with_less_room, _snapped, _with_rest, _with_interior, _nearly_singular)


def _value(balance: Balance, duals: list[Vector], residual: Ball, corrections: list[DualMove]) -> float:
    """The value of the exact dual point, from that of the given one.

    With delta the moves, ``A'delta = -r``, so that the change of ``sum v d`` is ``sum delta (a'x + d) + r'x``: of
    rows that rest, small numbers times small numbers, however large the offsets.
    """
    along, error = dot(residual.middle, balance.x)
    error += float(residual.radius @ np.abs(balance.x))
    lost = (c.cost if c.rows is None else _lost(c, c.rows, duals[c.block]) for c in corrections)
    parts = [balance.base, along, *(-cost for cost in lost)]
    value, rounding = _summed(balance, duals, parts)
    if rounding > (_DEAR_DUAL_VALUE if sum(v.size for v in duals) < _MORE_ROWS else _FEW_DIGITS) * abs(value):
        value, rounding = _summed_in_one(balance, duals, parts)
    error += rounding
    lower = value - error * SLACK
    if not math.isfinite(lower):
        raise NoProof("numbers overflow.")
    return float(down(lower))


def _summed(balance: Balance, duals: list[Vector], parts: list[float]) -> tuple[float, float]:
    """Numbers, and the dual values of all rows, added up block by block; and a bound of the error."""
    parts, error = list(parts), 0.0
    for r, v in zip(balance.rows, duals, strict=True):
        above = conjugate_above(r.term, np.asarray(r.weights, dtype=np.float64), v)
        value, lost = dot(v, r.offset)
        cost, more = total(above) if above.any() else (0.0, 0.0)
        parts += [value, -cost]
        error += lost + more
    value, rounding = total(np.array(parts))
    return value, (error + rounding) * SLACK


def _summed_in_one(balance: Balance, duals: list[Vector], numbers: list[float]) -> tuple[float, float]:
    """The same in extended precision, row by row: what cancels there is not lost."""
    parts = [np.array(numbers)]
    sizes = float(np.abs(parts[0]).sum()) * SLACK
    for r, v in zip(balance.rows, duals, strict=True):
        above = conjugate_above(r.term, np.asarray(r.weights, dtype=np.float64), v)
        parts.append(v.astype(np.longdouble) * r.offset - above)
        sizes += 2.0 * float(np.abs(v) @ np.abs(r.offset) + np.abs(above).sum()) * SLACK
    whole = np.concatenate([np.asarray(p, dtype=np.longdouble) for p in parts])
    value, rounding = total(whole, sizes)
    return value, rounding + 4.0 * float(np.finfo(np.longdouble).eps) * sizes + TINY * whole.size


def _lost(c: DualMove, r: DualRows, dual: Vector) -> float:
    """The most that the moves take from the dual value, along r'x aside; negative where they add to it."""
    v = dual[c.places]
    # Rounding of v + move is inside the interval that is one unit wider.
    radius = (c.move.radius + 2.0 * UNIT * (np.abs(v) + np.abs(c.move.middle)) + TINY) * SLACK
    low, high = v + c.move.middle - radius, v + c.move.middle + radius
    ends = tuple(end[c.places] for end in r.ends)
    if not (np.all(low >= ends[0]) and np.all(high <= ends[1])):
        short = (np.abs(c.move.middle) + radius) / r.room(dual, c.places)
        raise NoProof("the subgradients have too little room.", float(np.max(short)))
    term, weights = r.term.take(c.places), np.asarray(r.weights, dtype=np.float64)[c.places]
    z, spread = c.position
    # The conjugate of the given dual went into the value as it is bounded above, and so it cancels.
    before = conjugate_above(term, weights, v)
    losses = []
    for end in (low, high):
        after = conjugate_above(term, weights, end)
        rounding = 4.0 * UNIT * (np.abs(end * z) + np.abs(v * z) + np.abs(after) + np.abs(before))
        losses.append((after - before) - (end - v) * z + np.abs(end - v) * spread + rounding)
    lost, missed = total(np.maximum(*losses))  # convex in the move: largest at an end
    return lost + missed


# -- A dual point with room everywhere --------------------------------------------------------------------------------


def _resting(balance: Balance) -> list[Vector]:
    """Subgradients of rows that rest, but for rows of one coordinate, which take the linear part.

    Penalties have room there, however many coordinates are not zero. It need not balance: little of it is mixed in.
    """
    duals = [np.clip(np.zeros(r.offset.size), *r.ends) for r in balance.rows]
    residual = balance.fixed.middle + sum(
        (r.linear.transpose_apply(v) for r, v in zip(balance.rows, duals, strict=True) if v.any()), np.zeros(1)
    )
    block, place, _ = balance.private(duals)
    for b, r in enumerate(balance.rows):
        mine = np.flatnonzero((block == b) & (residual != 0.0))
        if mine.size and r.single is not None:
            duals[b][place[mine]] -= residual[mine] / r.single[1].middle[place[mine]]
            duals[b] = np.clip(duals[b], *r.ends)
    return duals


def _interior(balance: Balance) -> list[Vector] | None:
    """Weighted subgradients strictly inside their intervals that about balance: given, or found; or None."""
    if all(r.interior is not None for r in balance.rows):
        return [r.clipped(np.asarray(r.interior)) for r in balance.rows]
    if sum(r.offset.size for r in balance.rows) * balance.size**2 > _OWN_OPERATIONS:
        return None
    return _centred(balance)


def _centred(balance: Balance) -> list[Vector] | None:
    """From the middles of all intervals, moved by shares of the room until they balance."""
    rows = balance.rows
    finite = [np.isfinite(r.ends[0]) & np.isfinite(r.ends[1]) for r in rows]
    duals = [
        np.where(middle, 0.5 * r.ends[0] + 0.5 * r.ends[1], r.clipped(r.dual))
        for r, middle in zip(rows, finite, strict=True)
    ]
    matrices = [np.asarray(r.linear.dense(), dtype=np.float64) for r in rows]
    for _ in range(60):
        tick(sum(v.size for v in duals) * balance.size**2)
        residual = balance.fixed.middle + sum(m.T @ v for m, v in zip(matrices, duals, strict=True))
        rooms = [r.room(v) for r, v in zip(rows, duals, strict=True)]
        roots = np.concatenate([room[:, None] * m for room, m in zip(rooms, matrices, strict=True)])
        step = roots @ solve_definite(roots.T @ roots, -residual)  # the least in units of the rooms
        reach = float(np.abs(step).max(initial=0.0))
        share = min(1.0, 0.7 / reach) if reach > 0.0 else 1.0
        moves = np.split(step, np.cumsum([room.size for room in rooms])[:-1])
        duals = [v + share * room * move for v, room, move in zip(duals, rooms, moves, strict=True)]
        if share == 1.0:
            return duals
    return None
