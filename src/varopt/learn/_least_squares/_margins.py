r"""Squared hinges of linear classifiers with a ridge, for many weights of the loss and many classes at once.

    min 1/2 (|w|^2 + rho b^2) + C sum_i c_i max(1 - y_i (w'x_i + b), 0)^2                                           (1)

is least squares on the rows within the margin, so that Newton's method ends after a few steps. All problems take their
steps together, by one call. With a_i = 2 C c_i max(1 - m_i, 0), the gap of a point is at most

    (1) - sum_i (a_i - a_i^2 / (4 C c_i)) + 1/2 |sum_i a_i y_i x_i|^2 + 1/2 (sum_i a_i y_i)^2 / rho,                (2)

whose last part is 2 |b sum_i a_i y_i|, an intercept of twice the size, where no penalty holds the intercept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["squared_hinges_along"]

Vector = NDArray[np.float64]
Array = NDArray[np.float64]

_ROUNDS = 60
_SHORTEST_MARGIN_STEP = 2.0**-20  # share of a step
_ROUNDING_RULES = 1e-14  # gap, as a share of the value, below which rounding rules
_INTERCEPT_RIDGE = 1e-13  # of the trace, for an intercept that no row within the margin holds


def squared_hinges_along(
    X: Array, signs: Array, weight: Vector, strengths: Vector, rho: float | None, stop: Callable[[], bool]
) -> tuple[Array, Vector, Vector]:
    """Minimise (1) for each strength and each column of signs.

    Parameters
    ----------
    X : array of shape (n, p)
    signs : array of shape (n, classes)
    weight, strengths : array of shape (n,), (k,)
        c and C.
    rho : float or None
        The penalty of the intercept; None where there is no intercept.
    stop : callable
        Whether to end.

    Returns
    -------
    lines : array of shape (k, classes, p + 1)
        Coefficients and intercept.
    value, gap : array of shape (k, classes)
        (1), and how far it is from the optimum at most, but for rounding.
    """
    together = _Together(X, signs, weight, strengths, rho)
    with np.errstate(all="ignore"):  # what comes of it is not accepted
        together.descend(stop)
        value, gap = together.bracket()
    shape = strengths.size, signs.shape[1]
    return together.lines.reshape(*shape, -1), value.reshape(shape), gap.reshape(shape)


class _Together:
    """The problems side by side, a row each: strengths, and within these classes."""

    def __init__(self, X: Array, signs: Array, weight: Vector, strengths: Vector, rho: float | None) -> None:
        count = strengths.size
        self.features = np.column_stack([X, np.full(len(X), float(rho is not None))])
        self.signs = np.tile(signs.T, (count, 1))
        self.costs = np.repeat(strengths, signs.shape[1])[:, None] * weight
        self.ridge = np.append(np.ones(X.shape[1]), 1.0 if rho is None else rho)
        self.free = rho == 0.0
        q = self.ridge.size
        self.products = np.einsum("ni,nj->nij", self.features, self.features).reshape(len(X), q * q)
        self.lines = np.zeros((len(self.costs), q))

    def _short(self, lines: Array) -> Array:
        """What margins lack."""
        return np.asarray(np.maximum(1.0 - self.signs * (lines @ self.features.T), 0.0))

    def _values(self, lines: Array, short: Array) -> Vector:
        return np.asarray(0.5 * np.sum(self.ridge * lines**2, axis=1) + np.sum(self.costs * short**2, axis=1))

    def descend(self, stop: Callable[[], bool]) -> None:
        short = self._short(self.lines)
        value, q = self._values(self.lines, short), self.ridge.size
        for _ in range(_ROUNDS):
            gradient = self.ridge * self.lines - 2.0 * (self.costs * short * self.signs) @ self.features
            hessian = (2.0 * self.costs * (short > 0.0)) @ self.products
            hessian[:, :: q + 1] += self.ridge
            hessian[:, -1] += _INTERCEPT_RIDGE * hessian[:, :: q + 1].sum(axis=1)
            try:
                step = -np.linalg.solve(hessian.reshape(-1, q, q), gradient[:, :, None])[:, :, 0]
            except np.linalg.LinAlgError:
                return
            gain = -np.sum(gradient * step, axis=1)
            going = gain > _ROUNDING_RULES * value
            if not going.any() or stop():
                return
            short, value = self._move(np.where(going[:, None], step, 0.0), gain, short, value)

    def _move(self, step: Array, gain: Vector, short: Array, value: Vector) -> tuple[Array, Vector]:
        """A line search for each problem; those that find nothing stay."""
        length = np.ones(len(step))
        while True:
            lines = self.lines + length[:, None] * step
            lacking = self._short(lines)
            found = self._values(lines, lacking)
            better = found <= value - 1e-4 * length * gain
            if np.all(better | (length < _SHORTEST_MARGIN_STEP)):
                break
            length = np.where(better, length, 0.5 * length)
        kept = found <= value
        self.lines = np.where(kept[:, None], lines, self.lines)
        return np.where(kept[:, None], lacking, short), np.where(kept, found, value)

    def bracket(self) -> tuple[Vector, Vector]:
        """(1) and (2)."""
        short = self._short(self.lines)
        value, dual = self._values(self.lines, short), 2.0 * self.costs * short
        product = (dual * self.signs) @ self.features
        lost = product**2 / np.where(self.ridge > 0.0, self.ridge, 1.0)
        held = 0.5 * lost[:, :-1].sum(axis=1)
        held += 2.0 * np.abs(product[:, -1] * self.lines[:, -1]) if self.free else 0.5 * lost[:, -1]
        return value, value - np.sum(dual - 0.5 * dual * short, axis=1) + held
