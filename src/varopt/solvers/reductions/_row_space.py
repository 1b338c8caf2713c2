r"""`range`: a ridge on more variables than there are rows. The optimum lies in the range of the rows' transpose.

    f(x) = 1/2 |D^(1/2) x|^2 + v'x + sum_k w_k rho_k(a_k'x + d_k),        D^(1/2) x = Q t,       [A; v'] D^(-1/2) = R'Q'

Moving x out of that range changes no row and only adds to the ridge. In t the rows are those of R', as many variables
as rows, and the ridge is |t|^2 / 2. The dual point of that problem is then one of the whole problem, and the point that
is stationary for it, x = -(v + A'(w u)) / D, is proved on all of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt.certificates import dual_gap
from varopt.composite import Composite, Rows, ridge_form
from varopt.model.maps import Matrix
from varopt.solvers._method import State, convex, piecewise_quadratic, ridge
from varopt.solvers.reductions._reduction import Lifted, Reduction, Smaller

__all__ = ["Range"]

Vector = NDArray[np.float64]

Expand = Callable[[Vector], Vector]

# On Gaussian data of 100 to 400 rows, one thread: linear SVMs draw level at about four variables a row, and units and
# heavy weights matter less from fewer on.
_LEAST_WITH_RIDGE = 201  # variables from which on something is to be gained
_WIDE = 2  # variables for each row beyond which it pays,
_WIDE_SPARSE = 10  # and the same where sparse methods apply
_STRICTLY_INSIDE = 1e-6  # share of a kink by which a subgradient has to be inside it for the row to rest
_PLENTY = 10.0  # times what is called for
_GRAM_ENTRIES = 2e8  # of a matrix of rows by rows, beyond which it is refused
_EIGENVALUE_ROUNDING = 1e-14  # share of the largest eigenvalue below which one is rounding


@dataclass(kw_only=True, eq=False)
class Coordinates(Smaller):
    """The problem in t and the variables without a ridge, with weights that may be capped."""

    reduced: Composite  # with the weights as they are
    later: tuple[Composite, ...]  # to be tried where the first proves too little
    expand: Expand


@dataclass(frozen=True)
class Range(Reduction[Coordinates]):
    """As many variables as rows: the coordinates of the point in the range of the rows' transpose.

    Notes
    -----
    Costs a QR factorisation of the transposed rows (for sparse ones, the eigenvectors of the products of any two) and
    the solution of a problem with as many variables as rows. Memory is two copies of the data where they are dense,
    and a matrix of rows by rows.
    """

    name: ClassVar[str] = "range"
    fewest = _LEAST_WITH_RIDGE
    needs = (piecewise_quadratic, convex, ridge)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks: a matrix of rows by rows, or by variables where these are fewer, in memory."""
        rows = problem.row_count + sum(r.count for r in problem.squares)
        entries = float(rows) * (rows if problem.is_sparse else min(rows, problem.size))
        return (
            f"it has {rows} rows, and matrices of {_GRAM_ENTRIES:g} entries at most." if entries > _GRAM_ENTRIES else ""
        )

    def suits(self, problem: Composite) -> bool:
        """Whether there are many more variables with a ridge than rows."""
        rows = sum(r.count for r in (*problem.rows, *problem.squares) if r.single is None)
        wide = problem.size > (_WIDE_SPARSE if problem.is_sparse else _WIDE) * rows
        return wide and bool(2 * np.count_nonzero(problem.structure(ridge_form).matrix.diagonal()) > problem.size)

    def apply(self, problem: Composite, state: State, before: Coordinates | None) -> Coordinates | None:
        """The problem in t, with smaller weights first where its own are too heavy to be accurate."""
        if before is not None:
            if not before.later:
                return None
            return replace(before, problem=before.later[0], later=before.later[1:])
        reduced, expand = _reduced(problem.structure(ridge_form))
        first, *later = _capped(reduced)
        return Coordinates(
            problem=first, start=np.zeros(reduced.size), reduced=reduced, later=tuple(later), expand=expand
        )

    def invert(self, problem: Composite, smaller: Coordinates, answer: State) -> Lifted:
        """The point Q t, and its subgradients of the rows, as shares of the whole weights."""
        whole, reduced = problem.structure(ridge_form), smaller.reduced
        point = _on_kinks(smaller.problem, answer)
        at = [r.positions(point) for r in (*reduced.rows, *reduced.squares)]
        dual = [r.term.derivative(z) for r, z in zip(whole.rows, at, strict=True)]
        for b, u in enumerate(answer.whole_dual or ()):
            full, less = reduced.rows[b].weights, smaller.problem.rows[b].weights
            dual[b] = np.divide(less * u, full, out=np.zeros_like(u), where=full > 0.0)
        return Lifted(smaller.expand(point), dual)

    def prove(self, problem: Composite, smaller: Coordinates, lifted: Lifted, state: State) -> None:
        """Show the point, and the one that is stationary for its dual point."""
        whole = problem.structure(ridge_form)
        for x in (lifted.x, _stationary(whole, lifted.dual, lifted.x)):
            positions = whole.positions(x)
            gap, assumption = dual_gap(whole, x, positions, lifted.dual)
            state.see(x, whole.value(x, positions), gap, assumption, dual=lifted.dual[: len(problem.rows)])


