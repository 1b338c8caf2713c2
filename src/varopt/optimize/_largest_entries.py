"""Objectives with parts that are minima over variables of their own: solved in all of them, told in the user's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from varopt.composite import NotComposite
from varopt.model import Constraint, Objective, flattened, ordered, slices, split, unflatten
from varopt.model.blocks import Block, LargestBlock
from varopt.optimize._result import Result

__all__ = ["LargestEntries"]


class LargestEntries:
    """A reduction: sums of largest entries as minima over a threshold each, beside the user's variables."""

    def __init__(self, objective: Objective, constraints: tuple[Constraint, ...]) -> None:
        self.told_of = objective
        self.variables = ordered([*objective.variables, *(v for c in constraints for v in c.variables)])
        self.thresholds: dict[Any, LargestBlock] = {}
        parts: list[Block] = []
        for block in objective.blocks:
            if not isinstance(block, LargestBlock):
                parts.append(block)
                continue
            if not block.curvature.is_convex:
                raise NotComposite(f"{block} is not convex: only minimising the largest entries is. See f.explain().")
            parts += block.lifted()
            self.thresholds[block.threshold] = block
        self.objective = Objective(parts)

    def start(self, x0: Any) -> Any:
        """The user's start, with the best thresholds for it."""
        if x0 is None:
            return None
        point = split(self.variables, (x0,))
        return {**point, **{t: _threshold(block, point) for t, block in self.thresholds.items()}}

    def told(self, result: Result) -> Result:
        """The result in the user's variables, with the value of the user's objective."""
        own = unflatten(tuple(result.slices), result.x)
        x = flattened(self.variables, own)
        value = float(self.told_of.values({v: own[v] for v in self.told_of.variables}))
        infinite = not np.isfinite(result.fun)
        certificate = result.certificate if infinite else replace(result.certificate, upper=max(result.upper, value))
        return replace(
            result, x=x, fun=result.fun if infinite else value, slices=slices(self.variables), certificate=certificate
        )


def _threshold(block: LargestBlock, point: Any) -> Any:
    z = block.argument.values(point)
    entries = np.sort(np.abs(z) if block.sizes else z)[::-1]
    return np.array([entries[min(int(block.count), entries.size - 1)]])
