"""Refits to data that are drawn again: pairs, Bayesian weights, wild noise; rows, or clusters of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from varopt.learn._huber import HuberRegressor
from varopt.learn._inference._design import Design
from varopt.learn._inference._sandwich import hessians
from varopt.learn._quantile import QuantileRegressor
from varopt.solvers.quantile import Centre, nearby, reaches

__all__ = ["KINDS", "bootstrap"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

KINDS = ("pairs", "bayesian", "wild")
_WEIGHT_ENTRIES = 1 << 21  # of a chunk of weights: 16 MB, some ten of which are held at a time
_REFITS_AT_ONCE = 250  # the most of a chunk: workers have something to share where rows are few


def bootstrap(
    made: Design, model: Any, kind: str, refits: int, groups: NDArray[np.intp], seed: Any, jobs: int | None
) -> NDArray[np.float64]:
    """Coefficients of the refits, (refits, levels, p). Their numbers hang on the seed, not on the number of jobs.

    `groups` has the number of each row's cluster, of which all rows are drawn together.

    Refits of quantiles start from the fit and share its factors; see `varopt.solvers.quantile`. Those of Huber's
    regression are fitted one by one.
    """
    chunk = max(1, min(_REFITS_AT_ONCE, _WEIGHT_ENTRIES // made.X.shape[0]))
    sizes = [min(chunk, refits - done) for done in range(0, refits, chunk)]
    seeds = np.random.SeedSequence(_entropy(seed)).spawn(len(sizes))
    one = _huber_refits if made.huber else _quantile_refits
    prepared = None if made.huber else hessians(made, "kernel")
    tasks = (delayed(one)(made, model, prepared, kind, size, groups, s) for size, s in zip(sizes, seeds, strict=True))
    return np.concatenate(Parallel(n_jobs=jobs)(tasks))


def _entropy(seed: Any) -> int:
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**31))
    if not isinstance(seed, (int, np.integer)):
        return int(check_random_state(seed).randint(2**31))
    if seed < 0:
        raise ValueError(f"random_state must not be negative; got {seed}.")
    return int(seed)


def _weights(kind: str, groups: NDArray[np.intp], size: int, rng: np.random.Generator) -> Matrix:
    """How often each row counts in each refit."""
    count = int(groups.max()) + 1
    if kind == "pairs":
        drawn = np.empty((count, size), order="F")  # each refit's in one piece
        for weight in drawn.T:
            weight[:] = np.bincount(rng.integers(count, size=count), minlength=count)
    else:
        drawn = rng.standard_exponential((count, size))
        drawn /= drawn.mean(axis=0)
    return drawn if count == groups.size else drawn[groups]


def _quantile_refits(
    made: Design, model: Any, curvature: Any, kind: str, size: int, groups: NDArray[np.intp], seed: Any
) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    X, y = made.scaled()
    shared = None if kind == "wild" else _weights(kind, groups, size, rng)
    signs = rng.random((int(groups.max()) + 1, size)) if kind == "wild" else np.empty(0)
    out = np.empty((size, made.levels.size, X.shape[1]))
    for k, (coef, level) in enumerate(zip(made.coef, made.levels, strict=True)):
        residual = y - X @ coef
        weights, targets = (
            (shared, None) if shared is not None else _wild(X, residual, level, curvature[k], signs[groups])
        )
        moves = nearby(Centre(X, residual, float(level), curvature[k]), weights, targets)
        for b in np.flatnonzero(np.isnan(moves).any(axis=1)):
            again = y if targets is None else targets[:, b] + X @ coef
            refit = QuantileRegressor(quantile=float(level), alpha=0.0, fit_intercept=False)
            moves[b] = refit.fit(X, again, sample_weight=weights[:, b]).coef_ - coef
        out[:, k] = coef + moves
    return out


def _wild(X: Any, residual: Vector, level: float, curvature: Matrix, uniform: Matrix) -> tuple[Matrix, Matrix]:
    """Residuals of either sign whose quantile is zero [FengHeHu11]: 2 (1 - q) with probability 1 - q, else -2 q.

    The plane is drawn towards its rows, so that residuals are too small: by how much the row itself has moved it, its
    subgradient times its leverage, is given back, as quantreg does.
    """
    leverage = np.zeros_like(residual)
    if np.all(np.isfinite(curvature)):
        with suppress(np.linalg.LinAlgError):  # columns that are made of others
            leverage = reaches(X, curvature) ** 2
    given_back = np.abs(residual + leverage * (level - (residual < 0.0)))
    factor = np.where(uniform < 1.0 - level, 2.0 * (1.0 - level), -2.0 * level)
    return np.ones_like(factor), factor * given_back[:, None]


def _huber_refits(
    made: Design, model: Any, prepared: Any, kind: str, size: int, groups: NDArray[np.intp], seed: Any
) -> NDArray[np.float64]:
    if kind == "wild":
        raise ValueError('kind="wild" is for quantiles; Huber\'s regression takes "pairs" or "bayesian".')
    weights = _weights(kind, groups, size, np.random.default_rng(seed))
    constant = bool(model.fit_intercept)
    X = made.X[:, 1:] if constant else made.X
    refit = HuberRegressor(epsilon=model.epsilon, alpha=model.alpha, fit_intercept=constant, tol=1e-6)
    out = np.empty((size, 1, made.X.shape[1]))
    for b in range(size):
        refit.fit(X, made.y, sample_weight=made.weight * weights[:, b])
        out[b, 0] = np.r_[refit.intercept_, refit.coef_] if constant else refit.coef_
    return out