def _reduced(whole: Composite) -> tuple[Composite, Expand]:
    """The problem in the coordinates t and the variables without a ridge, and the way back from these."""
    diagonal = whole.matrix.diagonal()
    curved, flat = np.flatnonzero(diagonal > 0.0), np.flatnonzero(diagonal <= 0.0)
    root = np.sqrt(diagonal[curved])
    parts = [r.linear.columns(curved).explicit() for r in whole.rows]
    line = whole.vector[None, curved]
    if all(sp.issparse(part) for part in parts):
        stacked = sp.vstack([*parts, sp.csr_array(line)], format="csr") @ sp.diags_array(1.0 / root)
        tick(10.0 * float(stacked.shape[0]) ** 3)
        values, vectors = np.linalg.eigh((stacked @ stacked.T).toarray())
        kept = values > _EIGENVALUE_ROUNDING * max(float(values[-1]), 1e-300)
        lower = vectors[:, kept] * np.sqrt(values[kept])
        back = vectors[:, kept] / np.sqrt(values[kept])

        def along(t: Vector) -> Vector:
            return np.asarray(stacked.T @ (back @ t))
    else:
        dense = [part.toarray() if sp.issparse(part) else part for part in parts]
        basis, upper = np.linalg.qr((np.vstack([*dense, line]) / root).T)
        lower = upper.T

        def along(t: Vector) -> Vector:
            return np.asarray(basis @ t)

    count, position = lower.shape[1], 0
    rows = []
    for r in whole.rows:
        matrix = np.hstack([lower[position : position + r.count], r.linear.columns(flat).dense()])
        rows.append(Rows(Matrix(matrix), r.offset, r.term, r.weights))
        position += r.count
    weights = np.concatenate([np.ones(count), np.zeros(flat.size)])
    vector = np.concatenate([lower[-1], whole.vector[flat]])
    kinked = tuple(r for r in rows if r.term.knots)
    squares = tuple(r for r in rows if not r.term.knots)

    def expand(point: Vector) -> Vector:
        x = np.zeros(whole.size)
        x[curved], x[flat] = along(point[:count]) / root, point[count:]
        return x

    return Composite(sp.diags_array(weights), vector, whole.scalar, kinked, squares=squares), expand


def _capped(reduced: Composite) -> list[Composite]:
    """The problem, and before it one with smaller weights where its own are far beyond what the rows can call for.

    Rows that can all rest on their kinks at once, as with more variables than rows they often can, do so with
    subgradients of a size that their smallest singular value bounds. Heavier weights change nothing but the accuracy.
    """
    matrix = np.vstack([r.linear.dense() for r in reduced.rows] or [np.zeros((0, reduced.size))])
    matrix = matrix[:, np.flatnonzero(reduced.matrix.diagonal())]
    if not 0 < matrix.shape[0] <= matrix.shape[1]:
        return [reduced]
    smallest = float(np.linalg.svd(matrix, compute_uv=False)[-1]) ** 2
    size = max(float(r.knot_distance(r.offset).max()) for r in reduced.rows)
    cap = _PLENTY * size * np.sqrt(matrix.shape[0]) / max(smallest, 1e-300)
    rows = tuple(Rows(r.linear, r.offset, r.term, np.minimum(r.weights, cap)) for r in reduced.rows)
    if all(np.all(r.weights < _PLENTY * cap) for r in reduced.rows):
        return [reduced]
    return [Composite(reduced.matrix, reduced.vector, reduced.scalar, rows, squares=reduced.squares), reduced]


def _on_kinks(problem: Composite, part: State) -> Vector:
    """The point with the rows that rest on a kink moved onto it: heavy weights would charge for the rounding."""
    x = part.x
    for _ in range(2 if part.whole_dual else 0):
        rows: list[Vector] = [np.zeros((0, x.size))]
        missing: list[Vector] = [np.zeros(0)]
        for r, u in zip(problem.rows, part.whole_dual or (), strict=True):
            z = r.positions(x)
            knots = np.stack([np.broadcast_to(np.asarray(t, dtype=np.float64), z.shape) for t in r.term.knots])
            nearest = np.take_along_axis(knots, np.abs(knots - z).argmin(axis=0)[None], axis=0)[0]
            low, high = r.term.subdifferential(nearest)
            rest = np.flatnonzero(np.minimum(u - low, high - u) > _STRICTLY_INSIDE * (high - low))
            rows.append(np.asarray(r.linear.rows(rest).dense(), dtype=np.float64))
            missing.append((nearest - z)[rest])
        x = x + np.linalg.lstsq(np.vstack(rows), np.concatenate(missing), rcond=1e-13)[0]
    return x


def _stationary(whole: Composite, dual: Sequence[Vector], x: Vector) -> Vector:
    """The point at which every variable with a ridge is stationary for a dual point; the others as in x."""
    gradient = whole.vector.copy()
    for r, u in zip(whole.rows, dual, strict=True):
        gradient += r.linear.transpose_apply(r.weights * u)
    diagonal = whole.matrix.diagonal()
    return np.where(diagonal > 0.0, -gradient / np.where(diagonal > 0.0, diagonal, 1.0), x)
