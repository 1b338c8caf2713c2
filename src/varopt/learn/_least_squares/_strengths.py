"""Grids of strengths: from where no coefficients are left, falling."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_scalar

from varopt.learn._least_squares._squares import Squares

__all__ = ["checked", "gradient_at_zero", "grid", "strengths"]

Vector = NDArray[np.float64]


def strengths(squares: Squares, l1_ratio: float, alphas: Any, eps: float, positive: bool) -> Vector:
    """Those given, or so many falling geometrically from that which leaves no coefficients of an elastic net."""
    if not isinstance(alphas, Integral):
        return np.array(checked(alphas, "alphas"))
    if alphas < 1 or not eps > 0.0:
        raise ValueError(f"alphas and eps must be positive; got {alphas} and {eps}.")
    if l1_ratio == 0.0:
        raise ValueError(
            "Automatic alpha grid generation is not supported for l1_ratio=0. Please supply a grid by providing"
            " your estimator with the appropriate `alphas=` argument."
        )
    unit = float(np.abs(squares.gradient).max(initial=0.0)) or 1.0  # whose square may overflow
    sizes = -squares.gradient[:, 0] if positive else unit * np.sqrt(np.square(squares.gradient / unit).sum(axis=1))
    return grid(float(sizes.max()) / l1_ratio, eps, int(alphas))


def grid(largest: float, eps: float, count: int) -> Vector:
    """Strengths falling geometrically from the one that leaves no coefficients to its `eps`-fold."""
    if not np.isfinite(largest):
        raise ValueError("X and y are too large for a grid of strengths: measure them in smaller units, or give them.")
    resolution = float(np.finfo(np.float64).resolution)
    return np.full(count, resolution) if largest <= resolution else np.geomspace(largest, eps * largest, num=count)


def gradient_at_zero(X: Any, dual: Vector, weight: Vector, center: bool) -> Vector:
    """The gradient in each coefficient at zero, negated: the mean product of a feature, centred or not, with `dual`."""
    share = weight / weight.sum()
    product = X.T @ (share * dual)
    return np.asarray(product - (X.T @ share) * float(share @ dual) if center else product)


def checked(values: Any, name: str) -> list[float]:
    """Given strengths, as scikit-learn checks them, from strong to weak."""
    if np.ndim(values) != 1 or not len(values):
        raise ValueError(f"{name} must be a number of them or a list with at least one; got {values!r}.")
    for index, value in enumerate(values):
        check_scalar(value, f"{name}[{index}]", Real, min_val=0.0, include_boundaries="left")
        if not np.isfinite(value):
            raise ValueError(f"{name}[{index}] must be finite; got {value}.")
    return [float(value) for value in np.sort(values)[::-1]]
