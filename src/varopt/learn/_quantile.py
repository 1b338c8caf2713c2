"""Quantile regression: one level or many in one fit, crossing or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics import d2_pinball_score

import varopt.model as vo
from varopt.certificates import DualGap
from varopt.learn._base import Clock, Fit, Lines, Solved
from varopt.learn._data import DataMemory, StoredRows, WeightedRows
from varopt.learn._least_squares import ordinary
from varopt.learn._linear import LinearRegressor
from varopt.learn._parameters import BOOLEAN, LEVEL, RIDGE_OR_L1, SHARE, STRENGTH, UNUSED, Rule, one_of, parameter
from varopt.learn._problem import LinearProblem, penalty
from varopt.solvers.quantile import ProcessFit, quantile_process, vertices_along

__all__ = ["LEVELS", "QuantileRegressor", "QuantileScore"]

Vector = NDArray[np.float64]

LEVELS = Rule("The level, in (0, 1), or several.", LEVEL, "array-like", type="float or array-like of float")
_CLOSE_LEVELS = 0.05 + 1e-9  # and rounding: levels that are farther apart are fitted each from the last
_TALL = 200  # rows a feature from which on few rows are near the plane of a neighbour
_VERTICES = 10**7  # n p^2 up to which fits along strengths go from vertex to vertex
_NON_CROSSING = Rule(
    "Whether the quantiles of several levels must be in order at every training row. All levels are then one problem,"
    " the sum of their objectives; what is in order at rows is in order everywhere between them.",
    BOOLEAN,
)


class QuantileScore:
    """The score of one level or of several."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient of determination of one level; of several, the mean of their D^2 pinball scores."""
        levels = np.asarray(self.quantile, dtype=np.float64)  # type: ignore[attr-defined]
        if levels.ndim == 0:
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        predictions = self.predict(X)  # type: ignore[attr-defined]
        scores = [
            d2_pinball_score(y, predictions[:, k], sample_weight=sample_weight, alpha=float(level))
            for k, level in enumerate(levels)
        ]
        return float(np.mean(scores))


