r"""E of a composite: the one place where it is evaluated, for `varopt.bound` and for every descent.

    E(x) = q(x) + excess + sum_b sum_k w_bk <rho_b(z_bk)> + sum_g w_g <||z_g||>,        z ~ N(A x + d, s^2)

The noise says which s (`varopt.bounds._noise`). Value, gradient and Hessian in the mean follow row by row from the
expectations of the terms and two derivatives; what is asked for is computed once, what is not is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._linalg import add, as_dense
from varopt.bounds._bound import Bound, Form, Gradient, Verdict, check_form
from varopt.bounds._noise import BoundNoise, Expectations
from varopt.composite import Composite, Congruence, Groups, Rows
from varopt.terms import group_norm

__all__ = ["CompositeBound", "SmoothedGroups", "SmoothedRows", "quadratic_diagonal"]

Vector = NDArray[np.float64]

_NEGLIGIBLE_CURVATURE = 1e-10  # share of the largest curvature of a row below which a Newton step does not feel a row's
_MOST_COPIED_ROWS = 0.6  # share of the rows from which on a Gram matrix of all is cheaper than a copy of some


class SmoothedRows:
    """The average of one block of rows around their positions z, each row with a deviation of its own."""

    def __init__(self, block: int, rows: Rows, z: Vector, noise: BoundNoise, derivatives: bool = True) -> None:
        self.block, self.rows, self.z, self.noise, self.derivatives = block, rows, z, noise, derivatives

    @cached_property
    def deviation(self) -> Any:
        """The standard deviation of the rows: a number, or one for each."""
        return self.noise.of_rows(self.block, self.rows)

    @cached_property
    def expectations(self) -> Expectations:
        """Expectation and derivatives of every row."""
        return self.noise.expectations(self.block, self.rows, self.z, self.deviation)

    @cached_property
    def value(self) -> float:
        """The weighted sum of the expectations."""
        if self.derivatives or "expectations" in self.__dict__:  # what the next step needs comes with the value
            return float(self.rows.weights @ self.expectations.value)
        return float(self.rows.weights @ self.rows.term.expectation_of_few(self.z, self.deviation))

    @cached_property
    def added(self) -> float:
        """What the smoothing adds, as a difference: cheap, and accurate where it is not small."""
        return self.value - self.rows.total(self.z)

    @cached_property
    def gap(self) -> float:
        """What the smoothing adds, without cancellation."""
        gap = self.expectations.gap
        return float(self.rows.weights @ (self.rows.term.gap(self.z, self.deviation) if gap is None else gap))

    @property
    def dual(self) -> Vector:
        """The derivative of every smoothed term: it lies between the subgradients of the term."""
        return self.expectations.first

    @cached_property
    def gradient(self) -> Vector:
        """In x."""
        rows = self.rows
        return np.asarray(rows.linear.transpose_apply(rows.weights * self.expectations.first), dtype=np.float64)

    @cached_property
    def second(self) -> Vector:
        """The second derivative of every smoothed term, weighted."""
        return np.asarray(self.rows.weights * self.expectations.second, dtype=np.float64)

    @cached_property
    def curvature(self) -> Congruence:
        """The Hessian in x, as ``A' D A``."""
        return Congruence(self.rows.linear, self.second)

    def diagonal(self) -> Vector:
        """The diagonal of the Hessian in x."""
        return np.asarray(self.rows.linear.gram_diagonal(self.second), dtype=np.float64)

    def hessian(self) -> Any:
        """The Hessian in x but for rows of next to no curvature, dense or sparse; None where there are no others."""
        linear, weights = self.rows.linear, self.second
        if self.rows.single is not None:
            index, factor = self.rows.single
            diagonal = np.bincount(index, weights * factor**2, minlength=linear.shape[1])
            return sp.diags_array(diagonal) if diagonal.any() else None
        active = np.flatnonzero(weights > _NEGLIGIBLE_CURVATURE * weights.max(initial=0.0))
        if active.size > _MOST_COPIED_ROWS * weights.size:
            return linear.gram(weights)
        return linear.rows(active).gram(weights[active]) if active.size else None

    def near(self, reach: float) -> int:
        """Knots with a row within `reach` standard deviations, each counted as often as there are such rows."""
        close = reach * self.deviation
        return sum(int(np.count_nonzero(np.abs(self.z - t) < close)) for t in self.rows.term.knots)


