"""The parts an objective is a sum of. Each is data: what it is applied to, its weights, and its curvature with the reason."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._affine import Affine, Expression, Variable
from varopt.model._maps import Map, Operator
from varopt.terms import AFFINE, UNKNOWN, Curvature, PiecewisePolynomial
from varopt.terms._curvature import from_facts

__all__ = ["AffineBlock", "Block", "ComposedBlock", "NormBlock", "PolynomialBlock", "QuadraticBlock", "TermBlock"]

Vector = NDArray[np.floating[Any]]
Points = Mapping[Variable, Vector]


class Block(ABC):
    """A scalar function of the variables."""

    weights: Any  # a float, or an array with one entry per row

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

    def check(self) -> None:
        """Raise a `ValueError` if data are not finite."""

    def scaled(self, factor: float) -> Block:
        """The block times a number."""
        return replace(self, weights=factor * self.weights)  # type: ignore[type-var]

    def __str__(self) -> str:
        if np.ndim(self.weights):
            return f"weights * {self.describe()}"
        return self.describe() if self.weights == 1.0 else f"{float(self.weights):g} * {self.describe()}"

    @cached_property
    def curvature(self) -> Curvature:
        """Curvature with the weights."""
        return self.curvature_and_reason[0]

    @cached_property
    def curvature_and_reason(self) -> tuple[Curvature, str]:
        """Curvature, and the innermost fact it rests on."""
        curvature, reason = self.shape_curvature
        if np.all(np.asarray(self.weights) == 0.0):
            return AFFINE, "its weight is zero"
        if curvature is AFFINE or np.all(np.asarray(self.weights) >= 0.0):
            return curvature, reason
        if np.all(np.asarray(self.weights) <= 0.0):
            return -curvature, f"{reason}; a negative multiple turns convex into concave"
        return UNKNOWN, f"its weights have both signs, and {self.describe()} is not affine"


def _weighted_sum(weights: Any, values: Vector) -> Any:
    return weights * values.sum(axis=-1) if np.ndim(weights) == 0 else values @ weights


@dataclass(frozen=True, eq=False)
class TermBlock(Block):
    """``sum_k weight_k rho_k(a_k' x + d_k)`` with a piecewise polynomial rho."""

    term: PiecewisePolynomial
    argument: Affine
    weights: Any = 1.0

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def entries(self, points: Points) -> Vector:
        """Weighted values row by row."""
        return np.asarray(self.weights * self.term.value(self.argument.values(points)))

    def value(self, points: Points) -> Any:
        values = self.argument.values(points)
        return _weighted_sum(self.weights, self.term.value(values))

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        curvature = self.term.curvature
        if curvature is UNKNOWN:
            return curvature, f"{self.term.name} is neither convex nor concave: {self.term.why_not_convex()}"
        return curvature, f"{self.term.name} is {curvature.description}, and so is it of an affine argument"

    def check(self) -> None:
        self.argument.check()

    def describe(self) -> str:
        inside = f"{self.term.name}({self.argument}"
        for value in self.term.parameters.values():
            inside += f", {value:g}" if np.ndim(value) == 0 else ", ..."
        return f"sum({inside}))" if self.argument.shape else f"{inside})"


@dataclass(frozen=True, eq=False)
class AffineBlock(Block):
    """A scalar affine expression."""

    argument: Affine
    weights: float = 1.0

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
        return f"({self.argument})"


@dataclass(frozen=True, eq=False)
class QuadraticBlock(Block):
    """``z' A z`` of an affine z."""

    argument: Affine
    matrix: Map
    weights: float = 1.0

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def value(self, points: Points) -> Any:
        z = self.argument.values(points)
        return self.weights * (z * self.matrix.apply(z)).sum(axis=-1)

    @cached_property
    def spectrum(self) -> tuple[float, float]:
        """Smallest and largest eigenvalue of the symmetric part, with rounding set to zero."""
        n = self.matrix.shape[0]
        if n <= 1500 and not isinstance(self.matrix, Operator):
            dense = self.matrix.dense().astype(np.float64)
            values = np.linalg.eigvalsh(0.5 * (dense + dense.T))
            low, high = float(values[0]), float(values[-1])
        else:
            from scipy.sparse.linalg import LinearOperator, eigsh

            symmetric = LinearOperator(
                (n, n), matvec=lambda x: 0.5 * (self.matrix.apply(x) + self.matrix.transpose_apply(x)), dtype=np.float64
            )
            ends = [eigsh(symmetric, k=1, which=w, return_eigenvectors=False, tol=1e-10)[0] for w in ("SA", "LA")]
            low, high = float(ends[0]), float(ends[1])
        rounding = 4 * n * np.finfo(np.float64).eps * max(abs(low), abs(high))
        return (0.0 if abs(low) <= rounding else low), (0.0 if abs(high) <= rounding else high)

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        low, high = self.spectrum
        curvature = from_facts(low >= 0.0, high <= 0.0)
        return curvature, f"the matrix of quad_form has eigenvalues from {low:.3g} to {high:.3g}"

    def check(self) -> None:
        self.argument.check()
        self.matrix.check("the matrix of quad_form")

    def describe(self) -> str:
        return f"quad_form({self.argument}, {str(self.matrix).removesuffix(' @ ')})"


@dataclass(frozen=True, eq=False)
class NormBlock(Block):
    """``sum_g weight_g ||z_g||_2`` over groups of entries of an affine z."""

    argument: Affine
    groups: tuple[NDArray[np.intp], ...]
    weights: Any = 1.0

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.argument.variables

    def norms(self, z: Vector) -> Vector:
        """The norm of each group, scaled so that squares neither overflow nor vanish."""
        norms = []
        for group in self.groups:
            part = z[..., group]
            size = np.abs(part).max(axis=-1, keepdims=True)
            unit = part / np.where(size > 0, size, 1.0)
            norms.append(size[..., 0] * np.sqrt((unit * unit).sum(axis=-1)))
        return np.stack(norms, axis=-1)

    def value(self, points: Points) -> Any:
        return _weighted_sum(self.weights, self.norms(self.argument.values(points)))

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        return Curvature.CONVEX, "a norm is convex, and so is it of an affine argument"

    def check(self) -> None:
        self.argument.check()

    def describe(self) -> str:
        return f"norm2({self.argument}{'' if len(self.groups) == 1 else f', {len(self.groups)} groups'})"


@dataclass(frozen=True, eq=False)
class PolynomialBlock(Block):
    """A polynomial in bits and one-hot choices, with every monomial reduced to distinct coordinates.

    ``monomials[d]`` is ``(coordinates, coefficients)`` of shapes (M, d) and (M,), coordinates in the flat order of `variables`.
    """

    used: tuple[Variable, ...]
    monomials: Mapping[int, tuple[NDArray[np.intp], Vector]]
    constant: float = 0.0
    weights: float = 1.0

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.used

    @property
    def degree(self) -> int:
        """Largest number of factors of a monomial."""
        return max(self.monomials, default=0)

    def multilinear(self, flat: Vector) -> Any:
        """The multilinear extension at points of shape (..., size)."""
        total: Any = self.constant
        for coordinates, coefficients in self.monomials.values():
            total = total + flat[..., coordinates].prod(axis=-1) @ coefficients
        return self.weights * total

    def multilinear_gradient(self, flat: Vector) -> Vector:
        """Its gradient at one point."""
        gradient = np.zeros(flat.shape[-1])
        for degree, (coordinates, coefficients) in self.monomials.items():
            factors = flat[coordinates]
            for j in range(degree):
                others = np.delete(factors, j, axis=1).prod(axis=1)
                np.add.at(gradient, coordinates[:, j], coefficients * others)
        return self.weights * gradient

    def multilinear_hessian(self, flat: Vector) -> Vector:
        """Its dense matrix of second derivatives at one point; the diagonal is zero."""
        hessian = np.zeros((flat.size, flat.size))
        for degree, (coordinates, coefficients) in self.monomials.items():
            factors = flat[coordinates]
            for i in range(degree):
                for j in range(degree):
                    if i != j:
                        others = np.delete(factors, [i, j], axis=1).prod(axis=1)
                        np.add.at(hessian, (coordinates[:, i], coordinates[:, j]), coefficients * others)
        return self.weights * hessian

    def value(self, points: Points) -> Any:
        return self.multilinear(np.concatenate([points[v] for v in self.used], axis=-1))

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        if self.degree <= 1:
            return AFFINE, "it is affine"
        return UNKNOWN, f"a product of {self.degree} variables is neither convex nor concave"

    def describe(self) -> str:
        count = sum(len(c) for _, c in self.monomials.values())
        return f"polynomial of degree {self.degree} with {count} monomials in {', '.join(map(str, self.used))}"


@dataclass(frozen=True, eq=False)
class ComposedBlock(Block):
    """A term of something that is not affine: it has a value, and a bound by quadrature or sampling, but no closed form."""

    term: PiecewisePolynomial
    inner: Expression  # Elementwise, Polynomial or Objective
    weights: Any = 1.0

    @property
    def argument(self) -> Expression:
        return self.inner

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.inner.variables

    def entries(self, points: Points) -> Vector:
        """Weighted values row by row."""
        return np.asarray(self.weights * self.term.value(self.inner.values(points)))  # type: ignore[attr-defined]

    def value(self, points: Points) -> Any:
        return self.entries(points).sum(axis=-1)

    @property
    def shape_curvature(self) -> tuple[Curvature, str]:
        low, high = self.term.slopes if self.term.is_continuous else (-math.inf, math.inf)
        inner = self.inner.curvature if not self.inner.shape else self.inner.total().curvature  # type: ignore[attr-defined]
        if self.term.curvature.is_convex and inner.is_convex and np.all(np.asarray(low) >= 0):
            return Curvature.CONVEX, f"{self.term.name} is convex and nondecreasing, of a convex argument"
        if self.term.curvature.is_convex and inner.is_concave and np.all(np.asarray(high) <= 0):
            return Curvature.CONVEX, f"{self.term.name} is convex and nonincreasing, of a concave argument"
        return UNKNOWN, f"{self.term.name} is applied to {self.inner}, which is not affine"

    def check(self) -> None:
        self.inner.check()  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"{self.term.name}({self.inner})"


def is_sparse(matrix: Any) -> bool:
    """Whether a matrix is of scipy.sparse."""
    return bool(sp.issparse(matrix))
