"""Multipliers at an optimum: those that balance the gradient there, and whether they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from varopt._clock import TimeUp
from varopt.certificates import Verifier, balancing, young
from varopt.composite import Composite
from varopt.optimize.constrained._penalty import Penalised, reach
from varopt.optimize.constrained._repair import tidied
from varopt.solvers import State, is_small

__all__ = ["apart", "are_multipliers", "of_method"]

Vector = NDArray[np.float64]

_BALANCED_MULTIPLIERS = 1e-8  # share of the gradients of f that multipliers at an optimum may leave,
_ROUNDED_BALANCE = 1e-14  # and of what constraints add up, which may be any times as much


def of_method(
    penalised: Penalised, problem: Composite, weights: Sequence[Vector], state: State, dual: list[Vector] | None
) -> list[Vector]:
    """Those of the method, or what balances the gradient at the point best."""
    if dual is None and not problem.not_convex and np.all(np.isfinite(state.x)):
        try:
            found = balancing(problem, state.x) if is_small(problem) else None
            if found is not None and found.left > _BALANCED_MULTIPLIERS:
                # What rests at zero may be a last digit beside it, as of an optimum to many digits, rounded.
                found = min(found, balancing(problem, tidied(state.x)), key=lambda way: way.left)
            if found is not None and (found.left <= _BALANCED_MULTIPLIERS or not found.norm_rests):
                dual = found.dual
            else:  # norms that rest may need more than the cube inside of their ball
                dual = Verifier(penalised.objective(weights), state.x).subgradients(state.dual)
            dual = dual[len(dual) - len(weights) :]
        except (ValueError, TimeUp):  # pieces beyond degree two
            dual = None
    if dual is None:
        return [np.full(w.size, np.nan) for w in weights]
    return [w * u for w, u in zip(weights, dual, strict=True)]


def apart(penalised: Penalised, weights: Sequence[Vector], x: Vector) -> list[Vector] | None:
    """Multipliers at an optimum that was proved without those of the method; NaN where none balance.

    None where the problem is too large to look for them.
    """
    problem = penalised.problem(weights)
    if not is_small(problem):
        return None
    try:
        dual, left, *_ = balancing(problem, tidied(x))
    except TimeUp:
        return None
    known = 1.0 if left <= _BALANCED_MULTIPLIERS else np.nan
    return [known * w * u for w, u in zip(weights, dual[len(dual) - len(weights) :], strict=True)]


def are_multipliers(
    penalised: Penalised, multipliers: Sequence[Vector], x: Vector, dual: Sequence[Vector | None] | None, gap: float
) -> bool:
    """Whether the Lagrangian is least at x, but for a gap and rounding, as far as that can be told.

    What is left of its gradient is compared with gradients of f alone: multipliers that are far too large balance each
    other, and hide in their own size what they leave of f. First with subgradients of f that are given, then with the
    best that x has.
    """
    own = penalised.own
    slope, size, slack = np.zeros(own.size), np.zeros(own.size), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for r, c, y in zip(penalised.rows, penalised.constraints, multipliers, strict=True):
            if not np.all(np.isfinite(y)) or (not c.is_equality and np.any(y < 0.0)):
                return False
            slope += r.linear.transpose_apply(y)
            size += replace(r, weights=np.abs(y)).largest_gradient
            slack += float(np.abs(y) @ np.abs(r.positions(x)))
        if not (np.all(np.isfinite(slope)) and np.isfinite(slack)):
            return False
        lagrangian = replace(own, vector=own.vector + slope)
        allowed = gap + _BALANCED_MULTIPLIERS * reach(own, x) + _ROUNDED_BALANCE * float(size @ np.abs(x))
        given = list(dual or ())[: len(own.rows)]
        known = [u for u in given if u is not None]
        if not own.groups and len(known) == len(own.rows):
            left, sizes, missed = _left(lagrangian, x, known)
            if slack + missed <= allowed and _vanishes(penalised, left, sizes, size, allowed):
                return True
        if slack > allowed:
            return False
        return any(
            _vanishes(penalised, found.residual, found.size, size, allowed)
            for found in (balancing(lagrangian, x), balancing(lagrangian, tidied(x)))
        )


def _left(problem: Composite, x: Vector, dual: Sequence[Vector]) -> tuple[Vector, Vector, float]:
    """What subgradients leave of the gradient, the sizes of what is added up in it, and how far they are from x."""
    left = problem.quadratic_gradient(x).copy()
    size, missed = np.abs(left), 0.0
    for r, u in zip(problem.rows, dual, strict=True):
        left += r.linear.transpose_apply(r.weights * u)
        size += replace(r, weights=np.abs(r.weights * u)).largest_gradient
        live = r.weights > 0.0
        missed += float(r.weights[live] @ young(r, r.positions(x), u)[live])
    return left, size, missed


def _vanishes(penalised: Penalised, left: Vector, size: Vector, of_constraints: Vector, allowed: float) -> bool:
    """Whether what is left of a gradient is rounding, or made good by the curvature of f."""
    with np.errstate(over="ignore"):
        remains, size, of_constraints = (np.abs(v) * penalised.gradient_units for v in (left, size, of_constraints))
    within = _BALANCED_MULTIPLIERS * float(size.max(initial=0.0)) + _ROUNDED_BALANCE * float(
        of_constraints.max(initial=0.0)
    )
    if float(remains.max(initial=0.0)) <= within < np.inf:
        return True
    energy, flat = penalised.own.inverse_energy(left)
    return 0.5 * energy <= allowed and bool(np.all(remains[flat] <= within))