class SmoothedGroups:
    """The average of one block of norms under an isotropic Gaussian in each group: a function of ||z_g|| alone."""

    def __init__(self, block: int, groups: Groups, z: Vector, noise: BoundNoise) -> None:
        self.groups, self.z, self.norms = groups, z, groups.norms(z)
        self.deviation = noise.of_groups(block, groups)

    @cached_property
    def _derivatives(self) -> tuple[Vector, Vector, Vector]:
        """Expectation, first and second derivative in ||z_g||."""
        return group_norm.derivatives(self.norms, self.deviation, self.groups.sizes)  # type: ignore[return-value]

    @cached_property
    def _tangential(self) -> Vector:
        """The first derivative over ||z_g||, which does not vanish with it."""
        return np.asarray(group_norm.radial(self.norms, self.deviation, self.groups.sizes), dtype=np.float64)

    @cached_property
    def value(self) -> float:
        """The weighted sum of the expectations."""
        return float(self.groups.weights @ self._derivatives[0])

    @cached_property
    def added(self) -> float:
        """What the smoothing adds, as a difference."""
        return self.value - float(self.groups.weights @ self.norms)

    @cached_property
    def gap(self) -> float:
        """What the smoothing adds, without cancellation."""
        return float(self.groups.weights @ group_norm.gap(self.norms, self.deviation, self.groups.sizes))

    @cached_property
    def dual(self) -> Vector:
        """The gradient in z, weighted: in the ball of radius w_g in each group."""
        groups = self.groups
        return np.asarray(groups.spread(groups.weights * self._tangential) * self.z, dtype=np.float64)

    @cached_property
    def gradient(self) -> Vector:
        """In x."""
        return np.asarray(self.groups.linear.transpose_apply(self.dual), dtype=np.float64)

    @cached_property
    def curvature(self) -> Congruence:
        """The Hessian in x: of a radial function it is ``(E'/r)(I - uu') + E'' uu'`` in z, u the direction of z."""
        groups, count = self.groups, self.z.size
        along = groups.weights * (self._derivatives[2] - self._tangential)
        labels = np.repeat(np.arange(groups.sizes.size), groups.sizes)
        unit = sp.csr_array((groups.directions(self.z), (labels, np.arange(count))), shape=(groups.sizes.size, count))
        tangential = sp.diags_array(groups.spread(groups.weights * self._tangential))
        return Congruence(groups.linear, sp.csr_array(tangential + unit.T @ (sp.diags_array(along) @ unit)))

    def diagonal(self) -> Vector:
        """The diagonal of the Hessian in x."""
        return self.curvature.diagonal

    def hessian(self) -> Any:
        """The Hessian in x, dense or sparse."""
        weights = self.groups.weights
        return self.groups.radial_hessian(
            self.groups.directions(self.z), weights * self._tangential, weights * self._derivatives[2]
        )


