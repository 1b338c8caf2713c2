r"""The problem as the solvers see it: a convex quadratic and rows of convex piecewise linear-quadratic terms.

    f(x) = 1/2 x'Hx + g'x + c + sum_b sum_k w_bk rho_b(a_bk'x + d_bk)

One operation carries the whole method: `freeze` replaces rows by the polynomial of the piece they lie in, which is
exact as long as they do not leave it. Far rows are frozen while sigma falls; before the crossover, all but the kinks
nearby.

Rows of squares, as of least squares, are part of the quadratic but stay rows until its matrix is asked for: where there
are more variables than rows it never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model import Objective
from varopt.model._blocks import AffineBlock, NormBlock, QuadraticBlock, TermBlock
from varopt.model._maps import Difference, HStack, Map, Matrix, Scaled, Selection, Sparse, products_are_kept
from varopt.solvers._bends import Bends, bent
from varopt.solvers._chain import Chain, chained
from varopt.solvers._definite import InverseEnergy
from varopt.solvers._groups import Groups, groups_of
from varopt.solvers._kinks import Kinks, split
from varopt.solvers._span import spanned
from varopt.terms import PiecewisePolynomial

__all__ = ["Composite", "NotComposite", "Rows", "add", "composite", "shared_rows", "sharing"]

Vector = NDArray[np.float64]

_CHUNK = 1 << 16  # entries of a matrix that are gathered at once: half a megabyte
_DENSE = 300  # variables up to which a sparse problem is solved as a dense one


class NotComposite(ValueError):
    """The objective is outside the class that the solver handles; the message names the block."""


@dataclass(frozen=True)
class Rows:
    """One term applied to the rows of an affine map."""

    linear: Map
    offset: Vector
    term: PiecewisePolynomial
    weights: Vector

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.offset.size)

    @property
    def is_direct(self) -> bool:
        """Whether products with the map cost little more than with its matrix, so that a copy would not pay."""
        return _is_direct(self.linear)

    def positions(self, x: Vector) -> Vector:
        """``z = A x + d``."""
        if not x.any():
            return self.offset.copy()
        return np.asarray(self.linear.apply(x) + self.offset, dtype=np.float64)

    def total(self, z: Vector) -> float:
        """The weighted sum of the terms at z."""
        return float(self.weights @ self.term.value(z))

    def pull(self, z: Vector) -> Vector:
        """The gradient in x at rows z, of the right-hand slopes on a knot."""
        return np.asarray(self.linear.transpose_apply(self.weights * self.term.derivative(z)))

    def take(self, index: NDArray[np.intp]) -> Rows:
        """Selected rows, as explicit data."""
        return Rows(_gathered(self.linear, index), self.offset[index], self.term.take(index), self.weights[index])

    def knot_distance(self, z: Vector) -> Vector:
        """Distance from the nearest knot: a few standard deviations beyond it the row is a polynomial."""
        return np.asarray(np.min([np.abs(z - t) for t in self.term.knots], axis=0))

    def left_piece(self, z: Vector, before: Vector) -> NDArray[np.bool_]:
        """Rows that lie in another piece than before."""
        left = np.zeros(z.shape, dtype=bool)
        for t in self.term.knots:
            left |= (z >= t) != (before >= t)
        return left

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], Vector] | None:
        """Where every row is of one variable: of which, and times what; else None."""
        scale: Any = 1.0
        start, linear = 0, self.linear
        while isinstance(linear, (Scaled, HStack)):
            if isinstance(linear, Scaled):
                scale, linear = scale * linear.scale, linear.inner
                continue
            live = linear.live()
            if len(live) != 1:
                break
            start, linear = start + live[0][0].start, live[0][1]
        if isinstance(linear, Selection):
            index = np.arange(self.count) if linear.index is None else linear.index
            return start + index, np.broadcast_to(scale, (self.count,))
        if self.linear.storage != "sparse" or isinstance(self.linear, Difference):
            return None
        # The first row tells most problems apart without a copy of the data.
        if self.count and np.count_nonzero(self.linear.rows(np.arange(1)).dense()) > 1:
            return None
        explicit = sp.csr_array(self.linear.explicit(), copy=True)  # what follows changes it
        explicit.sum_duplicates()
        if np.any(np.diff(explicit.indptr) != 1):
            return None
        return explicit.indices, explicit.data

    @property
    def curvature(self) -> Vector:
        """The second derivatives of rows of one quadratic piece, with their weights."""
        return np.asarray(2.0 * self.term.pieces[0][2] * self.weights)

    @cached_property
    def bend(self) -> Any:
        """The matrix of rows of one quadratic piece, multiplied out."""
        return self.linear.gram(self.curvature) if self.single is None else sp.diags_array(self.bend_diagonal)

    @property
    def bend_diagonal(self) -> Vector:
        """The diagonal of that matrix, all that there is of it where every row is of one variable."""
        if self.single is None:
            return np.asarray(self.bend.diagonal())
        index, factor = self.single
        bends = np.bincount(index, self.curvature * factor**2, minlength=self.linear.shape[1])
        return np.asarray(bends, dtype=np.float64)

    @cached_property
    def pull_at_zero(self) -> Vector:
        """The gradient at zero."""
        return self.pull(self.offset)

    @cached_property
    def largest_pull(self) -> Vector:
        """For each variable, how hard the rows together may pull on it: the scale of what cancels at an optimum."""
        ends = [np.where(np.isfinite(end), np.abs(end), 1.0) for end in self.term.slopes]
        return np.sqrt(self.count * self.linear.gram_diagonal((self.weights * np.maximum(*ends)) ** 2))

    @property
    def kinks(self) -> list[tuple[Any, Any]]:
        """The knots at which the slope jumps, and by how much: only there can a row come to rest."""
        jumps = ((t, jump[1]) for t, jump in zip(self.term.knots, self.term.jumps, strict=True) if len(jump) > 1)
        return [(t, jump) for t, jump in jumps if np.any(jump)]


@dataclass(frozen=True)
class Composite:
    """A quadratic and rows. The quadratic is ``1/2 x'Mx + v'x + s`` and the rows of squares."""

    matrix: Any  # (p, p) dense or sparse, or None where it is zero
    vector: Vector
    scalar: float
    rows: tuple[Rows, ...]
    not_convex: str = ""  # the reason where it is not known to be convex, naming the block
    squares: tuple[Rows, ...] = ()  # rows of one quadratic piece, weights not negative
    indefinite: bool = False  # whether the quadratic may bend down
    groups: tuple[Groups, ...] = ()  # norms

    @cached_property
    def hessian(self) -> Any:
        """The matrix of the quadratic, multiplied out: (p, p) dense or sparse, or None where it is zero."""
        hessian = self.matrix
        for r in self.squares:
            hessian = add(hessian, r.bend)
        if sp.issparse(hessian) and self.size <= _DENSE and any(r.linear.storage == "dense" for r in self.rows):
            return hessian.toarray()  # the rows will make it dense sooner or later
        return hessian

    @cached_property
    def inverse_energy(self) -> InverseEnergy:
        """What a residual costs the dual value, for each residual."""
        return InverseEnergy(self.hessian)

    @cached_property
    def slope(self) -> Vector:
        """The gradient of the quadratic at zero."""
        pulls = [r.pull_at_zero for r in self.squares]
        return pulls[0] if len(pulls) == 1 and not self.vector.any() else sum(pulls, self.vector)

    @cached_property
    def constant(self) -> float:
        """The value of the quadratic at zero."""
        return self.scalar + sum(r.total(r.offset) for r in self.squares)

    @cached_property
    def kinks(self) -> tuple[Kinks, tuple[Rows, ...]]:
        """The kinks of single variables, and the rows that are none."""
        return split(self)

    @cached_property
    def chain(self) -> Chain | None:
        """The chain that the problem is, or None."""
        return chained(self)

    @cached_property
    def bends(self) -> Bends | None:
        """The bends that the problem is made of, or None."""
        return bent(self)

    @cached_property
    def span(self) -> Vector | None:
        """Orthonormal columns, far fewer than variables, of which all that the objective sees is made; or None."""
        return spanned(self)

    @cached_property
    def ridge(self) -> Composite:
        """The problem with squares of single variables multiplied out, a diagonal matrix, and all others as rows."""
        diagonal = np.zeros(self.size) if self.matrix is None else np.array(self.matrix.diagonal())
        vector, scalar, others = self.vector, self.scalar, []
        for r in self.squares:
            if r.single is None:
                others.append(r)
                continue
            diagonal += r.bend_diagonal
            vector, scalar = vector + r.pull_at_zero, scalar + r.total(r.offset)
        return Composite(sp.diags_array(diagonal), vector, scalar, (*self.rows, *others))

    @property
    def not_quadratic(self) -> str:
        """The reason where a part is no piecewise quadratic: a norm, or a term with pieces beyond degree 2."""
        if self.groups:
            return "it has group norms (norm2), which only 'group-newton' handles."
        worst = max(self.rows, key=lambda r: r.term.degree, default=None)
        if worst is None or worst.term.degree <= 2:
            return ""
        return f"{worst.term.name} has pieces of degree {worst.term.degree}; at most 2 is handled."

    @property
    def size(self) -> int:
        """Number of variables."""
        return int(self.vector.size)

    @property
    def row_count(self) -> int:
        """Number of rows of all blocks."""
        return sum(r.count for r in self.rows)

    @cached_property
    def is_sparse(self) -> bool:
        """Whether every matrix is sparse and there are too many variables to treat them as dense."""
        parts = (*self.rows, *self.squares)
        return (
            self.size > _DENSE
            and (self.matrix is None or sp.issparse(self.matrix))
            and all(r.linear.storage == "sparse" for r in parts)
        )

    def quadratic(self, x: Vector) -> float:
        """The smooth part."""
        if self._as_squares:
            return self._explicit.quadratic(x) + sum(r.total(r.positions(x)) for r in self.squares)
        bend = 0.0 if self.hessian is None else 0.5 * float(x @ (self.hessian @ x))
        return self.constant + float(self.slope @ x) + bend

    def quadratic_slope(self, x: Vector) -> Vector:
        """Gradient of the smooth part."""
        if self._as_squares:
            return sum((r.pull(r.positions(x)) for r in self.squares), self._explicit.quadratic_slope(x))
        return self.slope if self.hessian is None else np.asarray(self.slope + self.hessian @ x)

    @property
    def _as_squares(self) -> bool:
        """Whether squares are summed as such, which keeps their digits: until they are multiplied out, or if cheap."""
        return bool(self.squares) and (
            "hessian" not in self.__dict__ or all(r.single is not None for r in self.squares)
        )

    @property
    def _explicit(self) -> Composite:
        """What of the quadratic is no square."""
        return Composite(self.matrix, self.vector, self.scalar, ())

    def positions(self, x: Vector) -> list[Vector]:
        """The z of all rows; those of the latest x are kept, and handed out for it again."""
        latest = self._latest
        if not latest or not np.array_equal(latest[0], x):
            latest[:] = x.copy(), *(r.positions(x) for r in self.rows)
            for z in latest[1:]:
                z.flags.writeable = False
        return latest[1:]

    @cached_property
    def _latest(self) -> list[Vector]:
        """A point and the z of all rows there."""
        return []

    def value(self, x: Vector, positions: Sequence[Vector] | None = None) -> float:
        """f(x)."""
        positions = self.positions(x) if positions is None else positions
        norms = sum(group.total(group.positions(x)) for group in self.groups)
        return self.quadratic(x) + sum(r.total(z) for r, z in zip(self.rows, positions, strict=True)) + norms

    def freeze(
        self, positions: Sequence[Vector], keep: Sequence[NDArray[np.bool_]], tilts: Sequence[Any] | None = None
    ) -> Composite:
        """Rows not kept become part of the quadratic, as the polynomial of the piece they lie in.

        With `tilts` its slope differs from that by so much, and the constant of the quadratic is of no use.
        """
        hessian, slope, constant, rows = self.hessian, self.slope.copy(), self.constant, []
        for r, z, kept, tilt in zip(self.rows, positions, keep, tilts or [0.0] * len(self.rows), strict=True):
            weights = np.where(kept, 0.0, r.weights)
            # rho(v) = rho(z) + rho'(z) (v - z) + rho''(z) (v - z)^2 / 2 on the piece, with v = a'x + d written out in
            # x.
            reach = z - r.offset
            first = r.term.derivative(z) + tilt
            constant += float(weights @ (r.term.value(z) - first * reach))
            if r.term.degree > 1:
                second = r.term.derivative(z, 2)
                first = first - second * reach
                constant += 0.5 * float(weights @ (second * reach**2))
                bent = np.flatnonzero(weights * second)
                if bent.size:
                    hessian = add(hessian, r.linear.rows(bent).gram((weights * second)[bent]))
            slope += r.linear.transpose_apply(weights * first)
            if np.any(kept):
                rows.append(r.take(np.flatnonzero(kept)))
        return Composite(hessian, slope, constant, tuple(rows))

    def thin(self, counts: Sequence[int], rng: np.random.Generator) -> Composite:
        """A random part of the rows of each block, reweighted so that the sum keeps its expectation."""
        rows = []
        for r, count in zip(self.rows, counts, strict=True):
            if count < r.count:
                part = r.take(np.sort(rng.choice(r.count, count, replace=False)))
                r = Rows(part.linear, part.offset, part.term, part.weights * (r.count / count))
            rows.append(r)
        return Composite(self.hessian, self.slope, self.constant, tuple(rows))


def _is_direct(linear: Map) -> bool:
    if isinstance(linear, Scaled):
        return _is_direct(linear.inner)
    if isinstance(linear, HStack):
        return all(part is None or _is_direct(part) for part, _ in linear.parts)
    return isinstance(linear, (Matrix, Sparse, Selection)) or linear.shape[1] == 1  # one column: an intercept


def _gathered(linear: Map, index: NDArray[np.intp]) -> Map:
    """Selected rows of a map as a matrix.

    A map may be an expression with a copy of the rows at every node, so that dense rows are made a few at a time, in
    the processor's cache: the matrix itself is all that is written to main memory.
    """
    few = max(1, _CHUNK // linear.shape[1])
    part = linear.rows(index[:few]).explicit()
    if sp.issparse(part):
        return Sparse(sp.csr_array(part if index.size <= few else linear.rows(index).explicit()))
    out = np.empty((index.size, linear.shape[1]))
    out[:few] = part
    for start in range(few, index.size, few):
        out[start : start + few] = linear.rows(index[start : start + few]).explicit()
    return Matrix(out)


def add(a: Any, b: Any) -> Any:
    """The sum of two matrices, dense or sparse; None is zero."""
    if a is None:
        return b
    if sp.issparse(a) and sp.issparse(b):
        return a + b
    return (a.toarray() if sp.issparse(a) else a) + (b.toarray() if sp.issparse(b) else b)


def composite(objective: Objective) -> Composite:
    """An objective in the solvers' form; raises `NotComposite` naming the block that does not fit."""
    size, variables = objective.size, objective.variables
    matrix: Any = None
    vector, scalar, rows, squares = np.zeros(size), 0.0, [], []
    groups: list[Groups] = []
    not_convex, indefinite = "", False
    for block in objective.blocks:
        if not block.curvature.is_convex:
            not_convex = not_convex or (
                f"{block.describe()} is not known to be convex: {block.curvature_and_reason[1]}."
            )
            indefinite = indefinite or not (isinstance(block, TermBlock) and block.term.knots)
        if not block.variables:
            scalar += float(block.value({}))
        elif isinstance(block, AffineBlock):
            vector += block.weights * block.argument.stacked(variables).transpose_apply(np.ones(1))
            scalar += block.weights * float(np.ravel(block.argument.offset)[0])
        elif isinstance(block, QuadraticBlock):
            linear = block.argument.stacked(variables)
            offset = np.broadcast_to(np.asarray(block.argument.offset, dtype=np.float64), (linear.shape[0],))
            inner, outer = block.matrix.explicit(), linear.explicit()
            symmetric = block.weights * (inner + inner.T)
            matrix = add(matrix, outer.T @ symmetric @ outer)
            vector += linear.transpose_apply(np.asarray(symmetric @ offset))
            scalar += 0.5 * float(offset @ (symmetric @ offset))
        elif isinstance(block, TermBlock):
            part = _rows(block, variables)
            if block.term.knots or block.term.degree > 2:
                rows.append(part)
            elif block.term.degree == 2 and np.all(part.weights >= 0.0) and np.all(block.term.pieces[0][2] > 0.0):
                squares.append(part)
            else:
                start = Composite(matrix, vector, scalar, (part,))
                smooth = start.freeze([part.offset], [np.zeros(part.count, dtype=bool)])
                matrix, vector, scalar = smooth.matrix, smooth.vector, smooth.scalar
        elif isinstance(block, NormBlock):
            linear = block.argument.stacked(variables)
            offset = np.broadcast_to(np.asarray(block.argument.offset, dtype=np.float64), (linear.shape[0],))
            groups.append(groups_of(linear, offset, block.groups, block.weights))
        else:
            raise NotComposite(f"{block.describe()} is no piecewise linear-quadratic term of an affine map.")
    vector = vector if vector.any() else np.broadcast_to(0.0, (size,))  # zeros in no memory
    return Composite(matrix, vector, scalar, tuple(rows), not_convex, tuple(squares), indefinite, tuple(groups))


_SHARED: ContextVar[dict[int, tuple[TermBlock, Any, Rows]] | None] = ContextVar("rows shared by problems", default=None)


@contextmanager
def shared_rows() -> Iterator[None]:
    """Within it, problems that have a block in common share its rows, and what is computed of them."""
    token = _SHARED.set({})
    try:
        yield
    finally:
        _SHARED.reset(token)


def sharing() -> bool:
    """Whether what is computed of rows will be of use to other problems."""
    return _SHARED.get() is not None or products_are_kept()


def _rows(block: TermBlock, variables: Any) -> Rows:
    shared = _SHARED.get()
    if shared is None:
        return _new_rows(block, variables)
    known = shared.get(id(block))
    if known is None or known[1] != variables:
        known = shared[id(block)] = (block, variables, _new_rows(block, variables))  # the block keeps its id taken
    return known[2]


def _new_rows(block: TermBlock, variables: Any) -> Rows:
    linear = block.argument.stacked(variables)
    offset = np.broadcast_to(np.asarray(block.argument.offset, dtype=np.float64), (linear.shape[0],))
    weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), offset.shape)
    return Rows(linear, offset, block.term, weights)
