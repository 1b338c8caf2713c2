r"""Bounds from points: samples with equal weights, or the nodes of a quadrature rule.

    E = sum_i w_i f(x_i)        grad E = sum_i w_i (f(x_i) - b_i) score(x_i)        (score function)
                                grad E = sum_i w_i J_theta(x_i)' grad f(x_i)        (reparameterised)

The baseline b_i is the average of f over the points independent of x_i: it leaves the mean of the estimate and takes most of its variance.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.bounds._bound import Bound, Form, Gradient, Verdict, assemble, theorem_one
from varopt.bounds._layout import Component
from varopt.bounds._target import Target
from varopt.families import LocationScale

__all__ = ["PointsBound"]

Vector = NDArray[np.float64]

_CHUNK = 1 << 20  # numbers held at once while scores are averaged


class PointsBound(Bound):
    """A bound from points in the order of the family.

    Parameters
    ----------
    points : array (n, size)
    weights : array (n,), or None for equal weights
    unit : int
        Points per independent unit, consecutive: 1 for plain samples, 2 for antithetic pairs, the size of a replicate for quasi-random points.
        0 for quadrature, where nothing is random.
    estimator : {"score", "reparameterized"}
    """

    def __init__(self, target: Target, method: str, points: Vector, weights: Vector | None, unit: int, estimator: str) -> None:
        self.target, self.method, self.family = target, method, target.family
        self._points, self._unit, self._estimator = points, unit, estimator
        self._weights = np.full(points.shape[0], 1.0 / points.shape[0]) if weights is None else weights
        self._inputs = target.reorder(points)
        self._values = target.values(self._inputs)
        if estimator == "reparameterized":
            if any(c.is_discrete for c in target.components):
                raise ValueError("estimator 'reparameterized' needs families over real variables; use estimator='score'.")
            if target.slopes is None:
                raise ValueError(f"estimator 'reparameterized' needs a gradient: {target.why_no_slopes}. Use estimator='score'.")

    # -- Value --------------------------------------------------------------------------------------------------------

    @cached_property
    def value(self) -> float:
        return float(self._weights @ self._values)

    def _units(self, contributions: Vector) -> Vector:
        """Averages of independent units, (units, ...)."""
        return contributions.reshape(-1, self._unit, *contributions.shape[1:]).mean(axis=1)

    @cached_property
    def standard_error(self) -> float:
        if self._unit == 0:
            return 0.0
        units = self._units(self._values)
        return float(np.std(units, ddof=1) / math.sqrt(units.size))

    @cached_property
    def _centred(self) -> Vector:
        """``f(x_i)`` minus the average over the other units."""
        n = self._values.size
        if self._unit in (0, n):
            return self._values - self.value
        sums = self._values.reshape(-1, self._unit).sum(axis=1)
        others = (self._values.sum() - sums) / (n - self._unit)
        return self._values - np.repeat(others, self._unit)

    # -- Gradient -----------------------------------------------------------------------------------------------------

    @cached_property
    def _gradients(self) -> tuple[Gradient, Gradient]:
        if self._estimator == "score" and not self.family.has_score:
            raise ValueError(
                f"the score of {type(self.family).__name__} does not exist: its support moves with its parameters. "
                "Use method='sampled' with estimator='reparameterized'."
            )
        slopes = self.target.slopes(self._inputs) if self._estimator == "reparameterized" else None  # type: ignore[misc]
        means, errors, location, location_error = [], [], [], []
        for c in self.target.components:
            # Where the family is a Product, points hold its members in its own order; inputs in the order of the function.
            x = self._inputs[:, c.part]
            mean, error = self._average(c, x, None if slopes is None else slopes[:, c.part])
            means.append(mean)
            errors.append(error)
            location.append(np.ravel(mean[c.location]))
            location_error.append(np.ravel(error[c.location]))
        if self.target.layout is not None:
            layout = self.target.layout
            return assemble(layout, means, np.concatenate(location)), assemble(layout, errors, np.concatenate(location_error))
        if self.target.components[0].key is None:
            return Gradient(means[0], np.concatenate(location)), Gradient(errors[0], np.concatenate(location_error))
        keys = [c.key for c in self.target.components]
        return (
            Gradient(dict(zip(keys, means, strict=True)), np.concatenate(location)),
            Gradient(dict(zip(keys, errors, strict=True)), np.concatenate(location_error)),
        )

    def _average(self, c: Component, x: Vector, slopes: Vector | None) -> tuple[dict[str, Vector], dict[str, Vector]]:
        """Mean and standard error of the gradient contributions of one component, chunk by chunk."""
        parameters = c.family.parameters
        width = max(1, sum(int(np.size(p)) for p in parameters.values()))
        unit = max(1, self._unit)
        chunk = max(unit, _CHUNK // width // unit * unit)
        total = {name: np.zeros(np.shape(p)) for name, p in parameters.items()}
        squares = {name: np.zeros(np.shape(p)) for name, p in parameters.items()}
        scale = x.shape[0]
        for start in range(0, x.shape[0], chunk):
            part = slice(start, start + chunk)
            if slopes is None:
                score = c.family.score(x[part])
                factor = self._centred[part]
                pieces = {name: s * factor.reshape(-1, *([1] * (s.ndim - 1))) for name, s in score.items()}
            else:
                assert isinstance(c.family, LocationScale)
                pieces = c.family.pullback(c.family.standardize(x[part]), slopes[part])
            for name, piece in pieces.items():
                total[name] += np.tensordot(self._weights[part], piece, axes=1)
                if self._unit:
                    squares[name] += (self._units(piece) ** 2).sum(axis=0)
        errors = {}
        for name in parameters:
            if self._unit == 0:
                errors[name] = np.zeros(np.shape(total[name]))
                continue
            units = scale // self._unit
            variance = np.maximum(squares[name] / units - total[name] ** 2, 0.0) * units / max(units - 1, 1)
            errors[name] = np.sqrt(variance / units)
        return total, errors

    @property
    def gradient(self) -> Gradient:
        return self._gradients[0]

    @property
    def gradient_standard_error(self) -> Gradient:
        """Standard error of `gradient`, entry by entry."""
        return self._gradients[1]

    # -- Hessian ------------------------------------------------------------------------------------------------------

    def hessian(self, form: Form = "dense") -> Any:
        r"""Second derivatives in the mean of a Gaussian: :math:`C^{-T} \langle (f - b)(zz^T - I) \rangle C^{-1}`."""
        if form not in ("dense", "diagonal", "operator"):
            raise ValueError(f"form must be one of dense, diagonal, operator; got {form!r}.")
        if not all(c.is_gaussian for c in self.target.components):
            raise ValueError(f"hessian by method {self.method!r} needs Gaussian families.")
        z = np.concatenate([c.family.standardize(self._inputs[:, c.part]) for c in self.target.components], axis=1)  # type: ignore[attr-defined]
        if self._estimator == "reparameterized":
            assert self.target.slopes is not None
            raw = (self._weights[:, None] * self.target.slopes(self._inputs)).T @ z  # <grad f z'> = H C
            hessian = self._solve(raw.T).T
        else:
            weighted = self._weights * self._centred
            raw = (weighted[:, None] * z).T @ z - weighted.sum() * np.eye(z.shape[1])
            hessian = self._solve(self._solve(raw).T)
        hessian = 0.5 * (hessian + hessian.T)
        if form == "diagonal":
            return np.diagonal(hessian).copy()
        if form == "operator":
            from scipy.sparse.linalg import aslinearoperator

            return aslinearoperator(hessian)
        return hessian

    def _solve(self, matrix: Vector) -> Vector:
        """``C^{-T} matrix``, component by component."""
        from scipy.linalg import solve_triangular

        result = np.empty_like(matrix)
        for c in self.target.components:
            factor = np.asarray(c.factor)
            if factor.ndim == 2:
                result[c.part] = solve_triangular(factor.T, matrix[c.part], lower=False)
            else:
                result[c.part] = matrix[c.part] / np.broadcast_to(factor, c.part.stop - c.part.start)[:, None]
        return result

    # -- Gap and convexity --------------------------------------------------------------------------------------------

    @cached_property
    def gap(self) -> float:
        points = [c.family.mode if c.is_discrete else c.family.mean for c in self.target.components]
        return self.value - float(self.target.values(np.concatenate(points)[None, :])[0])

    @property
    def max_gap(self) -> float:
        return self.target.max_gap()

    @property
    def convex(self) -> Verdict:
        if self.target.layout is None:
            return Verdict(False, "the curvature of a black box is unknown")
        return theorem_one(self.target.layout)
