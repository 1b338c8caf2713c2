"""Lassos of which some variables may not be negative, or not positive: a few sums are their proof, as without that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import DualGap, sided_lasso
from varopt.composite import Composite
from varopt.optimize._composite import conclude
from varopt.optimize._result import Result, Status
from varopt.optimize.constrained._penalty import Penalised
from varopt.solvers import State

__all__ = ["on_one_side"]

Vector = NDArray[np.float64]


def on_one_side(
    penalised: Penalised, weights: Sequence[Vector], problem: Composite, state: State, tol: float
) -> Result | None:
    """The result of a run that has come to the optimum of such a problem; None of others, and of open brackets.

    `weights` and `problem` are those of the run, with the constraints as rows.
    """
    if len(problem.squares) != 1 or (not problem.vector.any() and all(r.hard for r in problem.rows)):
        return None  # without a price of variables
    f, x, objective = penalised.f, state.x, penalised.objective(weights)
    single = [r.single[0] for r in penalised.rows if r.single is not None]
    if len(single) < len(penalised.rows) or f.variables != objective.variables:
        return None
    if not np.all(np.isfinite(x)) or penalised.violation(x) > 0.0 or not math.isfinite(value := float(f.at(x))):
        return None
    allowed = tol * max(state.unit, abs(value))
    proof = sided_lasso(f, problem, x, allowed)
    if proof is None or max(proof.upper, value) - min(proof.lower, value) > allowed:
        return None
    state, method = replace(state, falls=False, objective=objective), " > ".join(state.ran) or "none"
    claimed = conclude(objective, problem, state, tol, Status.OPTIMAL, method, proved=False, value=value)
    if not np.array_equal(claimed.x, x):  # faint numbers were taken for zeros, and it is not proved of that point
        return None
    return replace(
        claimed, certificate=DualGap(min(proof.lower, value), max(proof.upper, value)), violation=0.0,
        multipliers=penalised.by_constraint([proof.pull[index] for index in single]),
    )  # fmt: skip
