"""The parts an objective is a sum of. Each is data: what it is applied to, its weights, its curvature and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._affine import Affine, Expression, Variable
from varopt.model._maps import Map, signed_sum, times
from varopt.model._points import flattened, slices
from varopt.terms import AFFINE, CONCAVE, CONVEX, UNKNOWN, Curvature, PiecewisePolynomial
from varopt.terms._curvature import from_facts

if TYPE_CHECKING:
    from varopt.model._objective import Elementwise
    from varopt.model._polynomial import Polynomial

__all__ = [
    "AffineBlock",
    "Block",
    "ComposedBlock",
    "Culprit",
    "NormBlock",
    "PolynomialBlock",
    "QuadraticBlock",
    "TermBlock",
]

Vector = NDArray[np.floating[Any]]
Points = Mapping[Variable, Vector]

_DENSE_SPECTRUM = 1500  # rows up to which all eigenvalues are computed


class Culprit(NamedTuple):
    """Where the proof of convexity stops: a sub-expression, what is wrong with it, and the rule that would need it."""

    what: str
    fact: str
    rule: str


class Block(ABC):
    """A scalar function of the variables."""

    weights: Any  # a float, or an array with one entry per row
    rule: str  # how curvature is judged with all weights one

    @property
    @abstractmethod
    def variables(self) -> tuple[Variable, ...]:
        """The variables that occur."""

    @abstractmethod
    def value(self, points: Points) -> Any:
        """The block at points of shape (..., size), summed over its rows."""

    @property
    @abstractmethod
    def shape_curvature(self) -> tuple[Curvature, str]:
        """Curvature with all weights one, and the reason."""

    @abstractmethod
    def describe(self) -> str:
        """The block in the user's terms, without its weight."""

    @abstractmethod
    def check(self) -> None:
        """Raise a `ValueError` if data are not finite."""

    def scaled(self, factor: float) -> Block:
        """The block times a number."""
        return replace(self, weights=factor * self.weights)  # type: ignore[type-var]

    def __str__(self) -> str:
        return weighted(self.weights, self.describe())

    @property
    def curvature(self) -> Curvature:
        """Curvature with the weights."""
        return self.curvature_and_reason[0]

    @cached_property
    def curvature_and_reason(self) -> tuple[Curvature, str]:
        """Curvature, and the innermost fact it rests on."""
        lowest, highest = np.min(self.weights), np.max(self.weights)
        if lowest == highest == 0.0:
            return AFFINE, "its weight is zero"
        curvature, reason = self.shape_curvature
        if curvature is AFFINE or lowest >= 0.0:
            return curvature, reason
        if curvature is UNKNOWN:
            return UNKNOWN, reason
        if highest <= 0.0:
            return -curvature, f"{reason}; a negative multiple turns it around"
        return UNKNOWN, f"{reason}; its weights have both signs"

    def culprit(self) -> Culprit:
        """The innermost sub-expression that keeps a block of unknown curvature from being convex, or concave."""
        _, reason = self.curvature_and_reason
        if self.shape_curvature[0] is UNKNOWN:
            return Culprit(self.describe(), reason, self.rule)
        return Culprit(str(self), reason, "a convex part stays convex under weights that are all nonnegative.")


def weighted(weights: Any, text: str) -> str:
    """An expression with its weights, written plainly."""
    return f"weights * {text}" if np.ndim(weights) else times(float(weights), text)


def _weighted_sum(weights: Any, values: Vector) -> Any:
    return weights * values.sum(axis=-1) if np.ndim(weights) == 0 else values @ weights


class _RowBlock(Block):
    """A block with one entry per row of its argument: a term, applied to something."""

    term: PiecewisePolynomial
    argument: Expression

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def _unweighted(self, points: Points) -> Vector:
        return np.asarray(self.term.value(self.argument.values(points)))

    def entries(self, points: Points) -> Vector:
        """Weighted values row by row."""
        return np.asarray(self.weights * self._unweighted(points))

    def value(self, points: Points) -> Any:
        return _weighted_sum(self.weights, self._unweighted(points))

    def check(self) -> None:
        self.argument.check()

    @property
    def lowest(self) -> Any:
        """A lower bound on the entries, by row or for all."""
        with np.errstate(invalid="ignore"):  # 0 * -inf, where the weight alone decides
            below = np.where(np.asarray(self.weights) > 0.0, self.weights * self.term.infimum, -np.inf)
        return np.where(np.asarray(self.weights) == 0.0, 0.0, below)

    def entry(self) -> str:
        """One row in the user's terms, without its weight."""
        parameters = [f"{v:g}" if np.ndim(v) == 0 else "..." for v in self.term.parameters.values()]
        return f"{self.term.name}({', '.join([str(self.argument), *parameters])})"

    def describe(self) -> str:
        return f"sum({self.entry()})" if self.argument.shape else self.entry()


