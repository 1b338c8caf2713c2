r"""Least squares by what they were multiplied out to: their proof then reads none of the data.

With ``H = A'CA`` and ``g = A'Cd`` the squares ``q(w) = 1/2 (A w + d)'C (A w + d)`` have the gradient ``H w + g``. Both
are sums of products, whose rounding is bounded before they are formed: with the lengths ``h_j = sqrt(H_jj)`` of the
weighted columns, and that of the weighted offsets, :math:`\eta`, by Cauchy and Schwarz

    |H - fl(H)|_jk <= gamma h_j h_k,    |g - fl(g)|_j <= gamma h_j eta.

Where little is left of large numbers (squares that nearly vanish) that is too wide, and the data have to be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp, tick
from varopt._verified import SLACK, TINY, UNIT, Ball, dot, down, gamma, smallest_eigenvalue_bound
from varopt.certificates._direct import Caps, direct_lower, excess_of
from varopt.certificates.enclosures import DualRows, Norms
from varopt.composite import Rows
from varopt.model.maps import Composition, HStack, Map, Matrix, Scaled, Selection, additions

__all__ = ["SquareMoments", "add_lengths", "leaves_of", "lengths_of", "lower_by_moments", "moments_at"]

Vector = NDArray[np.float64]

_OTHERS = 16  # roundings of a product beside those of the sum: weights, their roots, scales, units
# Sizes of weights and sums between which underflow is charged, and nothing overflows.
_LEAST_MOMENT, _LARGEST_MOMENT = 1e-100, 1e100


_EIGENVALUE_SHARES = (0.1, 1e-3, 1e-6)  # of the mean of the diagonal, that the least eigenvalue is tried to be


class SquareMoments(NamedTuple):
    """Squares at a point: their value and a bound of its error, their gradient, the diagonal of their Hessian, itself.

    The Hessians are as computed: their sum differs from the exact one by a matrix of a norm of at most `distance`.
    Positions of rows as computed at the point are off by a weighted length of at most `rounding`.
    """

    value: float
    error: float
    gradient: Ball
    diagonal: Ball
    hessians: tuple[NDArray[np.float64], ...]
    distance: float
    rounding: float

    def plus(self, other: SquareMoments) -> SquareMoments:
        """Those of the sum."""
        value = self.value + other.value
        error = (self.error + other.error + UNIT * abs(value)) * SLACK
        return SquareMoments(
            value, error, self.gradient.plus(other.gradient), self.diagonal.plus(other.diagonal),
            self.hessians + other.hessians, (self.distance + other.distance) * SLACK,
            (self.rounding + other.rounding) * SLACK,
        )  # fmt: skip

    @property
    def least_curvature(self) -> float:
        """A number that the Hessian's eigenvalues are not below; minus infinity where none is proved, or in no time."""
        many = len(self.hessians)
        rounding = gamma(many) * float(self.diagonal.size.sum()) * SLACK if many > 1 else 0.0
        with suppress(TimeUp):
            tick((len(_EIGENVALUE_SHARES) + 1) * float(self.hessians[0].shape[0]) ** 3 / 3.0)
            whole = sum(self.hessians[1:], self.hessians[0])
            return smallest_eigenvalue_bound(whole, _EIGENVALUE_SHARES) - (self.distance + rounding) * SLACK
        return -math.inf

    def without(self, free: int) -> SquareMoments:
        """At the least along one variable, where its derivative is zero, exactly: as close as that is.

        A move by ``delta = g_j / H_jj`` changes the value by ``-g_j^2 / (2 H_jj)``, and the gradient by ``H_kj delta``.
        """
        least = float(self.diagonal.middle[free] - self.diagonal.radius[free]) / SLACK
        lengths, derivative = np.sqrt(self.diagonal.size), float(self.gradient.size[free])
        move = derivative / least * SLACK if least > 0.0 else math.inf
        middle, radius = self.gradient.middle.copy(), self.gradient.radius + lengths * lengths[free] * move * SLACK
        middle[free] = radius[free] = 0.0
        return self._replace(
            error=(self.error + 0.5 * derivative * move) * SLACK, gradient=Ball(middle, radius * SLACK)
        )


