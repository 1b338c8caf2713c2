"""The parts an objective is a sum of. Each is data: what it is applied to, its weights, its curvature and why."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt import places
from varopt._verified import Definiteness, definiteness, is_double
from varopt.model._affine import Affine, Variable
from varopt.model._expression import Expression
from varopt.model.maps import Map, times
from varopt.places import DataPart, Stored, at, columns_in
from varopt.terms import AFFINE, CONCAVE, CONVEX, UNKNOWN, Curvature, PiecewisePolynomial

if TYPE_CHECKING:
    from varopt.model._objective import Elementwise
    from varopt.model._polynomial import Polynomial

__all__ = [
    "AffineBlock",
    "Block",
    "ComposedBlock",
    "Culprit",
    "NormBlock",
    "QuadraticBlock",
    "TermBlock",
    "written_term",
]

Vector = NDArray[np.floating[Any]]
Points = Mapping[Variable, Vector]

_NAMES = {CONVEX: "positive semidefinite", CONCAVE: "negative semidefinite", AFFINE: "zero"}
_STORED_ROWS = 1 << 15  # rows of stored data whose values are computed at once
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

    @property
    def stored(self) -> tuple[Stored, ...]:
        """What it refers to that is not in memory."""
        return getattr(getattr(self, "argument", None), "stored", ())

    def scaled(self, factor: float) -> Block:
        """The block times a number."""
        return replace(self, weights=factor * self.weights)  # type: ignore[type-var]

    def __str__(self) -> str:
        return weighted(self.weights, self.describe())

    @property
    def assumption(self) -> str:
        """What the curvature rests on where it is not proved; empty where it is."""
        return ""

    @property
    def curvature(self) -> Curvature:
        """Curvature with the weights."""
        return self.curvature_and_reason[0]

    @cached_property
    def curvature_and_reason(self) -> tuple[Curvature, str]:
        """Curvature, and the innermost fact it rests on."""
        # Weights that are not in memory are found not to be negative when they are read.
        lowest = highest = self.weights
        if isinstance(self.weights, Stored):
            lowest, highest = 0.0, 1.0
        elif np.ndim(self.weights):
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


def written_term(term: PiecewisePolynomial, argument: str) -> str:
    """A term of an argument; the name of a term of a term says itself where z goes."""
    if "(" in term.name:
        return re.sub(r"\bz\b", lambda _: argument, term.name)
    parameters = [f"{v:g}" if np.ndim(v) == 0 else "..." for v in term.parameters.values()]
    return f"{term.name}({', '.join([argument, *parameters])})"


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
        return written_term(self.term, str(self.argument))

    def describe(self) -> str:
        return f"sum({self.entry()})" if self.argument.shape else self.entry()


@dataclass(frozen=True, eq=False)
class TermBlock(_RowBlock):
    """``sum_k weight_k rho_k(a_k' x + d_k)`` with a piecewise polynomial rho."""

    term: PiecewisePolynomial
    argument: Affine
    weights: Any = 1.0

    rule = "a convex function of an affine argument is convex."

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        weights = (self.weights,) if isinstance(self.weights, Stored) else ()
        return (*self.argument.stored, *weights)

    def at(self, part: DataPart) -> TermBlock:
        """The rows that belong to a part of data that are not in memory."""
        return TermBlock(self.term.take(part.index), self.argument.at(part), at(self.weights, part))

    def value(self, points: Points) -> Any:
        if not self.stored:
            return super().value(points)
        columns = columns_in(self.stored)
        return sum(self.at(read()).value(points) for read in places.table_of(columns).parts(columns, _STORED_ROWS))

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
        low, high = self.term.subgradient_range
        rising, falling = bool(np.all(low >= 0.0)), bool(np.all(high <= 0.0))
        lowest = np.broadcast_to(self.inner.lowest, self.inner.rows)
        if self.term.curvature.is_convex and np.isfinite(lowest).all():
            # The derivative of a convex term grows: it is nondecreasing on the range if it is at the range's lower end.
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
            dense = self.matrix.dense().astype(np.float64, copy=False)
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

    @cached_property
    def definiteness(self) -> tuple[Definiteness, Definiteness]:
        """What is proved of ``z' A z`` and of ``-z' A z``."""
        if self.matrix.storage == "operator":
            low, high = self.spectrum  # to nine digits, and not with proof
            hidden = {True: Definiteness.UNKNOWN, False: Definiteness.INDEFINITE}
            return hidden[low >= 0.0], hidden[high <= 0.0]
        explicit, rounded = self.matrix.explicit(), not is_double(self.matrix.given)
        return self._decided(explicit, rounded), self._decided(-explicit, rounded)

    @staticmethod
    def _decided(matrix: Any, rounded: bool) -> Definiteness:
        decided = definiteness(matrix, rounded=rounded)
        if decided is not Definiteness.INDEFINITE or matrix.dtype.itemsize >= 8:
            return decided
        # Entries in single precision or less are rounded themselves: by so much, their signs say nothing.
        rounding = 4.0 * matrix.shape[0] * float(np.finfo(matrix.dtype).eps)
        wide = matrix.astype(np.float64)
        ridge = sp.diags_array(rounding * np.abs(wide.diagonal()))
        shifted = wide + (ridge if sp.issparse(wide) else ridge.toarray())
        return Definiteness.UNKNOWN if definiteness(shifted) is Definiteness.POSITIVE else decided

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        low, high = self.definiteness
        if Definiteness.POSITIVE in (low, high):
            curvature = Curvature.from_facts(low is Definiteness.POSITIVE, high is Definiteness.POSITIVE)
            return curvature, f"the matrix of quad_form is proved {_NAMES[curvature]}"
        hidden = Curvature.from_facts(low is Definiteness.UNKNOWN, high is Definiteness.UNKNOWN)
        if hidden is not UNKNOWN:
            return hidden, f"the matrix of quad_form is {_NAMES[hidden]} as far as rounding lets one see"
        least, most = self.spectrum
        if least < 0.0 < most:
            return UNKNOWN, f"the matrix of quad_form has eigenvalues from {least:.3g} to {most:.3g}"
        return UNKNOWN, "the matrix of quad_form has eigenvalues of both signs, small as some of them are"

    @property
    def assumption(self) -> str:
        """What the curvature rests on where rounding hides it, or has bent the form down by no more than that."""
        if Definiteness.POSITIVE in self.definiteness or self.curvature is UNKNOWN:
            return ""
        return f"the matrix of quad_form is {_NAMES[self.shape_curvature[0]]} but for rounding of its entries"

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
