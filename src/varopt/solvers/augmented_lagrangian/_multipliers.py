r"""`multipliers`: sparse rows and a ridge. Newton's method on the augmented Lagrangian, whose multipliers move.

    f(x) = 1/2 x'Dx + v'x + sum_k w_k rho_k(a_k'x + d_k),        D diagonal and positive but for a few variables

Smoothing with a width and no centres is accurate only as the width vanishes, and the equations with it. Around the
multipliers of the level before (`_augmented_lagrangian`) a level is accurate at a width that does not, and only the
rows within that width have curvature: Newton's equations are those of a few active rows (`_active_rows`). This is the
augmented Lagrangian method with semismooth Newton steps of [LST18].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._clock import tick
from varopt._linalg import row_bandwidth
from varopt.certificates import dual_gap
from varopt.composite import Composite, ridge_form
from varopt.solvers._method import Check, Method, State, convex, piecewise_quadratic, ridge
from varopt.solvers.augmented_lagrangian._active_rows import ActiveRows
from varopt.solvers.augmented_lagrangian._augmented_lagrangian import (
    AugmentedLagrangian,
    smooth_derivative,
    split_columns,
)

__all__ = ["Multipliers"]

Vector = NDArray[np.float64]

# On support vector machines of 4,000 x 800 with 1 % of the entries, twice as many widths at which rows are frozen and
# three times the exactness of a search, or as much less, change the steps (19 and 20) by three at most.
_MOST_WITHOUT_RIDGE = 8  # most variables without a ridge
_SHRINKS = (0.25, 0.25, 0.5)  # what of the width is left after a level of no step, of one, of more
# Of a weak ridge: widths a row is away from rest, variables, and rows a variable.
_WEAK_RIDGE, _WEAK_VARIABLES, _WEAK_ROWS = 500.0, 3000, 4
_WIDTH_LEVELS = 60  # at most, on each of which the width shrinks
_NEWTON_STEPS = 30  # most of a level
_FROZEN_WIDTHS = 3.0  # from its kink at which a row is frozen
_LIVE = 0.8  # share of rows in play below which a copy of them pays
_FLATTENED, _LENGTHS = 0.1, 50  # share of the derivative along a step that a search may leave, and the lengths it tries
_LEAST_WIDTH = 1e-13  # relative width below which it does not fall,
_RESUMED = 1e-3  # and below which no run begins
_IDLE_LEVELS = 16  # levels without much gain after which to give up,
_UNFINISHED = 4  # and as how many an unfinished one counts
_LONG_RUN = 0.5  # seconds after which the bracket is worth a look at every level
_WORTH_SPARSE_ROWS = 33  # variables from which on rows had better be sparse
_SAMPLE_ROWS = 64  # rows looked at to tell their kind
_SHORT_ROWS, _NEIGHBOR_REACH = 4, 64  # entries of short rows, and how far those of neighbouring variables reach


@dataclass(frozen=True)
class Multipliers(Method):
    """The method of multipliers with Newton steps on the few rows near a kink.

    Notes
    -----
    Some 15 to 40 steps of two products with the rows in play and the solution of equations of the order of the rows at
    rest, or of the variables where these are fewer. Memory: up to two copies of the data, and the square of that
    order; sparse rows are not made dense.
    """

    name: ClassVar[str] = "multipliers"
    fewest = _WORTH_SPARSE_ROWS
    needs = (piecewise_quadratic, convex, ridge)

    def lacks(self, problem: Composite) -> str:
        """What else the problem lacks."""
        if np.count_nonzero(problem.structure(ridge_form).matrix.diagonal() <= 0.0) > _MOST_WITHOUT_RIDGE:
            return f"more than {_MOST_WITHOUT_RIDGE} variables have no ridge."
        return "" if problem.rows else "it has no rows with knots."

    def suits(self, problem: Composite) -> bool:
        """Whether the rows are sparse, but longer than differences and not of neighbours, and few of them will rest."""
        sparse = all(r.linear.storage == "sparse" for r in problem.rows)
        return sparse and not _is_local(problem) and not _is_crowded(problem)

    def solve(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        """Lower the bracket of `state`."""
        with np.errstate(over="ignore", invalid="ignore"):
            run = _Run(problem, state, tol, check)
            try:
                run.descend()
            except BaseException:  # whatever ends the run, the bracket is what is known by then
                run.show()
                raise


def _is_local(problem: Composite) -> bool:
    """Whether rows are short, or of neighbouring variables: then a band or a sparse matrix is factorised in no time."""
    entries, pairs, widest = 0, 0.0, 0
    for r in problem.rows:
        sample = np.unique(np.linspace(0, r.count - 1, _SAMPLE_ROWS).astype(np.intp))
        matrix, dense = split_columns(r.linear.rows(sample))[1:3]
        rows = sp.csr_array(matrix)
        lengths = np.diff(rows.indptr) + dense.shape[1]
        entries, pairs = entries + int(lengths.sum()), pairs + float(np.square(lengths, dtype=np.float64).sum())
        widest = problem.size if dense.shape[1] else max(widest, row_bandwidth(rows))
    return pairs <= _SHORT_ROWS * entries or (widest <= _NEIGHBOR_REACH and problem.size > 4 * widest)


def _lagrangian(problem: Composite) -> tuple[AugmentedLagrangian, NDArray[np.intp]]:
    with np.errstate(over="ignore", invalid="ignore"):  # of data that no method will take
        return AugmentedLagrangian.of(problem.structure(ridge_form))


def _is_crowded(problem: Composite) -> bool:
    """Whether the ridge is so weak that about as many rows as variables, of which there are not many, will rest.

    Their equations are then as large as those of interior points, and take more steps.
    """
    if problem.size > _WEAK_VARIABLES:
        return False
    rows, _ = problem.structure(_lagrangian)
    away = np.abs(rows.offset - rows.knots).mean(axis=1).min(initial=np.inf)  # of no kinks: far
    weak = float(np.mean(rows.unit)) > _WEAK_RIDGE * float(away)
    return weak and rows.count <= _WEAK_ROWS * problem.size


class _Run:
    """A point, the multipliers, and the rows in play: the others are frozen, their multipliers at a bound."""

    def __init__(self, problem: Composite, state: State, tol: float, check: Check) -> None:
        self.given, self.problem, self.state, self.tol, self.check = (
            problem,
            problem.structure(ridge_form),
            state,
            tol,
            check,
        )
        self.rows, self.order = problem.structure(_lagrangian)
        self.active, self.m = ActiveRows(self.rows), self.rows.root.size
        start, share = state.begin(1.0)
        self.width = min(max(share, _RESUMED), 1.0)
        self.x = start[self.order]
        self.x[: self.m] *= self.rows.root
        self.multipliers = self.rows.idle.copy()
        if state.resumes:  # the multipliers that smoothing without centres gives
            z = self.rows.move(self.x) + self.rows.offset
            self.multipliers = np.clip(self.rows.multipliers(z, np.full_like(self.multipliers, 0.5), self.width), 0, 1)
        # The curvature of the variables of dense columns if every row were active at a width of one.
        curvatures = np.square(self.rows.scale) * (self.rows.heights / self.rows.unit).sum(axis=0)
        self.most = np.square(self.rows.dense).T @ curvatures
        self._thaw()

    def descend(self) -> None:
        """Level after level, until the gap is closed or stays as it is."""
        state, least, idle = self.state, np.inf, 0
        x = self._outward()
        state.see(x, self.problem.value(x))
        for _ in range(_WIDTH_LEVELS):
            before = state.steps
            gap = self._level()
            state.sigma, state.latest = self.width, self._outward()
            if (self._closes(gap) or state.elapsed > _LONG_RUN) and self._is_settled():
                self.show()
            state.record()
            self.check(state)
            steps = state.steps - before
            idle = 0 if gap < 0.5 * least else idle + (_UNFINISHED if steps == _NEWTON_STEPS else min(steps, 1))
            least = min(least, gap)
            if state.reached(self.tol) or not np.all(np.isfinite(self.x)):
                break
            if idle > _IDLE_LEVELS or (steps == 0 and self.width <= _LEAST_WIDTH):
                self.show()
                break
            shrink = _SHRINKS[min(steps, len(_SHRINKS) - 1)]
            self.width = max(shrink * self.width, _LEAST_WIDTH)
            self._freeze()
        state.sigma = 0.0 if state.reached(self.tol) else state.sigma
        state.record()

    def _closes(self, gap: float) -> bool:
        """Whether a gap is small enough for the value of the latest point: of the first, and of those that may be."""
        state, enough = self.state, self.state.allowed(self.tol)
        if (gap <= enough or not state.history) and state.latest is not None:
            state.see(state.latest, self.problem.value(state.latest))
            enough = state.allowed(self.tol)
        return gap <= enough

    # -- The rows in play ---------------------------------------------------------------------------------------------

    def _thaw(self) -> None:
        """All rows in play."""
        self.part, self.index = self.rows, np.arange(self.rows.count)

    def _freeze(self) -> None:
        """Leave out rows far from their kinks, with multipliers at the bounds there, if those are most."""
        part, centres = self.part, self.multipliers[:, self.index]
        if self.rows.curved:
            return
        free = part.multipliers(self.z, centres, self.width)
        near = (np.abs(free - 0.5) < _FROZEN_WIDTHS) | (np.clip(free, 0.0, 1.0) != centres)
        live = np.flatnonzero(np.any(near & (part.heights > 0.0), axis=0))
        if live.size < _LIVE * part.count:
            self.part = part.take(live, part.row_gradient(self.z, centres))
            self.index = self.index[live]

    def _is_settled(self) -> bool:
        """Whether the frozen rows are where their multipliers have them; else all are in play again."""
        if self.part is self.rows:
            return True
        z = np.concatenate(self.problem.positions(self._outward()))
        frozen = np.ones(self.rows.count, dtype=bool)
        frozen[self.index] = False
        side = (z >= self.rows.knots) == (self.multipliers > 0.5)
        if np.all(side[:, frozen] | (self.rows.heights[:, frozen] == 0.0)):
            return True
        self._thaw()
        self.z = z
        return False

    # -- A level ------------------------------------------------------------------------------------------------------

    def _level(self) -> float:
        """Newton steps until what is left to gain is less than the gaps of the rows; what the multipliers prove."""
        rows, centres = self.part, self.multipliers[:, self.index]
        enough = 0.5 * self.state.allowed(self.tol)
        self.z = rows.move(self.x) + rows.offset  # what steps add up is off by the rounding of the longest
        for count in range(_NEWTON_STEPS + 1):
            tick()
            smoothed = rows.at(self.z, centres, self.width)
            gradient = rows.gradient(self.x, smoothed.gradient)
            harm = self._harm(gradient)
            if harm <= max(smoothed.young, enough) or count == _NEWTON_STEPS or not np.isfinite(harm):
                break
            step = self.active.step(self.index, smoothed.curvature, gradient, self.most / self.width)
            move = rows.move(step)
            length = self._search(centres, gradient, step, move)
            self.x, self.z = self.x + length * step, self.z + length * move
            self.state.steps += 1
        self.multipliers[:, self.index] = smoothed.multipliers
        return smoothed.young + harm

    def _harm(self, gradient: Vector) -> float:
        """What a gradient costs the dual value."""
        own, other = gradient[: self.m], np.abs(gradient[self.m :])
        flat = self.rows.dense_curvature == 0.0
        charge = np.where(
            flat, 1.0 + np.abs(self.x[self.m :]), 0.5 * other / np.where(flat, 1.0, self.rows.dense_curvature)
        )
        return 0.5 * float(own @ own) + float(other @ charge)

    def _search(self, centres: Vector, gradient: Vector, step: Vector, move: Vector) -> float:
        """The length at which the gradient along the step has all but vanished, at most one if it had begun to."""
        rows = self.part
        ridge = np.concatenate([step[: self.m], rows.dense_curvature * step[self.m :]])
        curvature, start = float(ridge @ step), float(gradient @ step)
        constant = float(rows.constant_gradient @ step + self.x @ ridge)
        length, low, at_low, high, at_high = 1.0, 0.0, start, np.inf, np.nan
        for _ in range(_LENGTHS):
            z = self.z + length * move
            u = np.clip(rows.multipliers(z, centres, self.width), 0.0, 1.0)
            left = constant + length * curvature + float(rows.row_gradient(z, u) @ move)
            if abs(left) <= _FLATTENED * abs(start) or (high == np.inf and 0.0 >= left >= 0.5 * start):
                break
            if left > 0.0:
                high, at_high = length, left
            else:
                low, at_low = length, left
            if high == np.inf:  # no curvature yet: rows are to come within reach
                length *= 4.0
            else:
                length = low + (high - low) * float(np.clip(at_low / (at_low - at_high), 0.1, 0.9))
        return length

    # -- What is known ------------------------------------------------------------------------------------------------

    def _outward(self) -> Vector:
        """The point in the variables of the problem."""
        x = np.empty(self.problem.size)
        x[self.order] = np.concatenate([self.x[: self.m] / self.rows.root, self.x[self.m :]])
        return x

    def show(self) -> None:
        """Show the state the point, with the gap that its multipliers prove."""
        problem, x = self.problem, self._outward()
        if not np.all(np.isfinite(x)):
            return
        positions = problem.positions(x)
        balanced, dual, start = self.rows.balanced(np.concatenate(positions), self.multipliers), [], 0
        for r, z in zip(problem.rows, positions, strict=True):
            gradient = smooth_derivative(r, z)
            for j, (_, jump) in enumerate(r.kinks):
                gradient += jump * balanced[j, start : start + r.count]
            dual.append(np.clip(gradient, *r.term.subgradient_range))
            start += r.count
        gap, assumption = dual_gap(problem, x, positions, dual)
        self.state.see(x, problem.value(x, positions), gap, assumption, dual=dual[: len(self.given.rows)])