class _Multiplied(NamedTuple):
    """Rows of squares that a method has multiplied out, the matrix and the ones beside it, and their curvature."""

    rows: Rows
    matrix: _Leaf
    intercept: _Leaf | None
    curvature: float

    @property
    def share(self) -> float:
        """The relative error of an entry of the Hessian, but for underflow."""
        return gamma(additions(self.rows.count, self.matrix.array.shape[1]) + _OTHERS)

    @property
    def underflow(self) -> float:
        return self.rows.count * TINY * (1.0 + self.curvature) * SLACK

    @property
    def lengths(self) -> Vector:
        """Bounds of the lengths of the columns."""
        start, size = self.matrix.column, self.matrix.array.shape[1]
        diagonal = self.rows.hessian.diagonal()[start : start + size]
        return np.asarray(np.sqrt((diagonal + self.spread(diagonal)) / self.curvature) * (SLACK * SLACK))

    def spread(self, diagonal: Vector) -> Vector:
        """A bound of the error of the diagonal."""
        return np.asarray((self.share * diagonal + self.underflow) / (1.0 - self.share) * SLACK)


def _multiplied(given: Rows, squares: Sequence[Rows]) -> _Multiplied | None:
    """The squares that are the very same as given rows, where they are multiplied out and nothing may be amiss."""
    r = next((r for r in squares if "hessian" in r.__dict__ and _are_same(r, given)), None)
    leaves = None if r is None or not r.count else leaves_of(r.linear)
    return None if r is None or leaves is None else _without_doubt(r, leaves)


def _without_doubt(r: Rows, leaves: tuple[_Leaf, _Leaf | None]) -> _Multiplied | None:
    """Squares that are multiplied out, where nothing may be amiss."""
    if (weights := r.distinct_weights).size > 1 and np.ptp(weights) > 0.0:
        return None
    if not isinstance(r.hessian, np.ndarray) or r.hessian.flags.writeable or r.gradient_at_zero.flags.writeable:
        return None
    curvature = float(r.curvature[0])
    if not (
        _LEAST_MOMENT <= curvature <= _LARGEST_MOMENT
        and float(r.hessian.diagonal().max(initial=0.0)) <= _LARGEST_MOMENT
    ):
        return None
    return _Multiplied(r, *leaves, curvature)


def add_lengths(given: Rows, squares: Sequence[Rows], norms: Norms) -> None:
    """Add the lengths of the columns of rows to `norms`, where the diagonal of their Hessian tells them."""
    if (known := _multiplied(given, squares)) is not None and id(known.matrix.array) not in norms:
        norms[id(known.matrix.array)] = (known.matrix.array, known.lengths)


def lengths_of(r: Rows, array: Any, first: int = 0) -> Vector | None:
    """Bounds of the lengths of the columns of an array, by the Hessian of the squares of it, where there is one.

    `first` is the place of the first variable that the array sees.
    """
    if "hessian" not in r.__dict__ or not array.flags.c_contiguous:
        return None
    known = _without_doubt(r, (_Leaf(first, 1.0, array), None))
    return None if known is None else known.lengths


def moments_at(given: Rows, squares: Sequence[Rows], x: Vector) -> SquareMoments | None:
    """The moments of rows at x, where a method has multiplied out the very same and nothing of it may be amiss."""
    known = _multiplied(given, squares)
    if known is None:
        return None
    r, _, intercept, curvature = known
    share, underflow = known.share, known.underflow
    hessian, g, wrong = r.hessian, r.gradient_at_zero, np.zeros(x.size)
    if intercept is not None:  # sums that are not by blocks: these are cheap to do again
        hessian, g, j = hessian.copy(), g.copy(), intercept.column
        hessian[j, j] = r.count * curvature * intercept.scale**2
        g[j], wrong[j] = dot(np.broadcast_to(curvature * intercept.scale, r.offset.shape), r.offset)
    diagonal = np.asarray(hessian.diagonal())
    spread = known.spread(diagonal)
    sizes = np.sqrt(diagonal + spread) * SLACK
    constant, lost = dot(0.5 * r.curvature * r.offset, r.offset)
    lost = (lost + 4.0 * UNIT * (abs(constant) + lost) + underflow) * SLACK
    offsets = math.sqrt(2.0 * (constant + lost)) * SLACK
    if not (np.all(np.isfinite(sizes)) and offsets <= _LARGEST_MOMENT):
        return None
    along = float(sizes @ np.abs(x))
    gradient = g + hessian @ x
    wrong += share * sizes * offsets + underflow
    rounding = gamma(x.size + 3) * (sizes * along * (1.0 + share) * SLACK + np.abs(g))
    radius = (share * sizes * along + wrong + rounding + underflow * (1.0 + float(np.abs(x).sum()))) * SLACK
    half, error = dot(0.5 * x, g + gradient)
    error += 0.5 * float(np.abs(x) @ (wrong + radius + 2.0 * UNIT * (np.abs(g) + np.abs(gradient))))
    value = constant + half
    error = (lost + error + UNIT * abs(value)) * SLACK
    # In whichever order its products were added up, an entry is off by no more than this share of h_j h_k.
    distance = (gamma(r.count + _OTHERS) * float(sizes @ sizes) + x.size * underflow) * SLACK
    off = gamma(x.size + _OTHERS) * (along + offsets) * SLACK + math.sqrt(underflow)
    return SquareMoments(value, error, Ball(gradient, radius), Ball(diagonal, spread), (r.hessian,), distance, off)


