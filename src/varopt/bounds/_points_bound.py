r"""Bounds from points: samples with equal weights, or the nodes of a quadrature rule.

    E = sum_i w_i f(x_i)        grad E = sum_i w_i (f(x_i) - b_i) score(x_i)        (score function)
                                grad E = sum_i w_i J_theta(x_i)' grad f(x_i)        (reparameterised)

The baseline b_i is the average of f over the points independent of x_i: it leaves the mean of the estimate as it is
and takes most of its variance. Samples are plain, antithetic or quasi-random.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._domains import as_generator
from varopt.bounds._bound import Bound, Form, Gradient, assemble, check_form, in_form
from varopt.bounds._hessian import same_choice
from varopt.bounds._layout import Component
from varopt.bounds._target import Target
from varopt.families import name_of

__all__ = ["PointsBound", "SamplingOptions", "sampled_bound"]

Vector = NDArray[np.float64]

_SCORES_AT_ONCE = 1 << 20  # numbers held at once while scores are averaged


class PointsBound(Bound):
    """A bound from points in the order of the function.

    Parameters
    ----------
    points : array (n, size)
    weights : array (n,), or None for equal weights
    unit : int
        Points per independent unit, consecutive: 1 for plain samples, 2 for antithetic pairs, the size of a replicate
        for quasi-random points; 0 for quadrature, where nothing is random.
    estimator : {"score", "reparameterized"}
    """

    def __init__(
        self, target: Target, method: str, points: Vector, weights: Vector | None, unit: int, estimator: str
    ) -> None:
        super().__init__(target, method)
        self._points, self._unit, self._estimator = points, unit, estimator
        self._weights = np.full(len(points), 1.0 / len(points)) if weights is None else weights
        self._values = target.values(points)

    @property
    def points(self) -> Vector:
        """The points, of shape (n, size), in the order of the function."""
        return self._points

    @property
    def values(self) -> Vector:
        """The function at the points."""
        return self._values

    # -- Value --------------------------------------------------------------------------------------------------------

    @cached_property
    def value(self) -> float:
        return float(self._weights @ self._values)

    def _units(self, contributions: Vector) -> Vector:
        """Averages of independent units, (units, ...)."""
        return np.asarray(contributions.reshape(-1, self._unit, *contributions.shape[1:]).mean(axis=1))

    @cached_property
    def standard_error(self) -> float:
        if self._unit == 0:
            return 0.0
        units = self._units(self._values)
        return float(np.std(units, ddof=1) / math.sqrt(units.size))

    @cached_property
    def _centred(self) -> Vector:
        """``f(x_i)`` minus the average over the other units."""
        n, unit = self._values.size, self._unit
        centred = self._values - self.value  # first, so that a large common part costs no digits
        if unit == 0:
            return centred
        sums = centred.reshape(-1, unit).sum(axis=1)
        return np.asarray(centred - np.repeat((sums.sum() - sums) / (n - unit), unit))

    # -- Gradient -----------------------------------------------------------------------------------------------------

    @cached_property
    def _gradients(self) -> Vector | None:
        if self._estimator == "score":
            return None
        return self._target.gradients(self._points)  # type: ignore[misc]  # `check_estimator` saw that there are some

    @cached_property
    def _averages(self) -> list[dict[str, tuple[Vector, Vector]]]:
        """By component and parameter, the gradient and its standard error."""
        if self._estimator == "score":
            for c in self._target.components:
                if c.is_own and not c.family.has_score:
                    raise ValueError(
                        f"a gradient under {name_of(c.family)} needs its parameters, and score(x), or log_density(x) "
                        "and replace(**parameters)."
                    )
                if not c.family.has_score:
                    raise ValueError(
                        f"the score of {type(c.family).__name__} does not exist: its support moves with its "
                        "parameters. Use method='sampled' with estimator='reparameterized'"
                        + (f", for which {self._target.why_no_gradients}." if self._target.why_no_gradients else ".")
                    )
        return [self._average(c) for c in self._target.components]

    def _average(self, c: Component) -> dict[str, tuple[Vector, Vector]]:
        """Mean and standard error of the contributions of one component, chunk by chunk."""
        shapes = {name: np.shape(p) for name, p in c.family.parameters.items()}
        unit = max(1, self._unit)
        step = max(1, _SCORES_AT_ONCE // max(1, sum(map(math.prod, shapes.values()))) // unit) * unit
        running = {name: _Running(shape) for name, shape in shapes.items()}
        total = {name: np.zeros(shape) for name, shape in shapes.items()}
        for start in range(0, len(self._points), step):
            part = slice(start, start + step)
            for name, piece in self._contributions(c, part).items():
                if self._unit:
                    running[name].add(self._units(piece))
                else:
                    total[name] += np.tensordot(self._weights[part], piece, axes=1)
        averages = {
            name: (running[name].mean, running[name].standard_error()) if self._unit else (total[name], np.zeros(shape))
            for name, shape in shapes.items()
        }
        if c.is_discrete:
            mean, error = averages[c.location]
            certain = _certain(c).reshape(mean.shape)
            averages[c.location] = np.where(certain, 0.0, mean), np.where(certain, np.inf, error)
        return averages

    def _contributions(self, c: Component, part: slice) -> dict[str, Vector]:
        x = self._points[part, c.part]
        if self._gradients is not None:
            family: Any = c.family
            return family.pullback(family.standardize(x), self._gradients[part, c.part])  # type: ignore[no-any-return]
        centred = self._centred[part]
        return {name: s * centred.reshape(-1, *[1] * (s.ndim - 1)) for name, s in c.family.score(x).items()}

    def _assemble(self, which: int) -> Gradient:
        components = self._target.components
        if any(c.is_own for c in components):
            return self._of_own_family(which)
        by_key = {c.key: averages for c, averages in zip(components, self._averages, strict=True)}
        location = np.concatenate([np.ravel(by_key[c.key][c.location][which]) for c in components])
        return assemble(components, location, lambda c: np.asarray(by_key[c.key][c.dispersion][which]))

    def _of_own_family(self, which: int) -> Gradient:
        """By parameter; as an array all of them, flat, one after the other."""
        members = []
        for averages in self._averages:
            parts = {name: pair[which] for name, pair in averages.items()}
            members.append(Gradient(np.concatenate([np.ravel(part) for part in parts.values()]), parts))
        if len(members) == 1:
            return members[0]
        keys = [c.key for c in self._target.components]
        return Gradient(np.concatenate([np.asarray(m) for m in members]), dict(zip(keys, members, strict=True)))

    @cached_property
    def gradient(self) -> Gradient:
        return self._assemble(0)

    @cached_property
    def gradient_standard_error(self) -> Gradient:
        return self._assemble(1)

    # -- Hessian ------------------------------------------------------------------------------------------------------

    def hessian(self, form: Form = "dense") -> Any:
        r"""Second derivatives in the mean: an array, its diagonal, or a `LinearOperator`.

        For a Gaussian :math:`C^{-T} \langle (f - b)(zz^T - I) \rangle C^{-1}`, or :math:`\langle \nabla f z^T \rangle
        C^{-1}` where reparameterised; between bits or choices :math:`\langle (f - b) s s^T \rangle` with the score s.
        """
        check_form(form)
        return in_form(self._matrix, form)

    @cached_property
    def _matrix(self) -> Vector:
        for c in self._target.components:
            if not ((c.is_gaussian and c.is_triangular) or c.is_discrete):
                name = name_of(c.family)
                raise ValueError(f"hessian by method {self.method!r} needs Gaussian or discrete families; got {name}.")
        z = np.concatenate([self._standard(c) for c in self._target.components], axis=1)
        if self._gradients is not None:
            raw = (self._weights[:, None] * self._gradients).T @ z
            hessian = self._solve(raw.T).T
            return 0.5 * (hessian + hessian.T)
        weighted = self._weights * self._centred
        raw = (weighted[:, None] * z).T @ z
        for c in self._target.components:
            own = raw[c.part, c.part]
            if c.is_gaussian:
                own[np.diag_indices(c.size)] -= weighted.sum()
            else:
                own[same_choice(c)] = 0.0
                raw[c.part][_certain(c)] = np.nan
                raw[:, c.part][:, _certain(c)] = np.nan
        hessian = self._solve(self._solve(raw).T)
        return 0.5 * (hessian + hessian.T)

    def _standard(self, c: Component) -> Vector:
        """Standardised points of a Gaussian, scores of discrete families."""
        x = self._points[:, c.part]
        if c.is_gaussian:
            return c.family.standardize(x)  # type: ignore[attr-defined,no-any-return]
        return np.reshape(c.family.score(x)[c.location], x.shape)

    def _solve(self, matrix: Vector) -> Vector:
        """``C^{-T} matrix`` in Gaussian components."""
        from scipy.linalg import solve_triangular

        result = matrix.copy()
        for c in self._target.components:
            if c.is_discrete:
                continue
            if c.factor.ndim == 2:
                result[c.part] = solve_triangular(c.factor, matrix[c.part], lower=True, trans="T")
            else:
                result[c.part] = matrix[c.part] / np.broadcast_to(c.factor, c.size)[:, None]
        return result


def _certain(c: Component) -> NDArray[np.bool_]:
    """Coordinates of a discrete component that never change: points cannot tell what changing them would do."""
    p = c.family.mean
    return np.isin(p, (0.0, 1.0) if c.is_bits else (0.0,))


class _Running:
    """Mean and variance of independent units, merged chunk by chunk without cancellation (Chan et al., 1979)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    def add(self, units: Vector) -> None:
        mean = units.mean(axis=0)
        total = self.count + len(units)
        change = mean - self.mean
        self.squares = self.squares + ((units - mean) ** 2).sum(axis=0)
        self.squares += change**2 * (self.count * len(units) / total)
        self.mean = self.mean + change * (len(units) / total)
        self.count = total

    def standard_error(self) -> Vector:
        return np.sqrt(self.squares / (self.count - 1) / self.count)


