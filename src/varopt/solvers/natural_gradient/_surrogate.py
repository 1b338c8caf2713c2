"""A Gaussian update that evaluates only as many of its samples as its model needs to be trusted: lq-CMA-ES [Ha19].

Of every generation the samples that a linear-quadratic model ranks best are evaluated, a few and then more, until the
model and the function agree on the order of the latest evaluations; the model then ranks the rest. The model's minimum
within a deviation of the distribution takes part in the next generation. Of lambda samples, of which k are evaluated,
with n data in all:

    first        1 + max(floor(0.02 lambda), 3 - n)                                                                  (1)
    then in all  ceil(1.5 max(what was wanted before, k)),                                                           (2)
    until  tau >= 0.85  on the latest  max(15, min(1.2 k, 0.75 lambda))  data, or all are evaluated.                 (3)

Ha19: N. Hansen, *A global surrogate assisted CMA-ES*, GECCO 2019; its algorithms 1 to 3. What it does when the model is
of no use (`PAUSE`), batches, the shorter window and the trust region are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from varopt.families import RootedGaussian
from varopt.solvers.natural_gradient._bounded import BoundedUpdate
from varopt.solvers.natural_gradient._quadratic_model import LatestModel, QuadraticModel, kendall, unknowns
from varopt.solvers.natural_gradient._update import AroundUpdate, Array, FamilyUpdate

__all__ = ["Allowance", "SurrogateUpdate"]

TRUSTED = 0.85  # Kendall's tau from which the model ranks what was not evaluated, (3)
LARGEST = 900  # unknowns of a full model; beyond, a fit costs more than most evaluations, and a diagonal one has to do
FRESH = 250  # unknowns for each new value that a large model waits for: a fit costs the cube of them
WINDOW = 1.2  # latest data for each unknown, to which a model is fitted; 2, as in [Ha19], takes half more evaluations
SOUND = 0.5  # of a generation's evaluations did not fail: a model, which knows of no failures, may lead into them
SQUARES_OVERFLOW = 1e150  # values whose squares overflow: no model
PAUSE = 5  # generations without a model, after as many in which nearly everything had to be evaluated; then twice that


@dataclass
class Allowance:
    """How many more evaluations are worth a model: where there are very many, each is cheaper than a fit."""

    left: float = math.inf


class SurrogateUpdate(AroundUpdate, FamilyUpdate):
    """An update that is told the values of some of its samples and those of a model for the rest.

    Parameters
    ----------
    inner : BoundedUpdate
        The update of a Gaussian; `inner.population` samples are a generation.
    batch : int
        The least number of points that are evaluated at once.
    known : pair of arrays, optional
        Points and values from before, to fit the first model to.
    allowance : Allowance, optional
        Evaluations for which a model may be fitted, shared by the runs of a search.
    """

    inner: BoundedUpdate
    learns_from_failures = True

    def __init__(
        self,
        inner: BoundedUpdate,
        batch: int = 1,
        known: tuple[Array, Array] | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.inner, self._batch, self._allowance = inner, batch, allowance or Allowance()
        d = inner.mean.size
        richest = "full" if unknowns(d, "full") <= LARGEST else "diagonal"
        self._latest = LatestModel(richest)
        self._window = max(inner.population, int(WINDOW * unknowns(d, richest)))
        points, values = known or (np.empty((0, d)), np.empty(0))
        points, values = points[-self._window :], values[-self._window :]
        finite = np.isfinite(values)
        self._points, self._values = list(points[finite]), list(values[finite])
        self._told = self._modelled = len(self._points)  # data in all, and when the model was fitted
        self.model: QuadraticModel | None = None
        self._candidates = np.empty((0, d))  # of this generation; none between two
        self._useless = 0  # generations in a row
        self._pause, self._paused = PAUSE, 0
        self._optimum: Array | None = None
        self._strangers: list[tuple[Array, float]] = []  # told, and no candidates of this generation
        self.generation: Array | None = None  # values of the last that was completed, as evaluated
        if len(self._points) > d:
            self._fit()

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many points to evaluate next."""
        if self._paused:
            return self.inner.population
        begun = len(self._candidates) > 0
        return max(1, self._batch, self._wanted - int(self._known.sum()) if begun else self._first)

    @property
    def _first(self) -> int:
        """How many to begin a generation with: few, and more before there is a model."""
        return 1 + max(int(0.02 * self.inner.population), 3 - len(self._points))  # (1)

    @property
    def family(self) -> RootedGaussian:
        return self.inner.family

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        if not len(self._candidates):
            self._begin(self.inner.sample(rng, self.inner.population))
        fresh = count - int((~self._handed).sum())
        if fresh > 0:  # more than a generation is asked for
            self._extend(self.inner.sample(rng, fresh))
        waiting = np.flatnonzero(~self._handed)
        if self.model is not None:
            waiting = waiting[np.argsort(self.model(_evaluated(self._candidates[waiting])), kind="stable")]
        chosen = waiting[:count]
        self._handed[chosen] = True
        return self._candidates[chosen]

    def _begin(self, candidates: Array) -> None:
        if self._optimum is not None:
            candidates[-1] = self._optimum
        self._candidates = candidates
        self._handed = np.zeros(len(candidates), dtype=bool)
        self._known = np.zeros(len(candidates), dtype=bool)
        self._truth = np.full(len(candidates), np.nan)
        self._wanted = self._first

    def _extend(self, more: Array) -> None:
        self._candidates = np.vstack((self._candidates, more))
        self._handed = np.append(self._handed, np.zeros(len(more), dtype=bool))
        self._known = np.append(self._known, np.zeros(len(more), dtype=bool))
        self._truth = np.append(self._truth, np.full(len(more), np.nan))

    def tell(self, points: Array, values: Array) -> None:
        self.generation = None
        self._allowance.left -= values.size
        strange = self._place(points, values)
        finite = np.isfinite(values)
        self._points.extend(_evaluated(points[finite]))
        self._values.extend(values[finite])
        del self._points[: -self._window], self._values[: -self._window]
        self._told += int(finite.sum())
        self._strangers.extend(zip(points[strange], values[strange], strict=True))
        if not len(self._candidates):
            return
        if not self._paused and self._outdated():
            self._fit()
        if self._known.all() or self._trusted():
            self._complete()
        else:
            self._wanted = math.ceil(1.5 * max(self._wanted, int(self._known.sum())))  # (2)

    def _place(self, points: Array, values: Array) -> NDArray[np.bool_]:
        """Put values to the candidates they belong to; which points are none."""
        strange = np.ones(len(points), dtype=bool)
        if not len(self._candidates):
            return strange
        for i, (point, value) in enumerate(zip(points, values, strict=True)):
            here = np.flatnonzero(~self._known & (self._candidates == point).all(axis=1))
            if here.size:
                self._known[here[0]], self._truth[here[0]], strange[i] = True, value, False
        return strange

    def _outdated(self) -> bool:
        if self.model is None:
            return True
        return self._told - self._modelled > unknowns(self.mean.size, self.model.kind) // FRESH

    def _fit(self) -> None:
        self.model, self._modelled = None, self._told
        if len(self._points) >= 3 and max(map(abs, self._values)) < SQUARES_OVERFLOW:
            self.model = self._latest.fit(np.array(self._points), np.array(self._values), self._told)

    def _trusted(self) -> bool:
        """Whether model and function order the latest evaluations alike."""
        if self.model is None or self._paused or not self._known.any():
            return False
        if np.isfinite(self._truth[self._known]).mean() < SOUND:
            return False
        count = int(max(15, min(1.2 * self._known.sum(), 0.75 * self.inner.population)))  # (3)
        points, values = np.array(self._points[-count:]), np.array(self._values[-count:])
        return kendall(self.model(points), values) >= TRUSTED  # (3)

    def _complete(self) -> None:
        """Tell the update its generation, by the model where that is trusted, and what else was told."""
        truth, known = self._truth, self._known
        if known.all() or self.model is None:
            told = truth
        else:
            told = self.model(_evaluated(self._candidates))
            lowest = truth[known & np.isfinite(truth)].min(initial=math.inf)
            if math.isfinite(lowest):  # the model's lowest is as low as the lowest known
                told = told - told.min() + lowest
            told = np.where(known & ~np.isfinite(truth), np.inf, told)
        points = np.vstack((self._candidates, *(point for point, _ in self._strangers)))
        values = np.append(told, [value for _, value in self._strangers])
        self._strangers.clear()
        if np.isfinite(values).any():  # which way is better
            self.inner.tell(points, values)
            self.generation = truth[known]
        self._rest(known.mean())
        self._candidates = self._candidates[:0]
        self._optimum = None if self.model is None or self._paused else self._best_of(self.model)

    def _best_of(self, model: QuadraticModel) -> Array:
        """The model's minimum where most samples are: farther out it is not to be trusted.

        While the bounds are open, the optimum may be on them, and what is there already is left there. While they are
        closed it is taken to be inside, where a model that goes on along its bounds is misled by what lies beyond.
        """
        center, root, radius = _evaluated(self.mean), self._root, math.sqrt(self.mean.size)
        if self.inner.open:
            return model.minimum_in_box(center, root, radius)
        return _evaluated(model.minimum(center, root, radius))

    def _rest(self, share: float) -> None:
        """Do without a model for a while, if generations are evaluated as a whole all the same."""
        if self._paused:
            self._paused -= self._allowance.left > 0
            return
        if self._allowance.left <= 0:
            self._useless = PAUSE
        self._useless = self._useless + 1 if share > 0.8 or self._allowance.left <= 0 else 0
        if share < 0.5:
            self._pause = PAUSE
        if self._useless >= PAUSE:
            self._useless, self._paused, self._pause = 0, self._pause, 2 * self._pause
            self.model, self._optimum = None, None

    def average(self, values: Array) -> Array | float:
        if self._paused:
            return values
        if self.model is None or self.model.kind == "linear" or len(self._candidates):
            return math.nan  # nothing to go by, or not yet trusted
        root = self._root
        return self.model.average(self.mean, root @ root.T)

    @property
    def _root(self) -> Array:
        """The root of the Gaussian's covariance, as a matrix."""
        return self.inner.inner.root()(np.eye(self.mean.size)).T

    def generation_of(self, values: Array) -> Array | None:
        return self.generation


def _evaluated(points: Array) -> Array:
    """Where samples are evaluated: those beyond a bound, on it (`BoundedUpdate`)."""
    return np.clip(points, 0.0, 1.0)
