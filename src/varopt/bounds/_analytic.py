"""Bounds whose expectations are computed block by block: in closed form, by quadrature of rows, by enumeration."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._bound import Bound, Form, Gradient, assemble, check_form
from varopt.bounds._hessian import Congruence, Hessian, to_simplex
from varopt.bounds._layout import Component, Layout
from varopt.bounds._parts import part_of
from varopt.bounds._target import objective_target
from varopt.model import Variable

__all__ = ["AnalyticBound"]

Vector = NDArray[np.float64]


class AnalyticBound(Bound):
    """The sum of the expectations of an objective's blocks; `NoClosedForm` where one of them has none."""

    def __init__(self, layout: Layout, method: str, nodes: int) -> None:
        super().__init__(objective_target(layout), method)
        self._layout = layout
        self._parts = [part_of(layout, block, method, nodes) for block in layout.objective.blocks]

    @cached_property
    def value(self) -> float:
        return sum(part.value for part in self._parts)

    @cached_property
    def gap(self) -> float:
        if any(c.is_discrete for c in self._layout.components):
            return self.value - self._target.at_centre()
        return sum(part.gap for part in self._parts)  # each without cancellation

    @cached_property
    def gradient(self) -> Gradient:
        location = np.zeros(self._layout.objective.size)
        for part in self._parts:
            location += part.gradient
        for c in self._layout.components:
            location[c.part] = to_simplex(c, location[c.part])
        return assemble(self._layout.components, location, self._dispersion)

    def _dispersion(self, c: Component) -> Vector:
        return np.asarray(c.unit * sum(part.spread(c) for part in self._parts))

    @cached_property
    def _hessian(self) -> Hessian:
        def curvature(variables: tuple[Variable, ...]) -> list[Congruence]:
            concerned = [p for p in self._parts if any(v in variables for v in p.block.variables)]
            return [found for part in concerned if (found := part.curvature(variables)) is not None]

        return Hessian(self._layout.objective.size, self._layout.components, curvature)

    def hessian(self, form: Form = "dense") -> Any:
        check_form(form)
        return getattr(self._hessian, form)()
