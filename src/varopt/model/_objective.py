"""Sums of blocks: elementwise expressions (vectors) and objectives (scalars)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._display import card, fold, plain, table
from varopt._domains import as_finite
from varopt.model import _generic as generic
from varopt.model._affine import Affine, Variable
from varopt.model._expression import (
    Expression,
    check_matrices,
    dimensions_of,
    is_number,
    ordered,
    slices,
    split,
    unflatten,
)
from varopt.model._parameter import Parametric
from varopt.model.blocks import (
    AffineBlock,
    Block,
    ComposedBlock,
    Culprit,
    Points,
    PolynomialBlock,
    TermBlock,
    combined,
    weighted,
)
from varopt.model.maps import as_vector, signed_sum
from varopt.terms import AFFINE, UNKNOWN, Curvature

__all__ = ["Elementwise", "Objective", "as_objective"]

Vector = NDArray[np.floating[Any]]


class Elementwise(Expression):
    """A vector (or scalar) of weighted terms, added entry by entry: what `hinge` and its like return."""

    def __init__(self, parts: Sequence[TermBlock | ComposedBlock], rest: Affine | None, shape: tuple[int, ...]) -> None:
        self.parts, self.rest, self.shape = tuple(parts), rest, shape

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Those of a matrix, where the terms are of one."""
        known = dimensions_of(self.parts[0].argument) if self.parts else self.shape
        return known if len(known) == 2 else self.shape

    @property
    def variables(self) -> tuple[Variable, ...]:
        used = [v for part in self.parts for v in part.variables]
        return ordered([*used, *(self.rest.variables if self.rest is not None else ())])

    def values(self, points: Points) -> Vector:
        total: Any = sum(part.entries(points) for part in self.parts)
        return np.asarray(total if self.rest is None else total + self.rest.values(points))

    def check(self) -> None:
        for part in self.parts:
            part.check()
        if self.rest is not None:
            self.rest.check()

    @property
    def lowest(self) -> Any:
        """A lower bound on the entries, by row or for all; minus infinity where none is known."""
        if self.rest is not None and self.rest.variables:
            return -np.inf
        return sum((part.lowest for part in self.parts), 0.0 if self.rest is None else self.rest.offset)

    def scale(self, factor: Any) -> Elementwise:
        factor = as_vector("the factor", self.flat("the factor", factor))
        if factor.ndim and factor.shape != self.shape:
            raise ValueError(
                f"the factor must be a number or have length {self.rows} to match {self}; got {factor.size}."
            )
        value: Any = float(factor) if factor.ndim == 0 else factor
        if isinstance(value, np.ndarray):
            value = value.astype(np.float64, copy=False)
        parts = [replace(part, weights=_product(value, part.weights)) for part in self.parts]
        return Elementwise(parts, None if self.rest is None else self.rest.scale(factor), self.shape)

    def add(self, other: Any) -> Any:
        if isinstance(other, Elementwise) and other.shape == self.shape:
            check_matrices(self, other)
            rest = other.rest if self.rest is None else self.rest if other.rest is None else self.rest.add(other.rest)
            return Elementwise([*self.parts, *other.parts], rest, self.shape)
        if isinstance(other, Expression) and not isinstance(other, Affine):
            if self.shape == ():
                return self.total().add(other)
            raise ValueError(f"{self} and {other} cannot be added entry by entry; sum each with vo.sum first.")
        if is_zero(other):
            return self
        rest = (self.rest if self.rest is not None else Affine({}, 0.0, self.shape, self.dimensions)).add(other)
        if rest.shape != self.shape:
            raise ValueError(f"{self} is a number, and cannot be added to a vector of length {rest.rows}.")
        return Elementwise(self.parts, rest, self.shape)

    def total(self) -> Objective:
        return Objective([*self.parts, *(() if self.rest is None else self.rest.total().blocks)])

    def __str__(self) -> str:
        parts = [weighted(part.weights, part.entry()) for part in self.parts]
        return signed_sum([*parts, *(() if self.rest is None else (str(self.rest),))])

    def __repr__(self) -> str:
        return f"<elementwise expression of shape {self.shape}: {self}>"