_SCRAMBLINGS = 16  # independent scramblings of a quasi-random rule: their spread gives the standard error
_ESTIMATORS = ("score", "reparameterized")


@dataclass(frozen=True)
class SamplingOptions:
    """How a sampled bound draws its points, and how it differentiates."""

    samples: Any = 4096
    seed: Any = None
    estimator: str | None = None  # what there is: the score, else the gradient of f
    antithetic: bool = False
    quasi: bool = False

    def __post_init__(self) -> None:
        n = self.samples
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 2:
            raise ValueError(f"samples must be an integer of at least 2; got {n!r}.")
        if self.estimator is not None and self.estimator not in _ESTIMATORS:
            raise ValueError(f"estimator must be 'score' or 'reparameterized'; got {self.estimator!r}.")
        for name in ("antithetic", "quasi"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False; got {getattr(self, name)!r}.")
        if self.antithetic and self.quasi:
            raise ValueError("antithetic and quasi exclude each other: quasi-random points are already balanced.")
        if self.antithetic and (n % 2 or n < 4):
            raise ValueError(f"samples must be even and at least 4 for antithetic pairs; got {n}.")
        if self.quasi and n < 2 * _SCRAMBLINGS:
            raise ValueError(f"samples must be at least {2 * _SCRAMBLINGS} for quasi-random points; got {n}.")


def sampled_bound(target: Target, options: SamplingOptions) -> PointsBound:
    """Draw points and average."""
    if options.estimator == "reparameterized":
        if any(c.is_discrete or c.is_own for c in target.components):
            raise ValueError("estimator 'reparameterized' needs families over real variables; use estimator='score'.")
        if target.gradients is None:
            raise ValueError(
                f"estimator 'reparameterized' needs a gradient: {target.why_no_gradients}. Use estimator='score'."
            )
    n, unit = int(options.samples), 1
    if options.quasi:
        unit = n // _SCRAMBLINGS
        points = _quasi_random(target, unit, options.seed)
    else:
        points = target.family.sample(n, options.seed, antithetic=bool(options.antithetic))
        if options.antithetic:
            unit = 2
            points = np.stack([points[: n // 2], points[n // 2 :]], axis=1).reshape(n, -1)  # pairs side by side
    return PointsBound(target, "sampled", target.reorder(points), None, unit, options.estimator or target.estimator)


def _quasi_random(target: Target, per_replicate: int, seed: Any) -> NDArray[np.float64]:
    from scipy.stats import qmc

    if any(c.is_own for c in target.components):
        raise ValueError("quasi needs a family that maps uniforms to points; one's own object does not.")
    rng = as_generator(seed)
    dimension = target.family.noise_size
    if dimension > qmc.Sobol.MAXDIM:
        raise ValueError(f"quasi needs at most {qmc.Sobol.MAXDIM} coordinates; got {dimension}.")
    keyword = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"  # SciPy renamed it in 1.15
    replicates = []
    for _ in range(_SCRAMBLINGS):
        engine = qmc.Sobol(dimension, scramble=True, **{keyword: rng})
        # A power of two keeps the balance of the sequence; the first points of it are still well spread.
        uniforms = engine.random_base2(max(1, (per_replicate - 1).bit_length()))[:per_replicate]
        replicates.append(target.family.from_uniform(uniforms))
    return np.concatenate(replicates)