@dataclass(frozen=True, eq=False)
class TermBlock(_RowBlock):
    """``sum_k weight_k rho_k(a_k' x + d_k)`` with a piecewise polynomial rho."""

    term: PiecewisePolynomial
    argument: Affine
    weights: Any = 1.0

    rule = "a convex function of an affine argument is convex."

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        curvature = self.term.curvature
        if curvature is UNKNOWN:
            return curvature, f"{self.term.name} is neither convex nor concave: {self.term.why_not_convex()}"
        return curvature, f"{self.term.name} is {curvature.description} and its argument affine"


@dataclass(frozen=True, eq=False)
class ComposedBlock(_RowBlock):
    """A term of what is not affine: it has a value, and a bound by quadrature or sampling, but no closed form."""

    term: PiecewisePolynomial
    argument: Elementwise | Polynomial
    weights: Any = 1.0

    rule = (
        "f(g(x)) is convex if f is convex and, on the range of g, nondecreasing with g convex or nonincreasing with g "
        "concave; it is concave if f is concave and nondecreasing with g concave or nonincreasing with g convex."
    )

    @property
    def inner(self) -> Elementwise | Polynomial:
        """The argument."""
        return self.argument

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        outer, inner, name = self.term.curvature, self.inner.curvature, self.term.name
        if outer is UNKNOWN:
            return UNKNOWN, f"{name} is neither convex nor concave: {self.term.why_not_convex()}"
        if inner is UNKNOWN:
            return UNKNOWN, f"{name} is applied to {self.inner}, of which neither convexity nor concavity is known"
        rising, falling = self._monotone()
        for curvature in (CONVEX, CONCAVE):
            if outer in (AFFINE, curvature):
                if rising and inner in (AFFINE, curvature):
                    how = f"nondecreasing on the range of its argument, which is {inner.description}"
                    return curvature, f"{name} is {outer.description} and {how}"
                if falling and inner in (AFFINE, -curvature):
                    how = f"nonincreasing on the range of its argument, which is {inner.description}"
                    return curvature, f"{name} is {outer.description} and {how}"
        how = "nondecreasing" if rising else "nonincreasing" if falling else "falls and rises"
        return UNKNOWN, f"{name} is {outer.description} and {how}, and its argument {self.inner} is {inner.description}"

    def _monotone(self) -> tuple[bool, bool]:
        """Whether the term is nondecreasing, and nonincreasing, on the range of its argument."""
        low, high = self.term.slopes
        rising, falling = bool(np.all(low >= 0.0)), bool(np.all(high <= 0.0))
        lowest = np.broadcast_to(self.inner.lowest, self.inner.rows)
        if self.term.curvature.is_convex and np.isfinite(lowest).all():
            # The slope of a convex term grows: it is nondecreasing on the range if it is at the range's lower end.
            rising = bool(np.all(self.term.derivative(lowest) >= 0.0))
        return rising, falling

    def culprit(self) -> Culprit:
        if self.inner.curvature is UNKNOWN:
            return self.inner.total().culprit()
        return super().culprit()


@dataclass(frozen=True, eq=False)
class AffineBlock(Block):
    """A scalar affine expression."""

    argument: Affine
    weights: float = 1.0

    rule = "an affine expression is convex and concave."

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def value(self, points: Points) -> Any:
        return self.weights * self.argument.values(points)[..., 0]

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        return AFFINE, "it is affine"

    def check(self) -> None:
        self.argument.check()

    def describe(self) -> str:
        return str(self.argument)


