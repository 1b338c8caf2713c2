"""Diagonal covariance matrix adaptation [RH08], and a test that tells, in the run, whether a diagonal will do.

Mean, path and weights are those of the full covariance [H16]. A diagonal has fewer numbers to learn than a matrix, so
that its learning rates are larger, by a factor that [RH08] found; variances v move by factors, so that none becomes
negative [W14]; and the step size follows the ranks of both ends of a line along the last step, of as many deviations as
a sample is away, in two-point adaptation [Ha14]:

    c_1 = a 2 / ((d + 1.3)^2 + mu),    c_mu = a 2 (mu - 2 + 1 / mu) / ((d + 2)^2 + mu),    a = (d + 2) / 3           (1)
    v <- v exp(c_1 (p_c^2 / v - 1) + c_mu sum_i w_i (y_i^2 / v - 1))                                                 (2)
    x = mean +- |z| step / |step / deviations|,    z ~ N(0, I)                                                       (3)
    t <- 0.7 t + 0.3 (rank of the near end - rank of the far end) / (lambda - 1)                                     (4)
    sigma <- sigma exp(b t / sqrt(d)),    b = 2                                                                      (5)

(2) is, to first order, the diagonal of [H16, eq. 47], with the weights of eq. 46. Whether a diagonal will do is told by
points that exchange some of their coordinates: a function that increases with a sum over coordinates orders them alike,

    f(x, y) < f(x', y)    just if    f(x, y') < f(x', y').                                                           (6)

H16: N. Hansen, *The CMA evolution strategy: a tutorial*, arXiv:1604.00772, 2016. Ha14: N. Hansen, A. Atamna and A.
Auger, *How to assess step-size adaptation mechanisms in randomised search*, PPSN 2014. O14: M. N. Omidvar, X. Li, Y.
Mei and X. Yao, *Cooperative co-evolution with differential grouping for large scale optimization*, IEEE Transactions
on Evolutionary Computation 18(3), 2014, has the idea to compare values at points that exchange coordinates; ours is
invariant under increasing transformations of f, tests all coordinates at once, and takes two evaluations. RH08: R. Ros
and N. Hansen, *A simple modification in CMA-ES achieving linear time and space complexity*, PPSN 2008. W14: D. Wierstra
et al., *Natural evolution strategies*, JMLR 15, 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from varopt.families import Family
from varopt.solvers.natural_gradient._cma import default_population
from varopt.solvers.natural_gradient._update import Array, FamilyUpdate, GaussianUpdate, Root
from varopt.solvers.natural_gradient._weights import signed_log_weights

__all__ = ["DiagonalCMA", "SeparableOrNot"]

RESPONSE = 2.0  # b of (5), of the step size to what its ends say; [Ha14] has 1
TESTS = 8  # exchanges in a generation that tests
CONTRADICTIONS = 2  # among all so far, from which on coordinates are taken to depend on each other


class DiagonalCMA(GaussianUpdate):
    """x ~ N(mean, sigma^2 diag(variances)): rank weights, a path, and a step size by both ends of the last step.

    Parameters
    ----------
    mean : array of shape (d,)
        Where to start.
    sigma : float
        The first standard deviation of every coordinate.
    population : int, optional
        Samples of a generation; 4 + 3 log(d) by default.

    Notes
    -----
    A generation costs O(population d). Memory: 4 d numbers and the samples.
    """

    def __init__(self, mean: Array, sigma: float, population: int | None = None) -> None:
        d = mean.size
        self.population = population or default_population(d)
        weights = signed_log_weights(self.population)  # [H16, eq. 49]
        positive, negative = np.maximum(weights, 0.0), np.minimum(weights, 0.0)
        self._parents = int((weights > 0.0).sum())
        self._recombination = positive[: self._parents].copy()
        mu = self._mu_eff = 1.0 / float((positive**2).sum())  # [H16, eq. 8], of weights that sum to one
        self._c_path = (4.0 + mu / d) / (d + 4.0 + 2.0 * mu / d)  # [H16, eq. 56]
        faster = (d + 2.0) / 3.0
        # (1): a times [H16, eq. 57 and 58], without the 1/4 of the latter; one half is ours, for small d.
        self._c_one = min(0.5, faster * 2.0 / ((d + 1.3) ** 2 + mu))
        self._c_mu = min(0.5, faster * 2.0 * (mu - 2.0 + 1.0 / mu) / ((d + 2.0) ** 2 + mu))
        mu_minus = float(negative.sum()) ** 2 / max(float((negative**2).sum()), 1e-300)
        # [H16, eq. 50 and 51]; that of eq. 52 keeps a full matrix definite, and factors keep variances positive.
        alpha = min(1.0 + self._c_one / max(self._c_mu, 1e-300), 1.0 + 2.0 * mu_minus / (mu + 2.0))
        # [H16, eq. 53]
        self._weights = np.where(weights > 0.0, weights, alpha * weights / max(-float(negative.sum()), 1e-300))
        self._mean, self.sigma = np.array(mean, dtype=np.float64), float(sigma)
        self.variances = np.ones(d)
        self._path, self._step = np.zeros(d), np.zeros(d)
        self._trend = 0.0  # how much better the far end of the last steps was than the near one
        self._pair: tuple[bytes, bytes] | None = None

    def root(self) -> Root:
        deviations = self.deviations
        return lambda z: np.asarray(deviations * z)

    def pair(self, rng: np.random.Generator) -> Array | None:
        """Both ends of a line through the mean along its last step, as long as samples are; none at first."""
        white = self._step / self.deviations
        length = math.sqrt(white @ white)
        if not 0.0 < length < math.inf:
            return None
        end = self._step * (math.sqrt(rng.chisquare(white.size)) / length)  # (3)
        found = np.array([self._mean + end, self._mean - end])
        self._pair = found[0].tobytes(), found[1].tobytes()
        return found

    def tell(self, points: Array, values: Array) -> None:
        order = np.argsort(values, kind="stable")
        self._resize(points, order)
        order = order[: self.population]
        y = (points[order] - self._mean) / self.sigma  # ~ N(0, diag(variances))
        step = self._recombination[: len(order)] @ y[: self._parents]  # <y>_w [H16, eq. 41]
        self._step = self.sigma * step
        self._mean = self._mean + self._step  # m <- m + sigma <y>_w [H16, eq. 42]
        c = self._c_path
        # p_c <- (1 - c_c) p_c + sqrt(c_c (2 - c_c) mu_eff) <y>_w [H16, eq. 45]
        self._path = (1.0 - c) * self._path + math.sqrt(c * (2.0 - c) * self._mu_eff) * step
        squares = y * y / self.variances
        weights = self._weights[: len(order)].copy()
        worse = weights < 0.0
        # w_i d / |C^(-1/2) y_i|^2 [H16, eq. 46]
        weights[worse] *= self._mean.size / np.maximum(squares[worse].sum(axis=1), 1e-300)
        # The exponent of (2): what [H16, eq. 47] adds to the diagonal, relative to it.
        gradient = self._c_one * (self._path**2 / self.variances - 1.0)
        gradient += self._c_mu * (weights @ squares - self._weights[: len(order)].sum())
        # The scale is the step size's alone: variances only say how coordinates differ.
        self.variances = self.variances * np.exp(np.clip(gradient, -1.0, 1.0))  # (2)
        self.sigma *= math.exp(RESPONSE * self._trend / math.sqrt(self._mean.size))  # (5)

    def _resize(self, points: Array, order: NDArray[np.intp]) -> None:
        """Whether a longer step would have been better, by the ranks of both ends of the last one."""
        pair, self._pair = self._pair, None
        if pair is None:
            return
        keys = [point.tobytes() for point in points[:2]]
        if tuple(keys) != pair:  # told in another order
            keys = [point.tobytes() for point in points]
            if pair[0] not in keys or pair[1] not in keys:
                return
        ranks = np.empty(len(order))
        ranks[order] = np.arange(len(order))
        far, near = ranks[keys.index(pair[0])], ranks[keys.index(pair[1])]
        self._trend = 0.7 * self._trend + 0.3 * float(near - far) / max(1, len(order) - 1)  # (4)

    @property
    def deviations(self) -> Array:
        return np.asarray(self.sigma * np.sqrt(self.variances))

    @property
    def spread(self) -> float:
        return float(self.sigma * math.sqrt(self.variances.max()))

    def exhausted(self) -> str:
        return "the variances are too far apart" if self.variances.max() > 1e14 * self.variances.min() else ""


class SeparableOrNot(FamilyUpdate):
    """A diagonal update as long as coordinates do not depend on each other, then one that lets them.

    Two samples x and y exchange some of their coordinates, which makes two more points. If the better half of
    coordinates is better whatever the others are, both of x, y and both of the new points order it alike: so it is for
    every increasing function of a sum over coordinates. A contradiction shows that they depend on each other. Some
    generations test, ever more rarely; what is tested is told to the update as well.

    Parameters
    ----------
    diagonal : DiagonalCMA
        The update that begins.
    joint : callable
        From a mean and a spread to the update that goes on once coordinates depend on each other.
    within : callable
        What keeps an update within its bounds.
    """

    def __init__(
        self,
        diagonal: DiagonalCMA,
        joint: Callable[[Array, float], GaussianUpdate],
        within: Callable[[GaussianUpdate], FamilyUpdate],
    ) -> None:
        self._diagonal, self._joint, self._within = diagonal, joint, within
        self.current, self._switched = within(diagonal), False
        self._generation, self._next_test = 0, 0
        self._exchanges: list[tuple[bytes, bytes, bytes, bytes]] = []  # x, y, and both with coordinates exchanged
        self._most = max(0, min(TESTS, (diagonal.population - 2) // 2))  # exchanges in a generation
        self.contradictions, self.tests = 0, 0

    @property
    def separable(self) -> bool:
        """Whether coordinates have not been seen to depend on each other."""
        return self.contradictions < CONTRADICTIONS

    @property
    def _testing(self) -> bool:
        return self.separable and self._generation >= self._next_test

    @property
    def population(self) -> int:  # type: ignore[override]
        """How many samples the next `tell` expects."""
        return self.current.population + (2 * self._most if self._testing else 0)

    @property
    def family(self) -> Family:
        """The family of the update that is at work."""
        return self.current.family

    def refresh(self, rng: np.random.Generator) -> None:
        self.current.refresh(rng)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        testing = self._testing and count >= self.population
        points = self.current.sample(rng, count - 2 * self._most if testing else count)
        pair = None if self._switched or len(points) < self._diagonal.population else self._diagonal.pair(rng)
        if pair is not None:
            points[:2] = pair
        if not testing:
            return points
        places = range(2, 2 + 2 * self._most, 2)
        return np.vstack((points, *(self._exchange(rng, points[k], points[k + 1]) for k in places)))

    def _exchange(self, rng: np.random.Generator, x: Array, y: Array) -> Array:
        mine = rng.random(x.size) < 0.5
        one, other = np.where(mine, x, y), np.where(mine, y, x)
        self._exchanges.append((x.tobytes(), y.tobytes(), one.tobytes(), other.tobytes()))
        return np.array([one, other])

    def tell(self, points: Array, values: Array) -> None:
        if self._exchanges:
            self._judge(points, values)
        self._generation += 1
        self.current.tell(points, values)
        if not self.separable and not self._switched:
            self.current = self._within(self._joint(self.current.mean, self.current.spread))
            self._switched = True

    def _judge(self, points: Array, values: Array) -> None:
        known = {point.tobytes(): float(value) for point, value in zip(points, values, strict=True)}
        for exchange in self._exchanges:
            found = [known.get(key, math.inf) for key in exchange]
            if all(map(math.isfinite, found)):
                self.tests += 1
                self.contradictions += _contradicts(*found)
        self._exchanges.clear()
        self._next_test = max(2 * self._generation, self._generation + 5)

    @property
    def mean(self) -> Array:
        return self.current.mean

    @property
    def spread(self) -> float:
        return self.current.spread

    def exhausted(self) -> str:
        return self.current.exhausted()


def _contradicts(x: float, y: float, one: float, other: float) -> bool:
    """Whether one set of coordinates is better beside some of the others, and worse beside the rest.

    `one` has the first set of x and the second of y. The first set of x against that of y: (x, other) beside the second
    set of x, (one, y) beside that of y. Likewise the second sets.
    """
    return (x - other) * (one - y) < 0.0 or (x - one) * (other - y) < 0.0  # (6)
