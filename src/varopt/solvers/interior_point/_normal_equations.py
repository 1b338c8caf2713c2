r"""Normal matrices ``H + sum_b A_b' diag(d_b) A_b`` whose d changes and whose pattern does not.

The form of the matrices decides how they are formed and factorised: as a band where the rows reach over few
neighbouring variables, as a dense matrix where there are few variables, as a sparse one otherwise; or not at all, where
the product of sparse matrices would be dense.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import cholesky, factorised_sparse, row_bandwidth
from varopt.composite import Composite
from varopt.solvers.interior_point._augmented_system import Augmented
from varopt.solvers.interior_point._conjugate_gradients import ConjugateGradients

__all__ = ["Normal", "normal"]

Vector = NDArray[np.float64]

_WIDEST_BAND = 64  # that is factorised as such
# Entries that a product has for each entry of its factors, above which it counts as dense. With a third of it quantile
# regression of 3,000 x 700 with 1 % of the entries goes to conjugate gradients, and takes 2.2 times as long.
_FILLED = 15
_JOINT = 4000  # rows of more than one variable up to which conjugate gradients may take over from factors
_SHORT_ROW = 8  # entries of a row up to which the products of all their pairs are kept
_DENSE_VARIABLES = 600  # up to which a sparse problem is factorised as a dense one


class Normal(ABC):
    """A quadratic's matrix and the matrices of the blocks of rows."""

    def __init__(self, hessian: Any, rows: Sequence[Any]) -> None:
        self.hessian, self.rows = hessian, rows
        #: Root mean square of the lengths of the rows, for each block.
        self.lengths = [float(np.linalg.norm(a.data if sp.issparse(a) else a)) / math.sqrt(a.shape[0]) for a in rows]

    def hessian_times(self, x: Vector) -> Vector:
        """``H x``."""
        return np.zeros_like(x) if self.hessian is None else np.asarray(self.hessian @ x)

    def apply(self, block: int, x: Vector) -> Vector:
        """``A_b x``."""
        return np.asarray(self.rows[block] @ x)

    def add_transpose(self, block: int, values: Vector, into: Vector) -> None:
        """Add ``A_b' v``."""
        into += self._transposes[block] @ values

    @cached_property
    def _transposes(self) -> list[Any]:
        """Made once: of short rows that takes longer than the product."""
        return [a.T for a in self.rows]

    @abstractmethod
    def factorise(self, weights: Sequence[Vector], ridge: float = 0.0) -> None:
        """Factorise for the given d, one vector a block (none: H alone), or raise `LinAlgError`.

        `ridge` is added to the diagonal, as a share of it.
        """

    def step(self, residual: Vector, row_rhs: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
        """Solve for ``-residual + sum A_b' r_b``, `row_rhs` the r, with the last factors; dx and the ``A_b dx``."""
        rhs = -residual
        for b, r in enumerate(row_rhs):
            self.add_transpose(b, r, rhs)
        dx = self.solve(rhs)
        return dx, [self.apply(b, dx) for b in range(len(self.rows))]

    @abstractmethod
    def solve(self, rhs: Vector) -> Vector:
        """Solve with the last factors; `rhs` may be overwritten."""

    def augment(self) -> bool:
        """Treat multipliers as unknowns from now on, where that is possible and not done yet."""
        return False


def normal(problem: Composite) -> Normal:
    """The normal matrices of a problem, in the form that suits it."""
    rows = [r.linear.explicit() for r in problem.rows]
    rows = [_canonical(a) if sp.issparse(a) else np.asarray(a, dtype=np.float64) for a in rows]
    if not problem.is_multiplied and any(r.linear.storage == "dense" for r in (*problem.rows, *problem.squares)):
        tick(float(problem.size) ** 3 / 3.0)  # its factors: where these would end too late, nor is it multiplied out
    hessian = problem.hessian
    if all(sp.issparse(a) for a in rows) and (hessian is None or sp.issparse(hessian)):
        width = max([row_bandwidth(a) for a in rows] + ([] if hessian is None else [_width(hessian)]), default=0)
        if width <= _WIDEST_BAND and problem.size > 4 * width:
            return _Banded(hessian, rows, width, problem.size)
        if problem.size > _DENSE_VARIABLES:
            pairs = sum(float(np.sum(np.diff(a.indptr).astype(float) ** 2)) for a in rows)
            filled = pairs > _FILLED * (problem.size + sum(a.nnz for a in rows))
            return _Krylov(hessian, rows) if filled else _Sparse(hessian, rows)
    return _Dense(hessian, rows, problem.size)


def _canonical(a: Any) -> Any:
    """By rows, each entry once."""
    rows = sp.csr_array(a)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


# -- Bands ------------------------------------------------------------------------------------------------------------


class _Banded(Normal):
    """LAPACK on a band; n (k + 1) numbers for the band and O(n k^2) operations for a factor of half-width k."""

    def __init__(self, hessian: Any, rows: Sequence[Any], width: int, size: int) -> None:
        super().__init__(hessian, rows)
        self.rows = [Stencil.of(a) or _Scattered(a, width) for a in rows]
        self.width = width
        self.diagonals = np.zeros((width + 1, size))
        if hessian is not None:
            for k in range(_width(hessian) + 1):
                self.diagonals[k, : size - k] = hessian.diagonal(-k)
        self.diagonal_only = not self.diagonals[1:].any()
        self.band = np.empty_like(self.diagonals)
        self.columns = np.empty(self.diagonals.shape, order="F")  # as LAPACK wants it
        self.augmented: Augmented | None = None

    def hessian_times(self, x: Vector) -> Vector:
        return self.diagonals[0] * x if self.diagonal_only else super().hessian_times(x)

    def apply(self, block: int, x: Vector) -> Vector:
        return np.asarray(self.rows[block].apply(x))

    def add_transpose(self, block: int, values: Vector, into: Vector) -> None:
        self.rows[block].add_transpose(values, into)

    def factorise(self, weights: Sequence[Vector], ridge: float = 0.0) -> None:
        np.copyto(self.band, self.diagonals)
        for b, (a, d) in enumerate(zip(self.rows, weights, strict=False)):
            if self.augmented is None or b not in self.augmented.u:
                a.add_gram(d, self.band)
        if ridge:
            self.band[0] += ridge * max(float(self.band[0].mean()), 1e-300)
        info = 0
        if self.augmented is not None:
            self.augmented.factorise(self.band, {b: weights[b] for b in self.augmented.u})
        elif self.width == 0:
            info = int(not self.band[0].min(initial=np.inf) > 0.0)
        elif self.width == 1:
            *_, info = scipy.linalg.lapack.dpttrf(self.band[0], self.band[1, :-1], overwrite_d=1, overwrite_e=1)
        else:
            np.copyto(self.columns, self.band)
            _, info = scipy.linalg.lapack.dpbtrf(self.columns, lower=1, overwrite_ab=1)
        if info:
            raise np.linalg.LinAlgError("the matrix is not positive definite")

    def solve(self, rhs: Vector) -> Vector:
        if self.width == 0:
            return np.asarray(rhs / self.band[0])
        if self.width == 1:
            return np.asarray(scipy.linalg.lapack.dpttrs(self.band[0], self.band[1, :-1], rhs, overwrite_b=1)[0])
        return np.asarray(scipy.linalg.lapack.dpbtrs(self.columns, rhs, lower=1, overwrite_b=1)[0])

    def augment(self) -> bool:
        stencils = {b: a for b, a in enumerate(self.rows) if isinstance(a, Stencil) and len(a.parts) > 1}
        if self.augmented is not None or not stencils:
            return False
        self.augmented = Augmented(stencils, self.band.shape[1], self.width)
        return True

    def step(self, residual: Vector, row_rhs: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
        if self.augmented is None:
            return super().step(residual, row_rhs)
        own = self.augmented.u
        rhs = -residual
        for b, r in enumerate(row_rhs):
            if b not in own:
                self.add_transpose(b, r, rhs)
        dx, moves = self.augmented.solve(rhs, {b: row_rhs[b] for b in own})
        return dx, [moves[b] if b in own else self.apply(b, dx) for b in range(len(self.rows))]


class Stencil:
    """Rows of one pattern, each a place on from the one before, as those of finite differences."""

    def __init__(self, offsets: list[int], coefficients: list[Any], count: int) -> None:
        self.parts = [slice(o, o + count) for o in offsets]
        self.coefficients = coefficients  # a number where all rows have the same

    @classmethod
    def of(cls, a: Any) -> Stencil | None:
        count = a.shape[0]
        length = a.nnz // count
        if a.nnz != length * count or not 1 <= length <= 2 * _WIDEST_BAND or not np.all(np.diff(a.indptr) == length):
            return None
        places = a.indices.reshape(count, length) - np.arange(count)[:, None]
        if np.any(places != places[0]) or np.unique(places[0]).size < length:
            return None
        values = a.data.reshape(count, length)
        same = np.all(values == values[0], axis=0)
        coefficients = [float(values[0, j]) if same[j] else values[:, j].copy() for j in range(length)]
        return cls([int(o) for o in places[0]], coefficients, count)

    def apply(self, x: Vector) -> Vector:
        out = np.multiply(self.coefficients[0], x[self.parts[0]])
        for part, c in zip(self.parts[1:], self.coefficients[1:], strict=True):
            _accumulate(out, c, x[part])
        return np.asarray(out)

    def add_transpose(self, values: Vector, into: Vector) -> None:
        for part, c in zip(self.parts, self.coefficients, strict=True):
            _accumulate(into[part], c, values)

    def add_gram(self, weights: Vector, band: Vector) -> None:
        pairs = list(zip(self.parts, self.coefficients, strict=True))
        for left, a in pairs:
            for right, b in pairs:
                if right.start >= left.start:
                    _accumulate(band[right.start - left.start, left], a * b, weights)


def _accumulate(out: Vector, factor: Any, values: Vector) -> None:
    """Add ``factor * values``, without a temporary for differences."""
    if isinstance(factor, float) and factor in (1.0, -1.0):
        (np.add if factor > 0 else np.subtract)(out, values, out=out)
    else:
        out += factor * values


class _Scattered:
    """Rows of any pattern that fits the band: a sparse matrix takes the weights to the entries of the band."""

    def __init__(self, a: Any, width: int) -> None:
        self.matrix, self.transpose, size = a, a.T.tocsr(), a.shape[1]
        first, second, rows, products = _pairs(a)
        shape = ((width + 1) * size, a.shape[0])
        self.gram = sp.csr_array((products, ((second - first) * size + first, rows)), shape)

    def apply(self, x: Vector) -> Vector:
        return np.asarray(self.matrix @ x)

    def add_transpose(self, values: Vector, into: Vector) -> None:
        into += self.transpose @ values

    def add_gram(self, weights: Vector, band: Vector) -> None:
        band += (self.gram @ weights).reshape(band.shape)


def _pairs(a: Any) -> tuple[Any, Any, Any, Vector]:
    """For every row and every pair of its entries: the columns in order, the row, and the product of the entries."""
    lengths = np.diff(a.indptr)
    found = [(np.zeros(0, dtype=np.intp),) * 3 + (np.zeros(0),)]
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        at = a.indptr[rows][:, None] + np.arange(length)
        columns, values = a.indices[at].astype(np.intp), a.data[at]
        for i in range(length):
            for j in range(i, length):
                left, right = columns[:, i], columns[:, j]
                found.append((np.minimum(left, right), np.maximum(left, right), rows, values[:, i] * values[:, j]))
    first, second, rows, products = (np.concatenate(part) for part in zip(*found, strict=True))
    return first, second, rows, products


def _width(matrix: Any) -> int:
    """The half-width of a symmetric matrix."""
    entries = matrix.tocoo()
    return int(np.max(np.abs(entries.row - entries.col), initial=0))


# -- Matrices without a band ------------------------------------------------------------------------------------------


class _Factored(Normal):
    """Matrices that are formed and factorised, until rounding spoils them and conjugate gradients take over."""

    augmented: _Krylov | None = None

    @abstractmethod
    def _factor(self, weights: Sequence[Vector], ridge: float) -> Callable[[Vector], Vector]:
        """A solver for the given d."""

    def factorise(self, weights: Sequence[Vector], ridge: float = 0.0) -> None:
        tick()
        if self.augmented is None:
            self.solver = self._factor(weights, ridge)
        else:
            self.augmented.factorise(weights, ridge)

    def solve(self, rhs: Vector) -> Vector:
        return self.solver(rhs) if self.augmented is None else self.augmented.solve(rhs)

    def step(self, residual: Vector, row_rhs: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
        return super().step(residual, row_rhs) if self.augmented is None else self.augmented.step(residual, row_rhs)

    def augment(self) -> bool:
        # Without a quadratic nothing is lost beside rows of large weight.
        sparse = sp.issparse(self.hessian) and all(sp.issparse(a) for a in self.rows)
        if self.augmented is not None or not self.rows or not sparse:
            return False
        # Conjugate gradients take so many rows as heavy; in an image, say, most of them rest.
        if sum(int(np.count_nonzero(np.diff(a.indptr) > 1)) for a in self.rows) > _JOINT:
            return False
        self.augmented = _Krylov(self.hessian, self.rows)
        return True


class _Dense(_Factored):
    """A dense matrix of the order of the variables, and LAPACK's Cholesky."""

    def __init__(self, hessian: Any, rows: Sequence[Any], size: int) -> None:
        super().__init__(hessian, rows)
        matrix = np.zeros((size, size)) if hessian is None else hessian.toarray() if sp.issparse(hessian) else hessian
        self.matrix = np.asarray(matrix.T, dtype=np.float64)  # symmetric, and in LAPACK's order if it was in C's
        self.grams = [_few_entries(a) if sp.issparse(a) else None for a in rows]

    def _factor(self, weights: Sequence[Vector], ridge: float) -> Callable[[Vector], Vector]:
        tick(float(self.matrix.shape[0]) ** 3 / 3.0)
        total = np.array(self.matrix, order="F")
        for a, gram, d in zip(self.rows, self.grams, weights, strict=False):
            if gram is not None:
                places, products = gram
                total[places] += products @ d
            elif not sp.issparse(a):
                total += a.T @ (d[:, None] * a)
            else:
                entries = (a.T @ (sp.diags_array(d) @ a)).tocoo()
                total[entries.row, entries.col] += entries.data
        if ridge:
            total.flat[:: total.shape[0] + 1] += ridge * max(float(total.diagonal().mean()), 1e-300)
        factor = cholesky(total, overwrite=True)
        return lambda rhs: np.asarray(scipy.linalg.cho_solve(factor, rhs, check_finite=False))


def _few_entries(a: Any) -> tuple[tuple[Any, Any], Any] | None:
    """For short rows, as of differences: the entries of the lower triangle that ``A'DA`` has, and what makes them of d.

    None where rows are so long that a product of sparse matrices is the better way.
    """
    if np.diff(a.indptr).max(initial=0) > _SHORT_ROW:
        return None
    first, second, rows, products = _pairs(a)
    places, index = np.unique(first * a.shape[1] + second, return_inverse=True)
    matrix = sp.csr_array((products, (index, rows)), shape=(places.size, a.shape[0]))
    return (places % a.shape[1], places // a.shape[1]), matrix


class _Sparse(_Factored):
    """A sparse matrix and SuperLU without pivoting, in a symmetric order of minimum degree."""

    def _factor(self, weights: Sequence[Vector], ridge: float) -> Callable[[Vector], Vector]:
        total = self.hessian
        for a, d in zip(self.rows, weights, strict=False):
            gram = a.T @ (sp.diags_array(d) @ a)
            total = gram if total is None else total + gram
        if total is None:
            raise np.linalg.LinAlgError("the matrix is zero")
        if ridge:
            scale = max(float(total.diagonal().mean()), 1e-300)
            total = total + ridge * scale * sp.eye_array(total.shape[0])
        return factorised_sparse(total)


class _Krylov(Normal):
    """Sparse matrices whose products are dense: conjugate gradients, and no more memory than the data need."""

    def __init__(self, hessian: Any, rows: Sequence[Any]) -> None:
        super().__init__(hessian, rows)
        self.engine = ConjugateGradients(hessian, rows)

    def add_transpose(self, block: int, values: Vector, into: Vector) -> None:
        into += self.engine.transposes[block] @ values

    def factorise(self, weights: Sequence[Vector], ridge: float = 0.0) -> None:
        if not weights and (self.hessian is None or not np.all(self.hessian.diagonal() > 0)):
            raise np.linalg.LinAlgError("the quadratic alone is singular")
        self.engine.prepare(weights, ridge)

    def solve(self, rhs: Vector) -> Vector:
        return self.engine.solve(rhs, [np.zeros(a.shape[0]) for a in self.rows])[0]

    def step(self, residual: Vector, row_rhs: Sequence[Vector]) -> tuple[Vector, list[Vector]]:
        return self.engine.solve(-residual, row_rhs)
