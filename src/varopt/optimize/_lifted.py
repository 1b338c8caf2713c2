"""Objectives with parts that are minima over variables of their own: solved in all of them, told in the user's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from varopt.composite import NotComposite
from varopt.model import Constraint, Objective
from varopt.model.blocks import Block, LargestBlock
from varopt.model.points import flattened, ordered, slices, split, unflatten
from varopt.optimize._minimize import minimize
from varopt.optimize._result import Result

__all__ = ["minimize_lifted"]


def minimize_lifted(
    objective: Objective, constraints: tuple[Constraint, ...], *, x0: Any = None, **options: Any
) -> Result:
    """Minimise an objective with sums of largest entries, each with a threshold beside the user's variables."""
    parts: list[Block] = []
    thresholds = {}
    for block in objective.blocks:
        if not isinstance(block, LargestBlock):
            parts.append(block)
            continue
        if not block.curvature.is_convex:
            raise NotComposite(f"{block} is not convex: only minimising the largest entries is. See f.explain().")
        parts += block.lifted()
        thresholds[block.threshold] = block
    variables = ordered([*objective.variables, *(v for c in constraints for v in c.variables)])
    if x0 is not None:
        point = split(variables, (x0,))
        x0 = {**point, **{t: _threshold(block, point) for t, block in thresholds.items()}}
    result = minimize(Objective(parts), x0=x0, subject_to=constraints or None, **options)
    own = unflatten(tuple(result.slices), result.x)
    x = flattened(variables, own)
    value = float(objective.values({v: own[v] for v in objective.variables}))
    infinite = not np.isfinite(result.fun)
    certificate = result.certificate if infinite else replace(result.certificate, upper=max(result.upper, value))
    return replace(
        result, x=x, fun=result.fun if infinite else value, slices=slices(variables), certificate=certificate
    )


def _threshold(block: LargestBlock, point: Any) -> Any:
    z = block.argument.values(point)
    entries = np.sort(np.abs(z) if block.sizes else z)[::-1]
    return np.array([entries[min(int(block.count), entries.size - 1)]])
