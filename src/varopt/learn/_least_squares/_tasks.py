"""Several targets whose coefficients vanish together: compiled coordinate descent, as far as a bracket asks for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from varopt.learn._least_squares._squares import Squares

__all__ = ["TaskFit", "fit_tasks", "task_path"]

Vector = NDArray[np.float64]
Array = NDArray[np.float64]

_DESCENT_ROUNDS = 1000  # of coordinate descent between looks at the clock and at the bracket
_TIGHTER = 0.01  # factor of its own tolerance where the bracket asks for more
_LEAST_TOLERANCE = 1e-16  # below which it has nothing left to give


class TaskFit(NamedTuple):
    """Coefficients, a row a feature and a column a target, with their objective and how far it is from the optimum."""

    coef: Array
    value: float
    gap: float
    rounds: int


def fit_tasks(
    squares: Squares, l1: float, l2: float, start: Array, allowed: Callable[[float], float], stop: Callable[[], bool]
) -> TaskFit:
    """Minimise ``squares + l1 sum_j |w_j| + l2 sum_j |w_j|^2 / 2`` over the rows w_j of the coefficients.

    Parameters
    ----------
    squares : Squares
    l1, l2 : float
        Strengths, not both zero.
    start : array of shape (p, targets)
    allowed : callable
        The gap that an objective may have.
    stop : callable
        Whether to end.
    """
    X, y = squares.standard
    alpha, rounds, inner = l1 + l2, 0, 1e-4
    strengths = np.array([l1]), np.array([l2])
    values, gaps = squares.brackets(start[None], *strengths)
    best = TaskFit(start, float(values[0]), float(gaps[0]), rounds)
    while best.gap > allowed(best.value) and inner > _LEAST_TOLERANCE and not stop():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, coefs, _, steps = enet_path(
                X, y, l1_ratio=l1 / alpha, alphas=[alpha], precompute=False, coef_init=np.array(best.coef.T, order="F"),
                return_n_iter=True, check_input=False, tol=inner, max_iter=_DESCENT_ROUNDS,
            )  # fmt: skip
        rounds += int(steps[0])
        coef = np.ascontiguousarray(coefs[..., 0].T, dtype=np.float64)
        values, gaps = squares.brackets(coef[None], *strengths)
        better = TaskFit(coef, float(values[0]), float(gaps[0]), rounds)
        improves = better.gap < best.gap
        best = better if improves else best._replace(rounds=rounds)
        if steps[0] < _DESCENT_ROUNDS or not improves:  # from the same start the same rounds would follow, without end
            inner *= _TIGHTER
    return best


def task_path(
    squares: Squares, l1: Vector, l2: Vector, allowed: Callable[[float], float]
) -> tuple[Array, Vector, list[int]]:
    """Coefficients for each pair of strengths, of shape (k, targets, p), their gaps, and numbers of rounds."""
    fits, start = list[TaskFit](), np.zeros((squares.X.shape[1], squares.y.shape[1]))
    for one, two in zip(l1, l2, strict=True):
        fits.append(fit_tasks(squares, float(one), float(two), start, allowed, lambda: False))
        start = fits[-1].coef
    return np.array([fit.coef.T for fit in fits]), np.array([fit.gap for fit in fits]), [fit.rounds for fit in fits]