@dataclass(frozen=True, eq=False)
class QuadraticBlock(Block):
    """``z' A z`` of an affine z."""

    argument: Affine
    matrix: Map
    weights: float = 1.0

    rule = "z' A z is convex if A + A' has no negative eigenvalue, and concave if it has no positive one."

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def value(self, points: Points) -> Any:
        z = self.argument.values(points)
        return self.weights * (z * self.matrix.apply(z)).sum(axis=-1)

    @cached_property
    def spectrum(self) -> tuple[float, float]:
        """Smallest and largest eigenvalue of the symmetric part, with rounding set to zero.

        Of large matrices only these two are computed, to nine digits of the larger; where that fails, bounds on them.
        """
        if self.matrix.shape[0] <= _DENSE_SPECTRUM:
            dense = self.matrix.dense()
            values = np.linalg.eigvalsh(0.5 * (dense + dense.T.astype(np.float64)))
            low, high = float(values[0]), float(values[-1])
            rounding = 4 * dense.shape[0] * float(np.finfo(dense.dtype).eps)
        else:
            low, high = self._gershgorin()
            if low < 0.0 < high:
                low, high = self._extreme_eigenvalues((low, high))
            rounding = 1e-9
        if not (np.isfinite(low) and np.isfinite(high)):
            return low, high  # not known: neither end may be taken for rounding of zero
        rounding *= max(abs(low), abs(high))
        return (0.0 if abs(low) <= rounding else low), (0.0 if abs(high) <= rounding else high)

    def _gershgorin(self) -> tuple[float, float]:
        """An interval that holds the eigenvalues: diagonal entries plus or minus the rest of their row."""
        if self.matrix.storage == "operator":
            return -np.inf, np.inf
        explicit = self.matrix.explicit()
        symmetric = 0.5 * (explicit + explicit.T)
        diagonal = np.asarray(symmetric.diagonal(), dtype=np.float64)
        radius = np.asarray(abs(symmetric).sum(axis=1)).ravel() - np.abs(diagonal)
        return float(np.min(diagonal - radius)), float(np.max(diagonal + radius))

    def _extreme_eigenvalues(self, bounds: tuple[float, float]) -> tuple[float, float]:
        from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

        n = self.matrix.shape[0]
        start = np.random.default_rng(0).standard_normal(n)

        def extreme(sign: float, shift: float, which: str = "LA") -> float:
            """The largest eigenvalue (``LM``: in magnitude) of ``shift I + sign (A + A') / 2``."""
            operator = LinearOperator(
                (n, n),
                matvec=lambda x: shift * x + 0.5 * sign * (self.matrix.apply(x) + self.matrix.transpose_apply(x)),
                dtype=np.float64,
            )
            image = operator.matvec(start)
            if np.linalg.norm(image - image[0] / start[0] * start) <= 1e-12 * np.linalg.norm(start) * max(
                1.0, abs(shift)
            ):
                return float(image[0] / start[0])  # a multiple of the identity, which Lanczos cannot start on
            return float(
                eigsh(operator, k=1, which=which, v0=start, tol=1e-10, maxiter=300, return_eigenvectors=False)[0]
            )

        try:
            size = abs(extreme(1.0, 0.0, "LM"))
            # Shifted, so that the digits asked for are digits of the largest eigenvalue, not of one near zero: of a
            # matrix of low rank the smallest is a cluster at zero, of which no digit would ever settle.
            return size - extreme(-1.0, size), extreme(1.0, size) - size
        except ArpackError:
            return bounds

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        low, high = self.spectrum
        return from_facts(
            low >= 0.0, high <= 0.0
        ), f"the matrix of quad_form has eigenvalues from {low:.3g} to {high:.3g}"

    def check(self) -> None:
        self.argument.check()
        self.matrix.check("the matrix of quad_form")

    def describe(self) -> str:
        return f"quad_form({self.argument}, {self.matrix})"


