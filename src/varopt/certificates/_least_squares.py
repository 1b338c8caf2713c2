r"""Brackets of least squares beside sizes of the variables, or of their differences: lassos and signals, in few steps.

    c sum_i (a_i'x + d_i)^2 + sum_j l_j |x_j|,    c sum_i (x_i + d_i)^2 + l sum_j |(D x)_j|

The derivatives v of the squares at x, times a share t, are a dual point where ``t |A'v|_j <= l_j``, and its value is
``t v'd - t^2 v'v / (4 c)``: sums that are the same for every t. Beside an intercept v has to add up to zero: less its
mean m it does, exactly, and is no longer; ``A'v`` changes by no more than ``|m| sqrt(n)`` times the lengths of the
columns, and ``v'd`` by that times the length of d. Where a constraint keeps a variable to the side s of zero,
``s x_j >= 0``, the other side of its kink is at infinity: ``-t s (A'v)_j <= l_j`` is enough, and ``l_j |x_j|`` takes in
what is linear in it. Of signals any u with ``|u_j| <= l`` is a dual point, of value ``-g'd - g'g / (4 c)`` with
``g = D'u``. What proofs of any objective do comes to the same, by several times as many short steps, which together
take half as long as a small lasso itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, Ball, column_norms, gamma
from varopt.certificates._moments import leaves_of, lengths_of
from varopt.certificates._proof_parts import CLOSE_GAP, FORMED_SIZE
from varopt.certificates.enclosures import Norms, NotEnclosed, coordinates, transposed
from varopt.composite import Composite, Rows
from varopt.model import Objective
from varopt.model.blocks import AffineBlock, TermBlock
from varopt.model.maps import Difference, HStack, Map, Matrix, Scaled, Selection

__all__ = ["Sided", "lasso_at_hand", "sided_lasso", "signal_bracket"]

Vector = NDArray[np.float64]

_LEAST_WEIGHT, _LARGEST_WEIGHT = 1e-100, 1e100  # weights of squares whose products with squares are not amiss
_MOST_LOST = 1e-6  # share of a price that rounding may change
_BLOCK = 1 << 12  # numbers that are added up at once


class _Fit(NamedTuple):
    """The squares and their weight, the matrix that they see and its sign."""

    squares: Rows
    weight: float
    matrix: Matrix
    sign: float
    first: int  # the place of the first variable that the matrix sees
    intercept: int | None  # and that of an intercept, of 1 or -1 in every row

    @property
    def seen(self) -> slice:
        """The variables that the matrix sees."""
        return slice(self.first, self.first + self.matrix.shape[1])


def _fit(problem: Composite) -> _Fit | None:
    """The squares, where these are one dense block that sees every variable, and no other form is there."""
    if problem.not_convex or problem.groups or problem.forms or problem.matrix is not None:
        return None
    if len(problem.squares) != 1 or (weight := _weight(r := problem.squares[0])) is None:
        return None
    sign, matrix = _signed(r.linear)
    first, intercept = 0, None
    if isinstance(matrix, HStack) and (leaves := leaves_of(matrix)) is not None and leaves[1] is not None:
        first, intercept = leaves[0].column, leaves[1].column
        sign, matrix = sign * leaves[0].scale, Matrix(leaves[0].array)
    if not isinstance(matrix, Matrix) or matrix.array.dtype != np.float64:
        return None
    if problem.size != matrix.shape[1] + (intercept is not None):
        return None
    return _Fit(r, weight, matrix, sign, first, intercept)


class _Lasso(NamedTuple):
    """The squares, and the rows of sizes of all variables that the matrix sees."""

    fit: _Fit
    sizes: Rows

    @property
    def squares(self) -> Rows:
        return self.fit.squares


def _lasso(problem: Composite) -> _Lasso | None:
    """What a problem is made of, where it is one dense block of squares and the weighted size of every variable."""
    if len(problem.rows) != 1 or not _are_sizes(k := problem.rows[0]) or (fit := problem.structure(_fit)) is None:
        return None
    return _Lasso(fit, k) if _are_of_all(k, fit) else None


def _are_of_all(k: Rows, fit: _Fit) -> bool:
    """Whether rows are of all variables that the matrix sees, in their order, times one or minus one."""
    if isinstance(k.linear, Selection) and k.linear.index is None:  # as in a norm of all variables
        return (fit.seen.start, fit.seen.stop) == (0, k.linear.shape[1])
    if (own := coordinates(k.linear)) is None:
        return False
    index, factor = own
    if factor.radius.any() or not np.all(np.abs(factor.middle) == 1.0):
        return False
    return np.array_equal(index, np.arange(fit.seen.start, fit.seen.stop))


class _Signal(NamedTuple):
    """The squares of all variables less numbers, or of their negatives, and the sizes of differences of neighbours."""

    squares: Rows
    weight: float
    sign: float
    sizes: Rows
    order: int


def _signal(problem: Composite) -> _Signal | None:
    """What a problem is made of, where it is a signal and weighted sizes of its differences."""
    if (found := _squares_and_sizes(problem)) is None:
        return None
    r, weight, k = found
    (sign, inner), (_, difference) = _signed(r.linear), _signed(k.linear)
    if not isinstance(inner, Selection) or inner.index is not None or r.count != problem.size:
        return None
    if not isinstance(difference, Difference) or k.weights.strides != (0,):
        return None
    return _Signal(r, weight, sign, k, difference.order)


def _squares_and_sizes(problem: Composite) -> tuple[Rows, float, Rows] | None:
    """A block of squares with one weight, that weight, and one of weighted sizes, where there is nothing else."""
    if problem.not_convex or problem.groups or problem.forms or problem.matrix is not None:
        return None
    if len(problem.rows) != 1 or len(problem.squares) != 1:
        return None
    r, k = problem.squares[0], problem.rows[0]
    return (r, weight, k) if (weight := _weight(r)) is not None and _are_sizes(k) else None


def _weight(r: Rows) -> float | None:
    """The weight of squares that have but one; None of other rows."""
    if r.weights.strides != (0,) or not r.count:
        return None
    if r.term.rows is not None or r.term.degree != 2 or r.term.centres[0] != 0.0 or any(r.term.pieces[0][:2]):
        return None
    weight = float(r.weights[0]) * float(r.term.pieces[0][2])
    return weight if _LEAST_WEIGHT <= weight <= _LARGEST_WEIGHT else None


def _are_sizes(k: Rows) -> bool:
    """Whether rows are weighted sizes of what they see."""
    if not _rest_at_zero(k):  # asked first: terms that differ from row to row have arrays for pieces
        return False
    return k.term.pieces == ((0.0, -1.0), (0.0, 1.0)) and bool(np.all(k.distinct_weights > 0.0))


def _rest_at_zero(k: Rows) -> bool:
    """Whether rows have their one kink where what they see is zero."""
    if not k.count or k.term.rows is not None or k.term.knots != (0.0,) or any(k.term.centres):
        return False
    return not (k.offset[:1] if k.offset.strides == (0,) else k.offset).any()


def _signed(linear: Map) -> tuple[float, Map]:
    sign = 1.0
    while isinstance(linear, Scaled) and np.ndim(linear.scale) == 0 and abs(float(linear.scale)) == 1.0:
        sign, linear = sign * float(linear.scale), linear.inner
    return sign, linear


class _Prices(NamedTuple):
    """What a unit of each variable costs, of one number where it is the same for all, and the sides they keep to."""

    middle: Vector
    radius: float  # what rounding may have changed, relative to that
    side: Vector | None = None  # of each variable 1, -1, or 0 where it may be on both


class Sided(NamedTuple):
    """Bounds of the optimum of a lasso with variables that keep to one side, and what its derivatives are without them.

    `pull` is by how much the derivative along the side that is open exceeds the sizes' own weight, at zero at most.
    """

    lower: float
    upper: float
    pull: Vector


def lasso_at_hand(
    objective: Objective, problem: Composite, x: Vector, norms: Norms, gap: float
) -> tuple[float, float] | None:
    """Bounds of the optimum that are no farther apart than a gap; None of other problems, or without the products.

    Of small problems, whose products cost little, they are close, or numbers of more digits are left to be closer.
    """
    found = problem.structure(_lasso)
    if found is None or not _are_rows(objective, found):
        return None
    v = _slopes(found.fit, x)
    if (product := _product(found.fit, v[1])) is None:
        return None
    return _bounds(found.fit, x, v, product, _Prices(found.sizes.distinct_weights, 0.0), norms, gap)


def sided_lasso(objective: Objective, problem: Composite, x: Vector, gap: float) -> Sided | None:
    """The same of an objective beside constraints, the hard rows of a problem, that keep variables to a side of zero.

    None of other problems, of points that are on a wrong side, and where the bounds are farther apart than the gap.
    """
    with np.errstate(all="ignore"), suppress(NotEnclosed):
        fit = problem.structure(_fit)
        if fit is not None and (known := _sided_prices(objective, problem, fit)) is not None:
            return _sided(fit, x, *known, gap)
    return None


def _sided(fit: _Fit, x: Vector, prices: _Prices, side: Vector, own: Vector, gap: float) -> Sided | None:
    w = x[fit.seen]
    if np.any(side * w < 0.0):
        return None
    slopes = _slopes(fit, x)
    product = _product(fit, slopes[1])
    if product is None:  # a pass over the data, which other ways take too
        product = np.asarray(fit.sign * fit.matrix.transpose_apply(slopes[1]), dtype=np.float64)
    if (bounds := _bounds(fit, x, slopes, product, prices, {}, gap)) is None:
        return None
    pull = np.zeros(x.size)
    pull[fit.seen] = np.where(w == 0.0, np.maximum(side * product + prices.middle - 2.0 * own, 0.0), 0.0)
    return Sided(*bounds, pull)


def _sided_prices(objective: Objective, problem: Composite, fit: _Fit) -> tuple[_Prices, Vector, Vector] | None:
    """What variables cost on the sides that they may be on, these, and the share of the sizes; None of others."""
    sizes = [r for r in problem.rows if not r.hard]
    if (
        objective.size != problem.size
        or len(sizes) > 1
        or not all(_are_sizes(k) and _are_of_all(k, fit) for k in sizes)
    ):
        return None
    if (side := _sides(problem, fit)) is None:
        return None
    terms, own = {id(fit.squares.term), *(id(k.term) for k in sizes)}, np.zeros(side.size)
    line = Ball.exact(np.zeros(problem.size))
    for block in objective.blocks:
        if isinstance(block, AffineBlock) and block.variables and not np.any(block.argument.offset):
            weight = Ball.exact([float(block.weights)])
            line = line.plus(transposed(block.argument.stacked(objective.variables), weight, {}))
        elif not isinstance(block, TermBlock) or id(block.term) not in terms:
            return None
    if len([b for b in objective.blocks if isinstance(b, TermBlock)]) != 1 + len(sizes):
        return None
    if fit.intercept is not None and line.size[fit.intercept] > 0.0:
        return None
    along = Ball(line.middle[fit.seen], line.radius[fit.seen])
    if np.any(along.size[side == 0.0] > 0.0):  # a kink that is not as steep on both sides
        return None
    if sizes:
        own = np.broadcast_to(sizes[0].weights, own.shape)
    prices = own + side * along.middle
    if not np.all(prices > 0.0):
        return None
    lost = float(((along.radius + UNIT * (own + np.abs(along.middle))) / prices).max()) * SLACK
    return (_Prices(prices, lost, side), side, own) if lost < _MOST_LOST else None


def _sides(problem: Composite, fit: _Fit) -> Vector | None:
    """The side of zero that hard rows keep each variable to; None where they are any others."""
    side = np.zeros(fit.matrix.shape[1])
    for r in problem.rows:
        if not r.hard:
            continue
        own = coordinates(r.linear) if _rest_at_zero(r) and r.term.pieces == ((0.0,), (0.0, 1.0)) else None
        if own is None or own[1].radius.any() or not np.all(np.abs(own[1].middle) == 1.0):
            return None
        index = own[0] - fit.first
        if np.any((index < 0) | (index >= side.size)):
            return None
        if np.any(np.bincount(index, minlength=side.size) + np.abs(side) > 1.0):  # two bounds of one
            return None
        side[index] = -own[1].middle
    return np.asarray(side) if side.any() else None


def _slopes(fit: _Fit, x: Vector) -> tuple[Vector, Vector]:
    """The positions of the squares at x, and their derivatives."""
    r = fit.squares
    z = r.linear.apply(x) + r.offset
    return z, np.asarray(r.weights * r.term.derivative(z))


def _product(fit: _Fit, v: Vector) -> Vector | None:
    """``A'v``, where it is at hand or costs little."""
    if fit.matrix.shape[0] * fit.matrix.shape[1] <= FORMED_SIZE:
        return np.asarray(fit.sign * fit.matrix.transpose_apply(v), dtype=np.float64)
    known = fit.matrix.known_transposed()
    if known is None or not np.array_equal(known[0], v if fit.sign > 0.0 else -v):
        return None
    return np.asarray(known[1], dtype=np.float64)


