r"""The problem as the solvers see it: a convex quadratic and rows of convex piecewise linear-quadratic terms.

    f(x) = 1/2 x'Hx + g'x + c + sum_b sum_k w_bk rho_b(a_bk'x + d_bk)

One operation carries the whole method: `freeze` replaces rows by the polynomial of the piece they lie in, which is
exact as long as they do not leave it. Far rows are frozen while sigma falls; before the crossover, all but the kinks
nearby.

Rows of squares, as of least squares, are part of the quadratic but stay rows until its matrix is asked for: where there
are more variables than rows it never is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import InverseEnergy, add
from varopt.composite._groups import Groups
from varopt.composite._quadratic_form import QuadraticForm
from varopt.composite._rows import Rows

__all__ = ["Composite"]

Vector = NDArray[np.float64]
T = TypeVar("T")

_SMALLEST_SHARE = 2.0**-12  # of the value without coefficients: better fits than that count as this good
_NO_UNIT = 1e-280  # beside which all that is left of a value of zero is rounding
_DENSE = 300  # variables up to which a sparse problem is solved as a dense one


@dataclass(frozen=True)
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
        if sp.issparse(hessian) and self.size <= _DENSE and any(r.linear.storage == "dense" for r in self.rows):
            return hessian.toarray()  # the rows will make it dense sooner or later
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
            parts += [np.abs(group.weights) @ group.norms(group.offset) for group in self.groups]
            parts += [abs(form.multiplied[2]) for form in self.forms]
            size = float(abs(self.scalar) + sum(parts)) * _SMALLEST_SHARE
        return float(2.0 ** np.floor(np.log2(size))) if _NO_UNIT < size < np.inf else _NO_UNIT

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
