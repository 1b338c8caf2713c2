"""What is averaged: an objective or a black box, as a function of points drawn from a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._bound import Verdict
from varopt.bounds._gap import gap_bound
from varopt.bounds._layout import Component, Layout, components_of
from varopt.families import OwnFamily, as_family, name_of
from varopt.model import Objective, Variable, unflatten
from varopt.model.blocks import (
    AffineBlock,
    Block,
    ComposedBlock,
    NormBlock,
    PolynomialBlock,
    QuadraticBlock,
    TermBlock,
)
from varopt.terms import Curvature

__all__ = ["NotFinite", "Target", "black_box_target", "block_values", "objective_target"]

Vector = NDArray[np.float64]

_BLOCK_VALUES_AT_ONCE = 1 << 21  # numbers held at once while a block is evaluated at many points


class NotFinite(ValueError):
    """A function of the user returned NaN or an infinity; the message says where."""


@dataclass(frozen=True)
class Target:
    """A function of flat points and the family they come from.

    ``components`` lie in the order of the function's points; `reorder` brings the family's own order into it.
    """

    family: Any  # a Family, or an object of one's own
    components: tuple[Component, ...]
    values: Callable[[Vector], Vector]  # (n, size) to (n,)
    gradients: Callable[[Vector], Vector] | None  # (n, size) to (n, size), almost everywhere
    why_no_gradients: str
    layout: Layout | None = None  # None for a black box
    function: Callable[..., Any] | None = None  # the black box

    @property
    def given(self) -> Any:
        """The family as it was given."""
        return self.family.inner if isinstance(self.family, OwnFamily) else self.family

    @property
    def name(self) -> str:
        """How messages call the function."""
        if self.layout is not None:
            return str(self.layout.objective)
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.components[-1].part.stop)

    @property
    def estimator(self) -> str:
        """How gradients are had of points: by the score where there is one, else by the gradient of f."""
        if self.gradients is None or any(c.is_discrete or c.is_own for c in self.components):
            return "score"
        return "score" if all(c.family.has_score for c in self.components) else "reparameterized"

    def reorder(self, samples: Vector) -> Vector:
        """Points in the order of the function from points in the order of the family."""
        return samples if self.layout is None else self.layout.reorder(samples)

    def at_centre(self) -> float:
        """The function at the mean, or at the mode of bits."""
        centre = np.concatenate([c.centre for c in self.components])
        return float(self.values(centre[None, :])[0])

    def max_gap(self) -> float:
        """An a priori bound on the gap, where one is known."""
        if self.layout is None:
            raise ValueError(f"max_gap of the callable {self.name} is unknown: nothing bounds how far it may jump.")
        return gap_bound(self.layout).total

    def curved(self, wanted: Curvature) -> Verdict:
        """Theorem 1: a convex f under an expectation affine family has a convex bound, a concave f a concave one."""
        if self.layout is None:
            return Verdict(False, f"the curvature of the callable {self.name} is unknown")
        objective = self.layout.objective
        if all(isinstance(block, AffineBlock) for block in objective.blocks) and not any(
            c.is_own for c in self.components
        ):
            return Verdict(True, "f is affine, and so is its bound in the mean")
        if not self.family.expectation_affine:
            culprit: Any = next(c.family for c in self.components if not c.family.expectation_affine)
            return Verdict(False, f"{name_of(culprit)} is not expectation affine, which Theorem 1 asks for")
        known = objective.curvature
        if known.is_convex if wanted is Curvature.CONVEX else known.is_concave:
            return Verdict(True, f"Theorem 1: f is {wanted.description} and the family is expectation affine")
        if known.is_convex or known.is_concave:  # the other of the two
            other = Curvature.CONCAVE if wanted is Curvature.CONVEX else Curvature.CONVEX
            return Verdict(False, f"f is {other.description}, and so is its bound: see E.{other.description}")
        return Verdict(False, f"f is {known.description}: see f.explain()")


# -- Objectives -------------------------------------------------------------------------------------------------------


def objective_target(layout: Layout) -> Target:
    """An objective, with gradients where all of its blocks are continuous."""
    objective = layout.objective
    culprit = next((why for block in objective.blocks if (why := _why_no_gradient(block))), "")

    def values(points: Vector) -> Vector:
        return sum((block_values(b, objective.variables, points) for b in objective.blocks), np.zeros(len(points)))

    def gradients(points: Vector) -> Vector:
        total = np.zeros(points.shape)
        for block in objective.blocks:
            _add_gradients(total, objective, block, points)
        return total

    return Target(layout.family, layout.components, values, None if culprit else gradients, culprit, layout)


def _chunks(block: Any, count: int) -> list[slice]:
    """Slices of so many points that the temporaries of a block stay small."""
    if isinstance(block, PolynomialBlock):
        width = sum(k.size for k, _ in block.monomials.values())
    elif isinstance(block, ComposedBlock):
        width = _width(block.argument)
    else:
        width = block.argument.rows
    step = max(1, _BLOCK_VALUES_AT_ONCE // max(1, width))
    return [slice(start, start + step) for start in range(0, count, step)]


def _width(expression: Any) -> int:
    """Rows of the largest affine expression inside a nested one."""
    inner = [getattr(part, "argument", None) for part in getattr(expression, "parts", ())]
    return max([expression.shape[0] if expression.shape else 1, *(_width(e) for e in inner if e is not None)])


def block_values(block: Block, variables: tuple[Variable, ...], points: Vector) -> Vector:
    """A block at flat points (n, size), a chunk at a time."""
    total = np.empty(len(points))
    for part in _chunks(block, len(points)):
        total[part] = block.value(unflatten(variables, points[part]))
    return total


def _why_no_gradient(block: Block) -> str:
    if isinstance(block, TermBlock) and not block.term.is_continuous:
        return f"{block.describe()} jumps, and its derivative does not see a jump"
    if not isinstance(block, (TermBlock, AffineBlock, QuadraticBlock, NormBlock)):
        return f"{block.describe()} has no gradient in closed form"
    return ""


def _add_gradients(total: Vector, objective: Objective, block: Any, points: Vector) -> None:
    """Add the gradient of a continuous block at flat points (n, size), almost everywhere."""
    linear = block.argument.stacked(objective.variables)
    for part in _chunks(block, len(points)):
        z = np.asarray(block.argument.values(unflatten(objective.variables, points[part])))
        if isinstance(block, TermBlock):
            inner: Any = block.weights * block.term.derivative(z)
        elif isinstance(block, QuadraticBlock):
            inner = block.weights * (block.matrix.apply(z) + block.matrix.transpose_apply(z))
        elif isinstance(block, NormBlock):
            inner = _norm_gradients(block, z)
        else:
            inner = np.full(z.shape, float(block.weights))
        total[part] += linear.transpose_apply(np.asarray(inner))


def _norm_gradients(block: NormBlock, z: Vector) -> Vector:
    gradients = np.zeros(z.shape)
    norms = block.norms(z)
    scaled = np.broadcast_to(block.weights, norms.shape) / np.where(norms > 0, norms, 1.0)
    for k, group in enumerate(block.groups):
        gradients[..., group] += scaled[..., k, None] * z[..., group]
    return gradients


# -- Black boxes ------------------------------------------------------------------------------------------------------


def black_box_target(
    function: Callable[..., Any], family: Any, *, vectorized: bool = False, gradient: Callable[..., Any] | None = None
) -> Target:
    """A callable of one flat point, or of all points at once."""
    family = as_family(family)
    if not isinstance(vectorized, (bool, np.bool_)):
        raise ValueError(f"vectorized must be True or False; got {vectorized!r}.")
    if gradient is not None and not callable(gradient):
        raise ValueError(f"gradient must be a callable that returns the gradient of f; got {type(gradient).__name__}.")

    def evaluate(what: str, call: Callable[..., Any], points: Vector, shape: tuple[int, ...]) -> Vector:
        mine = points.copy()  # the function may write into its argument
        raw = call(mine) if vectorized else [call(x) for x in mine]
        try:
            values = np.asarray(raw)
        except ValueError:  # ragged
            values = np.asarray(raw, dtype=object)
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{what} must return real numbers; got {_summary(raw)}.")
        values = values.astype(np.float64, copy=False)
        if values.shape != shape:
            one = "one number" if len(shape) == 1 else f"{shape[1]} numbers"
            how = " With vectorized=True it gets an array of shape (points, coordinates)." if vectorized else ""
            raise ValueError(f"{what} must return {one} a point; for {len(points)} points got {values.shape}.{how}")
        finite = np.isfinite(values).reshape(len(points), -1).all(axis=1)
        if not finite.all():
            k = int(np.argmin(finite))
            where = np.array2string(points[k], threshold=8, precision=6)
            raise NotFinite(f"{what} must return finite numbers; got {values[k]} at {where}.")
        return values

    def values(points: Vector) -> Vector:
        return evaluate("f", function, points, (len(points),))

    gradients = None if gradient is None else lambda points: evaluate("gradient", gradient, points, points.shape)
    why = "that of a callable is unknown; give gradient="
    return Target(family, components_of(family), values, gradients, why, function=function)


def _summary(raw: Any) -> str:
    first = raw[0] if isinstance(raw, list) and raw else raw
    return f"{type(first).__name__} {str(first)[:40]}"
