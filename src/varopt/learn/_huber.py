"""Huber regression with the scale of the residuals estimated along with the coefficients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

import varopt.model as vo
from varopt.certificates import DualGap
from varopt.learn._base import SMALLEST_SHARE, Clock, Fit, Solved
from varopt.learn._compat import Interval
from varopt.learn._data import StoredProblem, StoredRows, WeightedRows, solve_huber_centred, solve_huber_stored
from varopt.learn._linear import LinearRegressor
from varopt.learn._parameters import STRENGTH, Rule, parameter
from varopt.learn._problem import LinearProblem, penalty
from varopt.model import Constraint
from varopt.optimize import Status
from varopt.solvers import State
from varopt.solvers.huber import HuberProblem, Overflow, solve_huber, solve_huber_held

__all__ = ["HuberRegressor"]

Vector = NDArray[np.float64]

# Times what a column varies by, its distance from zero from where on what columns have in common is taken from them
# should the gap stay open, and from where on at once.
_FAR, _FAR_LOST = 8.0, 1e4
_MOST_CENTRED = 1000  # columns
_ROWS_THAT_TELL = 1000  # by which that is seen

_OUTLYING = Rule(
    "From how many sigma on a residual counts linearly, at least 1.", Interval(Real, 1.0, None, closed="left")
)


@dataclass(frozen=True)
class _ScaledFit(Fit):
    scale: float = 1.0


class HuberRegressor(LinearRegressor):
    r"""Linear regression that outliers move only so far, with a certified gap.

    Minimises over w, b and the scale sigma, as `sklearn.linear_model.HuberRegressor` does::

        sum_i (sigma + H_epsilon((y_i - w'x_i - b) / sigma) * sigma) + alpha * ||w||_2^2

    with ``H_epsilon(z) = z^2`` up to epsilon and ``2 * epsilon * |z| - epsilon^2`` beyond.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
    intercept_ : float or ndarray of shape (n_targets,)
    scale_ : float or ndarray of shape (n_targets,)
        sigma, so that ``y / c`` is fitted with ``scale_ / c``.
    outliers_ : ndarray of bool of shape (n_samples,) or (n_samples, n_targets)
        Which residuals exceed ``epsilon * scale_``; left out where data are not in memory.
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

    epsilon: float = parameter(default=1.35, rule=_OUTLYING)
    alpha: float = parameter(default=0.0001, rule=STRENGTH)

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        """The objective at a scale, less its constant, times half the scale; without a scale its limit, halved."""
        scale = options["scale"]
        if scale == 0.0:
            return self.epsilon * problem.total(vo.abs(problem.residual)) + penalty("l2", problem.w, self.alpha)
        ridge = penalty("l2", problem.w, self.alpha * scale)
        return problem.total(vo.huber(problem.residual, self.epsilon * scale)) + ridge

    def _fit_stored(self, data: StoredRows, clock: Clock) -> Any:
        if self.epsilon == 1.0:
            raise ValueError(
                "epsilon=1 has its optimum at a scale of zero, where losses are absolute values: fit LADRegressor to "
                f"data that are {data.X.where}, or take epsilon above 1."
            )
        problem = StoredProblem(data, data.y, self.fit_intercept, 1.0)
        given = self.epsilon, self.alpha, clock, self.tol, self.memory, bool(self.verbose)
        result = solve_huber_stored(problem, *given)
        fit = self._fit_of(problem, result)
        super()._publish_linear([fit], False, data.home, data, data)
        self.scale_: Any = float(result.x[-1])
        return self

    def _fit_target(
        self, rows: WeightedRows, y: Any, start: tuple[Vector, float] | None, clock: Clock, **options: Any
    ) -> Fit:
        problem, shift = self._problem(rows, y)
        coef, level = np.zeros(problem.X.shape[1]), 0.0
        if start is not None:
            level = start[1] - shift + problem.moved(start[0]) if self.fit_intercept else 0.0
            coef = problem.unit * start[0]
        ridge = self.alpha / problem.unit / problem.unit
        huber = HuberProblem(problem.X, problem.y, problem.weight, self.epsilon, ridge, self.fit_intercept)
        null = 2.0 * huber.total * huber.typical  # the objective without coefficients or outliers
        if 0.0 < huber.typical < np.finfo(np.float64).smallest_normal:
            self._refuse_few_digits(null)
        state = State(np.concatenate([coef, [level, huber.typical]]), unit=SMALLEST_SHARE * null)
        fits: list[Fit] = []

        def at_scale(scale: float, near: Vector | None) -> Vector:
            end = self.epsilon * scale
            if not math.isfinite(end * end):  # the loss there
                raise Overflow
            begin = None
            if near is not None:
                coef = near[:-1] / problem.unit
                begin = coef, shift + float(near[-1]) - problem.moved(coef)
            with warnings.catch_warnings():  # the gap of a fit on the way is nobody's concern
                warnings.simplefilter("ignore", ConvergenceWarning)
                fits.append(self._fit_problem(problem, begin, clock, shift, scale=scale))
            values = fits[-1].solved.values
            state.steps = max(state.steps, fits[-1].solved.n_iter)
            return np.append(values[problem.scaled], 0.0 if problem.b is None else values[problem.b])

        def held(scale: float, near: Vector | None) -> tuple[Vector, HuberProblem]:
            x = at_scale(scale, near)
            gradient, at_zero = _lagrangian(problem, fits[-1].solved.multipliers)
            return x, replace(huber, held=2.0 / scale * gradient, held_at_zero=2.0 / scale * at_zero)

        solve: Callable[..., None] = partial(solve_huber, at_scale=at_scale)
        if self._constrained_by:
            solve = partial(solve_huber_held, at_scale=held)
        elif _distance(huber) > _FAR:
            solve = partial(self._centred, problem, clock, solve)
        self._solve(huber, state, clock, solve)
        values = {problem.scaled: state.x[:-2]} | ({} if problem.b is None else {problem.b: state.x[-2]})
        certificate = DualGap(state.lower, state.upper, state.assumption)
        path = fits[-1].solved.sigma_path if fits else np.zeros(0)
        fit = self._fit(problem, Solved(state.upper, certificate, max(1, state.steps), path, values), shift)
        return _ScaledFit(fit.coef, fit.intercept, fit.solved, float(state.x[-1]))

    def _centred(
        self, linear: LinearProblem, clock: Clock, solve: Callable[..., None], problem: HuberProblem, state: State,
        tol: float, check: Callable[[State], None],
    ) -> None:  # fmt: skip
        """Also with what columns have in common taken from them: at first where they have hardly anything else."""
        given, found = (self.epsilon, problem.alpha, clock, tol, bool(self.verbose)), None
        first = _distance(problem) > _FAR_LOST
        if first:
            found = solve_huber_centred(linear, *given)
        try:
            if found is None or found.state is None or not found.state.reached(tol):
                solve(problem, state, tol, check)
        finally:
            if not first and not state.reached(tol) and not clock.is_up and not clock.stopped:
                found = solve_huber_centred(linear, *given)
            seen = None if found is None else found.state
            if seen is not None and seen.gap < state.gap:
                state.x = np.concatenate([seen.x[:-1], [0.0, seen.x[-1]]])
                state.lower, state.upper, state.assumption = seen.lower, seen.upper, seen.assumption
                state.steps += seen.steps

    def _solve(self, problem: HuberProblem, state: State, clock: Clock, solve: Callable[..., None]) -> None:
        """Solve, and warn where the gap stays open."""
        stopped = False

        def check(state: State) -> None:
            nonlocal stopped
            stopped = state.steps >= self.max_iter
            if stopped or clock.is_up:
                raise StopIteration

        try:
            with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is refused below
                solve(problem, state, self.tol, check)
        except StopIteration:
            pass
        except KeyboardInterrupt:
            if not math.isfinite(state.upper):
                raise  # there is no model yet, and nothing is wrong with the data
            clock.stop()
        except Overflow:
            self._refuse()
        if not math.isfinite(state.upper):
            self._refuse()
        if problem.typical > 0.0 and not state.reached(self.tol):
            ended = stopped or clock.stopped
            status = Status.INTERRUPTED if ended else Status.TIME_LIMIT if clock.is_up else None
            self._warn(state.upper, state.gap, state.allowed(self.tol), status, stopped)

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        super()._publish_linear(fits, many, X, data, targets)
        scales = np.array([fit.scale if isinstance(fit, _ScaledFit) else 1.0 for fit in fits])
        fitted = np.stack([data @ fit.coef + fit.intercept for fit in fits], axis=1)
        outliers = np.abs(targets.reshape(fitted.shape) - fitted) > self.epsilon * scales
        self._keep(X, {"outliers_": outliers if many else outliers[:, 0]})
        self.scale_ = scales if many else float(scales[0])


def _distance(problem: HuberProblem) -> float:
    """How far from zero a column is in terms of what it varies by, at most; zero where nothing is to be taken from any.

    An intercept has taken it up before; where epsilon is one, the best scale is zero, and has no square.
    """
    X = problem.X
    if problem.intercept or sp.issparse(X) or problem.epsilon == 1.0 or X.shape[1] > _MOST_CENTRED:
        return 0.0
    low, high = (f(X[:: X.shape[0] // _ROWS_THAT_TELL + 1], axis=0) for f in (np.min, np.max))
    varies = high > low
    return float((np.minimum(np.abs(low), np.abs(high))[varies] / (high - low)[varies]).max(initial=0.0))


def _lagrangian(problem: LinearProblem, multipliers: Mapping[Constraint, Any]) -> tuple[Vector, float]:
    """The constraints times their multipliers: the gradient in coefficients and intercept, and the value at zero."""
    gradient, at_zero = np.zeros(problem.X.shape[1] + 1), 0.0
    for constraint, value in multipliers.items():
        y, g = np.ravel(value), constraint.normal
        at_zero += float(y @ np.broadcast_to(g.offset, y.shape))
        if problem.scaled in g.maps:
            gradient[:-1] += g.maps[problem.scaled].transpose_apply(y)
        if problem.b is not None and problem.b in g.maps:
            gradient[-1] += float(g.maps[problem.b].transpose_apply(y)[0])
    return gradient, at_zero