def _bounds(
    fit: _Fit, x: Vector, slopes: tuple[Vector, Vector], product: Vector, prices: _Prices, norms: Norms, gap: float
) -> tuple[float, float] | None:
    r, weight, matrix, _, first, intercept = fit
    count, size = matrix.shape
    w, b = x[fit.seen], 0.0 if intercept is None else abs(float(x[intercept]))
    (z, v), (weights, off_price, side) = slopes, prices
    lengths, rounding, tiny = _lengths(r, matrix, first, norms), gamma(count), count * TINY
    v_v, z_z, v_d = float(v @ v), float(z @ z), float(v @ r.offset)
    far, far_v, far_d = (_far(square, rounding, tiny) for square in (z_z, v_v, float(r.offset @ r.offset)))
    root = math.sqrt(count)
    # What is left of the intercept's equation, m times each of its ones, is taken from v: no longer than that.
    left = 0.0 if intercept is None else (abs(float(v.sum())) / root + rounding * far_v + tiny) * SLACK
    radius = lengths * ((gamma(matrix.transposed_additions + 1) * far_v + left) * SLACK) + 2.0 * tiny
    steep = (
        np.abs(product) if side is None else np.where(side == 0.0, np.abs(product), np.maximum(-side * product, 0.0))
    )
    most = float(((steep + radius * SLACK) / weights).max()) * (1.0 + 8.0 * UNIT) / (1.0 - off_price)
    share = 1.0 if most <= 1.0 else (1.0 - 4.0 * UNIT) / most
    # The square of a share may underflow, before it is multiplied with what is as large.
    linear, square = share * v_d, share * (share * (v_v / (4.0 * weight)))
    lost = share * (rounding * far_v * far_d + left * far_d + tiny + share * ((rounding * v_v + tiny) / (4.0 * weight)))
    lower = linear - square - (lost + 16.0 * UNIT * (abs(linear) + square) + TINY) * SLACK
    # Rounding moves all positions together by no more than a length, and by Cauchy and Schwarz the sum of squares.
    sizes = np.abs(w)
    off = gamma(size + 5) * (float(lengths @ sizes) + root * b) + root * (size + 5) * TINY + UNIT * far
    penalty = float(weights[0] * sizes.sum() if weights.size < size else weights @ sizes)
    lost = weight * (rounding * z_z + tiny + off * SLACK * (2.0 * far + off * SLACK)) + (size + 1) * TINY
    value = weight * z_z + penalty
    upper = value + (lost + (gamma(size + 1) + off_price * SLACK) * penalty + 8.0 * UNIT * value) * SLACK
    lower, upper = math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf)
    gap = min(gap, CLOSE_GAP * value) if count * size <= FORMED_SIZE else gap
    return (lower, upper) if upper - lower <= gap else None  # which numbers that are not finite are not


