r"""`orthogonal`: variables whose columns are nearly dependent, in coordinates in which they are orthonormal.

    A = Q R P',        x = P R^(-1) t,        f(x) = g(A x) = g(Q t)

with a pivoted QR factor of all rows [BG65]. Newton's systems of raw features, of polynomials, or of features far from
zero beside an intercept lose as many digits as the square of the condition number has; those in t lose none. Columns
that depend on others, as constant ones on an intercept, are left out. The answer is proved on the data as they are.

.. [BG65] P. Businger, G. H. Golub. Linear least squares solutions by Householder transformations. Numerische
   Mathematik 7, 1965.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from varopt.composite import Composite, Rows
from varopt.model.maps import Matrix
from varopt.solvers._method import State, convex, no_matrix, no_single_variables, piecewise_quadratic
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller

__all__ = ["Orthogonal"]

Vector = NDArray[np.float64]

_CONDITION = 1e4  # of columns of length one, beyond which digits are lost
_ROWS_PER_VARIABLE = 4  # rows for each variable from which that is told
_MOST_COPIED = 1 << 26  # entries of the data that are copied
# Share of the first pivot, for each variable, below which a column depends on others.
_DEPENDENT_ON_OTHERS = 50.0 * 2.0**-52
_LARGER_FIRST = 1e-9  # share by which the longer one of two parallel columns is preferred


@dataclass(kw_only=True, eq=False)
class Orthonormal(Smaller):
    """The problem in t, and the way back: ``A P D = Q R``, for the columns that are independent."""

    basis: Vector  # Q, of all rows
    triangle: Vector  # R
    order: NDArray[np.intp]  # P
    units: Vector  # D

    def lifted(self, t: Vector) -> Vector:
        """The x with ``A x = Q t``. Solved, not multiplied by an inverse, whose rounding the condition magnifies."""
        x = np.zeros(self.units.size)
        with np.errstate(over="ignore"):  # of points so far out that there is no number for them
            x[self.order] = self.units[self.order] * scipy.linalg.solve_triangular(self.triangle, t)
        return x


@dataclass(frozen=True)
class Orthogonal(Reduction[Orthonormal]):
    """As many variables as independent columns, all orthogonal.

    Notes
    -----
    Costs a pivoted QR factor of the data, and a copy of them.
    """

    name: ClassVar[str] = "orthogonal"
    needs = (piecewise_quadratic, convex, no_single_variables, no_matrix)

    def lacks(self, problem: Composite) -> str:
        """Data that are dense, with no fewer rows than variables."""
        rows = _blocks(problem)
        if any(r.linear.storage != "dense" for r in rows):
            return "its data are not dense."
        return "" if sum(r.count for r in rows) >= problem.size else "it has fewer rows than variables."

    def suits(self, problem: Composite) -> bool:
        """Whether columns are nearly dependent, in a sample of the rows."""
        few = problem.size * sum(r.count for r in _blocks(problem)) <= _MOST_COPIED
        return problem.size > 1 and few and problem.structure(_nearly_dependent)

    def apply(self, problem: Composite, state: State, before: Orthonormal | None) -> Orthonormal | None:
        """The problem in t, once; none where no variable moves a row."""
        if before is not None or not any(np.any(r.linear.dense()) for r in _blocks(problem)):
            return None
        factor = _factor(np.vstack([np.asarray(r.linear.dense()) for r in _blocks(problem)]))
        basis, triangle, order, units = factor
        parts = np.split(basis, np.cumsum([r.count for r in _blocks(problem)])[:-1])
        blocks = [
            Rows(Matrix(part), r.offset, r.term, r.weights) for r, part in zip(_blocks(problem), parts, strict=True)
        ]
        rows, squares = tuple(blocks[: len(problem.rows)]), tuple(blocks[len(problem.rows) :])
        line = scipy.linalg.solve_triangular(triangle, (units * problem.vector)[order], trans="T")
        small = replace(problem, vector=line, rows=rows, squares=squares)
        return Orthonormal(
            problem=small, start=np.zeros(small.size), basis=basis, triangle=triangle, order=order, units=units
        )

    def invert(self, problem: Composite, smaller: Orthonormal, answer: State) -> Lifted:
        """The point, refined twice; the rows are the same, and so are their subgradients."""
        wanted = smaller.basis @ answer.x
        x = smaller.lifted(answer.x)
        for _ in range(2):
            if not np.all(np.isfinite(x)):
                break
            missing = wanted - np.concatenate([r.linear.apply(x) for r in _blocks(problem)])
            x = x + smaller.lifted(smaller.basis.T @ missing / len(missing))
        positions = smaller.problem.positions(answer.x)
        dual = answer.whole_dual or [r.term.derivative(z) for r, z in zip(problem.rows, positions, strict=True)]
        return Lifted(x, dual)


def _blocks(problem: Composite) -> tuple[Rows, ...]:
    return (*problem.rows, *problem.squares)


def _nearly_dependent(problem: Composite) -> bool:
    """Whether a combination of columns of length one is much shorter than its coefficients, in a sample of rows."""
    gram = np.zeros((problem.size, problem.size))
    for r in _blocks(problem):
        index = np.unique(np.linspace(0, r.count - 1, min(r.count, _ROWS_PER_VARIABLE * problem.size)).astype(np.intp))
        sample = np.asarray(r.linear.rows(index).dense(), dtype=np.float64)
        size = float(np.abs(sample).max(initial=0.0))
        if not 0.0 < size < np.inf:
            continue
        sample = sample / size
        gram += sample.T @ sample
    lengths = np.sqrt(np.diagonal(gram))
    if not np.all(lengths > 0.0):
        return True
    gram /= lengths[:, None] * lengths
    try:
        np.linalg.cholesky(gram - _CONDITION**-2 * np.eye(problem.size))
    except np.linalg.LinAlgError:
        return True
    return False


def _factor(matrix: Vector) -> tuple[Vector, Vector, NDArray[np.intp], Vector]:
    """Q with ``Q'Q = n I``, R, P and D; all but Q of the size of the variables."""
    count, size = matrix.shape
    with np.errstate(over="ignore"):
        largest = np.abs(matrix).max(axis=0)
        unit = np.where(largest > 0.0, largest, 1.0)
        lengths = unit * np.sqrt(np.mean(np.square(matrix / unit), axis=0))
    lengths = np.where((lengths > 0.0) & np.isfinite(lengths), lengths, 1.0)
    preference = np.empty(size)
    preference[np.argsort(lengths)] = 1.0 + _LARGER_FIRST * np.arange(size)
    basis, triangle, order = scipy.linalg.qr(
        matrix / lengths * preference, mode="economic", pivoting=True, overwrite_a=True, check_finite=False
    )
    pivots = np.abs(np.diagonal(triangle))
    rank = max(1, int(np.count_nonzero(pivots > size * _DEPENDENT_ON_OTHERS * pivots[0])))
    root = np.sqrt(count)
    return (
        np.ascontiguousarray(root * basis[:, :rank]), triangle[:rank, :rank] / root, order[:rank], preference / lengths
    )  # fmt: skip
