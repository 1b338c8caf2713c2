"""Points where a Gaussian process expects most improvement: for functions that are evaluated a few dozen times.

J98: D. R. Jones, M. Schonlau and W. J. Welch, *Efficient global optimization of expensive black-box functions*, Journal
of Global Optimization 13, 1998. Gi10: D. Ginsbourger, R. Le Riche and L. Carraro, *Kriging is well-suited to
parallelize optimization*, 2010: what is under way is believed to give what is predicted. K06: J. Knowles, *ParEGO: a
hybrid algorithm with on-line landscape approximation for expensive multiobjective optimization problems*, IEEE
Transactions on Evolutionary Computation 10(1), 2006: of several objectives every proposal descends another mixture.
C20: M.-L. Cauwet et al., *Fully parallel hyperparameter search: reshaped space-filling*, ICML 2020: of a few points in
many dimensions, those nearer to the middle are nearer to an optimum that may be anywhere.
"""

from __future__ import annotations

import inspect
import math
import sys

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize as descend
from scipy.stats import qmc, yeojohnson

from varopt.search._coding import Coding
from varopt.search._space import SpaceLayout
from varopt.search.goals import Rules
from varopt.search.models._acquisition import Acquisition
from varopt.search.models._gaussian_process import GaussianProcess
from varopt.solvers.natural_gradient import Update

__all__ = ["ExpectedImprovement"]

Array = NDArray[np.float64]

SPREAD_OVER = 400  # points drawn all over the space, of which the best are looked at more closely
DRAWN_NEARBY = 30  # points drawn around each of the best known
DESCENTS = 4  # that are descended from
HUGE_SPREAD = 1e150  # spreads beyond which only the order counts
TRIES = 20  # times that points which are not allowed are drawn again
FIRST_POINTS = 10  # points before there is a model, at most, if fewer are proposed at once
RECENTRED = 0.4  # of [C20]'s square of a spread, log(count) / dimensions, that of theirs in the box
MIDDLE = 0.02  # share of that reach within which the first point is
LATEST = 400  # evaluations that a process is fitted to, the best among them