def signal_bracket(
    objective: Objective, problem: Composite, x: Vector, dual: Sequence[Vector | None] | None, gap: float
) -> tuple[float, float] | None:
    """Bounds of the optimum that are no farther apart than a gap, of a dual point; None of other problems."""
    found = problem.structure(_signal)
    if found is None or not _are_rows(objective, found) or not dual or (given := dual[0]) is None:
        return None
    r, weight, sign, k, order = found
    size, penalty = r.count, float(k.weights[0])
    if size * k.count <= FORMED_SIZE or np.shape(given) != (k.count,) or not penalty <= _LARGEST_WEIGHT:
        return None
    g = np.asarray(k.linear.transpose_apply(np.clip(penalty * given, -penalty, penalty)), dtype=np.float64)
    wrong = (gamma(order + 2) * 2.0**order * penalty + (order + 2) * TINY) * SLACK  # of each number of it
    z, d = np.asarray(r.linear.apply(x) + r.offset, dtype=np.float64), r.offset
    rounding, tiny = gamma(size if size <= _BLOCK else _BLOCK + size // _BLOCK + 2), size * TINY
    g_g, g_d, d_d, z_z = _dot(g, g), _dot(g, d), _dot(d, d), _dot(z, z)
    far, far_g, far_d = (_far(square, rounding, tiny) for square in (z_z, g_g, d_d))
    linear, square, root = -sign * g_d, g_g / (4.0 * weight), math.sqrt(size)
    lost = rounding * far_g * far_d + tiny + (rounding * g_g + tiny) / (4.0 * weight)
    lost += wrong * root * (far_d + (far_g + wrong * root) / (2.0 * weight))
    lower = linear - square - (lost + 16.0 * UNIT * (abs(linear) + square) + TINY) * SLACK
    sizes, off = _dot(np.abs(k.linear.apply(x)), None), UNIT * far * SLACK
    lost = weight * (rounding * z_z + tiny + off * (2.0 * far + off))
    lost += penalty * (rounding * sizes + gamma(order) * 2.0**order * root * _far(_dot(x, x), rounding, tiny)) + tiny
    value = weight * z_z + penalty * sizes
    upper = value + (lost + 8.0 * UNIT * value) * SLACK
    lower, upper = math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf)
    return (lower, upper) if upper - lower <= gap else None


