r"""`group-newton`: convex objectives with group norms. Newton's method on the bound while sigma falls, then a face.

x ~ N(mu, sigma^2 C) enters group by group: a norm of d rows is averaged over an isotropic Gaussian in R^d, and is then
a smooth function of the distance from zero (`varopt.terms.group_norm`). Far from zero a group is as it was; near zero
its gradient ``v = w E'(r) z / r`` says whether it will vanish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from varopt._linalg import solve_definite
from varopt.bounds import RowNoise
from varopt.certificates import balanced
from varopt.composite import Composite
from varopt.solvers._method import Check, Method, State
from varopt.solvers.descent._newton import descend, typical_lengths
from varopt.solvers.descent._path import Geometric, Path, Schedule, follow
from varopt.solvers.finish import ActiveSet, group_gap, with_norms_linearised

__all__ = ["GroupNewton"]

Vector = NDArray[np.float64]

_SIGMA_STEPS = 40  # most Newton steps at one sigma
_ACCURATE = 0.02  # share of what the smoothing adds below which a decrement ends a level
_FARTHEST_STEP = 20.0  # typical distances that a row may move in one step
_FINISH_SIGMA = 0.3  # relative sigma from which an exact finish is tried
_LAST_SIGMA = 1e-3  # relative sigma at which a bracket within the tolerance is enough, exact or not
_LAST_GROUP_SIGMA = 1e-11  # relative sigma at which the path gives up
_MAY_REST = 4.0  # standard deviations from a kink within which a row may rest on it


@dataclass(frozen=True)
class GroupNewton(Method):
    """Newton's method on the bound while sigma falls, then the exact optimum on the face that it points to.

    Parameters
    ----------
    schedule : Schedule
        How sigma falls; it is relative to the median norm of the groups and the median distance of rows from knots.

    Notes
    -----
    A step costs a Gram matrix of the rows and groups and a factorisation of order p for p variables; on the face, of
    the order of the variables that do not vanish. Memory: p x p numbers.
    """

    schedule: Schedule = field(default_factory=Geometric)

    name: ClassVar[str] = "group-newton"

    def lacks(self, problem: Composite) -> str:
        """What the problem lacks."""
        if not problem.groups:
            return "it has no group norms."
        curved = any(r.term.degree > 2 for r in problem.rows)
        return problem.not_convex or ("it has terms of a degree beyond 2 beside group norms." if curved else "")

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        with np.errstate(over="ignore", invalid="ignore"):  # along a direction of unbounded descent
            _Run(problem, state, tol, check, self.schedule).solve()


class _Run:
    """One run: the problem with its quadratic multiplied out, and the scales of its rows and groups."""

    def __init__(self, problem: Composite, state: State, tol: float, check: Check, schedule: Schedule) -> None:
        weighty = (group.take(group.weights > 0.0) for group in problem.groups if group.weights.any())
        groups = tuple(group.explicit() for group in weighty)
        self.problem = Composite(
            problem.hessian, problem.gradient_at_zero, problem.constant, problem.rows, groups=groups
        )
        self.state, self.tol, self.check, self.schedule = state, tol, check, schedule

    def solve(self) -> None:
        problem, state = self.problem, self.state
        x, sigma = state.begin(self.schedule.start)
        typical = x if problem.hessian is None else solve_definite(problem.hessian, -problem.gradient_at_zero)
        self.lengths = typical_lengths(problem, typical)
        self.radii = []
        for group in problem.groups:
            norms = [group.norms(group.positions(point)) for point in (typical, x)]
            positive = [n[n > 1e-10 * n.max()] for n in norms if n.max() > 0.0]
            radius = float(np.median(positive[0])) if positive else 1.0
            self.radii.append(radius / np.sqrt(group.sizes))
        state.see(x, problem.value(x))

        def stop(path: Path) -> bool:
            state.sigma, state.latest, state.steps = path.sigma, path.x, state.steps + path.level_steps
            self._bracket(path)
            exact = path.sigma <= _FINISH_SIGMA and self._finish(path)
            state.record()
            self.check(state)
            return exact or (state.reached(self.tol) and path.sigma < _LAST_SIGMA) or path.sigma < _LAST_GROUP_SIGMA

        noise = RowNoise(sigma, self.lengths, self.radii)
        follow(Path(problem, x, noise, sigma), self._level, self.schedule, stop)

    # -- The path -----------------------------------------------------------------------------------------------------

    def _level(self, path: Path) -> int:
        """Newton steps until what is left to gain is small against what the smoothing adds where that is least."""
        bound, count = descend(path.at(path.x), lambda bound: _ACCURATE * min(bound.added), self._cap, _SIGMA_STEPS)
        path.x = bound.mean
        return count

    def _cap(self, step: Vector) -> float:
        """The share of a step in which no row moves farther than several times the typical distance from a knot.

        Where no row is near a knot the bound has no curvature, and a Newton step no length to go by.
        """
        maps = [r.linear for r in self.problem.rows] + [group.linear for group in self.problem.groups]
        scales: list[Any] = [*self.lengths, *self.radii]
        moves = [
            float(np.abs(linear.apply(step)).max(initial=0.0)) / float(np.max(scale))
            for linear, scale in zip(maps, scales, strict=True)
        ]
        farthest = max(moves, default=0.0)
        return 1.0 if farthest <= _FARTHEST_STEP else _FARTHEST_STEP / farthest

    # -- Proofs -------------------------------------------------------------------------------------------------------

    def _bracket(self, path: Path) -> None:
        """Show the state the point with what the gradients of the smoothed terms and norms prove."""
        problem, bound = self.problem, path.whole()
        positions, dual, group_dual = [part.z for part in bound.rows], bound.dual, bound.group_dual
        gap, assumption = group_gap(problem, path.x, positions, dual, group_dual)
        if not np.isfinite(gap) and path.sigma < _LAST_SIGMA and problem.rows:
            dual = balanced(with_norms_linearised(problem, group_dual), path.x, dual)
            gap, assumption = group_gap(problem, path.x, positions, dual, group_dual)
        self.state.see(path.x, problem.value(path.x, positions), gap, assumption, [*dual, *group_dual])

    def _finish(self, path: Path) -> bool:
        """Solve the face near the point: groups near zero vanish, rows near a kink rest. Whether that proves it."""
        problem, x, sigma = self.problem, path.x, path.sigma
        knots = []
        for r, z, length in zip(problem.rows, problem.positions(x), self.lengths, strict=True):
            knot, closest = np.full(r.count, np.nan), np.full(r.count, _MAY_REST * sigma * length)
            for t, jump in r.kinks:
                near = (np.abs(z - t) < closest) & (np.asarray(jump) > 0.0) & (r.weights > 0.0)
                knot, closest = np.where(near, t, knot), np.where(near, np.abs(z - t), closest)
            knots.append(knot)
        active = []
        for group, radius in zip(problem.groups, self.radii, strict=True):
            norms = group.norms(group.positions(x))
            active.append(norms > _MAY_REST * sigma * radius * np.sqrt(group.sizes))
        face = ActiveSet(problem, x, knots, active)
        found = face.solve(self.tol) if face.may_exist else None  # else sigma is too large to tell
        if found is None:
            return False
        self.state.see(*found)
        return found[2] <= self.tol * abs(found[1])
