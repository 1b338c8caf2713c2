"""Covariances of coefficients: the inverse Hessian of the expected loss around the variance of its gradient.

For quantiles (Koenker and Bassett 1978; Hendricks and Koenker 1992; Powell 1991) the covariance between levels q and s
is ``(min(q, s) - q s) H_q^{-1} J H_s^{-1}`` with ``J = X'X`` and ``H_q = X' diag(f) X``, f the density of each
target at its quantile; how f is estimated is the method. Bandwidths are those of Hall and Sheather (1988), Bofinger
(1975) or Chamberlain (1994) and constants those of `quantreg`, so that numbers can be compared.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from varopt.learn._base import frames_of_ours
from varopt.learn._inference._design import Design, fitted_quantiles, gram

__all__ = ["RULES", "bandwidth", "hessians", "huber_covariance", "quantile_covariance"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_EPS = math.sqrt(np.finfo(np.float64).eps)  # residuals below it rest; added to differences of quantiles, as in quantreg


def bandwidth(level: float, count: int, rule: str = "hall-sheather", shrink: bool = True) -> float:
    """The bandwidth of levels by a rule, for an interval of 95 %, halved until it stays within (0, 1)."""
    h = float(_RULES[rule](level, count))
    while shrink and (level - h < 0.0 or level + h > 1.0):
        h /= 2.0
    return h


def _hall_sheather(level: float, count: int) -> float:
    x = norm.ppf(level)
    spread = 1.5 * norm.pdf(x) ** 2 / (2.0 * x**2 + 1.0)
    return float(count ** (-1 / 3) * norm.ppf(0.975) ** (2 / 3) * spread ** (1 / 3))


def _bofinger(level: float, count: int) -> float:
    x = norm.ppf(level)
    return float(count ** (-1 / 5) * (4.5 * norm.pdf(x) ** 4 / (2.0 * x**2 + 1.0) ** 2) ** (1 / 5))


def _chamberlain(level: float, count: int) -> float:
    return float(norm.ppf(0.975) * math.sqrt(level * (1.0 - level) / count))


_RULES = {"hall-sheather": _hall_sheather, "bofinger": _bofinger, "chamberlain": _chamberlain}
RULES = tuple(_RULES)


def quantile_covariance(made: Design, method: str, rule: str) -> Matrix:
    """The covariance of all coefficients, levels in turn."""
    X = made.scaled()[0]
    inverses = [_inverse(H, method) for H in hessians(made, method, rule)]
    J, levels = gram(X, np.ones(X.shape[0])), made.levels
    common = np.minimum.outer(levels, levels) - np.outer(levels, levels)
    pairs = range(levels.size)
    return np.block([[common[i, k] * (inverses[i] @ J @ inverses[k]) for k in pairs] for i in pairs])


def _inverse(hessian: Matrix, method: str) -> Matrix:
    try:
        if np.all(np.isfinite(hessian)):
            return np.asarray(np.linalg.inv(hessian), dtype=np.float64)
    except np.linalg.LinAlgError:
        pass
    raise ValueError(
        f'method="{method}" finds no density of the residuals near zero: many of them are equal, or rows are few.'
        ' Take method="bootstrap" or "rank".'
    )


def hessians(made: Design, method: str, rule: str = "hall-sheather") -> list[Matrix]:
    """``X' diag(f) X`` at each level, with the rows times their weights."""
    X, y = made.scaled()
    densities = _DENSITIES[method](X, y, made.coef, made.levels, rule)
    return [gram(X, f) for f in densities]


def _iid(X: Any, y: Vector, coef: Matrix, levels: Vector, rule: str) -> list[Vector]:
    """One density for all rows: the inverse of the slope of the residuals' quantiles near the level."""
    n, p = X.shape
    densities = []
    for b, level in zip(coef, levels, strict=True):
        residual = y - X @ b
        resting = int(np.sum(np.abs(residual) < _EPS * max(1.0, float(np.median(np.abs(y))))))
        h = max(p + 1, math.ceil(n * bandwidth(level, n, rule, shrink=False)))
        ranks = np.arange(resting + 1, min(h + resting + 1, n) + 1)
        if ranks.size < 2:  # nearly all rows rest on the plane
            densities.append(np.full(n, np.nan))
            continue
        ordered = np.sort(residual[np.argsort(np.abs(residual), kind="stable")][ranks - 1])
        line = np.column_stack([np.ones(ranks.size), ranks / (n - p)])
        sparsity = fitted_quantiles(line, ordered, np.array([0.5]))[0, 1]
        densities.append(np.full(n, 1.0 / sparsity if sparsity > 0.0 else np.nan))
    return densities


def _nid(X: Any, y: Vector, coef: Matrix, levels: Vector, rule: str) -> list[Vector]:
    """A density for each row: the difference quotient of its fitted quantiles."""
    widths = np.array([bandwidth(level, X.shape[0], rule) for level in levels])
    high, low = fitted_quantiles(X, y, levels + widths), fitted_quantiles(X, y, levels - widths)
    densities = []
    for h, above, below, level in zip(widths, high, low, levels, strict=True):
        rise = X @ (above - below)
        if crossed := int(np.sum(rise <= 0.0)):
            warnings.warn(
                f"At {crossed} of {rise.size} rows the quantiles beside level {level:g} cross: they count as without"
                ' density. method="kernel" and "bootstrap" do not need them.',
                UserWarning,
                stacklevel=frames_of_ours() + 1,
            )
        densities.append(np.maximum(0.0, 2.0 * h / (rise - _EPS)))
    return densities


def _kernel(X: Any, y: Vector, coef: Matrix, levels: Vector, rule: str) -> list[Vector]:
    """Powell's: a normal kernel around the quantile."""
    densities = []
    for b, level in zip(coef, levels, strict=True):
        residual, h = y - X @ b, bandwidth(level, X.shape[0], rule)
        spread = np.subtract(*np.quantile(residual, [0.75, 0.25])) / 1.34
        width = (norm.ppf(level + h) - norm.ppf(level - h)) * min(float(residual.std(ddof=1)), float(spread))
        # Without a width there is no density, which who needs one says.
        densities.append(norm.pdf(residual / width) / width if width > 0.0 else np.full_like(residual, np.nan))
    return densities


_DENSITIES = {"iid": _iid, "nid": _nid, "kernel": _kernel}


def huber_covariance(made: Design, epsilon: float, scale: float, method: str) -> Matrix:
    """Of Huber's coefficients at their scale: [Hub81]'s with its correction for "iid", the sandwich for "nid"."""
    n, p = made.X.shape
    z = (made.y - made.X @ made.coef[0]) / scale
    psi, inside = np.clip(z, -epsilon, epsilon), (np.abs(z) <= epsilon).astype(np.float64)
    if method == "nid":
        inverse = np.linalg.inv(gram(made.X, made.weight * inside))
        return np.asarray(scale**2 * (inverse @ gram(made.X, (made.weight * psi) ** 2) @ inverse))
    share = float(inside.mean())
    correction = 1.0 + p / n * float(inside.var()) / share**2
    inverse = np.linalg.inv(gram(made.X, made.weight))
    spread = correction**2 * float(psi @ psi) / (n - p) / share**2 * scale**2
    return np.asarray(spread * (inverse @ gram(made.X, made.weight**2) @ inverse))