@dataclass(frozen=True, eq=False)
class NormBlock(Block):
    """``sum_g weight_g ||z_g||_2`` over groups of entries of an affine z."""

    argument: Affine
    groups: tuple[NDArray[np.intp], ...]
    weights: Any = 1.0

    rule = "a norm of an affine argument is convex."

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def norms(self, z: Vector) -> Vector:
        """The norm of each group, scaled so that squares neither overflow nor vanish."""
        sizes = np.array([g.size for g in self.groups])
        starts = np.cumsum(sizes) - sizes
        entries = z[..., np.concatenate(self.groups)]
        largest = np.maximum.reduceat(np.abs(entries), starts, axis=-1)
        unit = entries / np.repeat(np.where(largest > 0, largest, 1.0), sizes, axis=-1)
        return np.asarray(largest * np.sqrt(np.add.reduceat(unit * unit, starts, axis=-1)))

    def value(self, points: Points) -> Any:
        return _weighted_sum(self.weights, self.norms(self.argument.values(points)))

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        return CONVEX, "a norm is convex and its argument affine"

    def check(self) -> None:
        self.argument.check()

    def describe(self) -> str:
        return f"norm2({self.argument}{'' if len(self.groups) == 1 else f', {len(self.groups)} groups'})"


@dataclass(frozen=True, eq=False)
class PolynomialBlock(Block):
    """A polynomial in bits and one-hot choices, with every monomial reduced to distinct coordinates.

    ``monomials[d]`` is ``(coordinates, coefficients)`` of shapes (M, d) and (M,), with coordinates in the flat order of
    `used`.
    """

    used: tuple[Variable, ...]
    monomials: Mapping[int, tuple[NDArray[np.intp], Vector]]
    constant: float = 0.0
    weights: float = 1.0

    rule = "an affine expression is convex; a product of variables is neither convex nor concave."

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.used

    @property
    def degree(self) -> int:
        """Largest number of factors of a monomial."""
        return max(self.monomials, default=0)

    def multilinear(self, flat: Vector) -> Any:
        """The multilinear extension at points of shape (..., size)."""
        total: Any = np.full(flat.shape[:-1], self.constant)
        for coordinates, coefficients in self.monomials.values():
            total = total + flat[..., coordinates].prod(axis=-1) @ coefficients
        return self.weights * total

    def multilinear_gradient(self, flat: Vector) -> Vector:
        """Its gradient at one point."""
        gradient = np.zeros(flat.size)
        for degree, (coordinates, coefficients) in self.monomials.items():
            factors = flat[coordinates]
            for j in range(degree):
                others = np.delete(factors, j, axis=1).prod(axis=1)
                gradient += np.bincount(coordinates[:, j], weights=coefficients * others, minlength=flat.size)
        return self.weights * gradient

    def multilinear_hessian(self, flat: Vector) -> Vector:
        """Its dense matrix of second derivatives at one point; the diagonal is zero."""
        half = np.zeros((flat.size, flat.size))
        for degree, (coordinates, coefficients) in self.monomials.items():
            factors = flat[coordinates]
            for i in range(degree):
                for j in range(i):
                    entries = coefficients * np.delete(factors, [i, j], axis=1).prod(axis=1)
                    half += sp.coo_array((entries, (coordinates[:, i], coordinates[:, j])), shape=half.shape)
        return self.weights * (half + half.T)

    def value(self, points: Points) -> Any:
        return self.multilinear(flattened(self.used, points))

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        if self.degree <= 1:
            return AFFINE, "it is affine"
        return UNKNOWN, f"a product of {self.degree} variables is neither convex nor concave"

    def check(self) -> None:
        """Data were checked when the polynomial was expanded."""

    def describe(self) -> str:
        return written(self.used, self.monomials, self.constant)


def written(used: tuple[Variable, ...], monomials: Mapping[int, tuple[Any, ...]], constant: float) -> str:
    """A scalar polynomial in the user's terms: in full where it is short."""
    count = sum(len(m[-1]) for m in monomials.values())
    if count > 4:
        return f"polynomial(degree {max(monomials)}, {count} monomials in {', '.join(map(str, used))})"
    where = slices(used)

    def name(k: int) -> str:
        variable = next(v for v, part in where.items() if part.start <= k < part.stop)
        if not variable.dimensions:
            return str(variable)
        entry = np.unravel_index(k - where[variable].start, variable.dimensions)
        return f"{variable}[{', '.join(str(int(i)) for i in entry)}]"

    parts = [
        times(float(c), " * ".join(map(name, row)))
        for coordinates, coefficients in monomials.values()
        for row, c in zip(coordinates, coefficients, strict=True)
    ]
    if constant != 0.0 or not parts:
        parts.append(f"{constant:g}")
    return signed_sum(parts)
