"""The bracket that is reported: value and dual value of the objective's own blocks, with outward rounding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt._verified import (
    SLACK,
    UNIT,
    Ball,
    Definiteness,
    definiteness,
    down,
    up,
)
from varopt.certificates._direct import Caps, direct_lower, has_own_rows, lower_at_hand
from varopt.certificates._dual_value import Proof, lower_by_curvature, lower_near, lower_of_squares, verified_lower
from varopt.certificates._least_squares import lasso_at_hand, signal_bracket
from varopt.certificates._lent_ridge import with_lent_ridge
from varopt.certificates._moments import SquareMoments, add_lengths, lower_by_moments, moments_at
from varopt.certificates._proof_parts import (
    CLOSE_GAP,
    FORMED_SIZE,
    ProofParts,
    enclosed_at,
    given_duals,
    norm_dual,
    parts_of,
    value_at,
    with_dual,
    without_norms,
)
from varopt.certificates.enclosures import (
    DualRows,
    Norms,
    NotEnclosed,
    enclosed_value,
)
from varopt.composite import Composite, Rows
from varopt.model import Objective
from varopt.model.maps import products_at_hand

__all__ = ["ROUNDING", "Verified", "Verifier", "verified"]

Vector = NDArray[np.float64]

ROUNDING = "rounding, which could not be enclosed, has changed the bounds by less than the gap"
NEAR = (
    "an optimum lies within {:g} times the coordinates of the point found (a millionth of the largest, where they are "
    "smaller); of all such points the bracket is proved"
)

_BALL_INWARD = 1e-11  # share of its ball by which a dual is moved inwards: room for what rounding leaves, at that price
_BALL_SHARE = 0.25  # of the gap that this price may take


class Verified(NamedTuple):
    """No point has a value below `lower`, and that of x is not above `upper`; `reason` says why one is infinite."""

    lower: float
    upper: float
    reason: str = ""


class Verifier:
    """What is proved of a convex objective at a point, in exact arithmetic, of the numbers that its blocks hold.

    Parameters
    ----------
    objective : Objective
        Convex, and within the composite class.
    x : array
        A point, whose value is the upper bound.
    radius, error : array and float, optional
        By how much the linear part and the constant may be off: what is proved holds for all that are within.
    squares : sequence of Rows
        Rows of squares that a method has multiplied out: where these are the objective's own, they are not read again.
    problem : Composite, optional
        The objective's own canonical form, whose rows then are not made again; its squares are those above.
    other : Verifier, optional
        Of the same data: what it knows of them is not computed again.
    """

    def __init__(
        self, objective: Objective, x: Vector, radius: Vector | None = None, error: float = 0.0,
        squares: Sequence[Rows] = (), problem: Composite | None = None, other: Verifier | None = None,
    ) -> None:  # fmt: skip
        self.objective, self.x, self.problem = objective, x, problem
        self.squares = squares if problem is None else problem.squares
        self._radius, self._error = radius, error
        self._norms: Norms = {} if other is None else other._norms
        self._allowed = 0.0  # error of the value that does not matter

    @cached_property
    def _parts(self) -> ProofParts:
        parts = parts_of(self.objective, self.x, self.problem)
        if self._radius is None:
            return parts
        line = Ball(parts.vector.middle, (parts.vector.radius + self._radius) * SLACK)
        return parts._replace(vector=line, error=(parts.error + self._error) * SLACK)

    @cached_property
    def _below(self) -> ProofParts:
        """The same, or where rounding hides whether a form is convex what is nowhere above it, and is."""
        parts = self._parts
        if not self.objective.assumption:
            return parts
        lent = with_lent_ridge(parts.rows, parts.quadratics, self.x.size)
        scalar = parts.scalar + lent.constant
        error = parts.error + lent.error + 2.0 * UNIT * abs(scalar)
        return parts._replace(
            rows=lent.rows,
            quadratics=lent.forms,
            vector=parts.vector.plus(lent.line),
            scalar=scalar,
            error=error * SLACK,
        )

    @property
    def is_convex(self) -> bool:
        """Whether the sum is convex for certain, if each part or only the sum is."""
        if not self.objective.assumption:
            return True
        try:
            return all(definiteness(q.matrix) is Definiteness.POSITIVE for q in self._below.quadratics)
        except NotEnclosed:
            return False

    @property
    def _is_small(self) -> bool:
        return sum(r.linear.shape[0] for r in self._parts.rows) * self.x.size <= FORMED_SIZE

    @cached_property
    def value(self) -> tuple[float, float]:
        """The value at x, and what its rounding is below; infinite where that is not known."""
        with np.errstate(all="ignore"):
            try:
                return value_at(self._parts, self.x, self._norms, self._allowed)
            except NotEnclosed:
                return math.nan, math.inf

    def subgradients(self, dual: Sequence[Vector | None] | None) -> list[Vector]:
        """For each row of all terms what is given, else the derivative at x, or where it rests what balances.

        Rows of one coordinate that rest on a kink take what the others leave of its equation, earlier blocks first.
        """
        with np.errstate(all="ignore"):
            return [r.dual for r in with_dual(self._parts, self.x, dual, self._norms).rows]

    def direct_lower(self) -> float:
        """A lower bound without a linear system, where variables have rows of their own; else minus infinity."""
        with np.errstate(all="ignore"):
            try:
                return _directly(self._parts, self.x, None, self._norms)
            except NotEnclosed:
                return -math.inf

    def lower(self, dual: Sequence[Vector | None] | None, enough: float) -> float:
        """A lower bound of the optimum, without the value at x where one that is `enough` is at hand."""
        with np.errstate(all="ignore"), suppress(NotEnclosed):
            ways = (lower_at_hand, direct_lower) if products_at_hand() and not self._is_small else (direct_lower,)
            if (lower := _directly(self._parts, self.x, dual, self._norms, ways, enough)) >= enough:
                return lower
        return self.bracket(dual).lower

    def near(self, dual: Sequence[Vector | None] | None, enough: float) -> tuple[float, str]:
        """A lower bound of all points near x that is `enough`, and how near, in words; minus infinity without one."""
        with np.errstate(all="ignore"):
            try:
                parts = with_dual(self._below, self.x, dual, self._norms)
                parts = without_norms(parts, self.x, norm_dual(parts.groups, dual), 0.0, self._norms)
            except NotEnclosed:
                return -math.inf, ""
            enough += parts.error * SLACK
            lower, reach = lower_near(
                parts.rows, parts.vector, parts.scalar, parts.quadratics, self.x, self._norms, enough
            )
            return float(down(lower - parts.error * SLACK)), NEAR.format(reach)

    def bracket(self, dual: Sequence[Vector | None] | None = None, gap: float = math.inf) -> Verified:
        """A bracket of the optimum.

        Parameters
        ----------
        dual : sequence of arrays, optional
            Subgradients of the rows with kinks, and then of norms with weights that are not zero, that about balance;
            by default derivatives at x. Nothing depends on them but how close the lower bound is.
        gap : float
            Corrections of the dual are tried until the gap is no wider; by default the first will do.
        """
        self._allowed = gap / 16.0 if math.isfinite(gap) else 0.0
        with np.errstate(all="ignore"):
            try:
                if (known := self._cheaply(dual, gap)) is not None:
                    return known
                lower, why = _directly(self._parts, self.x, dual, self._norms), ""
                parts = None if lower > -math.inf else with_dual(self._below, self.x, dual, self._norms)
                for r in parts.rows if parts is not None else ():
                    r.gradient(r.clipped(r.dual), self._norms)  # which finds the lengths of columns, for the value too
                value, error = self.value
                # Of small problems it costs little to look for a closer bound.
                close = min(gap, CLOSE_GAP * abs(value)) if self._is_small and math.isfinite(gap) else gap
                if lower < value - close or parts is not None:
                    parts = with_dual(self._below, self.x, dual, self._norms) if parts is None else parts
                    lower = max(lower, self._by_curvature(parts))
                    if lower == -math.inf or lower < value - close:
                        proof = _lower(parts, self.x, dual, self._norms, value, gap)
                        lower, why = max(lower, proof.lower), "" if lower > -math.inf else proof.reason
            except NotEnclosed as reason:  # of a dual point; a value may be known all the same
                upper = enclosed_at(self.objective, self.x)[1] if self._radius is None else math.inf
                return Verified(-math.inf, upper, str(reason))
        upper = float(up(value + error)) if math.isfinite(error) else math.inf
        return Verified(lower, upper, why or ("" if upper < math.inf else "numbers overflow."))

    def _cheaply(self, dual: Sequence[Vector | None] | None, gap: float) -> Verified | None:
        """A bracket that is no wider than a gap without a pass over the data: by the shortest of three ways first."""
        if self.problem is not None and self.problem.squares and self._radius is None and math.isfinite(gap):
            short = lasso_at_hand(self.objective, self.problem, self.x, self._norms, gap)
            if short is None:
                short = signal_bracket(self.objective, self.problem, self.x, dual, gap)
            if short is not None:
                return Verified(*short)
        rows = max((r.linear.shape[0] for r in self._parts.rows), default=0)
        if rows >= self.x.size**2:  # passes over rows take longer than the moments
            return self._by_moments(gap) or self._at_hand(dual, gap) or self._by_curved_moments(dual, gap)
        return self._at_hand(dual, gap) or self._by_moments(gap) or self._by_curved_moments(dual, gap)

    def _at_hand(self, dual: Sequence[Vector | None] | None, gap: float) -> Verified | None:
        """A bracket that is no wider than a gap from products that the run has at hand."""
        if not products_at_hand() or not math.isfinite(gap) or self._is_small:
            return None
        for r, given in zip(self._parts.rows, self._parts.given, strict=True):
            if self.squares and not r.is_own:
                add_lengths(given, self.squares, self._norms)
        lower = _directly(self._parts, self.x, dual, self._norms, (lower_at_hand,))
        if lower == -math.inf:
            return None
        value, error = self.value
        upper = float(up(value + error))
        return Verified(lower, upper) if upper - lower <= gap else None

    def _by_moments(self, gap: float) -> Verified | None:
        """A bracket that is no wider than a gap without a look at the data, where squares are multiplied out."""
        if not self.squares or not math.isfinite(gap) or self._is_small or self._parts.quadratics or self._parts.groups:
            return None
        own = [r for r, part in zip(self._parts.rows, self._moments, strict=True) if part is None]
        if not all(r.is_own for r in own) or self._squares is None:
            return None
        if float(self._squares.gradient.radius @ np.abs(self.x)) > gap or (found := self._enclosed_squares) is None:
            return None  # as what rounding may have changed in the gradient costs about that
        lower = lower_by_moments(found, own, self._parts.vector, self._parts.scalar, self.x)
        return self._with_squares(lower, found, own, gap)

    @cached_property
    def _moments(self) -> list[SquareMoments | None]:
        """What is known of each row of terms, where it is squares that are multiplied out."""
        return [moments_at(r, self.squares, self.x) for r in self._parts.given]

    @cached_property
    def _squares(self) -> SquareMoments | None:
        """All squares that are multiplied out, added up."""
        found = [moments for moments in self._moments if moments is not None]
        return reduce(SquareMoments.plus, found) if found else None

    @cached_property
    def _enclosed_squares(self) -> SquareMoments | None:
        """The same, with a value that is as close as is allowed."""
        found = self._squares
        if found is None or found.error <= self._allowed:
            return found
        # Little is left of large numbers: the positions tell the value closer.
        rows = [r for r, part in zip(self._parts.rows, self._moments, strict=True) if part is not None]
        value, error = enclosed_value(rows, np.zeros(self.x.size), 0.0, self.x, (), self._norms, self._allowed)
        return found._replace(value=value, error=error) if error < found.error else found

    def _with_squares(
        self, lower: float, squares: SquareMoments, others: Sequence[DualRows], gap: float
    ) -> Verified | None:
        """A lower bound with the value at x of the squares and all other rows, where these are no farther apart."""
        rest, error = enclosed_value(
            others, self._parts.vector, self._parts.scalar, self.x, (), self._norms, self._allowed
        )
        value = squares.value + rest
        error = (squares.error + error + self._parts.error + 2.0 * UNIT * abs(value)) * SLACK
        lower, upper = float(down(lower - self._parts.error * SLACK)), float(up(value + error))
        return Verified(lower, upper) if upper - lower <= gap else None

    @property
    def _has_plain_squares(self) -> bool:
        """Whether a curvature of squares that are multiplied out is that of the objective, or less."""
        return bool(self.squares) and not (
            self._parts.quadratics or self._parts.groups or self.objective.assumption or self._squares is None
        )

    def _by_curved_moments(self, dual: Sequence[Vector | None] | None, gap: float) -> Verified | None:
        """A bracket that is no wider than a gap, where squares that are multiplied out curve in every direction."""
        if not math.isfinite(gap) or self._is_small or not self._has_plain_squares:
            return None
        others = []
        for r, u, part in zip(self._parts.rows, given_duals(self._parts, dual), self._moments, strict=True):
            if part is None and u is None:
                return None
            if part is None and u is not None:
                others.append(r.at(u))
        if all(r.is_own for r in others) or (squares := self._enclosed_squares) is None:
            return None  # which is proved without a factor
        curvature = squares.least_curvature
        lower = lower_by_curvature(
            others, self._parts.vector, self._parts.scalar, self.x, self._norms, squares, curvature
        )
        return self._with_squares(lower, squares, others, gap)

    def _by_curvature(self, parts: ProofParts) -> float:
        """A lower bound without a linear system, where squares are multiplied out and curve in every direction."""
        if not self._has_plain_squares or (squares := self._squares) is None:
            return -math.inf
        lower = lower_of_squares(
            parts.rows, parts.vector, parts.scalar, self.x, self._norms, squares.least_curvature, squares.rounding
        )
        return float(down(lower - parts.error * SLACK))


def verified(objective: Objective, x: Vector, dual: Sequence[Vector | None] | None = None) -> Verified:
    """A bracket of the optimum of a convex objective: what a `Verifier` makes of one dual point."""
    return Verifier(objective, x).bracket(dual)


def _lower(
    parts: ProofParts, x: Vector, dual: Sequence[Vector | None] | None, norms: Norms, value: float, gap: float
) -> Proof:
    """The best that is proved with a dual of norms, that given or that of x, moved inwards for room and as it is.

    It is moved by more where so much is known to be needed, and the gap allows it. Where coordinates have no room, all
    that may balance them otherwise is tried, mostly in vain and at a high price: that comes last.
    """
    enough, best = value - gap, Proof(-math.inf)

    def proof(given: Sequence[Vector | None] | None, inward: float, *, thorough: bool = True) -> Proof:
        below = without_norms(parts, x, norm_dual(parts.groups, given), inward, norms)
        found = verified_lower(
            below.rows, below.vector, below.scalar, below.quadratics, x, norms, enough, thorough=thorough
        )
        return found._replace(lower=float(down(found.lower - below.error * SLACK)))

    if not parts.groups:
        return proof(None, 0.0)
    duals = (dual, None) if dual is not None else (None,)
    for given in duals:
        inward, allowed = _BALL_INWARD, True
        while allowed:
            found = proof(given, inward, thorough=False)
            best = found if found.lower >= best.lower else best
            if -math.inf < enough <= best.lower:
                return best
            inward *= max(2.0, 1.5 * found.short)
            allowed = inward * abs(value) <= _BALL_SHARE * gap < math.inf
    for given, inward in itertools.product(duals, (_BALL_INWARD, 0.0)):
        found = proof(given, inward)
        best = found if found.lower >= best.lower else best
        if -math.inf < enough <= best.lower:
            break
    return best


def _directly(
    parts: ProofParts, x: Vector, dual: Sequence[Vector | None] | None, norms: Norms,
    ways: Sequence[Callable[..., float]] = (), enough: float = math.inf,
) -> float:  # fmt: skip
    """What is proved without a correction, where every variable has a row of its own: by the first way that is enough.

    Else by the best of them; without any by `direct_lower`.
    """
    if parts.groups or parts.quadratics or (own := has_own_rows(parts.rows, x.size)) is None:
        return -math.inf
    given = given_duals(parts, dual)
    rows = []
    for r, u, mine in zip(parts.rows, given, own, strict=True):
        if not mine:
            r = r.at(r.term.derivative(r.linear.apply(x) + r.offset) if u is None else u)
        rows.append(r)
    caps, best = Caps.of(rows, own, x.size), -math.inf
    for prove in ways or (direct_lower,):
        lower = prove(rows, own, parts.vector, parts.scalar, norms, caps)
        best = max(best, float(down(lower - parts.error * SLACK)))
        if best >= enough:
            break
    return best
