"""Sums of blocks: elementwise expressions (vectors) and objectives (scalars)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt.model._affine import Affine, Expression, Variable, is_number
from varopt.model._blocks import AffineBlock, Block, ComposedBlock, Points, TermBlock
from varopt.model._points import slices, split, unflatten
from varopt.terms import AFFINE, Curvature

__all__ = ["Elementwise", "Objective", "as_objective"]

Vector = NDArray[np.floating[Any]]


def _ordered(variables: Sequence[Variable]) -> tuple[Variable, ...]:
    return tuple(sorted(set(variables), key=lambda v: v.position))


class Elementwise(Expression):
    """A vector (or scalar) of weighted terms, added entry by entry: what `hinge` and its like return."""

    def __init__(self, parts: Sequence[TermBlock | ComposedBlock], rest: Affine | None, shape: tuple[int, ...]) -> None:
        self.parts, self.rest, self.shape = tuple(parts), rest, shape

    @property
    def variables(self) -> tuple[Variable, ...]:
        used = [v for part in self.parts for v in part.variables]
        return _ordered([*used, *(self.rest.variables if self.rest is not None else ())])

    def values(self, points: Points) -> Vector:
        """Entry by entry at points of shape (..., size)."""
        total: Any = sum(part.entries(points) for part in self.parts)
        return np.asarray(total if self.rest is None else total + self.rest.values(points))

    def check(self) -> None:
        """Raise a `ValueError` if data are not finite."""
        for part in self.parts:
            part.check()
        if self.rest is not None:
            self.rest.check()

    def scale(self, factor: Any) -> Elementwise:
        factor = as_finite("the factor", factor)
        if factor.ndim and factor.shape != self.shape:
            raise ValueError(f"weights must have length {self.shape[0] if self.shape else 1}; got shape {factor.shape}.")
        value = float(factor) if factor.ndim == 0 else factor
        parts = [replace(part, weights=value * part.weights) for part in self.parts]
        return Elementwise(parts, None if self.rest is None else self.rest.scale(factor), self.shape)

    def add(self, other: Any) -> Any:
        if isinstance(other, (Elementwise, Affine)) and other.shape == self.shape:
            parts = (*self.parts, *(other.parts if isinstance(other, Elementwise) else ()))
            extra = other.rest if isinstance(other, Elementwise) else other
            rest = extra if self.rest is None else self.rest if extra is None else self.rest + extra
            return Elementwise(parts, rest, self.shape)
        if self.shape == ():
            return as_objective(self).add(other)
        if isinstance(other, Expression):
            raise ValueError(f"expressions must have one length to be added; got {self.shape} and {other.shape}.")
        constant = as_finite("the constant", other)
        base = self.rest if self.rest is not None else Affine({}, 0.0, self.shape)
        return Elementwise(self.parts, base + constant, self.shape)

    def __rmatmul__(self, other: Any) -> Objective:
        weights = as_finite("the vector before @", other)
        if weights.shape != self.shape:
            raise ValueError(f"the vector before @ must have length {self.shape[0]}; got shape {weights.shape}.")
        return self.scale(weights).total()

    __matmul__ = __rmatmul__

    def total(self) -> Objective:
        """The sum of the entries."""
        rest: list[Block] = []
        if self.rest is not None:
            ones = np.broadcast_to(np.ones(1), self.shape)
            rest = [AffineBlock(ones @ self.rest if self.shape else self.rest)]
        return Objective([*self.parts, *rest])

    def __str__(self) -> str:
        text = " + ".join(str(part).replace("sum(", "(", 1) if self.shape else str(part) for part in self.parts)
        return text if self.rest is None else f"{text} + {self.rest}"

    def __repr__(self) -> str:
        return f"<elementwise expression of shape {self.shape}: {self}>"


class Objective(Expression):
    """A scalar function of variables: the sum of blocks. Immutable; made by `sum`, `sum_squares`, `norm1` and operators.

    Call it at a point for its value: a flat array in the order of `variables`, one array per variable, or a mapping.

    Notes
    -----
    Building an objective neither copies nor changes the data: it holds references. Matrices of up to a million entries are checked for NaN
    and infinity at once, larger ones when the objective is first used, since the check costs as much as one product.
    """

    shape = ()

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = tuple(blocks)

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """The variables, in order of creation: the order of a flat point."""
        return _ordered([v for block in self.blocks for v in block.variables])

    @property
    def size(self) -> int:
        """Length of a flat point."""
        return sum(v.size for v in self.variables)

    @cached_property
    def slices(self) -> dict[Variable, slice]:
        """Where each variable lies in a flat point."""
        return slices(self.variables)

    @cached_property
    def checked(self) -> Objective:
        """The objective itself, after its data were found finite."""
        for block in self.blocks:
            block.check()
        return self

    def scale(self, factor: Any) -> Objective:
        if not is_number(factor):
            raise ValueError("an objective is a number: it can be multiplied by a number only.")
        value = float(as_finite("the factor", factor))
        return Objective([block.scaled(value) for block in self.blocks])

    def add(self, other: Any) -> Objective:
        if not isinstance(other, Expression) and is_number(other) and float(other) == 0.0:
            return self  # so that Python's sum() works
        return Objective([*self.blocks, *as_objective(other).blocks])

    def values(self, points: Points) -> Any:
        """Values at points of shape (..., size) by variable."""
        return sum((block.value(points) for block in self.blocks), 0.0)

    def at(self, flat: Vector) -> Any:
        """Values at flat points of shape (..., size), without checks."""
        return self.values(unflatten(self.variables, flat))

    def __call__(self, *point: Any) -> float:
        return float(self.checked.values(split(self.variables, point)))

    def check(self) -> None:
        """Raise a `ValueError` if data are not finite."""
        _ = self.checked

    @cached_property
    def curvature(self) -> Curvature:
        """Convex, concave, affine or unknown, as far as the rules of composition tell."""
        return reduce(lambda a, b: a + b, [block.curvature for block in self.checked.blocks], AFFINE)

    def explain(self) -> str:
        """Why the objective is, or is not known to be, convex: each part, the innermost culprit and the rule."""
        lines = [f"{self.curvature.name}: {self.curvature.description}."]
        culprits = []
        for block in self.blocks:
            curvature, reason = block.curvature_and_reason
            lines.append(f"  {curvature.name.lower():<8} {block}: {reason}.")
            if not (curvature.is_convex if self.curvature is not Curvature.CONCAVE else curvature.is_concave):
                culprits.append((block, curvature, reason))
        if self.curvature is Curvature.UNKNOWN:
            block, curvature, reason = next((c for c in culprits if c[1] is Curvature.UNKNOWN), culprits[0])
            what = reason if curvature is Curvature.UNKNOWN else f"it is {curvature.description} beside convex parts"
            lines.append(f"Innermost culprit: {block.describe()}: {what}.")
        lines.append("Rule: a sum is convex if every part is, and a positive multiple of a convex part is convex.")
        return "\n".join(lines)

    def __str__(self) -> str:
        return " + ".join(map(str, self.blocks)).replace("+ -", "- ") or "0"

    def __repr__(self) -> str:
        return f"<objective of {', '.join(map(repr, self.variables))}: {self}>"


def as_objective(expression: Any) -> Objective:
    """A scalar expression or a number as an objective."""
    from varopt.model._polynomial import Polynomial

    if isinstance(expression, Objective):
        return expression
    if is_number(expression):
        return Objective([AffineBlock(Affine({}, float(as_finite("the constant", expression)), ()))])
    if not isinstance(expression, Expression):
        raise ValueError(f"an objective must be built from variables; got {type(expression).__name__}.")
    if expression.shape != ():
        raise ValueError(f"an objective must be a number, and this expression has {expression.shape[0]} entries: sum it with vo.sum.")
    if isinstance(expression, Affine):
        return Objective([AffineBlock(expression)])
    if isinstance(expression, Polynomial):
        return Objective([expression.block()])
    return expression.total()  # type: ignore[attr-defined,no-any-return]
