r"""What is averaged over: the noise of a bound, by the standard deviation that it gives to every row.

`PointNoise` is the paper's Gaussian over x: a row with coefficients a has deviation :math:`\sigma \|C^T a\|`, and a
quadratic gains :math:`\sigma^2 \operatorname{tr}(H C C^T) / 2`.

`RowNoise` is what the path to an optimum uses: every row :math:`z_k = a_k^T x + d_k` has a Gaussian noise of its own,
:math:`z_k \sim N(a_k^T x + d_k, (\sigma \ell_k)^2)`, and a quadratic has none. There need not be a distribution of x
that does this to all rows. For convex terms the average is still an upper bound, row by row and for every x:
:math:`\langle \rho(z + s e) \rangle \ge \rho(z)` (Jensen), so that :math:`E(x) \ge f(x) \ge \min f`; and it is convex
in x, being an average of convex functions of an affine map of x. What it buys is that all rows are smoothed alike: the
deviation is a share of their typical distance from a knot, whatever the units of the data.

That of a family is in `varopt.bounds._family_noise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Composite, Groups, Rows
from varopt.terms import PiecewisePolynomial

__all__ = [
    "BoundNoise",
    "Expectations",
    "PointNoise",
    "RowNoise",
    "closed_form_rows",
    "one_if_equal",
]

Vector = NDArray[np.float64]


class Expectations(NamedTuple):
    """Expectation and derivatives of every row."""

    value: Vector
    first: Vector  # derivatives in the mean
    second: Vector
    sigma: Vector | None = None  # derivative in s; None where it is s times the second derivative
    gap: Vector | None = None  # expectation minus value at the mean, where it comes for free


def closed_form_rows(term: PiecewisePolynomial, mean: Vector, sigma: Vector) -> Expectations:
    """Gaussian rows, or a quadratic under any noise: only mean and variance matter then."""
    return Expectations(*term.derivatives_of_few(mean, sigma))


class BoundNoise(Protocol):
    """What a bound asks of a noise."""

    def of_rows(self, block: int, rows: Rows) -> Any:
        """Standard deviations of the rows of a block: a number, or one for each."""
        ...

    def of_groups(self, block: int, groups: Groups) -> Any:
        """Standard deviation of the rows of each group, the same for all rows of one."""
        ...

    def excess(self, problem: Composite) -> float:
        """By how much the average of the quadratic exceeds its value at the mean."""
        ...

    def expectations(self, block: int, rows: Rows, z: Vector, s: Any) -> Expectations:
        """Expectations of the rows of a block around z, with derivatives."""
        ...


@dataclass(frozen=True, eq=False)
class RowNoise:
    """Gaussian noise of every row, independent of x: deviation ``sigma * lengths[b]`` in block b."""

    sigma: float
    lengths: Sequence[Any]  # for each block of rows a number, or one number a row
    radii: Sequence[Any] = ()  # for each block of norms one number a group

    def at(self, sigma: float) -> RowNoise:
        """The same with another sigma."""
        return RowNoise(sigma, self.lengths, self.radii)

    def of_blocks(self, live: Sequence[bool]) -> RowNoise:
        """The same for some of the blocks of rows."""
        return replace(self, lengths=[length for length, kept in zip(self.lengths, live, strict=True) if kept])

    def of_rows(self, block: int, rows: Rows) -> Any:
        """Standard deviations of the rows of a block."""
        return self.sigma * self.lengths[block]

    def of_groups(self, block: int, groups: Groups) -> Any:
        """Standard deviation of the rows of each group."""
        return self.sigma * self.radii[block]

    def excess(self, problem: Composite) -> float:
        """Zero: a quadratic of x has no noise."""
        return 0.0

    def expectations(self, block: int, rows: Rows, z: Vector, s: Any) -> Expectations:
        """In closed form."""
        return closed_form_rows(rows.term, z, s)


@dataclass(frozen=True, eq=False)
class PointNoise(RowNoise):
    """``x ~ N(mean, sigma^2 C C')`` [SB12, eq. 10]; `spread` is ``tr(H C C')`` of the quadratic."""

    spread: float = 0.0

    @classmethod
    def of(cls, problem: Composite, sigma: float, factor: Any = 1.0) -> PointNoise:
        """The noise of a Gaussian over x, for a problem; `factor` is C, a number, a vector or a matrix."""
        factor = np.asarray(factor, dtype=np.float64)
        # a'x + d ~ N(a'mean + d, s^2), s = sigma |C'a|, as for the rows of a kernel machine [SB12, eq. 30]
        lengths = [one_if_equal(np.sqrt(r.linear.row_variance(factor))) for r in problem.rows]
        return cls(sigma, lengths, (), _spread(problem, factor))

    def at(self, sigma: float) -> PointNoise:
        """The same with another sigma."""
        return PointNoise(sigma, self.lengths, self.radii, self.spread)

    def excess(self, problem: Composite) -> float:
        """What the quadratic gains."""
        return 0.5 * (self.sigma * self.sigma) * self.spread  # tr(H Sigma) / 2, of x'Hx / 2 [SB12, eq. 15]


def one_if_equal(rows: Vector) -> Any:
    """A number where all rows have the same."""
    return float(rows[0]) if rows.size and np.all(rows == rows[0]) else rows


def _spread(problem: Composite, factor: Vector) -> float:
    """``tr(H C C')``, without forming H where that is not needed."""
    if problem.is_multiplied and problem.hessian is not None and factor.ndim < 2:
        return float(np.sum(problem.hessian.diagonal() * factor**2))
    total = sum((float(r.curvature @ r.linear.row_variance(factor)) for r in problem.squares), 0.0)
    if factor.ndim < 2:
        diagonals = [form.curvature.diagonal for form in problem.forms]
        diagonals += [] if problem.matrix is None else [problem.matrix.diagonal()]
        return total + float(sum(np.sum(diagonal * factor**2) for diagonal in diagonals))
    matrices = [form.curvature.matrix() for form in problem.forms]
    matrices += [] if problem.matrix is None else [problem.matrix]
    return total + float(sum(np.sum(factor * np.asarray(matrix @ factor)) for matrix in matrices))


# -- The noise of a family --------------------------------------------------------------------------------------------
