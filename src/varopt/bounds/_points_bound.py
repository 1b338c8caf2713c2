r"""Bounds from points: samples with equal weights, or the nodes of a quadrature rule.

    E = sum_i w_i f(x_i)        grad E = sum_i w_i (f(x_i) - b_i) score(x_i)        (score function)
                                grad E = sum_i w_i J_theta(x_i)' grad f(x_i)        (reparameterised)

The baseline b_i is the average of f over the points independent of x_i: it leaves the mean of the estimate as it is
and takes most of its variance.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._bound import Bound, Form, Gradient, assemble, check_form, in_form
from varopt.bounds._hessian import same_choice
from varopt.bounds._layout import Component
from varopt.bounds._target import Target
from varopt.families import name_of

__all__ = ["PointsBound"]

Vector = NDArray[np.float64]

_CHUNK = 1 << 20  # numbers held at once while scores are averaged


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
        step = max(1, _CHUNK // max(1, sum(map(math.prod, shapes.values()))) // unit) * unit
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