class Objective(Expression):
    """A scalar function of variables, the sum of blocks: what `sum`, `sum_squares` and operators make. Immutable.

    Call it at a point for its value: a flat array in the order of `variables`, one array per variable, or a mapping.

    Notes
    -----
    Building an objective neither copies nor changes the data: it holds references. Matrices of up to a million entries
    are checked for NaN and infinity at once, larger ones when the objective is first used, since the check costs as
    much as one product.
    """

    shape = ()

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._given = tuple(blocks)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The parts of the sum; polynomials in bits are added up to one."""
        polynomials = [block for block in self._given if isinstance(block, PolynomialBlock)]
        if len(polynomials) < 2:
            return self._given
        others = [block for block in self._given if not isinstance(block, PolynomialBlock)]
        return (*others, combined(polynomials))

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """The variables, in order of creation: the order of a flat point."""
        return ordered(v for block in self._given for v in block.variables)

    @property
    def size(self) -> int:
        """Length of a flat point."""
        return sum(v.size for v in self.variables)

    @cached_property
    def slices(self) -> dict[Variable, slice]:
        """Where each variable lies in a flat point."""
        return slices(self.variables)

    @property
    def checked(self) -> Objective:
        """The objective itself, after its data were found finite."""
        self.check()
        return self

    def check(self) -> None:
        _ = self._is_finite

    @cached_property
    def _is_finite(self) -> bool:
        """That the data are, else an error. Not the objective itself, whose data would then outlive it."""
        for block in self.blocks:
            block.check()
        return True

    def scale(self, factor: Any) -> Objective:
        value = as_vector("the factor", factor)
        if value.ndim:
            raise ValueError(f"the factor of an objective must be a number; got {value.size} entries.")
        return Objective([block.scaled(float(value)) for block in self._given])

    def add(self, other: Any) -> Objective:
        return self if is_zero(other) else Objective([*self._given, *as_objective(other)._given])

    def total(self) -> Objective:
        return self

    def values(self, points: Points) -> Any:
        """Values at points of shape (..., size) by variable."""
        return sum((block.value(points) for block in self.blocks), 0.0)

    def at(self, flat: Vector) -> Any:
        """Values at flat points of shape (..., size), without checks."""
        values = self.values(unflatten(self.variables, flat))
        shape = np.shape(flat)[:-1]
        return values if np.shape(values) == shape else np.full(shape, values)  # a constant does not see the points

    def __call__(self, *point: Any) -> float:
        """The value at a point: a flat array, one array per variable, or a mapping from variables to arrays."""
        points = split(self.variables, point)
        return float(self.checked.values(points))

    @cached_property
    def curvature(self) -> Curvature:
        """Convex, concave, affine or unknown, as far as the rules of composition tell."""
        return reduce(lambda a, b: a + b, [block.curvature for block in self.checked.blocks], AFFINE)

    @property
    def assumption(self) -> str:
        """What the curvature rests on where rounding hides it from proof; empty where it does not."""
        return "; ".join(dict.fromkeys(block.assumption for block in self.blocks if block.assumption))

    def culprit(self) -> Culprit:
        """The innermost sub-expression, with the fact and the rule, that leaves the curvature unknown."""
        for block in self.blocks:
            if block.curvature is UNKNOWN:
                return block.culprit()
        concave = next(block for block in self.blocks if not block.curvature.is_convex)
        convex = next(block for block in self.blocks if not block.curvature.is_concave)
        return Culprit(str(concave), f"it is concave beside {convex}, which is convex", _SUM)

    def explain(self) -> str:
        """Why the objective is, or is not known to be, convex: each part, the innermost culprit and the rule."""
        curvature = self.curvature
        parts = [(block, *block.curvature_and_reason) for block in self.blocks]
        lines = [f"  {shape.name.lower():<8} {block}: {reason}." for block, shape, reason in parts]
        if curvature is UNKNOWN:
            culprit = self.culprit()
            lines = [
                f"UNKNOWN: {curvature.description}.",
                *lines,
                f"Innermost culprit: {culprit.what}: {culprit.fact}.",
            ]
            return "\n".join([*lines, f"Rule: {culprit.rule}"])
        rule = (
            _SUM.replace("convex", curvature.description)
            if curvature is not AFFINE
            else "a sum of affine parts is affine."
        )
        headline = f"every part is {curvature.description}{'' if curvature is AFFINE else ' or affine'}"
        return "\n".join([f"{curvature.name}: {headline}.", *lines, f"Rule: {rule}"])

    def __str__(self) -> str:
        return signed_sum(map(str, self.blocks)) or "0"

    def __repr__(self) -> str:
        return f"<objective of {', '.join(map(repr, self.variables)) or 'no variables'}: {self}>"

    def _repr_html_(self) -> str:
        rows = [("variables", ", ".join(f"{v} ({v.kind}, {v.size})" for v in self.variables) or "none")]
        rows += [("curvature", self.curvature.description)]
        parts = [(str(part), *part.curvature_and_reason) for part in self.blocks]
        columns = {"part": [p for p, _, _ in parts], "curvature": [c.description for _, c, _ in parts]}
        return card(str(self), rows, fold("its parts", table(columns)), fold("why", plain(self.explain())))


@generic.total.register(Affine)
def _(expression: Affine) -> Objective:
    return Objective([AffineBlock(expression.summed())])


@generic.as_affine.register(Elementwise)
@generic.as_affine.register(Objective)
def _as_affine(expression: Elementwise | Objective) -> Affine | None:
    if expression.shape:
        return None
    blocks = expression.total().blocks
    parts = [block.argument.scale(block.weights) for block in blocks if isinstance(block, AffineBlock)]
    return None if len(parts) < len(blocks) else reduce(lambda a, b: a.add(b), parts, Affine({}, 0.0, ()))


_SUM = "a sum is convex if every part is, and a nonnegative multiple of a convex part is convex."


def _product(factor: Any, weights: Any) -> Any:
    """Weights times a factor; an array that is multiplied by one is not copied."""
    return factor if np.ndim(weights) == 0 and weights == 1.0 else factor * weights


def is_zero(value: Any) -> bool:
    """The number zero, where Python's own `sum` starts."""
    return is_number(value) and not isinstance(value, np.character) and bool(value == 0)


def as_objective(expression: Any) -> Objective:
    """A scalar expression or a number as an objective; parameters are taken at their present values."""
    if isinstance(expression, Parametric):
        return as_objective(expression.given())
    if is_number(expression):
        return Objective([AffineBlock(Affine({}, float(as_finite("the constant", expression)), ()))])
    if not isinstance(expression, Expression):
        raise ValueError(f"an objective must be a number built from variables; got {type(expression).__name__}.")
    if expression.shape != ():
        raise ValueError(
            f"an objective must be a number, and {expression} has {expression.shape[0]} entries: sum it with vo.sum."
        )
    return expression.total()
