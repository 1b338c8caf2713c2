"""One elastic net: pivoting on a small Gram matrix, or compiled coordinate descent, to a bracket."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from varopt.learn._least_squares._squares import Squares
from varopt.solvers import pivoted_along

__all__ = ["OneFit", "fit_one"]

Vector = NDArray[np.float64]
Array = NDArray[np.float64]
Indices = NDArray[np.intp]

_PIVOTED = 100  # features up to which their Gram matrix costs less than a descent
_CENTERED_ENTRIES = 1 << 25  # entries up to which features are centred and copied for a descent
_DESCENT_TOLERANCES = 1e-8, 1e-10, 1e-12  # of a descent, its own, until the bracket is narrow enough
_DESCENT_PASSES = 15, 1 / 20  # over the data that a descent may take: so many, or this share of the features
_FIRST_WORKING_SET = 32  # features of the first working set
# Tolerance and passes of descents on working sets: the first is for the signs, which pivoting takes up; the others are
# for columns that repeat others, where it does not.
_ON_FEW = (1e-4, 100), (1e-10, 10_000), (1e-12, 10_000)
_WORKING_SETS = 50  # of working sets
_BEYOND_STRENGTH = 1e-12  # share of the strength by which a gradient has to exceed it


class OneFit(NamedTuple):
    """Coefficients of one target, their objective, how far it is from the optimum at most, and rounds of the search."""

    coef: Vector
    value: float
    gap: float
    rounds: int


@dataclass
class _Net:
    """``squares + l1 |w|_1 + l2 |w|^2 / 2``, where w may have to be `positive`."""

    squares: Squares
    l1: float
    l2: float
    positive: bool

    def bracketed(self, coef: Vector, rounds: int) -> OneFit:
        values, gaps = self.squares.brackets(coef[None], np.array([self.l1]), np.array([self.l2]), self.positive)
        return OneFit(coef, float(values[0]), float(gaps[0]), rounds)

    def descend(self, X: Array, y: Vector, coef: Vector, tol: float, passes: int) -> tuple[Vector, bool]:
        """Coordinate descent on features and targets in standard form, and whether it ended by itself."""
        alpha = self.l1 + self.l2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, coefs, _, steps = enet_path(
                X, y, l1_ratio=self.l1 / alpha, alphas=[alpha], precompute=False, coef_init=coef, return_n_iter=True,
                check_input=False, tol=tol, max_iter=passes, positive=self.positive,
            )  # fmt: skip
        return np.asarray(coefs[:, 0]), bool(steps[0] < passes)


def fit_one(
    squares: Squares, l1: float, l2: float, positive: bool, start: Vector | None, allowed: Callable[[float], float],
    stop: Callable[[], bool],
) -> OneFit | None:  # fmt: skip
    """Minimise ``squares + l1 |w|_1 + l2 |w|^2 / 2``, over w that are not negative where they must be `positive`.

    Parameters
    ----------
    squares : Squares
        Of one target.
    l1, l2 : float
    positive : bool
    start : array of shape (p,), optional
        Coefficients that may be near.
    allowed : callable
        The gap that an objective may have.
    stop : callable
        Whether to end.

    Returns
    -------
    OneFit or None
        None where the gap stays wider: descent is not fond of correlated columns, nor of ridges alone.
    """
    net, (n, p) = _Net(squares, l1, l2, positive), squares.X.shape
    start = np.zeros(p) if start is None else np.maximum(start, 0.0) if positive else start.copy()
    if p <= _PIVOTED:
        coef = squares.minimisers(np.array([l1]), np.array([l2]), positive, stop)[0]
        found = None if np.isnan(coef).any() else net.bracketed(coef, 1)
    elif l1 == 0.0 or sp.issparse(squares.X) or n * p > _CENTERED_ENTRIES:
        return None
    else:
        found = (_by_descent if p <= n else _by_working_sets)(net, start, allowed, stop)
    return found if found is not None and found.gap <= allowed(found.value) else None


def _by_descent(net: _Net, coef: Vector, allowed: Callable[[float], float], stop: Callable[[], bool]) -> OneFit | None:
    """Descent on all features, to tighter and tighter tolerances of its own."""
    X, y = net.squares.standard
    passes, found = max(_DESCENT_PASSES[0], int(_DESCENT_PASSES[1] * coef.size)), None
    for rounds, tol in enumerate(_DESCENT_TOLERANCES, 1):
        coef, ended = net.descend(X, np.ascontiguousarray(y[:, 0]), coef, tol, passes)
        if not ended or stop():
            return None
        found = net.bracketed(coef, rounds)
        if found.gap <= allowed(found.value):
            break
    return found


def _by_working_sets(
    net: _Net, coef: Vector, allowed: Callable[[float], float], stop: Callable[[], bool]
) -> OneFit | None:
    """Minimisers on few of the features, which grow by those whose gradients are beyond the strength."""
    columns, ladder = _Columns(net.squares), list(_ON_FEW)
    working = np.union1d(_steepest(columns.gradient(coef, net.positive), _FIRST_WORKING_SET), np.flatnonzero(coef))
    for rounds in range(1, _WORKING_SETS):
        coef[working], exact = _on(net, columns, working, coef[working], ladder[0])
        beyond = columns.gradient(coef, net.positive) - net.l1
        beyond[working] = -np.inf
        more = np.flatnonzero(beyond > _BEYOND_STRENGTH * net.l1)
        if stop():
            return None
        if more.size:
            working = np.union1d(
                working, more[_steepest(beyond[more], max(_FIRST_WORKING_SET // 2, int(np.count_nonzero(coef))))]
            )
            continue
        found = net.bracketed(coef, rounds)
        if exact or found.gap <= allowed(found.value) or len(ladder) == 1:
            return found
        ladder.pop(0)
    return None


def _steepest(gradient: Vector, most: int) -> Indices:
    """The places of the largest entries."""
    return np.argpartition(-gradient, most)[:most] if most < gradient.size else np.arange(gradient.size)


def _on(net: _Net, columns: _Columns, working: Indices, coef: Vector, how: tuple[float, int]) -> tuple[Vector, bool]:
    """The minimiser on a working set: descent for the signs, and pivoting; whether that found it."""
    X, y = columns.taken(working), columns.y
    coef, _ = net.descend(X, y, coef, *how)
    gram, product = X.T @ X / y.size, X.T @ y / y.size
    steepest = 2.0 * np.sqrt(gram.diagonal() * (y @ y) / y.size) + np.abs(product) if net.positive else None
    sides = np.sign(coef).astype(np.int8)
    exact = next(pivoted_along(gram, -product, np.array([net.l1]), np.array([net.l2]), steepest, sides))
    return (coef, False) if exact is None else (np.maximum(exact, 0.0) if net.positive else exact, True)


class _Columns:
    """Features in standard form, of which only those that are asked for are made."""

    def __init__(self, squares: Squares) -> None:
        self.squares, self.root = squares, np.sqrt(squares.share * squares.share.size)
        self.y = self.root * (squares.y[:, 0] - squares.level[0])

    def taken(self, which: Indices) -> Array:
        return np.asfortranarray((self.squares.X[:, which] - self.squares.center[which]) * self.root[:, None])

    def gradient(self, coef: Vector, positive: bool) -> Vector:
        """What a feature would gain: its mean product with the residuals, or the size of it."""
        moving = np.flatnonzero(coef)
        residual = self.y - self.taken(moving) @ coef[moving]
        product = (residual * self.root / self.y.size) @ self.squares.X  # residuals add up to zero
        return np.asarray(product if positive else np.abs(product))