def _dot(a: Vector, b: Vector | None) -> float:
    """The sum of products, or of numbers, by blocks where there are many."""
    parts = [slice(i, i + _BLOCK) for i in range(0, a.size, _BLOCK)]
    return float(sum(a[part].sum() if b is None else a[part] @ b[part] for part in parts))


def _are_rows(objective: Objective, found: _Lasso | _Signal) -> bool:
    """Whether the objective has these two blocks and nothing else."""
    terms = [block.term if isinstance(block, TermBlock) else None for block in objective.blocks]
    return len(terms) == 2 and any(a is found.squares.term and b is found.sizes.term for a, b in (terms, terms[::-1]))


def _lengths(r: Rows, matrix: Matrix, first: int, norms: Norms) -> Vector:
    """Bounds of the lengths of the columns, which are kept."""
    array = matrix.array
    if id(array) not in norms:
        lengths = lengths_of(r, array, first)
        if lengths is None:
            lengths = column_norms(array, np.asarray(matrix.column_squares, dtype=np.float64))
        norms[id(array)] = (array, lengths)  # which keeps its id taken
    return norms[id(array)][1]


def _far(square: float, rounding: float, tiny: float) -> float:
    """A bound of the length of numbers whose squares were added up."""
    return math.sqrt(square * (1.0 + rounding) + tiny) * SLACK
