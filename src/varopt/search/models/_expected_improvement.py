"""Points where a Gaussian process expects most improvement: for functions that are evaluated a few dozen times.

J98: D. R. Jones, M. Schonlau and W. J. Welch, *Efficient global optimization of expensive black-box functions*, Journal
of Global Optimization 13, 1998. G10: D. Ginsbourger, R. Le Riche and L. Carraro, *Kriging is well-suited to parallelize
optimization*, 2010: what is under way is believed to give what is predicted. A23: S. Ament et al., *Unexpected
improvements to expected improvement*, 2023: logarithms, so that nothing is flat.
"""

from __future__ import annotations

import inspect
import math
import sys

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize as descend
from scipy.special import erfcx, log_ndtr
from scipy.stats import qmc, yeojohnson

from varopt.search._coding import Coding
from varopt.search._space import SpaceLayout
from varopt.search.models._gaussian_process import GaussianProcess
from varopt.solvers.natural_gradient import Update

__all__ = ["ExpectedImprovement"]

Array = NDArray[np.float64]

SPREAD_OVER = 400  # points drawn all over the space, of which the best are looked at more closely
NEARBY = 30  # points drawn around each of the best known
LOOKED_AT = 4  # that are descended from
HUGE = 1e150  # spreads beyond which only the order counts
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
    """

    def __init__(
        self, layout: SpaceLayout, coding: Coding, batch: int = 1, known: tuple[Array, Array] | None = None
    ) -> None:
        self._layout, self._coding, self.population = layout, coding, batch
        self._discrete = layout.options > 0
        self._first = max(4, min(2 * layout.columns, 20), batch)  # spread over the space before there is a model
        self._points = np.empty((0, layout.columns))
        self._values = np.empty(0)
        self._pending: list[Array] = []
        self._proposed = 0
        self._design: Array | None = None
        self._parameters: Array | None = None
        if known is not None:
            self.tell(*known)
            self._proposed = len(known[1])

    @property
    def known(self) -> tuple[Array, Array]:
        """What was evaluated: latent points and values."""
        return self._points, self._values

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        points = np.array([self._next(rng) for _ in range(count)])
        return points.reshape(count, self._layout.columns)

    def _next(self, rng: np.random.Generator) -> Array:
        if self._design is None:
            self._design = self._spread(rng, self._first)
        self._proposed += 1
        finite = np.isfinite(self._values)
        if self._proposed <= self._first or np.unique(self._values[finite]).size < 2:
            fresh = self._proposed > self._first
            point = self._spread(rng, 1)[0] if fresh else self._design[self._proposed - 1]
        else:
            point = self._best(rng)
        self._pending.append(point)
        return np.asarray(point)

    def _spread(self, rng: np.random.Generator, count: int) -> Array:
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
        self._values = np.append(self._values, values)
        for point in points:
            for i, waiting in enumerate(self._pending):
                if np.array_equal(waiting, point):
                    del self._pending[i]
                    break

    # The model -----------------------------------------------------------------------------------------------------

    def _chosen(self) -> tuple[Array, Array]:
        """What the model is fitted to, in units in which values look normal; failures are worse than the worst."""
        points, values = self._points, self._values
        finite = values[np.isfinite(values)]
        with np.errstate(over="ignore"):
            worst = min(finite.max() + finite.std(), sys.float_info.max)
        values = np.where(np.isfinite(values), values, worst)
        if values.size > LATEST:
            keep = np.sort(np.argsort(values, kind="stable")[:LATEST])
            points, values = points[keep], values[keep]
        return points, _normal(values)

    def _best(self, rng: np.random.Generator) -> Array:
        points, values = self._chosen()
        process = GaussianProcess.fit(points, values, self._discrete, self._parameters)
        self._parameters = process.parameters
        lowest = float(process.predict(points)[0].min())
        if self._pending:
            waiting = np.array(self._pending)
            believed = np.append(values, process.predict(waiting)[0])
            points = np.vstack((points, waiting))
            process = GaussianProcess.given(points, believed, self._discrete, self._parameters)
        candidates = np.vstack((self._spread(rng, SPREAD_OVER), *self._around(rng, points, values)))
        scores = self._score(process, candidates, lowest)
        taken = {point.tobytes() for point in points}
        for i in np.argsort(-scores, kind="stable")[:LOOKED_AT]:
            candidates = np.vstack((candidates, self._descend(process, candidates[i], lowest)))
        scores = np.append(scores, self._score(process, candidates[len(scores) :], lowest))
        for i in np.argsort(-scores, kind="stable"):
            if candidates[i].tobytes() not in taken:
                return np.asarray(candidates[i])
        return np.asarray(candidates[0])

    def _around(self, rng: np.random.Generator, points: Array, values: Array) -> list[Array]:
        """Candidates near the best known: a few coordinates changed by a little, or to another option."""
        found = []
        order = np.argsort(values[: len(self._points)], kind="stable")[:3]
        for i in order:
            near = np.repeat(points[i][None], NEARBY, axis=0)
            width = 10.0 ** rng.uniform(-3.0, -0.5, (NEARBY, 1))
            moved = near + width * rng.normal(size=near.shape)
            share = max(0.3, 1.5 / near.shape[1])
            changed = rng.random(near.shape) < share
            moved = np.where(self._discrete, np.floor(rng.random(near.shape) * self._layout.options), moved)
            found.append(self._snap(np.where(changed, moved, near)))
        return found

    def _score(self, process: GaussianProcess, points: Array, lowest: float) -> Array:
        mean, deviation = process.predict(points)
        return np.log(deviation) + log_improvement((lowest - mean) / deviation)[0]

    def _descend(self, process: GaussianProcess, point: Array, lowest: float) -> Array:
        """The best of all that differ from a point in its real coordinates, near it."""
        real = self._layout.real
        if not real.size:
            return point

        def cost(x: Array) -> tuple[float, Array]:
            moved = point.copy()
            moved[real] = x
            mean, deviation, by_mean, by_deviation = process.gradient(moved)
            z = (lowest - mean) / deviation
            log, slope = log_improvement(np.array([z]))
            gradient = by_deviation / deviation - slope[0] * (by_mean + z * by_deviation) / deviation
            return -(math.log(deviation) + float(log[0])), -gradient[real]

        bounds = [(0.0, 1.0)] * real.size
        better = point.copy()
        better[real] = descend(cost, point[real], jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 20}).x
        return np.asarray(self._snap(better[None])[0])

    def average(self, values: Array) -> Array | float:
        return math.nan  # there is no distribution

    # What is known of it -------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Array:
        if not self._values.size:
            return np.full(self._layout.columns, 0.5)
        return np.asarray(self._points[int(np.argmin(self._values))])

    @property
    def spread(self) -> float:
        """The mean distance of the few best points from the best one."""
        if self._values.size < 3:
            return 1.0
        best = np.argsort(self._values, kind="stable")[: max(3, self._layout.columns + 1)]
        numeric = ~self._discrete
        away = np.abs(self._points[best[1:]][:, numeric] - self._points[best[0]][numeric])
        return float(np.median(away.mean(axis=1))) if numeric.any() else 0.0


def log_improvement(z: Array) -> tuple[Array, Array]:
    """log(phi(z) + z Phi(z)), the logarithm of the expected improvement in deviations [A23], and its derivative."""
    z = np.asarray(z, dtype=np.float64)
    density = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)
    near = np.maximum(z, -5.0)
    plain = np.log(np.exp(-0.5 * near * near) / math.sqrt(2.0 * math.pi) + near * np.exp(log_ndtr(near)))
    far = np.minimum(z, -5.0)
    # 1 + z Phi(z) / phi(z), Phi / phi = sqrt(pi / 2) erfcx(-z / sqrt 2); beyond -1e4 it is 1 / z^2
    left = 1.0 + far * math.sqrt(0.5 * math.pi) * erfcx(-far / math.sqrt(2.0))
    tail = np.log(np.where(far < -1e4, 1.0 / (far * far), np.maximum(left, 1e-300)))
    log = np.where(z > -5.0, plain, density + tail)
    return log, np.exp(log_ndtr(z) - log)


def _normal(values: Array) -> Array:
    """Values in units in which they look normal: Yeo and Johnson's power transform, then mean 0 and variance 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre, spread = np.median(values), values.std()
    if not 0.0 < spread < HUGE:
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