class QuantileRegressor(QuantileScore, LinearRegressor):
    """Linear regression of quantiles with a penalty, and a certified gap.

    Minimises for each level q::

        1 / n_samples * sum_i PB_q(y_i - X_i w) + alpha * R(w)

    with the pinball loss ``PB_q(t) = q * max(t, 0) + (1 - q) * max(-t, 0)``; for one level and ``R(w) = ||w||_1`` this
    is the objective of `sklearn.linear_model.QuantileRegressor`. Many levels are fitted in turn, each from the last.

    {parameters}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), (n_quantiles, n_features) or (n_targets, n_features)
    intercept_ : float or ndarray of shape (n_quantiles,) or (n_targets,)
    {fitted}

    Notes
    -----
    With many levels `predict` returns a column per level, `objective_`, `lower_bound_` and `gap_` have an entry per
    level, and `certificate_` is a list; with `non_crossing` there is one of each, for the sum over the levels.

    Where quantiles of separate fits cross, all levels are one problem whose constraints are the order of predictions
    at every training row; its bracket is proved as that of any problem with constraints.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import QuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(1.0, 3.0, size=(500, 1))
    >>> y = X[:, 0] * rng.exponential(size=500)
    >>> model = QuantileRegressor(quantile=[0.1, 0.5, 0.9], alpha=0.0).fit(X, y)
    >>> np.mean(y[:, None] <= model.predict(X), axis=0).round(2)
    array([0.1, 0.5, 0.9])
    >>> bool(np.all(model.gap_ <= 1e-9 * model.objective_))
    True
    """

    quantile: Any = parameter(default=0.5, rule=LEVELS)
    alpha: float = parameter(default=1.0, rule=STRENGTH)
    penalty: str | None = parameter(default="l1", rule=RIDGE_OR_L1)
    l1_ratio: float = parameter(default=0.5, rule=SHARE)
    non_crossing: bool = parameter(default=False, rule=_NON_CROSSING)
    solver: str = parameter(default="auto", rule=Rule(UNUSED, one_of("auto", "highs", "highs-ds", "highs-ipm")))
    solver_options: Any = parameter(default=None, rule=Rule(UNUSED, dict, None))
    _refuses_strings = True

    def _levels(self) -> list[float]:
        levels = np.atleast_1d(np.asarray(self.quantile, dtype=np.float64))
        if levels.ndim != 1 or not levels.size or not np.all((levels > 0.0) & (levels < 1.0)):
            raise ValueError(
                f"The 'quantile' parameter of {type(self).__name__} must be a float in the range (0.0, 1.0) or a"
                f" non-empty sequence of them. Got {self.quantile!r} instead."
            )
        return [float(level) for level in levels]

    def _fits(self, rows: WeightedRows, clock: Clock) -> list[Fit]:
        fits: list[Fit] = []
        levels = self._levels()
        if np.ndim(rows.y) > 1 and rows.y.shape[1] == 1:
            rows = replace(rows, y=rows.y[:, 0])
        elif np.ndim(rows.y) > 1:
            if np.ndim(self.quantile):
                raise ValueError(
                    f"quantile must be one level where y has several targets, {rows.y.shape[1]} here; got"
                    f" {len(levels)} levels. Fit one target after the other for more."
                )
            starts = self._starts(rows.y.shape[1], rows.X.shape[1])
            return [
                self._fit_target(rows, y, start, clock, level=levels[0])
                for y, start in zip(rows.y.T, starts, strict=True)
            ]
        if self._is_process(rows, levels):
            fits = self._process(rows, levels, clock)
        for level, start in zip(levels[len(fits) :], self._starts(len(levels), rows.X.shape[1]), strict=False):
            start = start or ((fits[-1].coef, fits[-1].intercept) if fits else None)
            fits.append(self._fit_target(rows, rows.y, start, clock, level=level))
        return self._in_order(rows, levels, fits, clock) if self.non_crossing and len(levels) > 1 else fits

    def _is_process(self, rows: WeightedRows, levels: list[float]) -> bool:
        """Whether there are levels close to one another, many rows for the features, and no penalty."""
        n, p = rows.X.shape
        if self._constrained_by:
            return False
        several = len(set(levels)) == len(levels) > 2
        close = several and float(np.max(np.diff(np.sort(levels)))) <= _CLOSE_LEVELS
        return close and not sp.issparse(rows.X) and n >= _TALL * p and (self.alpha == 0.0 or self.penalty is None)

    def _process(self, rows: WeightedRows, levels: list[float], clock: Clock) -> list[Fit]:
        """The level next to the median first, then one neighbour after the other, up and down."""
        problem, shift = self._problem(rows, rows.y)
        first = min(range(len(levels)), key=lambda k: abs(levels[k] - 0.5))
        fits = {first: self._fit_problem(problem, None, clock, shift, level=levels[first])}
        by_level = sorted(range(len(levels)), key=lambda k: levels[k])
        place = by_level.index(first)
        above, below = by_level[place + 1 :], by_level[:place][::-1]
        beside = above[:1]  # of the first, on the way down
        for ahead, behind in ((above, None), (below, next(iter(beside), None))):
            here: int = first
            while ahead:  # from each that the last does not lead on to, anew
                known = [(levels[k], fits[k].solved.values) for k in (here, behind) if k is not None]
                for found in self._neighbours(problem, known, [levels[k] for k in ahead], clock):
                    behind, here = here, ahead.pop(0)
                    start = fits[behind].coef, fits[behind].intercept
                    solved = self._proved(problem, levels[here], found)
                    fits[here] = (
                        self._fit_problem(problem, start, clock, shift, level=levels[here])
                        if solved is None
                        else self._fit(problem, solved, shift)
                    )
        return [fits[k] for k in range(len(levels))]

    def _neighbours(
        self, problem: LinearProblem, known: Sequence[tuple[float, Mapping[Any, Any]]], levels: list[float],
        clock: Clock,
    ) -> Iterator[ProcessFit | None]:  # fmt: skip
        """The fits of levels beside one or two whose values are known, as far as one leads on to the next."""
        X = np.asarray(problem.X, dtype=np.float64)
        X = X if problem.b is None else np.hstack([X, np.ones((len(X), 1))])
        places = [
            (level, np.append(at[problem.scaled], [] if problem.b is None else at[problem.b])) for level, at in known
        ]
        share = problem.weight / problem.weight.sum()
        return quantile_process(X, problem.y, share, levels, places[0], lambda: clock.is_up, *places[1:])

    def _proved(self, problem: LinearProblem, level: float, found: ProcessFit | None) -> Solved | None:
        """A fit whose bracket is within the tolerance."""
        if found is None:
            return None
        null = float(np.average(np.maximum(level * problem.y, (level - 1.0) * problem.y), weights=problem.weight))
        if not found.gap <= self._allowed(found.value, null):
            return None
        p = problem.X.shape[1]
        values = {problem.scaled: found.coef[:p]} | ({} if problem.b is None else {problem.b: found.coef[p]})
        certificate = DualGap(found.value - found.gap, found.value)
        return Solved(found.value, certificate, 1, np.zeros(0), values)

    def _fit_stored(self, data: StoredRows, clock: Clock) -> Any:
        levels = self._levels()
        if self.non_crossing and len(levels) > 1:
            raise ValueError(f"non_crossing=True needs data in memory, and these are {data.X.where}.")
        fits = self._fits_stored(data, [data.y] * len(levels), clock, [{"level": level} for level in levels])
        self._publish_linear(fits, len(fits) > 1, data.home, data, data)
        return self

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, Vector], memory: DataMemory, clock: Clock
    ) -> Lines | None:
        if self._constrained_by:
            return None
        rows = memory.rows(*data)
        (n, p), several = rows.X.shape, np.size(self.quantile) > 1
        if several or sp.issparse(rows.X) or n * p * p > _VERTICES or self.penalty not in ("l1", None):
            return None
        if not ordinary(rows.X, rows.y):
            return None
        share, level = rows.weight / rows.total, self._levels()[0]
        center = share @ rows.X * float(self.fit_intercept)
        X = np.hstack([rows.X - center, np.ones((n, int(self.fit_intercept)))])
        free = np.arange(X.shape[1]) >= p
        start = np.append(np.zeros(p), [_quantile(rows.y, share, level)] * int(self.fit_intercept))
        strengths = np.array([settings["alpha"] if self.penalty else 0.0 for settings in path])
        lines = np.full((len(path), X.shape[1]), np.nan)
        for line, x in zip(lines, vertices_along(X, rows.y, share, level, strengths, free, start), strict=True):
            if x is not None:
                line[:] = x
            if clock.is_up:
                break
        return lines[:, :p], lines[:, p:].sum(axis=1) - lines[:, :p] @ center

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        loss = problem.mean(vo.pinball(problem.residual, options["level"]))
        return loss + penalty(self.penalty, problem.w, self.alpha, self.l1_ratio)

    def _in_order(self, rows: WeightedRows, levels: list[float], fits: list[Fit], clock: Clock) -> list[Fit]:
        """All levels as one problem, with the order of their predictions as constraints, where they cross."""
        solved = _joined([fit.solved for fit in fits])
        if self._crossing(rows, levels, fits) > 1e-10 * float(np.abs(rows.y).max(initial=0.0)):
            problems, shift = [], 0.0
            for _ in levels:
                problem, shift = self._problem(rows, rows.y)
                problems.append(problem)
            start: dict[Any, Any] = {}
            for p, fit in zip(problems, fits, strict=True):
                start |= p.at(fit.coef, fit.intercept - shift)
            limits = [limit for p in problems for limit in self._subject_to(p, shift)]
            ranked = [problems[k] for k in np.argsort(levels, kind="stable")]
            limits += [low.prediction <= high.prediction for low, high in pairwise(ranked)]
            objective: Any = sum((self._objective(p, level=q) for p, q in zip(problems, levels, strict=True)), 0.0)
            solved = self._minimize(objective, start, clock, limits)
            fits = [self._fit(p, solved, shift) for p in problems]
        return [replace(fit, solved=solved) for fit in fits]

    def _crossing(self, rows: WeightedRows, levels: list[float], fits: list[Fit]) -> float:
        """The largest amount by which a quantile exceeds that of the next level."""
        ranked = [fits[k] for k in np.argsort(levels, kind="stable")]
        return max(float(np.max(rows.X @ (a.coef - b.coef) + (a.intercept - b.intercept))) for a, b in pairwise(ranked))

    def _apart(self, fits: list[Fit], data: Any) -> list[Fit]:
        """The fits with intercepts raised until no quantile exceeds the next at a row by rounding, whatever the sums.

        The objective, which changes by less than they do, is charged with it.
        """
        ranked, cost = np.argsort(self._levels(), kind="stable"), 0.0
        raised = [fit.intercept for fit in fits]
        unit = 0.5 * float(np.finfo(data.dtype).eps)  # rounding of one operation
        for low, high in pairwise(ranked):
            coef = fits[low].coef.astype(data.dtype), fits[high].coef.astype(data.dtype)
            reach = abs(data) @ (np.abs(coef[0]) + np.abs(coef[1])) + abs(raised[low]) + abs(raised[high])
            rounding = unit * (data.shape[1] + 2) * reach.astype(np.float64)  # of two sums, and of what is kept
            over = data.astype(np.float64) @ (coef[0].astype(np.float64) - coef[1]) + raised[low] - raised[high]
            lift = max(0.0, float(np.max(over + rounding)))
            raised[high], cost = raised[high] + lift, cost + lift
        solved = fits[0].solved
        certificate = replace(solved.certificate, upper=solved.certificate.upper + cost)
        solved = replace(solved, objective=solved.objective + cost, certificate=certificate)
        return [replace(fit, intercept=b, solved=solved) for fit, b in zip(fits, raised, strict=True)]

    def _publish_linear(self, fits: list[Fit], many: bool, X: Any, data: Any, targets: Any) -> None:
        levels = np.ndim(self.quantile) > 0
        many = levels or many
        if levels and len(fits) > 1 and self.non_crossing and self.fit_intercept:
            fits = self._apart(fits, data)
        super()._publish_linear(fits, many, X, data, targets)
        if levels and self.non_crossing:
            self._publish([fits[0].solved], False, X)


def _quantile(y: Vector, share: Vector, level: float) -> float:
    """That of weighted values."""
    order = np.argsort(y)
    place = int(np.searchsorted(np.cumsum(share[order]), level))
    return float(y[order[min(place, y.size - 1)]])


def _joined(solves: list[Solved]) -> Solved:
    """Independent problems as one: their sum, and the sum of their brackets."""
    lower, upper = sum(s.certificate.lower for s in solves), sum(s.certificate.upper for s in solves)
    certificate = replace(solves[0].certificate, lower=lower, upper=upper)
    steps, values = max(s.n_iter for s in solves), {v: x for s in solves for v, x in s.values.items()}
    return Solved(sum(s.objective for s in solves), certificate, steps, solves[0].sigma_path, values)