class CompositeBound(Bound):
    """The bound of a composite at one mean, under a noise.

    Parameters
    ----------
    problem : Composite
    mean : array
    noise : BoundNoise
    positions : sequence of arrays, optional
        ``A x + d`` of the rows at the mean, where they are known already.
    derivatives : bool
        Whether those of the rows will be asked for: they cost little more than the value, together with it.
    """

    method = "closed_form"

    def __init__(
        self, problem: Composite, mean: Vector, noise: BoundNoise, *, positions: Sequence[Vector] | None = None,
        derivatives: bool = True,
    ) -> None:  # fmt: skip
        self.problem, self.mean, self.noise = problem, mean, noise
        self._positions, self._derivatives = positions, derivatives

    @cached_property
    def rows(self) -> list[SmoothedRows]:
        """The rows, block by block."""
        positions = self._locate() if self._positions is None else self._positions
        return [
            SmoothedRows(b, r, z, self.noise, self._derivatives)
            for b, (r, z) in enumerate(zip(self.problem.rows, positions, strict=True))
        ]

    def _locate(self) -> list[Vector]:
        """``A x + d`` of the rows at the mean."""
        return self.problem.positions(self.mean)

    @cached_property
    def groups(self) -> list[SmoothedGroups]:
        """The norms, block by block."""
        groups = self.problem.groups
        return (
            [SmoothedGroups(b, g, g.positions(self.mean), self.noise) for b, g in enumerate(groups)] if groups else []
        )

    @cached_property
    def parts(self) -> list[SmoothedRows | SmoothedGroups]:
        """All that is smoothed."""
        return [*self.rows, *self.groups]

    @cached_property
    def _quadratic(self) -> tuple[float, Vector]:
        """Value and gradient of the quadratic at the mean, which share their products."""
        return self.problem.quadratic_and_gradient(self.mean)

    @cached_property
    def value(self) -> float:
        """E."""
        quadratic = self._quadratic[0] if self._derivatives else self.problem.quadratic(self.mean)
        return quadratic + self.noise.excess(self.problem) + sum(part.value for part in self.parts)

    @property
    def added(self) -> list[float]:
        """What the smoothing adds to each block, as differences."""
        return [part.added for part in self.parts]

    @cached_property
    def gap(self) -> float:
        """E minus f at the mean, without cancellation."""
        return self.noise.excess(self.problem) + sum(part.gap for part in self.parts)

    @cached_property
    def mean_gradient(self) -> Vector:
        """The gradient in the mean: what a descent follows."""
        known = "_quadratic" in self.__dict__
        total = self._quadratic[1] if known else self.problem.quadratic_gradient(self.mean)
        for part in self.parts:
            total = total + part.gradient
        return total if self.parts else np.array(total)

    @cached_property
    def gradient(self) -> Gradient:
        """The gradient in the mean."""
        return Gradient(self.mean_gradient, {"mean": self.mean_gradient})

    @property
    def dual(self) -> list[Vector]:
        """The derivatives of the smoothed terms, block by block: a dual point, for free."""
        return [part.dual for part in self.rows]

    @property
    def group_dual(self) -> list[Vector]:
        """The gradients of the smoothed norms, weighted, block by block."""
        return [part.dual for part in self.groups]

    def curvatures(self) -> list[Congruence]:
        """The parts of the Hessian beside the matrix of the quadratic that is multiplied out."""
        squares = [Congruence(r.linear, r.curvature) for r in self.problem.squares]
        return [*squares, *(form.curvature for form in self.problem.forms), *(part.curvature for part in self.parts)]

    def hessian(self, form: Form = "dense") -> Any:
        """Second derivatives of E in the mean: an array, its diagonal, or a `LinearOperator`."""
        if form == "diagonal":
            return self._diagonal()
        check_form(form)
        return self._dense() if form == "dense" else self._operator()

    def _dense(self) -> Vector:
        matrix = self.problem.matrix
        total = np.zeros((self.problem.size,) * 2) if matrix is None else np.array(as_dense(matrix), dtype=np.float64)
        for part in self.curvatures():
            total += as_dense(part.matrix())
        return total

    def _diagonal(self) -> Vector:
        start = self.problem.structure(quadratic_diagonal)
        return sum((part.diagonal() for part in self.parts), start) if self.parts else start.copy()

    def _operator(self) -> Any:
        from scipy.sparse.linalg import LinearOperator  # slow to load, and only needed here

        matrix, parts = self.problem.matrix, self.curvatures()

        def apply(direction: Vector) -> Vector:
            direction = np.asarray(direction, dtype=np.float64).reshape(self.problem.size)
            start = np.zeros(self.problem.size) if matrix is None else np.asarray(matrix @ direction)
            return sum((part.apply(direction) for part in parts), start)

        return LinearOperator((self.problem.size,) * 2, matvec=apply, rmatvec=apply, dtype=np.float64)

    def newton_matrix(self) -> Any:
        """The Hessian of convex terms but for what a Newton step does not feel: dense, sparse, or None for zero."""
        matrix = self.problem.hessian
        for part in self.parts:
            own = part.hessian()
            if own is not None:
                matrix = add(matrix, own)
        return matrix

    def near(self, reach: float) -> int:
        """Knots with a row within `reach` standard deviations, each counted as often as there are such rows."""
        return sum(part.near(reach) for part in self.rows)

    def along(self, step: Vector) -> Line:
        """The bound along a direction, with the products of the rows made once."""
        return Line(self, step)

    @cached_property
    def max_gap(self) -> float:
        """An upper bound on the gap over all means, for this noise."""
        rows = sum((_largest_gap(part) for part in self.rows), 0.0)
        norms = (part.groups.weights @ group_norm.worst_gap(part.deviation, part.groups.sizes) for part in self.groups)
        return abs(self.noise.excess(self.problem)) + rows + sum(map(float, norms))

    @cached_property
    def convex(self) -> Verdict:
        """Whether E is known to be convex in the mean, with the reason."""
        if self.problem.not_convex:
            return Verdict(False, self.problem.not_convex)
        return Verdict(True, "every row is an average of convex functions of an affine map of the mean")

    @cached_property
    def concave(self) -> Verdict:
        """Whether E is known to be concave in the mean: a composite is minimised, and only an affine one is both."""
        affine = not self.parts and self.problem.hessian is None
        return Verdict(
            affine, "it is affine" if affine else "a composite to be minimised is convex, or not known to be"
        )

    def __repr__(self) -> str:
        return f"<bound {self.value:.10g} of {self.problem.size} coordinates under {type(self.noise).__name__}>"


class Line:
    """A bound as a function of the length of a step."""

    def __init__(self, bound: CompositeBound, step: Vector) -> None:
        self.bound, self.step = bound, step
        self.moves = [r.linear.apply(step) for r in bound.problem.rows]

    def at(self, length: float, *, derivatives: bool = True) -> CompositeBound:
        """The bound at ``mean + length step``."""
        bound = self.bound
        positions = [part.z + length * move for part, move in zip(bound.rows, self.moves, strict=True)]
        return CompositeBound(
            bound.problem, bound.mean + length * self.step, bound.noise, positions=positions, derivatives=derivatives
        )


def _largest_gap(part: SmoothedRows) -> float:
    jumps, kinks, curved = part.rows.term.gap_coefficients()
    s = part.deviation
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite curvature of weight zero
        each = np.where(part.rows.weights != 0.0, jumps + kinks * s + curved * s**2, 0.0)
    return float(np.abs(part.rows.weights) @ each)


def quadratic_diagonal(problem: Composite) -> Vector:
    """The diagonal of the matrix of the quadratic, which is not formed for it."""
    if problem.is_multiplied and problem.hessian is not None:
        return np.array(problem.hessian.diagonal(), dtype=np.float64)
    total = np.zeros(problem.size) if problem.matrix is None else np.array(problem.matrix.diagonal(), dtype=np.float64)
    for r in problem.squares:
        total += np.asarray(r.linear.gram_diagonal(r.curvature), dtype=np.float64)
    for form in problem.forms:
        total += form.curvature.diagonal
    return total
