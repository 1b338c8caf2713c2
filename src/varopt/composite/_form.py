r"""The problem as the solvers see it: a convex quadratic and rows, each a weighted term of an affine map.

    f(x) = 1/2 x'Hx + g'x + c + sum_b sum_k w_bk rho_b(a_bk'x + d_bk)

One operation carries the whole method: `freeze` replaces rows by the polynomial of the piece they lie in, which is
exact as long as they do not leave it. Far rows are frozen while sigma falls; before the crossover, all but the kinks
nearby.

Rows of squares, as of least squares, are part of the quadratic but stay rows until its matrix is asked for: where there
are more variables than rows it never is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._array import repeated
from varopt._linalg import InverseEnergy, add, as_dense, diagonal_matrix
from varopt.composite._groups import Groups
from varopt.composite._quadratic_form import QuadraticForm
from varopt.model.maps import Difference, HStack, Map, Matrix, Scaled, Selection, Sparse
from varopt.terms import PiecewisePolynomial

__all__ = ["Composite", "Rows", "single_variables"]

Vector = NDArray[np.float64]
T = TypeVar("T")

_GATHERED_ENTRIES = 1 << 16  # entries of a matrix that are gathered at once: half a megabyte
_NARROW_ROWS = 32  # of sparse rows that are gathered as dense ones
_SMALLEST_SHARE = 2.0**-12  # of the value without coefficients: better fits than that count as this good
_NO_UNIT = 1e-280  # beside which all that is left of a value of zero is rounding
_DENSE_SIZE = 300  # variables up to which a sparse problem is solved as a dense one
# Share of the products of a dense factor of all variables. Where those of pairs of entries of each row are more,
# Newton's method, which takes them of few rows, needs 0.05 to 0.8 of the time of interior points, which take all in
# each step; where they are fewer, 1.2 to 390 times as much. Quantile regressions, machines, Huber fits and fused
# signals of 50 to 600 variables, 100 to 300,000 rows and 1 to 40 entries in each; one-hot codes 1.6 to 1.9 beyond.
_TALL_PAIRS = 0.1
_SAMPLED_ROWS = 64  # that tell how many entries rows have


@dataclass(frozen=True, eq=False)
class Rows:
    """One term applied to the rows of an affine map."""

    linear: Map
    offset: Vector
    term: PiecewisePolynomial
    weights: Vector
    hard: bool = False  # whether it stands for a constraint: no optimum is beyond its kink

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
        if not np.count_nonzero(x):
            return self.offset.copy()
        return np.asarray(self.linear.apply(x) + self.offset, dtype=np.float64)

    def total(self, z: Vector) -> float:
        """The weighted sum of the terms at z."""
        return float(self.weights @ self.term.value(z))

    def gradient(self, z: Vector) -> Vector:
        """The gradient in x at rows z, of the right-hand derivatives on a knot."""
        return np.asarray(self.linear.transpose_apply(self.weights * self.term.derivative(z)))

    def take(self, index: NDArray[np.intp]) -> Rows:
        """Selected rows, as explicit data."""
        return Rows(_gathered(self.linear, index), self.offset[index], self.term.take(index), self.weights[index])

    def knot_distance(self, z: Vector) -> Vector:
        """Distance from the nearest knot: a few standard deviations beyond it the row is a polynomial."""
        return reduce(np.minimum, (np.abs(z - t) for t in self.term.knots))

    def left_piece(self, z: Vector, before: Vector) -> NDArray[np.bool_]:
        """Rows that lie in another piece than before."""
        left = np.zeros(z.shape, dtype=bool)
        for t in self.term.knots:
            left |= (z >= t) != (before >= t)
        return left

    @cached_property
    def single(self) -> tuple[NDArray[np.intp], Vector] | None:
        """Where every row is of one variable: of which, and times what; else None."""
        return single_variables(self.linear)

    @property
    def differences(self) -> tuple[float, Difference] | None:
        """Where the rows are differences of neighbours times a number, as constraints have them: both; else None."""
        linear, scale = self.linear, 1.0
        while isinstance(linear, Scaled) and np.ndim(linear.scale) == 0:
            scale, linear = scale * float(linear.scale), linear.inner
        return (scale, linear) if isinstance(linear, Difference) and scale != 0.0 else None

    @property
    def curvature(self) -> Vector:
        """The second derivatives of rows of one quadratic piece, with their weights."""
        return np.asarray(2.0 * self.term.pieces[0][2] * self.weights)

    @cached_property
    def hessian(self) -> Any:
        """The matrix of rows of one quadratic piece, multiplied out; for reading only, as proofs rest on it."""
        if self.single is not None:
            return diagonal_matrix(self.hessian_diagonal)
        return _for_reading(self.linear.gram(self.curvature))

    @property
    def hessian_diagonal(self) -> Vector:
        """The diagonal of that matrix, all that there is of it where every row is of one variable."""
        if self.single is None:
            return np.asarray(self.hessian.diagonal())
        index, factor = self.single
        return np.asarray(
            np.bincount(index, self.curvature * factor**2, minlength=self.linear.shape[1]), dtype=np.float64
        )

    @cached_property
    def gradient_at_zero(self) -> Vector:
        """The gradient at zero, for reading only."""
        return np.asarray(_for_reading(self.gradient(self.offset)))

    @cached_property
    def size_at_zero(self) -> float:
        """The sum of the sizes of the terms at zero."""
        if self.weights.strides != (0,) or self.term.rows is not None:
            return float(np.abs(self.weights) @ np.abs(self.term.value(self.offset)))
        offset = self.offset[:1] if self.offset.strides == (0,) else self.offset
        values = self.term.value(offset)
        return float(abs(self.weights[0]) * np.abs(values).sum() * (self.count / offset.size)) if self.count else 0.0

    @cached_property
    def largest_gradient(self) -> Vector:
        """For each variable, how large the gradients of the rows may be: the scale of what cancels at an optimum."""
        steepest = self.term.subgradient_range if self.term.is_continuous else (np.inf, np.inf)
        ends = [np.where(np.isfinite(end), np.abs(end), 1.0) for end in steepest]
        weights = self.weights if self.term.rows is not None else self.distinct_weights
        with np.errstate(over="ignore", invalid="ignore"):  # entries of 1e200 have no squares
            steep = (weights * np.maximum(*ends)) ** 2
            squares = steep if steep.size == self.count else repeated(steep[0], (self.count,))
            return np.sqrt(self.count * self.linear.gram_diagonal(squares))

    @property
    def distinct_weights(self) -> Vector:
        """The weights, or where one number stands for all of them that one alone."""
        return self.weights[:1] if self.weights.strides == (0,) else self.weights

    @property
    def kinks(self) -> list[tuple[Any, Any]]:
        """The knots at which the derivative jumps, and by how much: only there can a row come to rest."""
        jumps = ((t, jump[1]) for t, jump in zip(self.term.knots, self.term.jumps, strict=True) if len(jump) > 1)
        return [(t, jump) for t, jump in jumps if np.any(jump)]


def _for_reading(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
    return values


def single_variables(whole: Map) -> tuple[NDArray[np.intp], Vector] | None:
    """Where every row of a map is of one variable: of which, and times what; else None."""
    count = whole.shape[0]
    scale: Any = 1.0
    start, linear = 0, whole
    while isinstance(linear, (Scaled, HStack)):
        if isinstance(linear, Scaled):
            scale, linear = scale * linear.scale, linear.inner
            continue
        live = linear.live()
        if len(live) != 1:
            break
        start, linear = start + live[0][0].start, live[0][1]
    if isinstance(linear, Selection):
        index = np.arange(count) if linear.index is None else linear.index
        return start + index, repeated(scale, (count,))
    if whole.storage != "sparse" or isinstance(whole, Difference):
        return None
    # The first row tells most problems apart without a copy of the data.
    if count and np.count_nonzero(whole.rows(np.arange(1)).dense()) > 1:
        return None
    explicit = sp.csr_array(whole.explicit(), copy=True)  # what follows changes it
    explicit.sum_duplicates()
    if np.any(np.diff(explicit.indptr) != 1):
        return None
    return explicit.indices, explicit.data


def _is_direct(linear: Map) -> bool:
    if isinstance(linear, Scaled):
        return _is_direct(linear.inner)
    if isinstance(linear, HStack):
        return all(part is None or _is_direct(part) for part, _ in linear.parts)
    return isinstance(linear, (Matrix, Sparse, Selection)) or linear.shape[1] == 1  # one column: an intercept


def _gathered(linear: Map, index: NDArray[np.intp]) -> Map:
    """Selected rows of a map as a matrix.

    A map may be an expression with a copy of the rows at every node, so that dense rows are made a few at a time, in
    the processor's cache: the matrix itself is all that is written to main memory. Sparse rows of few columns are dense
    from here on, as calls that keep them sparse would cost more than their entries; but for rows of single variables.
    """
    few = max(1, _GATHERED_ENTRIES // linear.shape[1])
    part = linear.rows(index[:few]).explicit()
    if sp.issparse(part):
        whole = part if index.size <= few else linear.rows(index).explicit()
        short = linear.shape[1] <= _NARROW_ROWS and whole.nnz > index.size
        return Matrix(whole.toarray()) if short else Sparse(sp.csr_array(whole))
    out = np.empty((index.size, linear.shape[1]))
    out[:few] = part
    for start in range(few, index.size, few):
        out[start : start + few] = linear.rows(index[start : start + few]).explicit()
    return Matrix(out)


@dataclass(frozen=True, eq=False)
class Composite:
    """A quadratic and rows. The quadratic is ``1/2 x'Mx + v'x + s`` and the rows of squares."""

    matrix: Any  # (p, p) dense or sparse, or None where it is zero
    vector: Vector
    scalar: float
    rows: tuple[Rows, ...]
    not_convex: str = ""  # the reason where it is not known to be convex, naming the block
    squares: tuple[Rows, ...] = ()  # rows of one quadratic piece, weights not negative
    indefinite: bool = False  # whether the quadratic may curve down
    groups: tuple[Groups, ...] = ()  # norms
    forms: tuple[QuadraticForm, ...] = ()  # of the quadratic, not multiplied out

    @cached_property
    def hessian(self) -> Any:
        """The matrix of the quadratic, multiplied out: (p, p) dense or sparse, or None where it is zero."""
        hessian = self.matrix
        for r in self.squares:
            hessian = add(hessian, r.hessian)
        for form in self.forms:
            hessian = add(hessian, form.multiplied[0])
        if sp.issparse(hessian) and self.size <= _DENSE_SIZE and any(r.linear.storage == "dense" for r in self.rows):
            return as_dense(hessian)  # the rows will make it dense sooner or later
        return hessian

    @property
    def is_multiplied(self) -> bool:
        """Whether the matrix of the quadratic has been multiplied out already."""
        return "hessian" in self.__dict__

    @cached_property
    def inverse_energy(self) -> InverseEnergy:
        """What a residual costs the dual value, for each residual."""
        return InverseEnergy(self.hessian)

    @cached_property
    def gradient_at_zero(self) -> Vector:
        """The gradient of the quadratic at zero."""
        parts = [r.gradient_at_zero for r in self.squares] + [form.multiplied[1] for form in self.forms]
        return parts[0] if len(parts) == 1 and not self.vector.any() else sum(parts, self.vector)

    @cached_property
    def constant(self) -> float:
        """The value of the quadratic at zero."""
        forms = sum(form.multiplied[2] for form in self.forms)
        return self.scalar + sum(r.total(r.offset) for r in self.squares) + forms

    def structure(self, recognise: Callable[[Composite], T]) -> T:
        """What a function recognises in the problem, looked for once.

        A special method keeps what it looks for beside itself, as a function of the problem: the form knows none of it.
        """
        if recognise not in self._structures:
            self._structures[recognise] = recognise(self)
        return cast("T", self._structures[recognise])

    @cached_property
    def _structures(self) -> dict[Callable[[Composite], Any], Any]:
        return {}

    @property
    def not_quadratic(self) -> str:
        """The reason where a part is no piecewise quadratic: a norm, or a term with pieces beyond degree 2."""
        if self.groups:
            return "it has group norms (norm2), which only 'group-newton' handles."
        worst = max(self.rows, key=lambda r: r.term.degree, default=None)
        if worst is None or worst.term.degree <= 2:
            return ""
        return f"{worst.term.name} has pieces of degree {worst.term.degree}; at most 2 is handled."

    @cached_property
    def unit(self) -> float:
        """Values below it count as this much where a gap is relative: a share of the sizes of all parts at zero.

        It is multiplied as the objective is, so that no unit is better than another. Where all parts are zero at zero
        there is none, and gaps are relative to the value alone.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [r.size_at_zero for r in (*self.rows, *self.squares)]
            parts += [float(np.abs(group.weights) @ group.norms(group.offset)) for group in self.groups]
            parts += [abs(form.multiplied[2]) for form in self.forms]
            size = float(abs(self.scalar) + sum(parts)) * _SMALLEST_SHARE
        return math.ldexp(1.0, math.frexp(size)[1] - 1) if _NO_UNIT < size < np.inf else _NO_UNIT

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
            self.size > _DENSE_SIZE
            and (self.matrix is None or sp.issparse(self.matrix))
            and all(r.linear.storage == "sparse" for r in parts)
            and not self.is_tall
        )

    @cached_property
    def is_tall(self) -> bool:
        """Whether sparse rows are so many, or so long, that a dense matrix of all variables costs little beside."""
        pairs = 0.0
        for r in (r for r in self.rows if r.count):
            sample = np.unique(np.linspace(0, r.count - 1, _SAMPLED_ROWS).astype(np.intp))
            lengths = np.diff(sp.csr_array(r.linear.rows(sample).explicit()).indptr)
            pairs += r.count * float(np.square(lengths, dtype=np.float64).mean())
        return pairs > _TALL_PAIRS * float(self.size) ** 3

    def quadratic(self, x: Vector) -> float:
        """The smooth part."""
        if self._as_squares:
            parts = [r.total(r.positions(x)) for r in self.squares]
            parts += [form.value_and_gradient(x)[0] for form in self.forms]
            return self._explicit.quadratic(x) + sum(parts)
        curved = 0.0 if self.hessian is None else 0.5 * float(x @ (self.hessian @ x))
        return self.constant + float(self.gradient_at_zero @ x) + curved

    def quadratic_gradient(self, x: Vector) -> Vector:
        """Gradient of the smooth part."""
        if self._as_squares:
            return self.quadratic_and_gradient(x)[1]
        return self.gradient_at_zero if self.hessian is None else np.asarray(self.gradient_at_zero + self.hessian @ x)

    def gradient_function(self) -> Callable[[Vector], Vector]:
        """`quadratic_gradient` for many calls, each of which writes over what the last returned."""
        if self._as_squares or not isinstance(self.hessian, np.ndarray):
            return lambda x: np.array(self.quadratic_gradient(x))
        matrix, start, out = self.hessian, self.gradient_at_zero, np.empty(self.size)
        return lambda x: np.add(matrix.dot(x, out), start, out)

    def quadratic_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """Value and gradient of the smooth part, which share their products; the gradient is not to be written to."""
        if self._as_squares:
            value, gradient = self._explicit.quadratic_and_gradient(x)
            for r in self.squares:
                z = r.positions(x)
                value, gradient = value + r.total(z), gradient + r.gradient(z)
            for form in self.forms:
                more, own = form.value_and_gradient(x)
                value, gradient = value + more, gradient + own
            return value, gradient
        line = self.constant + float(self.gradient_at_zero @ x)
        if self.hessian is None:
            return line, self.gradient_at_zero
        image = np.asarray(self.hessian @ x)
        return line + 0.5 * float(x @ image), self.gradient_at_zero + image

    @property
    def _as_squares(self) -> bool:
        """Whether squares are summed as such, which keeps their digits: until they are multiplied out, or if cheap."""
        cheap = not self.is_multiplied or all(r.single is not None for r in self.squares)
        return bool(self.forms) or (bool(self.squares) and cheap)

    @cached_property
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

        With `tilts` its derivative differs from that by so much, and the constant of the quadratic is of no use.
        """
        hessian, gradient, constant, rows = self.hessian, self.gradient_at_zero.copy(), self.constant, []
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
                curved = np.flatnonzero(weights * second)
                if curved.size:
                    hessian = add(hessian, r.linear.rows(curved).gram((weights * second)[curved]))
            gradient += r.linear.transpose_apply(weights * first)
            if np.any(kept):
                rows.append(r.take(np.flatnonzero(kept)))
        return Composite(hessian, gradient, constant, tuple(rows))

    def thin(self, counts: Sequence[int], rng: np.random.Generator) -> Composite:
        """A random part of the rows of each block, reweighted so that the sum keeps its expectation."""
        rows = []
        for r, count in zip(self.rows, counts, strict=True):
            if count < r.count:
                part = r.take(np.sort(rng.choice(r.count, count, replace=False)))
                r = Rows(part.linear, part.offset, part.term, part.weights * (r.count / count))
            rows.append(r)
        return Composite(self.hessian, self.gradient_at_zero, self.constant, tuple(rows))
