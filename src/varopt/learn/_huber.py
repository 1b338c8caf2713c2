"""Huber regression with the scale of the residuals estimated along with the coefficients."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse.linalg import lsmr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

import varopt.model as vo
from varopt._threads import one_thread
from varopt.certificates import DualGap
from varopt.learn._arrays import followers
from varopt.learn._base import SMALLEST_SHARE, Clock, Fit, Solved
from varopt.learn._linear import NON_NEGATIVE, LinearRegressor
from varopt.learn._problem import LinearProblem, penalty
from varopt.learn._rows import Rows
from varopt.optimize import Status

__all__ = ["HuberRegressor"]

Vector = NDArray[np.float64]

_PERFECT = 1e-12  # a scale below this share of that of the targets is an exact fit
_SMALL = 1e-3  # and below this one the best scale may be zero
_BALANCED = 1e-9  # share of what cancels in a pull that counts as balance
_KINK = 1e-9  # share of the targets within which a residual of a fit without a scale vanishes
_ASSUMPTION = (
    "slopes of the losses balance up to rounding, where coefficients are at most twice as large as those found"
)
_CORRECTIONS = 4  # rounds in which slopes are moved until they balance
_FEW = 1000  # features up to which coefficients and scale go together, where there are more rows
_ASTRAY = 0.3  # share of the weights that a slope in the scale may be: beyond, too few rows or too many are outliers
_STEPS = 60  # most of them that way
_CHUNK = 1 << 18  # entries of the data that are gathered at once
_NEAR = 0.2  # logarithms of scales this close have much the same fit


@dataclass(frozen=True)
class _ScaledFit(Fit):
    scale: float = 1.0


class HuberRegressor(LinearRegressor):
    r"""Linear regression that outliers move only so far, with a certified gap.

    Minimises over w, b and the scale sigma, as `sklearn.linear_model.HuberRegressor` does::

        sum_i (sigma + H_epsilon((y_i - w'x_i - b) / sigma) * sigma) + alpha * ||w||_2^2

    with ``H_epsilon(z) = z^2`` up to epsilon and ``2 * epsilon * |z| - epsilon^2`` beyond.

    Parameters
    ----------
    epsilon : float, default=1.35
        From how many sigma on a residual counts linearly, at least 1.
    {max_iter}
    alpha : float, default=0.0001
        Strength of the penalty, at least 0.
    {warm_start}
    {fit_intercept}
    {tol}
    {time_limit}
    {verbose}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    scale_ : float
        sigma, so that ``y / c`` is fitted with ``scale_ / c``.
    outliers_ : ndarray of bool of shape (n_samples,)
        Which residuals exceed ``epsilon * scale_``.
    {fitted}

    Notes
    -----
    The objective is convex in coefficients and scale together. At a given scale it is a Huber loss, solved exactly;
    the scale is the root of a monotone function. Slopes :math:`u_i \in [-2\epsilon, 2\epsilon]` of the losses prove
    the bound :math:`\sum_i u_i y_i - \|X'u\|^2 / 4\alpha` as soon as :math:`\sum_i u_i = 0` and
    :math:`\sum_i (1 - u_i^2 / 4) \ge 0`, the latter reached by shrinking them.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import HuberRegressor
    >>> X = np.arange(20.0)[:, None]
    >>> y = 3.0 * X[:, 0] + np.where(np.arange(20) % 2 == 0, 0.1, -0.1)
    >>> y[7] = 500.0
    >>> model = HuberRegressor().fit(X, y)
    >>> model.coef_.round(2), np.flatnonzero(model.outliers_)
    (array([3.]), array([7]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = LinearRegressor._parameter_constraints | {
        "epsilon": [Interval(Real, 1.0, None, closed="left")],
        "alpha": [NON_NEGATIVE],
    }

    def __init__(
        self, *, epsilon: float = 1.35, max_iter: int = 1000, alpha: float = 0.0001, warm_start: bool = False,
        fit_intercept: bool = True, tol: float = 1e-9, time_limit: float | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.alpha = alpha
        self.warm_start = warm_start
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.time_limit = time_limit
        self.verbose = verbose

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        """The objective at a scale, less its constant, times half the scale; without a scale its limit, halved."""
        scale = options["scale"]
        if scale == 0.0:
            return self.epsilon * problem.total(vo.abs(problem.residual)) + penalty("l2", problem.w, self.alpha)
        ridge = penalty("l2", problem.w, self.alpha * scale)
        return problem.total(vo.huber(problem.residual, self.epsilon * scale)) + ridge

    def _fit_target(self, rows: Rows, y: Any, start: tuple[Vector, float] | None, clock: Clock, **options: Any) -> Fit:
        problem, shift = self._problem(rows, y)
        typical = math.sqrt(float(rows.weight @ problem.y**2) / rows.total)
        if typical == 0.0:
            fit = self._fit_problem(problem, start, clock, shift, scale=1.0)
            return self._concluded(problem, fit, _PERFECT, shift, clock)
        if (piloted := self._piloted(problem, start, typical, shift, clock)) is not None:
            return piloted
        floor, low, high = math.log(_PERFECT * typical), -math.inf, math.inf
        x = math.log(_best_scale(problem.y, rows.weight, self.epsilon) or typical)
        before: tuple[float, float] | None = None
        small = False
        while True:
            # The slope of the objective in the scale, which increases with it; zero at the optimum.
            near = before is None or abs(x - before[0]) < _NEAR
            fit = self._fit_at(math.exp(x), problem, start if near else None, clock, shift)
            start = (fit.coef, fit.intercept)
            residual = self._residual(problem, fit)
            relative = np.minimum((residual / math.exp(x)) ** 2, self.epsilon**2)
            slope = 1.0 - float(rows.weight @ relative) / rows.total
            low, high = (low, x) if slope > 0.0 else (x, high)
            if slope > 0.0 and not small and math.exp(x) < _SMALL * typical:
                small = True
                if (exact := self._without_scale(problem, clock, shift, typical)) is not None:
                    return exact
            secant = x - slope * (x - before[0]) / (slope - before[1]) if before and slope != before[1] else math.nan
            if not low < secant < high:
                # The best scale for these residuals is nearer to the optimum, though not much.
                better = _best_scale(residual, rows.weight, self.epsilon)
                secant = math.log(better) if better > 0.0 else x - 5.0
                if not low < secant < high:
                    secant = 0.5 * (max(low, x - 4.0) + min(high, x + 4.0))
            before = (x, slope)
            if abs(slope) < 1e-10 or abs(secant - x) < 1e-12 or x < floor or clock.is_up:
                return self._concluded(problem, fit, math.exp(x), shift, clock)
            x = min(max(secant, x - 5.0), x + 5.0)

    @one_thread()
    def _piloted(
        self, problem: LinearProblem, start: tuple[Vector, float] | None, typical: float, shift: float, clock: Clock
    ) -> Fit | None:
        """Coefficients and scale together by Newton's method, where that closes the gap: few features, more rows."""
        n, p = problem.X.shape
        if sp.issparse(problem.X) or p > min(_FEW, n):
            return None
        coef, intercept = start or (np.zeros(p), shift)
        level = intercept - shift if self.fit_intercept else 0.0
        scale = _best_scale(problem.y - problem.X @ coef - level, problem.weight, self.epsilon) or typical
        joint = _Joint(problem, self.epsilon, self.alpha, clock, start=(coef, level, scale))
        part = max(1000, 20 * p)
        if start is None and n > 4 * part:  # rows are in no order: the first of them are a sample
            few = LinearProblem(problem.X[:part], problem.y[:part], problem.weight[:part], self.fit_intercept)
            pilot = _Joint(few, self.epsilon, self.alpha, clock, start=joint.point)
            if pilot.descended(_KINK * typical):
                joint.point = pilot.point
        steps = joint.descended(_KINK * typical)
        if not steps or steps > self.max_iter:
            return None
        coef, level, scale = joint.point
        values: dict[Any, Any] = {problem.w: coef} | ({} if problem.b is None else {problem.b: level})
        solved = Solved(math.nan, DualGap(-math.inf, math.inf), steps, np.zeros(0), values)
        fit = self._bracketed(problem, self._fit(problem, solved, shift), scale)
        return fit if fit.solved.certificate.gap <= self._wanted(problem, fit.solved.objective) else None

    def _residual(self, problem: LinearProblem, fit: Fit) -> Vector:
        # As it was solved for: the intercept of targets far from zero has lost digits.
        level = 0.0 if problem.b is None else float(fit.solved.values[problem.b])
        return np.asarray(problem.y - problem.X @ fit.coef - level)

    def _fit_at(
        self, scale: float, problem: LinearProblem, start: tuple[Vector, float] | None, clock: Clock, shift: float
    ) -> Fit:
        """The fit at a scale on the way, whose own gap is nobody's concern: what counts is that of the last."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return self._fit_problem(problem, start, clock, shift, scale=scale)

    def _concluded(
        self, problem: LinearProblem, fit: Fit, scale: float, shift: float, clock: Clock, slope: Vector | None = None
    ) -> Fit:
        """The fit with the objective of coefficients and scale together, and a warning where its gap is open."""
        fit = self._bracketed(problem, fit, scale, slope)
        objective, gap = fit.solved.objective, fit.solved.certificate.gap
        if gap > (wanted := self._wanted(problem, objective)):
            stopped = fit.solved.n_iter >= self.max_iter
            ended = stopped or clock.stopped
            status = Status.INTERRUPTED if ended else Status.TIME_LIMIT if clock.is_up else None
            self._warn(objective, gap, wanted, status, stopped)
        return fit

    def _wanted(self, problem: LinearProblem, objective: float) -> float:
        """The gap that is within the tolerance."""
        weight = problem.weight
        null = 2.0 * math.sqrt(float(weight.sum()) * float(weight @ problem.y**2))  # without coefficients or outliers
        return self.tol * max(abs(objective), SMALLEST_SHARE * null) if null > 0.0 else math.inf

    def _bracketed(self, problem: LinearProblem, fit: Fit, scale: float, slope: Vector | None = None) -> Fit:
        """The fit with the objective of coefficients and scale together, and its dual bound."""
        weight, residual = problem.weight, self._residual(problem, fit)
        slope = np.clip(2.0 * residual / scale if slope is None else slope, -2.0 * self.epsilon, 2.0 * self.epsilon)
        if (flat := self._flat(problem)) is not None:
            slope = _balanced(flat, weight, slope, 2.0 * self.epsilon)
        ridge = self.alpha * float(fit.coef @ fit.coef)
        objective = float(weight @ (scale + _losses(residual, scale, self.epsilon))) + ridge
        shrink = min(1.0, math.sqrt(4.0 * float(weight.sum()) / max(float(weight @ slope**2), 1e-300)))
        lower = shrink * float(weight @ (slope * problem.y)) - self._drag(problem, fit.coef, shrink * slope)
        certificate = DualGap(min(max(lower, 0.0), objective), objective, _ASSUMPTION if lower > 0.0 else "")
        solved = replace(fit.solved, objective=objective, certificate=certificate)
        return _ScaledFit(fit.coef, fit.intercept, solved, scale)

    def _flat(self, problem: LinearProblem) -> Any:
        """The columns of what is not penalised, where there is any."""
        ones = np.ones((problem.y.size, 1))
        if self.alpha > 0.0:
            return ones if self.fit_intercept else None
        if not self.fit_intercept:
            return problem.X
        return sp.hstack([problem.X, ones], format="csr") if sp.issparse(problem.X) else np.hstack([problem.X, ones])

    def _drag(self, problem: LinearProblem, coef: Vector, slope: Vector) -> float:
        """What coefficients can gain at most where the losses have the given slopes: ``pull^2 / (4 alpha)`` each.

        That is large where all but rounding has cancelled in a pull, of data in large units, and the ridge is less.
        Such coefficients are taken to be at most twice as large as they came out. What has no ridge, and is not in
        balance, may gain without end.
        """
        pull = np.abs(problem.X.T @ (problem.weight * slope))
        balanced = pull <= _BALANCED * (abs(problem.X).T @ (problem.weight * np.abs(slope)))
        lifts = self.fit_intercept and abs(problem.weight @ slope) > _BALANCED * (problem.weight @ np.abs(slope))
        if lifts or (self.alpha == 0.0 and not np.all(balanced)):
            return math.inf
        size = np.abs(coef)
        reach = np.where(balanced, 2.0 * size + 1e-6 * size.max(initial=0.0), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.minimum(np.where(pull > 0.0, pull / (2.0 * self.alpha), 0.0), reach)
        return float(pull @ best - self.alpha * (best @ best))

    def _without_scale(self, problem: LinearProblem, clock: Clock, shift: float, typical: float) -> Fit | None:
        """The fit whose scale is zero, the limit of small ones, where that is the optimum.

        Losses are then absolute values. Slopes of those that vanish are whatever balances the rest, the least of them:
        the scale stays at zero if ``sum_i (1 - u_i^2 / 4)`` is not negative.
        """
        fit = self._fit_at(0.0, problem, None, clock, shift)
        residual, weight = self._residual(problem, fit), problem.weight
        kinks = np.flatnonzero(np.abs(residual) <= _KINK * typical)
        if not kinks.size:
            return None
        slope = 2.0 * self.epsilon * np.sign(residual)
        slope[kinks] = 0.0
        pull, total = 2.0 * self.alpha * fit.coef - problem.X.T @ (weight * slope), -float(weight @ slope)
        root = np.sqrt(weight[kinks])[:, None]
        ones = np.ones((kinks.size, int(self.fit_intercept)))
        if sp.issparse(problem.X):
            rows = sp.hstack([problem.X[kinks].multiply(root), root * ones], format="csr")
        else:
            rows = root * np.hstack([problem.X[kinks], ones])
        balance = np.append(pull, total * ones[:1])
        slope[kinks] = _least(rows.T, balance) / root[:, 0]
        held = np.abs(slope).max() <= 2.0 * self.epsilon * (1.0 + _KINK)
        if not held or weight @ (1.0 - slope**2 / 4.0) < 0.0:
            return None
        return self._concluded(problem, fit, 1e-16 * typical, shift, clock, slope)

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        super()._publish_linear(fits, many, X, data, targets)
        (fit,) = fits
        self.scale_ = fit.scale if isinstance(fit, _ScaledFit) else 1.0
        residual = np.abs(targets - data @ fit.coef - fit.intercept)
        self.outliers_ = followers(X, {"outliers_": residual > self.epsilon * self.scale_})["outliers_"]


def _balanced(columns: Any, weight: Vector, slope: Vector, most: float) -> Vector:
    """Slopes near the given ones, none beyond `most`, that pull at none of the columns, as far as there are such."""
    for _ in range(_CORRECTIONS):
        pull = columns.T @ (weight * slope)
        if np.all(np.abs(pull) <= 1e-15 * (abs(columns).T @ (weight * np.abs(slope)))):
            break
        room = most - np.abs(slope)
        scaled = (
            columns.multiply((weight * room)[:, None]) if sp.issparse(columns) else (weight * room)[:, None] * columns
        )
        matrix = columns.T @ scaled
        shift = np.linalg.lstsq(matrix.toarray() if sp.issparse(matrix) else matrix, -pull, rcond=1e-13)[0]
        slope = slope + room * np.clip(columns @ shift, -0.9, 0.9)
    return slope


def _losses(residual: Vector, scale: float, epsilon: float) -> Vector:
    """``H_epsilon(r / scale) * scale``."""
    sizes = np.abs(residual)
    return np.where(sizes <= epsilon * scale, sizes**2 / scale, 2.0 * epsilon * sizes - epsilon**2 * scale)


def _best_scale(residual: Vector, weight: Vector, epsilon: float) -> float:
    """The best scale for given residuals: the root of ``sum_i (1 - min((r_i / s)^2, epsilon^2))``."""
    sizes = np.abs(residual)
    total, largest = float(weight.sum()), float(sizes.max())

    def slope(log_scale: float) -> float:
        return total - float(weight @ np.minimum((sizes / math.exp(log_scale)) ** 2, epsilon**2))

    highest = math.log(max(largest, 1e-300))
    return 0.0 if slope(highest - 40.0) >= 0.0 else math.exp(brentq(slope, highest - 40.0, highest + 1.0))


class _Joint:
    """Newton's method in coefficients, intercept and scale together.

    Within epsilon scales a residual costs ``r^2 / scale``, whose matrix is the outer product of the features and, for
    the scale, ``r / scale``; beyond, it bends nothing. The Gram matrix of the rows within changes by those that cross.
    """

    def __init__(
        self, problem: LinearProblem, epsilon: float, alpha: float, clock: Clock, start: tuple[Vector, float, float]
    ) -> None:
        self.problem, self.epsilon, self.alpha, self.clock, self.point = problem, epsilon, alpha, clock, start
        self.inside = np.zeros(problem.y.size, dtype=bool)
        size = problem.X.shape[1] + 2
        self.gram = np.zeros((size, size))  # the last row and column are for the scale, and stay empty

    def descended(self, least: float) -> int:
        """Go down to where steps gain nothing more, and say after how many; 0 where the scale falls below `least`."""
        p, weight = self.problem, self.problem.weight
        coef, level, scale = self.point
        residual = p.y - p.X @ coef - level
        value, gained = self._value(coef, residual, scale), math.inf
        for step in range(1, _STEPS):
            slope, bent = self._derivatives(coef, residual, scale)
            if abs(slope[-1]) > _ASTRAY * weight.sum() and (best := _best_scale(residual, weight, self.epsilon)) > 0.0:
                scale = best
                value = self._value(coef, residual, scale)
                slope, bent = self._derivatives(coef, residual, scale)
            try:
                move = np.linalg.solve(bent, -slope)
            except np.linalg.LinAlgError:
                return 0
            ahead = p.X @ move[:-2] + move[-2]
            length = 1.0 if move[-1] > -0.9 * scale else -0.9 * scale / float(move[-1])
            gain, rounding = -float(slope @ move), 1e-12 * weight.sum() * scale
            while True:
                new = coef + length * move[:-2], level + length * move[-2], scale + length * move[-1]
                found = self._value(new[0], moved := residual - length * ahead, new[2])
                # What is to be gained below the rounding of values shows in the slope alone: a whole step.
                if found <= value - 1e-4 * length * gain or length < 1e-3 or gain <= rounding:
                    break
                length *= 0.5
            if gain <= rounding and gain >= 0.1 * gained:
                return step
            if not found <= value + rounding or new[2] < least or self.clock.is_up:
                return 0
            (coef, level, scale), residual, value, gained = new, moved, found, gain
            self.point = coef, level, scale
        return 0

    def _value(self, coef: Vector, residual: Vector, scale: float) -> float:
        weight = self.problem.weight
        return float(weight @ (scale + _losses(residual, scale, self.epsilon))) + self.alpha * float(coef @ coef)

    def _derivatives(self, coef: Vector, residual: Vector, scale: float) -> tuple[Vector, Vector]:
        p = self.problem
        relative = residual / scale
        inside = np.abs(relative) <= self.epsilon
        self._cross(np.flatnonzero(inside != self.inside), inside)
        pulls = 2.0 * p.weight * np.clip(relative, -self.epsilon, self.epsilon)
        held = p.weight * np.where(inside, relative, 0.0)
        intercept = float(p.b is not None)
        slope = np.concatenate([
            2.0 * self.alpha * coef - p.X.T @ pulls,
            [-intercept * pulls.sum(), p.weight @ (1.0 - np.minimum(relative**2, self.epsilon**2))],
        ])  # fmt: skip
        bent = self.gram.copy()
        bent[-1] = bent[:, -1] = np.concatenate([p.X.T @ held, [intercept * held.sum(), held @ relative]])
        bent *= 2.0 / scale
        bent[np.diag_indices(coef.size)] += 2.0 * self.alpha
        if not intercept:
            bent[-2, -2] = 1.0
        return slope, bent

    def _cross(self, rows: NDArray[np.intp], inside: NDArray[np.bool_]) -> None:
        """Add the rows that are within by now to the Gram matrix, and take away those that are no longer."""
        p, self.inside = self.problem, inside
        few = max(1, _CHUNK // self.gram.shape[0])
        for start in range(0, rows.size, few):
            part = rows[start : start + few]
            features = np.hstack([p.X[part], np.full((part.size, 1), float(p.b is not None))])
            weight = np.where(inside[part], p.weight[part], -p.weight[part])
            self.gram[:-1, :-1] += features.T @ (weight[:, None] * features)


def _least(matrix: Any, wanted: Vector) -> Vector:
    """The shortest v with ``matrix @ v`` as wanted, or nearly so."""
    if sp.issparse(matrix):
        return np.asarray(lsmr(matrix, wanted, atol=1e-15, btol=1e-15, conlim=0.0)[0])
    return np.asarray(np.linalg.lstsq(matrix, wanted, rcond=None)[0])
