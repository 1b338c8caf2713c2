"""What is averaged: an objective or a black box, as a function of points drawn from a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._analytic import gap_bound
from varopt.bounds._layout import Component, Layout
from varopt.families import Family, Product
from varopt.model import Objective
from varopt.model._blocks import AffineBlock, Block, NormBlock, QuadraticBlock, TermBlock
from varopt.model._points import unflatten

__all__ = ["Target", "black_box_target", "objective_target"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A function of flat points and the family they come from.

    ``components`` lie in the order of the function's points; `reorder` brings the family's own order into it.
    """

    family: Family
    components: tuple[Component, ...]
    values: Callable[[Vector], Vector]  # (n, size) to (n,)
    slopes: Callable[[Vector], Vector] | None  # (n, size) to (n, size), almost everywhere
    why_no_slopes: str
    layout: Layout | None  # None for a black box

    def reorder(self, samples: Vector) -> Vector:
        """Points in the order of the function from points in the order of the family."""
        return samples if self.layout is None else self.layout.reorder(samples)

    def max_gap(self) -> float:
        """An a priori bound on the gap, where one is known."""
        if self.layout is None:
            raise ValueError("max_gap of a black box is unknown: nothing bounds how far it may jump.")
        return float(sum(gap_bound(self.layout)))


def objective_target(layout: Layout) -> Target:
    """An objective, with slopes where all of its blocks are continuous."""
    objective = layout.objective
    culprit = next((why for block in objective.blocks if (why := _no_slope(block))), "")
    return Target(
        layout.family, layout.components, objective.at, None if culprit else lambda x: _slopes(objective, x), culprit, layout
    )


def black_box_target(
    function: Callable[..., Any], family: Family, *, vectorized: bool = False, gradient: Callable[..., Any] | None = None
) -> Target:
    """A callable of one flat point, or of all points at once."""
    if not isinstance(family, Family):
        raise ValueError(f"family must be a varopt family such as vo.Gaussian(mean, sigma); got {type(family).__name__}.")
    if gradient is not None and not callable(gradient):
        raise ValueError("gradient must be a callable that returns the gradient of f.")

    def evaluate(points: Vector) -> Vector:
        raw = function(points) if vectorized else [function(x) for x in points]
        values = np.asarray(raw, dtype=np.float64)
        if values.shape != (points.shape[0],):
            raise ValueError(
                f"f must return one number a point; for {points.shape[0]} points it gave shape {values.shape}."
                + ("" if not vectorized else " With vectorized=True it gets an array of shape (points, coordinates).")
            )
        if np.isnan(values).any():
            where = points[int(np.flatnonzero(np.isnan(values))[0])]
            raise ValueError(f"f must return numbers; it gave NaN for {np.isnan(values).sum()} points, the first {where}.")
        return values

    def slopes(points: Vector) -> Vector:
        assert gradient is not None
        raw = np.asarray(gradient(points) if vectorized else [gradient(x) for x in points], dtype=np.float64)
        if raw.shape != points.shape:
            raise ValueError(f"gradient must return {points.shape[1]} numbers a point; got shape {raw.shape}.")
        return raw

    if isinstance(family, Product):
        components = tuple(Component(k, member, (), family.slices[k]) for k, member in family.families.items())
    else:
        components = (Component(None, family, (), slice(0, family.size)),)
    why = "a black box has no known gradient: give gradient="
    return Target(family, components, evaluate, None if gradient is None else slopes, why, None)


def _no_slope(block: Block) -> str:
    if isinstance(block, TermBlock) and not block.term.is_continuous:
        return f"{block.describe()} jumps, and the slope does not see a jump"
    if not isinstance(block, (TermBlock, AffineBlock, QuadraticBlock, NormBlock)):
        return f"{block.describe()} has no slope in closed form"
    return ""


def _slopes(objective: Objective, flat: Vector) -> Vector:
    """Gradient of a continuous objective at points (n, size), almost everywhere."""
    points = unflatten(objective.variables, flat)
    total = np.zeros(flat.shape)
    for block in objective.blocks:
        linear = block.argument.stacked(objective.variables)  # type: ignore[attr-defined]
        z = np.asarray(block.argument.values(points))  # type: ignore[attr-defined]
        if isinstance(block, TermBlock):
            inner: Any = block.weights * block.term.derivative(z)
        elif isinstance(block, QuadraticBlock):
            inner = block.weights * (block.matrix.apply(z) + block.matrix.transpose_apply(z))
        elif isinstance(block, NormBlock):
            inner = np.zeros(z.shape)
            norms = block.norms(z)
            weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), norms.shape)
            for k, group in enumerate(block.groups):
                size = np.where(norms[..., k] > 0, norms[..., k], 1.0)
                inner[..., group] += (weights[..., k] / size)[..., None] * z[..., group]
        else:
            inner = np.full(z.shape, float(block.weights))
        total += linear.transpose_apply(np.asarray(inner))
    return total
