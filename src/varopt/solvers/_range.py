r"""`range`: a ridge on more variables than there are rows. The optimum lies in the range of the rows' transpose.

    f(x) = 1/2 |D^(1/2) x|^2 + v'x + sum_k w_k rho_k(a_k'x + d_k),        D^(1/2) x = Q t,       [A; v'] D^(-1/2) = R'Q'

Moving x out of that range changes no row and only adds to the ridge. In t the rows are those of R', as many variables
as rows, and the ridge is |t|^2 / 2: that problem goes to whatever method suits it. Its dual point is then one of the
whole problem, and the point that is stationary for it, x = -(v + A'(w u)) / D, is proved on all of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._maps import Matrix
from varopt.solvers._composite import Composite, Rows
from varopt.solvers._duality import dual_gap
from varopt.solvers._method import Method
from varopt.solvers._state import Check, State

__all__ = ["Range", "ridge_refusal"]

Vector = NDArray[np.float64]

_SMALL = 200  # variables up to which nothing is to be gained
_WIDE = 2  # variables for each row beyond which it pays,
_WIDE_SPARSE = 10  # and the same where sparse methods apply
_INSIDE = 1e-6  # share of a kink by which a slope has to be inside it for the row to rest
_PLENTY = 10.0  # times what is called for
_RANK = 1e-14  # share of the largest eigenvalue below which one is rounding


@dataclass(frozen=True)
class Range(Method):
    """As many variables as rows: the coordinates of the point in the range of the rows' transpose.

    Notes
    -----
    Costs a QR factorisation of the transposed rows (for sparse ones, the eigenvectors of the products of any two) and
    the solution of a problem with as many variables as rows. Memory is two copies of the data where they are dense,
    and a matrix of rows by rows.
    """

    name: ClassVar[str] = "range"

    def refusal(self, problem: Composite) -> str:
        """What the problem lacks."""
        return ridge_refusal(problem)

    def suits(self, problem: Composite) -> bool:
        """Whether there are many more variables with a ridge than rows."""
        rows = sum(r.count for r in (*problem.rows, *problem.squares) if r.single is None)
        wide = problem.size > max(_SMALL, (_WIDE_SPARSE if problem.is_sparse else _WIDE) * rows)
        return wide and bool(2 * np.count_nonzero(problem.ridge.matrix.diagonal()) > problem.size)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        from varopt.solvers._choose import choose

        whole = problem.ridge
        reduced, expand = _reduced(whole)
        for tried in _capped(reduced):
            part = State(np.zeros(reduced.size))
            if reduced.rows or reduced.squares:
                choose(tried, but=(self.name,)).solve(tried, part, 0.1 * tol, lambda _: check(state))
            point = _on_kinks(tried, part)
            at = [r.positions(point) for r in (*reduced.rows, *reduced.squares)]
            slopes = [r.term.derivative(z) for r, z in zip(whole.rows, at, strict=True)]
            for b, u in enumerate(part.dual or ()):
                full, less = reduced.rows[b].weights, tried.rows[b].weights
                slopes[b] = np.divide(less * u, full, out=np.zeros_like(u), where=full > 0.0)
            for x in (expand(point), _stationary(whole, slopes, expand(point))):
                positions = whole.positions(x)
                state.see(x, whole.value(x, positions), *dual_gap(whole, x, positions, slopes))
            state.steps += part.steps
            if state.reached(tol):
                break
        state.sigma = 0.0
        state.record()
        check(state)


def ridge_refusal(problem: Composite) -> str:
    """What a problem lacks to be a ridge and rows."""
    if lacks := problem.not_quadratic or problem.not_convex:
        return lacks
    if not np.all(problem.kinks[0].free):
        return "it has kinks of single variables."
    if problem.matrix is not None and not _is_diagonal(problem.matrix):
        return "its quadratic form couples variables."
    if problem.matrix is None and all(r.single is None for r in problem.squares):
        return "it has no ridge."
    return ""


def _is_diagonal(matrix: Any) -> bool:
    return bool(sp.issparse(matrix) and (matrix - sp.diags_array(matrix.diagonal())).nnz == 0)


def _reduced(whole: Composite) -> tuple[Composite, Any]:
    """The problem in the coordinates t and the variables without a ridge, and the way back from these."""
    diagonal = whole.matrix.diagonal()
    curved, flat = np.flatnonzero(diagonal > 0.0), np.flatnonzero(diagonal <= 0.0)
    root = np.sqrt(diagonal[curved])
    parts = [r.linear.columns(curved).explicit() for r in whole.rows]
    line = whole.vector[None, curved]
    if all(sp.issparse(part) for part in parts):
        stacked = sp.vstack([*parts, sp.csr_array(line)], format="csr") @ sp.diags_array(1.0 / root)
        values, vectors = np.linalg.eigh((stacked @ stacked.T).toarray())
        kept = values > _RANK * max(float(values[-1]), 1e-300)
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

    Rows that can all rest on their kinks at once, as with more variables than rows they often can, do so with slopes
    of a size that their smallest singular value bounds. Heavier weights change nothing but the accuracy.
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
    for _ in range(2 if part.dual else 0):
        rows: list[Vector] = [np.zeros((0, x.size))]
        missing: list[Vector] = [np.zeros(0)]
        for r, u in zip(problem.rows, part.dual or (), strict=True):
            z = r.positions(x)
            knots = np.stack([np.broadcast_to(np.asarray(t, dtype=np.float64), z.shape) for t in r.term.knots])
            nearest = np.take_along_axis(knots, np.abs(knots - z).argmin(axis=0)[None], axis=0)[0]
            low, high = r.term.subdifferential(nearest)
            rest = np.flatnonzero(np.minimum(u - low, high - u) > _INSIDE * (high - low))
            rows.append(np.asarray(r.linear.rows(rest).dense(), dtype=np.float64))
            missing.append((nearest - z)[rest])
        x = x + np.linalg.lstsq(np.vstack(rows), np.concatenate(missing), rcond=1e-13)[0]
    return x


def _stationary(whole: Composite, slopes: list[Vector], x: Vector) -> Vector:
    """The point that balances the slopes on every variable with a ridge; the others as in x."""
    pull = whole.vector.copy()
    for r, u in zip(whole.rows, slopes, strict=True):
        pull += r.linear.transpose_apply(r.weights * u)
    diagonal = whole.matrix.diagonal()
    return np.where(diagonal > 0.0, -pull / np.where(diagonal > 0.0, diagonal, 1.0), x)