class ExpectedImprovement(Update):
    """Proposes points by the expected improvement of a Gaussian process over what was evaluated.

    Parameters
    ----------
    layout, coding : SpaceLayout, Coding
        The space, and the map of latent vectors to its points.
    batch : int
        Points proposed at once.
    known : pair of arrays, optional
        Latent points and values from before, which count as part of the first points.
    objectives, constraints : int
        How many of each an evaluation gives, in this order.
    rules : Rules, optional
        Which latent points may be proposed, by constraints that are known in advance.
    """

    learns_from_failures = True

    def __init__(
        self, layout: SpaceLayout, coding: Coding, batch: int = 1, known: tuple[Array, Array] | None = None, *,
        objectives: int = 1, constraints: int = 0, rules: Rules | None = None,
    ) -> None:  # fmt: skip
        self._layout, self._coding, self.population = layout, coding, batch
        self._discrete = layout.options > 0
        self._first = max(4, min(2 * layout.columns, FIRST_POINTS), batch)  # all over, before there is a model
        self._points = np.empty((0, layout.columns))
        self._objectives, self._rules = objectives, rules
        self._numbers = np.empty((0, objectives + constraints))
        self._pending: list[Array] = []
        self._proposed = 0
        self._design: Array | None = None
        self._parameters: dict[int, Array] = {}  # of the processes, by the number that they model
        if known is not None:
            self.tell(*known)
            self._proposed = len(known[1])

    @property
    def known(self) -> tuple[Array, Array]:
        """What was evaluated: latent points and what they gave."""
        return self._points, self._numbers[:, 0] if self._numbers.shape[1] == 1 else self._numbers

    @property
    def modelled(self) -> int:
        """How many proposals a model took part in, or minus how many will come before there is one."""
        return self._proposed - self._first

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        points = np.array([self._next(rng) for _ in range(count)])
        return points.reshape(count, self._layout.columns)

    def _next(self, rng: np.random.Generator) -> Array:
        if self._design is None:
            self._design = _distinct(self._allowable(rng, self._recentred(rng, self._first)))
            self._first = len(self._design)
        self._proposed += 1
        finite = self._numbers[np.isfinite(self._numbers).all(axis=1)]
        if self._proposed <= self._first or len(np.unique(finite, axis=0)) < 2:
            fresh = self._proposed > self._first
            point = self._spread(rng, 1)[0] if fresh else self._design[self._proposed - 1]
        else:
            point = self._best(rng)
        self._pending.append(point)
        return np.asarray(point)

    def _spread(self, rng: np.random.Generator, count: int) -> Array:
        """Latent points all over the space that are allowed, as far as there are any."""
        return self._allowable(rng, self._all_over(rng, count))

    def _recentred(self, rng: np.random.Generator, count: int) -> Array:
        """Points around the middle, the first very near, the others the nearer the more coordinates there are [C20]."""
        points = self._all_over(rng, count)
        numeric = ~self._discrete
        if numeric.any():
            reach = min(1.0, math.sqrt(RECENTRED * math.log(1.0 + count) / numeric.sum()))
            reaches = np.full((count, 1), reach)
            reaches[0] *= MIDDLE  # not the middle itself: searches of one study would all begin there
            points[:, numeric] = 0.5 + reaches * (points[:, numeric] - 0.5)
        return self._snap(points)

    def _allowable(self, rng: np.random.Generator, points: Array) -> Array:
        """The points, with those that are not allowed replaced."""
        if self._rules is None:
            return points
        for _ in range(TRIES):
            bad = np.flatnonzero(~self._rules.allows(points))
            if not bad.size:
                return points
            points[bad] = self._all_over(rng, bad.size)
        bad = np.flatnonzero(~self._rules.allows(points))
        points[bad] = self._allowed(points[bad], self._rules.inside(rng))
        return points

    def _allowed(self, points: Array, inside: Array) -> Array:
        """Points on their way to one that is allowed, as far from it as may be; or that one."""
        if self._rules is None or not len(points):
            return points
        moved = self._snap(self._rules.towards(points, inside))
        return np.where(self._rules.allows(moved)[:, None], moved, inside)

    def _all_over(self, rng: np.random.Generator, count: int) -> Array:
        """Latent points all over the space, by a scrambled Sobol sequence."""
        columns = self._layout.columns
        keyword = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"  # SciPy renamed it in 1.15
        sobol = qmc.Sobol(columns, **{keyword: rng}) if columns <= 200 else None
        unit = rng.random((count, columns)) if sobol is None else sobol.random_base2(max(1, (count - 1).bit_length()))
        return self._snap(np.where(self._discrete, np.floor(unit[:count] * self._layout.options), unit[:count]))

    def _snap(self, latent: Array) -> Array:
        """The latent points that stand for the same rows, alike for all that do."""
        return np.asarray(self._coding.latent(self._coding.rows(latent)))

    def tell(self, points: Array, values: Array) -> None:
        self._points = np.vstack((self._points, self._snap(points)))
        self._numbers = np.vstack((self._numbers, np.reshape(values, (len(points), -1))))
        for point in points:
            for i, waiting in enumerate(self._pending):
                if np.array_equal(waiting, point):
                    del self._pending[i]
                    break

    # The model -----------------------------------------------------------------------------------------------------

    def _best(self, rng: np.random.Generator) -> Array:
        points, costs, broken = self._chosen(rng)
        worth = self._worth(points, costs, broken)
        ranked = np.where((broken <= 0.0).all(axis=1), costs, costs.max() + np.maximum(broken, 0.0).sum(axis=1))
        known = np.vstack((points, *self._pending))
        candidates = np.vstack((self._all_over(rng, SPREAD_OVER), *self._around(rng, points, ranked)))
        scores = worth(candidates)
        taken = {point.tobytes() for point in known}
        for i in np.argsort(-scores, kind="stable")[:DESCENTS]:
            better = self._descend(worth, candidates[i])[None]
            candidates = np.vstack((candidates, better, self._allowed(better, points[int(np.argmin(ranked))])))
        scores = np.append(scores, worth(candidates[len(scores) :]))
        for i in np.argsort(-scores, kind="stable"):
            fresh = candidates[i].tobytes() not in taken
            if fresh and (self._rules is None or self._rules.allows(candidates[i : i + 1])[0]):
                return np.asarray(candidates[i])
        return np.asarray(self._spread(rng, 1)[0])

    def _chosen(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """What the model is fitted to: points, costs in units in which they look normal, and constraints.

        Failures are worse than the worst.
        """
        points, numbers = self._points, self._numbers
        finite = np.asarray(np.isfinite(numbers).all(axis=1))
        with np.errstate(over="ignore"):
            seen = numbers[finite]
            worst = np.minimum(seen.max(axis=0) + seen.std(axis=0), sys.float_info.max)
        numbers = np.where(finite[:, None], numbers, worst)
        costs = self._mixed(rng, numbers[:, : self._objectives])
        broken = numbers[:, self._objectives :]
        if costs.size > LATEST:
            keep = np.sort(np.argsort(costs, kind="stable")[:LATEST])
            points, costs, broken = points[keep], costs[keep], broken[keep]
        return points, _normal(costs), broken

    def _mixed(self, rng: np.random.Generator, objectives: Array) -> Array:
        """One number for each point: of several objectives, Chebyshev's norm with random weights [K06]."""
        if self._objectives == 1:
            return np.asarray(objectives[:, 0])
        weights = rng.dirichlet(np.ones(self._objectives))
        low, high = objectives.min(axis=0), objectives.max(axis=0)
        shares = weights * (objectives - low) / np.where(high > low, high - low, 1.0)
        return np.asarray(shares.max(axis=1) + 0.05 * shares.sum(axis=1))

    def _worth(self, points: Array, costs: Array, broken: Array) -> Acquisition:
        """The acquisition, with what is under way believed to give what is predicted [Gi10]."""
        objective = self._fitted(0, points, costs)
        holds = np.flatnonzero((broken <= 0.0).all(axis=1))
        means = np.asarray(objective.predict(points)[0])
        lowest = float(means[holds].min()) if holds.size else None
        levels = []
        for k, measured in enumerate(broken.T, 1):
            scale = float(measured.std()) or 1.0
            process = self._fitted(k, points, (measured - measured.mean()) / scale)
            levels.append((self._believing(process), float(-measured.mean() / scale)))
        return Acquisition(self._believing(objective), lowest, tuple(levels))

    def _fitted(self, number: int, points: Array, values: Array) -> GaussianProcess:
        process = GaussianProcess.fit(points, values, self._discrete, self._parameters.get(number))
        self._parameters[number] = process.parameters
        return process

    def _believing(self, process: GaussianProcess) -> GaussianProcess:
        if not self._pending:
            return process
        waiting = np.array(self._pending)
        values = np.append(process.values, process.predict(waiting)[0])
        return GaussianProcess.given(np.vstack((process.points, waiting)), values, self._discrete, process.parameters)

    def _around(self, rng: np.random.Generator, points: Array, values: Array) -> list[Array]:
        """Candidates near the best known: a few coordinates changed by a little, or to another option."""
        found = []
        order = np.argsort(values, kind="stable")[:3]
        for i in order:
            near = np.repeat(points[i][None], DRAWN_NEARBY, axis=0)
            width = 10.0 ** rng.uniform(-3.0, -0.5, (DRAWN_NEARBY, 1))
            moved = near + width * rng.normal(size=near.shape)
            share = max(0.3, 1.5 / near.shape[1])
            changed = rng.random(near.shape) < share
            moved = np.where(self._discrete, np.floor(rng.random(near.shape) * self._layout.options), moved)
            found.append(self._snap(np.where(changed, moved, near)))
        return found

    def _descend(self, worth: Acquisition, point: Array) -> Array:
        """The best of all that differ from a point in its real coordinates, near it."""
        real = self._layout.real
        if not real.size:
            return point

        def cost(x: Array) -> tuple[float, Array]:
            moved = point.copy()
            moved[real] = x
            value, gradient = worth.cost(moved)
            return value, gradient[real]

        bounds = [(0.0, 1.0)] * real.size
        better = point.copy()
        better[real] = descend(cost, point[real], jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 20}).x
        return np.asarray(self._snap(better[None])[0])

    def average(self, values: Array) -> Array | float:
        return math.nan  # there is no distribution

    # What is known of it -------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Array:
        return np.full(self._layout.columns, 0.5) if not len(self._points) else np.asarray(self._points[self._order[0]])

    @property
    def _order(self) -> NDArray[np.intp]:
        """What was evaluated, the best first: what breaks a constraint last, by how much it does."""
        broken = np.maximum(self._numbers[:, self._objectives :], 0.0).sum(axis=1)
        return np.lexsort((np.arange(len(broken)), self._numbers[:, 0], broken))

    @property
    def spread(self) -> float:
        """The mean distance of the few best points from the best one."""
        if len(self._points) < 3:
            return 1.0
        best = self._order[: max(3, self._layout.columns + 1)]
        numeric = ~self._discrete
        away = np.abs(self._points[best[1:]][:, numeric] - self._points[best[0]][numeric])
        return float(np.median(away.mean(axis=1))) if numeric.any() else 0.0


def _distinct(points: Array) -> Array:
    """The rows without those that repeat an earlier one, in their order."""
    return points[np.sort(np.unique(points, axis=0, return_index=True)[1])]


def _normal(values: Array) -> Array:
    """Values in units in which they look normal: Yeo and Johnson's power transform, then mean 0 and variance 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre, spread = np.median(values), values.std()
    if not 0.0 < spread < HUGE_SPREAD:
        ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
        return np.asarray((ranks - ranks.mean()) / max(ranks.std(), 1e-12))
    scaled = (values - centre) / spread
    with np.errstate(all="ignore"):
        try:
            bent = yeojohnson(scaled)[0]
        except Exception:
            bent = scaled
    if not np.isfinite(bent).all() or not bent.std() > 0.0:
        bent = scaled
    return np.asarray((bent - bent.mean()) / bent.std())
