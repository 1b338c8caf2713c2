"""The point that misses constraints least, and the proof that some are missed wherever one looks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import Verifier, contradiction, rests, verified
from varopt.composite import Composite
from varopt.model import Objective, flattened, unflatten
from varopt.optimize.constrained._exactly import least_missing
from varopt.optimize.constrained._penalty import Penalised
from varopt.optimize.constrained._proofs import Contradiction, of_few_rows
from varopt.optimize.constrained._repair import repaired
from varopt.solvers import Auto, State, is_small

__all__ = ["contradicted"]

Vector = NDArray[np.float64]
Proof = tuple[list[Vector], float]  # multipliers, and what their combination is at least

_ROUNDED_SUBGRADIENT = 1e-9  # subgradients of a proof that are as small are rounding
_WEIGHT_ROOM = 2.0  # times its weight, what a row of a proof in verified arithmetic may pull


def contradicted(
    penalised: Penalised, run: State, tol: float, check: Callable[[State], None], *, within_rounding: bool = True
) -> tuple[Contradiction | None, Vector]:
    """A proof that no point satisfies all constraints, where there is one; and the point that misses them least.

    Looked for from that of the run. Where no optimum was found among those that satisfy them `within_rounding`, these
    are no points to go on from.
    """
    lengths = [np.maximum(1.0 / w, 0.0) for w in penalised.first_weights()]
    unit = max(float(np.max(w)) for w in lengths)
    weights = [unit / np.where(w > 0.0, w, unit) for w in lengths]
    missing, variables = Objective(penalised.penalties(weights)), penalised.objective(weights).variables

    def placed(x: Vector) -> Vector:
        """With what constraints do not see as it was."""
        point = unflatten(variables, run.x) | unflatten(missing.variables, x)
        return repaired(penalised, flattened(variables, point))

    def proof(multipliers: list[Vector]) -> Proof | None:
        return contradiction(penalised.rows, [c.is_equality for c in penalised.constraints], multipliers)

    problem, state = _solved(missing, flattened(missing.variables, unflatten(variables, run.x)), run, tol, check)
    nearest = placed(state.x)
    if within_rounding and penalised.holds(nearest):
        return None, nearest
    subgradients = Verifier(missing, state.x).subgradients(state.dual)
    multipliers = [w * u for w, u in zip(weights, subgradients, strict=True)]
    larger = [y * (np.abs(u) > _ROUNDED_SUBGRADIENT) for y, u in zip(multipliers, subgradients, strict=True)]
    exact = proof(larger) or proof(multipliers)  # small ones of heavy rows are no rounding
    if exact is None and is_small(problem):
        found = least_missing(missing, [w.size for w in weights], state.x)
        if found is not None:
            exact, nearest = proof(found[0]), placed(found[1])
            if exact is None and penalised.holds(nearest):
                return None, nearest
    if exact is None and (others := of_few_rows(penalised, weights)) is not None:
        exact = proof(others)
    if exact is None:
        roomy = Objective(penalised.penalties([_WEIGHT_ROOM * w for w in weights]))  # any weights prove it
        exact = multipliers, verified(roomy, state.x, [u / _WEIGHT_ROOM for u in subgradients]).lower
    return (Contradiction(penalised.by_constraint(exact[0]), exact[1]) if exact[1] > 0.0 else None), nearest


def _solved(
    missing: Objective, start: Vector, run: State, tol: float, check: Callable[[State], None]
) -> tuple[Composite, State]:
    """What is missing, at its least."""
    problem = Penalised(missing, ()).own
    state = State(np.where(np.isfinite(start), start, 0.0), started=run.started, ran=run.ran)
    state.unit = problem.unit
    if rests(problem, state.x):
        state.see(state.x, 0.0, 0.0)
    else:
        Auto().solve(problem, state, tol, check)
    return problem, state
