"""Polynomials of bits and one-hot choices, as a part of an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.model._affine import Variable
from varopt.model._expression import flattened, ordered, slices
from varopt.model._monomials import Sizes, merged
from varopt.model.blocks._blocks import Block, Points
from varopt.model.maps import signed_sum, times
from varopt.terms import AFFINE, UNKNOWN, Curvature

__all__ = ["PolynomialBlock", "block_sizes", "combined", "written"]

Vector = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class PolynomialBlock(Block):
    """A polynomial in bits and one-hot choices, with every monomial reduced to distinct coordinates.

    ``monomials[d]`` is ``(coordinates, coefficients)`` of shapes (M, d) and (M,), with coordinates in the flat order of
    `used`. It is not below `lowest`, before the weight, as far as the way it was built tells; `sized` tells what its
    coefficients were added up from.
    """

    used: tuple[Variable, ...]
    monomials: Mapping[int, tuple[NDArray[np.intp], Vector]]
    constant: float = 0.0
    weights: float = 1.0
    lowest: float = -np.inf
    sized: Callable[[], Sizes] | None = None

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


def combined(blocks: Sequence[PolynomialBlock]) -> PolynomialBlock:
    """The sum of polynomial blocks as one."""
    used = ordered(v for block in blocks for v in block.used)
    where, parts = slices(used), []
    for block in blocks:
        place = np.concatenate([np.empty(0, np.intp), *(np.arange(where[v].start, where[v].stop) for v in block.used)])
        for degree, (coordinates, coefficients) in block.monomials.items():
            values = np.asarray(block.weights * coefficients, dtype=np.float64)
            parts.append((degree, (np.zeros(values.size, np.intp), place[coordinates], values)))
    monomials = {degree: (coordinates, values) for degree, (_, coordinates, values) in merged(parts).items()}
    lowest = sum(block.weights * block.lowest if block.weights > 0.0 else -np.inf for block in blocks)
    constant = sum(block.weights * block.constant for block in blocks)
    return PolynomialBlock(used, monomials, constant, 1.0, lowest, partial(_combined_sizes, tuple(blocks)))


def block_sizes(block: PolynomialBlock) -> Sizes:
    """What the coefficients of a block, its weight included, were added up from."""
    if block.sized is not None:
        return block.sized().scaled(block.weights)
    parts: list[Any] = [(np.zeros(len(values), np.intp), at, values) for at, values in block.monomials.values()]
    parts.append((np.zeros(1, np.intp), np.empty((1, 0), np.intp), np.array([block.constant])))
    return Sizes.of_coefficients(parts, 1).scaled(block.weights)


def _combined_sizes(blocks: tuple[PolynomialBlock, ...]) -> Sizes:
    first, *others = map(block_sizes, blocks)
    return first.plus(*others)


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
