"""Intervals by inverted rank tests: no density is estimated [Koenker94]."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import t as student

from varopt.learn._inference._design import Design, fitted_quantiles, gram
from varopt.solvers.quantile import Centre, nearby, rank_interval, rank_statistic

__all__ = ["rank_intervals"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_JITTER = 1e-9  # of the typical residual: what ties are broken by,
_TIE = 1e-7  # and what they are told by


def rank_intervals(made: Design, confidence: float, seed: Any) -> tuple[Matrix, Matrix, Matrix]:
    """Lower ends, upper ends and p-values, a row for each level."""
    X, y = made.scaled()
    X = X.toarray() if sp.issparse(X) else X
    cutoff = float(student.ppf(0.5 + confidence / 2.0, made.freedom))
    left = 1.0 / np.diagonal(np.linalg.inv(gram(X, np.ones(X.shape[0]))))  # what other columns leave of each
    ends, values = [], []
    for coef, level in zip(made.coef, made.levels, strict=True):
        residual = y - X @ coef
        typical = float(np.mean(np.abs(residual)))
        if typical == 0.0:
            raise ValueError("The fit is exact: every residual is zero, and nothing is left to test.")
        centre = Centre(X, residual, float(level), gram(X, np.full(y.size, 0.4 / typical)))  # as if they were normal
        residual, basis, move = _vertex(centre, typical, seed)
        scales = np.sqrt(level * (1.0 - level) * left)
        tie = _TIE * typical
        reach = [rank_interval(X, basis, residual, level, j, scales[j], cutoff, tie) for j in range(X.shape[1])]
        ends.append([(b - below, b + above) for b, (below, above) in zip(coef + move, reach, strict=True)])
        statistics = np.array([_statistic(X, y, j, float(level), seed) for j in range(X.shape[1])]) / scales
        values.append(2.0 * student.sf(np.abs(statistics), made.freedom))
    both = np.array(ends)
    return both[..., 0], both[..., 1], np.array(values)


def _vertex(centre: Centre, typical: float, seed: Any) -> tuple[Vector, NDArray[np.intp], Vector]:
    """Residuals and resting rows of the optimum, and how far it is, ties being broken: equal rows may go in circles."""
    n, p = centre.X.shape
    noise = np.random.default_rng(seed).uniform(-1.0, 1.0, n) * _JITTER * typical
    shaken = (centre.residual + noise)[:, None]
    move = nearby(centre, np.ones((n, 1)), shaken)[0]
    if np.isnan(move).any():
        raise ValueError('The rank test found no vertex of these data; method="nid" or "bootstrap" need none.')
    residual = shaken[:, 0] - centre.X @ move
    return residual, np.argsort(np.abs(residual))[:p], move


def _statistic(X: Matrix, y: Vector, column: int, level: float, seed: Any) -> float:
    """``x_j'(a - (1 - q) 1)`` where the coefficient is held at zero."""
    others = np.delete(X, column, axis=1)
    if not others.shape[1]:
        return float(X[:, column] @ ((y > 0.0) - (1.0 - level)))
    residual = y - others @ fitted_quantiles(others, y, np.array([level]))[0]
    order = scipy.linalg.qr(
        (others / (np.abs(residual) / (np.mean(np.abs(residual)) or 1.0) + 1e-9)[:, None]).T, mode="r", pivoting=True
    )[1]
    return rank_statistic(others, order[: others.shape[1]], residual, X[:, column], level)
