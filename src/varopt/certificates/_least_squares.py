r"""A bracket of least squares beside sizes of the variables, as lassos are, from the products that a run has at hand.

    c sum_i (a_i'x + d_i)^2 + sum_j l_j |x_j|

The derivatives v of the squares at x, times a share t, are a dual point where ``t |A'v|_j <= l_j``, and its value is
``t v'd - t^2 v'v / (4 c)``: sums that are the same for every t. What proofs of any objective do comes to the same, by
several times as many short steps, which together take half as long as a small lasso itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import SLACK, TINY, UNIT, column_norms, gamma
from varopt.certificates._moments import lengths_of
from varopt.certificates._proof_parts import FEW_ENTRIES
from varopt.certificates.enclosures import Norms
from varopt.composite import Composite, Rows
from varopt.model import Objective
from varopt.model.blocks import TermBlock
from varopt.model.maps import Map, Matrix, Scaled, Selection

__all__ = ["lasso_at_hand"]

Vector = NDArray[np.float64]

_LEAST, _MOST = 1e-100, 1e100  # weights of squares whose products with squares are not amiss


class _Lasso(NamedTuple):
    """The squares and their weight, the matrix that they see and its sign, and the rows of sizes of variables."""

    squares: Rows
    weight: float
    matrix: Matrix
    sign: float
    sizes: Rows


def _lasso(problem: Composite) -> _Lasso | None:
    """What a problem is made of, where it is one dense block of squares and the weighted size of every variable."""
    if problem.not_convex or problem.groups or problem.forms or problem.matrix is not None:
        return None
    if len(problem.rows) != 1 or len(problem.squares) != 1:
        return None
    r, k = problem.squares[0], problem.rows[0]
    sign, matrix = _signed(r.linear)
    if not isinstance(matrix, Matrix) or matrix.array.dtype != np.float64 or r.weights.strides != (0,) or not r.count:
        return None
    if r.term.rows is not None or r.term.degree != 2 or r.term.centres[0] != 0.0 or any(r.term.pieces[0][:2]):
        return None
    weight = float(r.weights[0]) * float(r.term.pieces[0][2])
    inner = _signed(k.linear)[1]
    if not isinstance(inner, Selection) or inner.index is not None or k.count != problem.size:
        return None
    if k.term.rows is not None or k.term.knots != (0.0,) or any(k.term.centres):
        return None
    if [tuple(piece) for piece in k.term.pieces] != [(0.0, -1.0), (0.0, 1.0)]:
        return None
    if (k.offset[:1] if k.offset.strides == (0,) else k.offset).any() or not np.all(k.distinct_weights > 0.0):
        return None
    return _Lasso(r, weight, matrix, sign, k) if _LEAST <= weight <= _MOST else None


def _signed(linear: Map) -> tuple[float, Map]:
    sign = 1.0
    while isinstance(linear, Scaled) and np.ndim(linear.scale) == 0 and abs(float(linear.scale)) == 1.0:
        sign, linear = sign * float(linear.scale), linear.inner
    return sign, linear


def lasso_at_hand(
    objective: Objective, problem: Composite, x: Vector, norms: Norms, gap: float
) -> tuple[float, float] | None:
    """Bounds of the optimum that are no farther apart than a gap; None of other problems, or without the products."""
    found = problem.structure(_lasso)
    if found is None or not _are_rows(objective, found):
        return None
    r, weight, matrix, sign, k = found
    count, size = matrix.shape
    if count * size <= FEW_ENTRIES:  # of which numbers of more digits make a closer bracket
        return None
    z = r.linear.apply(x) + r.offset
    v = np.asarray(r.weights * r.term.derivative(z))
    if (known := matrix.known_transposed(v if sign > 0.0 else -v)) is None:
        return None
    product, additions = known
    lengths, rounding, tiny = _lengths(r, matrix, norms), gamma(count), count * TINY
    v_v, z_z, v_d = float(v @ v), float(z @ z), float(v @ r.offset)
    far, far_v, far_d = (_far(square, rounding, tiny) for square in (z_z, v_v, float(r.offset @ r.offset)))
    weights = k.distinct_weights
    radius = lengths * (gamma(additions + 1) * far_v * SLACK) + 2.0 * tiny
    most = float(((np.abs(product) + radius * SLACK) / weights).max()) * (1.0 + 8.0 * UNIT)
    share = 1.0 if most <= 1.0 else (1.0 - 4.0 * UNIT) / most
    linear, square = share * v_d, share * share * v_v / (4.0 * weight)
    lost = share * (rounding * far_v * far_d + tiny) + share * share * (rounding * v_v + tiny) / (4.0 * weight)
    lower = linear - square - (lost + 16.0 * UNIT * (abs(linear) + square) + TINY) * SLACK
    # Rounding moves all positions together by no more than a length, and by Cauchy and Schwarz the sum of squares.
    sizes = np.abs(x)
    off = gamma(size + 4) * float(lengths @ sizes) + math.sqrt(count) * (size + 4) * TINY + UNIT * far
    penalty = float(weights[0] * sizes.sum() if weights.size < size else weights @ sizes)
    lost = weight * (rounding * z_z + tiny + off * SLACK * (2.0 * far + off * SLACK)) + (size + 1) * TINY
    value = weight * z_z + penalty
    upper = value + (lost + gamma(size + 1) * penalty + 8.0 * UNIT * value) * SLACK
    lower, upper = math.nextafter(lower, -math.inf), math.nextafter(upper, math.inf)
    return (lower, upper) if upper - lower <= gap else None  # which numbers that are not finite are not


def _are_rows(objective: Objective, found: _Lasso) -> bool:
    """Whether the objective has these two blocks and nothing else."""
    terms = [block.term if isinstance(block, TermBlock) else None for block in objective.blocks]
    return len(terms) == 2 and any(a is found.squares.term and b is found.sizes.term for a, b in (terms, terms[::-1]))


def _lengths(r: Rows, matrix: Matrix, norms: Norms) -> Vector:
    """Bounds of the lengths of the columns, which are kept."""
    array = matrix.array
    if id(array) not in norms:
        lengths = lengths_of(r, array)
        if lengths is None:
            lengths = column_norms(array, np.asarray(matrix.column_squares, dtype=np.float64))
        norms[id(array)] = (array, lengths)  # which keeps its id taken
    return norms[id(array)][1]


def _far(square: float, rounding: float, tiny: float) -> float:
    """A bound of the length of numbers whose squares were added up."""
    return math.sqrt(square * (1.0 + rounding) + tiny) * SLACK
