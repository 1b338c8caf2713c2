"""What is known when a run has ended: the bracket that is proved, or the one that is claimed, and the status."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._clock import budget
from varopt.certificates import (
    NEARBY,
    ROUNDING,
    Certificate,
    DualGap,
    NoCertificate,
    Verifier,
    curves_down,
    falls_along,
    falls_for_ever,
    floor,
)
from varopt.composite import Composite
from varopt.model import Objective
from varopt.optimize._result import Result, Status
from varopt.solvers import State, exact_minimum, goes_on, is_small

__all__ = ["conclude"]

Vector = NDArray[np.float64]

_MUCH_WIDER = 2.0  # times the gap that is claimed under an assumption, up to which the one that is proved is reported
_MORE_ENTRIES = 400_000  # of all rows, up to which a direction is looked for where a run has ended without a bound
_STEEP = 1e5  # ratio of gradients beyond which steep terms may hide what others do far away
_SHARE = 2.0**-12  # of the sizes of parts that counts as their unit, here as at zero
_SHARE_INSIDE = 2.0**-20  # of the sizes of what cancels in a part: room for its rounding, and for little more
_EXACT = 2.0  # seconds at most for the exact optimum of few variables, where nothing else has closed the gap
_EXACT_ASSUMED = 0.3, 12  # and where it is closed under an assumption: seconds, and variables
_LAST_DIGITS = 2.0**-51  # relative difference of values that rounding alone may make: then zeros are zeros
_ROUNDED = 1e-10  # relative error of a value beyond which its bound is told in place of it
_DOUBTFUL = 1e-3  # relative gap without an assumption beyond which one that closes it is not believed


def conclude(
    objective: Objective, problem: Composite, state: State, tol: float, status: Status | None, method: str, *,
    proved: bool = True, value: float | None = None,
) -> Result:  # fmt: skip
    """The result of a run; without `proved` the bracket is what the method claims. `value`: at x, where it is known."""
    x = state.x
    if not math.isfinite(state.upper) and state.latest is not None and np.all(np.isfinite(state.latest)):
        x = state.latest
    # As the user's own objective gives it, not as the reduced problem does.
    value = float(objective.at(x)) if value is None else value
    tidy = np.where(np.abs(x) <= 1e-11 * np.abs(x).max(initial=0.0), 0.0, x)  # zeros that are zeros but for rounding
    if not np.array_equal(x, tidy) and (tidied := float(objective.at(tidy))) <= value + _LAST_DIGITS * abs(value):
        x, value = tidy, tidied
    x = x + 0.0  # no zero is negative
    bracket = _bracket(objective, problem, state, x, value, tol) if proved else _claimed(problem, state, value)
    hidden = objective.assumption
    if hidden and not problem.not_convex and Verifier(objective, x).is_convex:
        hidden = ""  # of the sum it is known
    is_open = proved and (hidden or bracket.assumption or not bracket.within(tol))
    if is_open and not state.falls and goes_on(state.ran) and is_small(problem):
        seconds, most = _EXACT_ASSUMED if bracket.within(tol) else (_EXACT, problem.size)
        exact = _exact(objective, x, value, bracket, seconds) if problem.size <= most else None
        if exact is not None:
            (x, value, bracket), hidden = exact, ""  # which only what is convex for certain has
    lower, upper, assumption, proof, state.unit = bracket
    if status is Status.TIME_LIMIT and bracket.within(tol):
        status = None  # there was time enough
    if status is None:
        status = _status(objective, problem, state, bracket, tol, hidden)
        lower = -math.inf if status is Status.UNBOUNDED else lower
    assumption = "; ".join(part for part in (hidden, assumption) if part)
    certificate = proof(lower, upper, assumption) if math.isfinite(lower) else NoCertificate(lower, upper)
    names = ("time", "steps", "sigma", "upper", "lower", "bound")
    history = {name: np.array([row[name] for row in state.history]) for name in names}
    return Result(
        x, value, certificate, status, method, state.sigma, state.steps, state.elapsed, history, objective.slices,
        state.evaluations, state,
    )  # fmt: skip


class _Bracket(NamedTuple):
    """Bounds of the optimum, what they assume, and how they came about."""

    lower: float
    upper: float
    assumption: str
    proof: type[Certificate]
    unit: float = 1.0

    def within(self, tol: float) -> bool:
        """Whether the bracket is within the relative tolerance."""
        return math.isfinite(self.lower) and self.upper - self.lower <= tol * max(self.unit, abs(self.upper))


def _bracket(objective: Objective, problem: Composite, state: State, x: Vector, value: float, tol: float) -> _Bracket:
    """What is proved where that is enough, or all there is; else what the method claims, with its assumption."""
    claimed = _claimed(problem, state, value)
    if problem.not_convex or not math.isfinite(value):
        return claimed
    verifier = Verifier(objective, x, squares=problem.squares)
    # Where the method has closed its own gap, it is worth while to try more than one way to prove that.
    gap = 0.5 * tol * max(state.unit, abs(value)) if claimed.within(tol) else math.inf
    proved = _proved(verifier, state, value, state.dual, gap)
    if proved.within(tol):
        return proved
    if claimed._replace(lower=floor(problem)).within(tol):
        # Parts that are at their least values prove it without any subgradient.
        at_rest = [np.zeros(r.count) for r in problem.rows]
        at_rest += [np.zeros(int(g.sizes[g.weights > 0.0].sum())) for g in problem.groups if np.any(g.weights > 0.0)]
        proved = max(proved, _proved(verifier, state, value, at_rest, gap), key=lambda b: b.lower)
    # Of parts that cancel at x no digit may be left: then their own size is what the rounding is measured by.
    unit = max(state.unit, _unit_at(problem, x))
    proved, claimed = proved._replace(unit=unit), claimed._replace(unit=unit)
    if proved.within(tol) or (
        not claimed.within(tol) and proved.upper - proved.lower <= _MUCH_WIDER * (claimed.upper - claimed.lower)
    ):
        return proved
    if claimed.assumption and math.isfinite(proved.lower) and not proved.within(_DOUBTFUL) and _is_steep(problem):
        return proved  # steep terms may hide a far optimum: the assumption is not believed
    if claimed.lower > sum(verifier.value):
        return proved  # since the value at x refutes what is claimed
    upper = max(claimed.upper, proved.upper) if math.isfinite(proved.upper) else claimed.upper
    if claimed.assumption == NEARBY and claimed.within(tol) and math.isfinite(proved.upper):
        lower, near = verifier.near(state.dual, value - 0.5 * tol * max(unit, abs(value)))
        if (known := claimed._replace(lower=min(lower, value), upper=upper, assumption=near)).within(tol):
            return known
    # The bound is the rounded value less a gap: what rounding may have added to the one is in the other.
    lower = claimed.lower - error if math.isfinite(error := verifier.value[1]) else claimed.lower
    return claimed._replace(lower=lower, upper=upper, assumption=claimed.assumption or ROUNDING)


def _exact(
    objective: Objective, x: Vector, value: float, bracket: _Bracket, seconds: float
) -> tuple[Vector, float, _Bracket] | None:
    """The exact optimum of few variables, rounded, and its value as a lower bound; None where it is not known."""
    with budget(seconds):
        found = exact_minimum(objective, x)
    if found is None or not math.isfinite(found.lower):
        return None
    point, lower, upper = found
    if not bracket.assumption:
        lower = max(lower, bracket.lower)
    if not upper < bracket.upper:  # rounded, it may lie higher on steep terms than another point
        point, upper = x, bracket.upper
    best = value if point is x else float(objective.at(point))
    if abs(best - upper) > _ROUNDED * abs(upper) and not lower <= best <= upper:
        best = upper  # where parts cancel, floating point may give a value that no point has
    return point, best, _Bracket(min(lower, best), max(upper, best), "", DualGap, bracket.unit)


def _unit_at(problem: Composite, x: Vector) -> float:
    """A share of the sizes of the parts at x, and of what cancels in each, as in ``1 - z`` where that is zero."""
    parts, inside = float(np.abs(problem.gradient_at_zero) @ np.abs(x)), 0.0
    for r, z in zip(problem.rows, problem.positions(x), strict=True):
        low, high = r.term.subdifferential(z)
        products = np.maximum(np.abs(low), np.abs(high)) * np.abs(z)
        parts += abs(r.total(z))
        inside += float(np.abs(r.weights) @ np.where(np.isfinite(products), products, 0.0))
    return max(_SHARE * parts, _SHARE_INSIDE * inside)


def _is_steep(problem: Composite) -> bool:
    """Whether the gradients of some parts are many orders above those of others."""
    sizes = np.concatenate([np.abs(problem.gradient_at_zero), *(r.largest_gradient for r in problem.rows)])
    sizes = sizes[sizes > 0.0]
    return bool(sizes.size and sizes.max() > _STEEP * sizes.min())


def _claimed(problem: Composite, state: State, value: float) -> _Bracket:
    """The bracket of the method, or of parts at their least values, but for rounding."""
    # Within rounding a lower bound may come out above the value; farther above, the assumption behind it is refuted.
    refuted = state.lower > value + 1e-9 * max(state.unit, abs(value))
    lower = -math.inf if refuted else min(state.lower, value)
    claimed = _Bracket(lower, value, state.assumption, state.proof, state.unit)
    least = floor(problem)
    return _Bracket(min(least, value), value, "", DualGap, state.unit) if least > claimed.lower else claimed


def _proved(
    verifier: Verifier, state: State, value: float, dual: Sequence[Vector | None] | None, gap: float
) -> _Bracket:
    """The bracket with all rounding charged; the value as the objective gives it is inside."""
    lower, upper, _ = verifier.bracket(dual, gap)
    return _Bracket(min(lower, value), max(upper, value), "", DualGap, state.unit)


def _status(
    objective: Objective, problem: Composite, state: State, bracket: _Bracket, tol: float, hidden: str
) -> Status:
    """How a run that was not stopped has ended."""
    if state.falls:
        return Status.UNBOUNDED
    if bracket.within(tol):
        convex = not problem.not_convex
        assumed = hidden or (bracket.assumption and (convex or problem.indefinite))
        return Status.ASSUMED if assumed else Status.OPTIMAL
    if problem.not_convex:
        return Status.LOCAL
    # A lower bound that assumes nothing settles it.
    bounded = math.isfinite(bracket.lower) and not bracket.assumption
    return Status.UNBOUNDED if not bounded and _falls(objective, state.x) else Status.GAP_OPEN


def _falls(objective: Objective, x: Vector) -> bool:
    """Whether it falls for ever, far along x or where a quadratic form that was taken for convex curves down."""
    return (
        falls_along(objective, x)
        or falls_for_ever(objective, _MORE_ENTRIES) is not None
        or (bool(objective.assumption) and curves_down(objective) is not None)
    )