class _Leaf(NamedTuple):
    """A matrix, or without one a column of ones, times a number, and its first column among all."""

    column: int
    scale: float
    array: Any


def _are_same(r: Rows, given: Rows) -> bool:
    """Whether rows of squares of one dense array in double precision, perhaps with an intercept, are the same."""
    if r.term.rows is not None or given.term.rows is not None:  # numbers of each row, as levels of quantiles
        return False
    if (r.term.pieces, r.term.centres) != (given.term.pieces, given.term.centres):
        return False
    if r.term.knots or r.term.degree != 2 or r.term.centres[0] != 0.0 or any(r.term.pieces[0][:2]):
        return False
    ours = leaves_of(r.linear)
    if r is given:
        return ours is not None
    theirs = leaves_of(given.linear)
    if ours is None or theirs is None or any(a != b for a, b in zip(*map(_known, (ours, theirs)), strict=True)):
        return False
    return np.array_equal(r.weights, given.weights) and np.array_equal(r.offset, given.offset)


def _known(leaves: tuple[_Leaf, _Leaf | None]) -> list[Any]:
    return [None if leaf is None else (leaf.column, leaf.scale, id(leaf.array)) for leaf in leaves]


def leaves_of(linear: Map) -> tuple[_Leaf, _Leaf | None] | None:
    """The matrix that a map is made of, and a column of ones beside it where there is one; None of other maps."""
    found = _gathered(linear)
    if found is None:
        return None
    arrays = [leaf for leaf in found if leaf.array is not None]
    ones = [leaf for leaf in found if leaf.array is None]
    if len(arrays) != 1 or len(ones) > 1 or (ones and arrays[0].array.shape[1] < 2):
        return None
    return arrays[0], ones[0] if ones else None


def _gathered(linear: Map, column: int = 0, scale: float = 1.0) -> list[_Leaf] | None:
    if isinstance(linear, Scaled) and np.ndim(linear.scale) == 0 and abs(float(linear.scale)) == 1.0:
        return _gathered(linear.inner, column, scale * float(linear.scale))
    if isinstance(linear, HStack):
        parts = [_gathered(inner, column + part.start, scale) for part, inner in linear.live()]
        return None if any(part is None for part in parts) else [leaf for part in parts for leaf in part or ()]
    if isinstance(linear, Composition) and linear.shape[1] == linear.outer.shape[1] == 1:  # a number, for every row
        inner = _gathered(linear.inner, column, scale)
        every = isinstance(linear.outer, Selection) and inner is not None and [leaf.array for leaf in inner] == [None]
        return inner if every else None
    if isinstance(linear, Selection) and linear.shape[1] == 1:
        return [_Leaf(column, scale, None)]
    if isinstance(linear, Matrix) and linear.array.dtype == np.float64 and linear.array.flags.c_contiguous:
        return [_Leaf(column, scale, linear.array)]
    return None


def lower_by_moments(squares: SquareMoments, own: Sequence[DualRows], fixed: Ball, scalar: float, x: Vector) -> float:
    r"""A number below ``q(y) + g'y + s + sum_k c_k rho_k(+-y_k + d_k)`` for every y, all but one with their own rows.

    For every share t, as ``|A y + d - t (A x + d)|^2`` is not negative,
    :math:`q(y) \ge (2 t - t^2) q(x) + t \nabla q(x)'(y - x)`; t is what the rows of their own can take.
    """
    mine = [True] * len(own)
    if not all(r.is_own for r in own):
        return -math.inf
    caps = Caps.of(own, mine, x.size, rough=True)
    free = np.flatnonzero(~caps.owned)
    if free.size > 1 or fixed.size[free].any():
        return -math.inf
    if free.size:
        squares = squares.without(int(free[0]))
    share = caps.scale
    for _ in range(2):
        whole = fixed.plus(squares.gradient.scaled(share))
        excess = excess_of(whole, caps)
        if excess <= 1.0:
            along, error = dot(squares.gradient.middle, x)
            error += float(squares.gradient.radius @ np.abs(x))
            kept = 2.0 * share - share * share
            parts = [kept * squares.value, share * along, scalar]
            error = kept * squares.error + share * error + 8.0 * UNIT * sum(abs(part) for part in parts)
            constant = float(down(parts[0] - parts[1] + parts[2] - error * SLACK))
            return direct_lower(own, mine, whole, constant, {}, caps)
        share *= (1.0 - caps.inward) / excess
    return -math.inf
