"""What every estimator shares: the certified solve, what a fit leaves behind, and the warning when the gap stays open.

An estimator states its objective (`_objective`) and, through the mixins, its decision rule; everything else is here.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from varopt.certificates import Certificate
from varopt.learn._compat import _check_sample_weight, followers, to_numpy, validate_data
from varopt.learn._constraints import Constrained
from varopt.learn._data import DataMemory, StoredProblem, StoredRows, solve_together, stored_rows
from varopt.learn._parameters import BOOLEAN, COUNT, NON_NEGATIVE, POSITIVE, Declared, Rule, parameter
from varopt.learn._problem import LinearProblem
from varopt.model import Constraint, Objective, Variable
from varopt.optimize import Result, Status, minimize
from varopt.solvers import State

__all__ = [
    "INTERCEPT",
    "SMALLEST_SHARE",
    "Certified",
    "CertifiedLinear",
    "Clock",
    "Fit",
    "Lines",
    "OutOfTime",
    "Solved",
    "agreed",
    "frames_of_ours",
]

Vector = NDArray[np.float64]
Lines = tuple[Vector, Vector]  # coefficients, and intercepts, of many fits, one a row

#: The gap is relative to the objective, but never to less than this share of the objective without a model: an exact
#: fit has an objective of zero, and no number is accurate relative to zero.
SMALLEST_SHARE = 2.0**-12
_NEGLIGIBLE_GAP = 1e-12  # share of the objective without a model below which a gap is rounding, and no reason to warn
_LEAST_UNIT = 2.0**-1022  # of an objective: the inverse of less is infinite
_LARGEST_TARGET = 2.0**1020  # size of targets: sums of few that are larger overflow
_LEAST_SECONDS = 1e-3  # seconds that a solve is given when none are left
_TOLERANCE = Rule(
    "The relative certified gap: a fit stops when ``gap_ <= tol * objective_``, where an objective below 1/4096 of that"
    " of the model without coefficients counts as that much.",
    NON_NEGATIVE,
)
_SECONDS = Rule("Seconds after which the best model so far is kept, with its bracket.", POSITIVE, None)
INTERCEPT = Rule("Whether to fit an intercept, which no penalty shrinks.", BOOLEAN)
_WARM = Rule("Whether to start from the coefficients of the previous fit.", BOOLEAN)
_MEMORY = Rule(
    'Bytes that a fit to data that are not in memory may take, or text such as "2GB"; by default a quarter of what is'
    " free.",
    POSITIVE,
    str,
    None,
)
# Relative sigma at which a neighbour's solution is taken up, and where its objective has changed by more than a share:
# farther in, too few rows may move.
_NEIGHBOUR, _FARTHER, _CHANGED = 1 / 16, 1 / 4, 1e-3


@dataclass(frozen=True)
class Solved:
    """One certified solve: what is known of the objective, and the values of its variables."""

    objective: float
    certificate: Certificate
    n_iter: int
    sigma_path: Vector
    values: Mapping[Variable, Any]
    passes: int = 0
    multipliers: Mapping[Constraint, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """A linear model and the solve that it came from."""

    coef: Vector
    intercept: float
    solved: Solved


@dataclass
class Clock:
    """The seconds of a fit, which may consist of many solves, or of a part of it."""

    limit: float | None
    started: float
    whole: Clock | None = None  # that of which this one is a part
    gives_up: bool = False  # whether what it cuts short is of no use
    stopped: bool = False

    @property
    def left(self) -> float | None:
        """Seconds until the limit, a little where none is left: a solve still returns its first point."""
        if self.stopped:
            return _LEAST_SECONDS
        return None if self.limit is None else max(_LEAST_SECONDS, self.limit - (time.perf_counter() - self.started))

    @property
    def is_up(self) -> bool:
        """Whether the limit was reached, or somebody interrupted."""
        return self.stopped or (self.limit is not None and time.perf_counter() - self.started >= self.limit)

    def part(self, parts: int, *, gives_up: bool = False) -> Clock:
        """One of so many equal parts of what is left."""
        limit = None if self.left is None else self.left / parts
        return Clock(limit, time.perf_counter(), whole=self, gives_up=gives_up, stopped=self.stopped)

    def stop(self) -> None:
        """End what is timed, as if the limit were reached."""
        self.stopped = True
        if self.whole is not None:
            self.whole.stop()


class OutOfTime(Exception):
    """A fit was cut short whose model would be of no use."""


class Certified(Declared, BaseEstimator):
    """The options of the solver, the solve, and what it leaves behind."""

    tol: float = parameter(default=1e-9, rule=_TOLERANCE)
    max_iter: int = parameter(default=1000, rule=Rule("Most Newton steps of one problem.", COUNT))
    time_limit: float | None = parameter(default=None, rule=_SECONDS)
    verbose: int = parameter(default=0, rule=Rule("Whether to show progress on standard error.", "verbose"))

    #: How scikit-learn's estimator of the same name says that it stopped too early.
    _stalled = ""
    #: Whether scikit-learn's estimator of the same name refuses numbers that are written out.
    _refuses_strings = False

    @property
    def _method(self) -> Any:
        """What minimises the objective, as `varopt.minimize` takes it."""
        return "auto"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.array_api_support = True
        return tags

    def _read(self, X: Any, y: Any, sample_weight: Any, memory: DataMemory, **checks: Any) -> tuple[Any, Any, Vector]:
        """Data, targets and weights as scikit-learn checks them, in NumPy or SciPy."""
        read: tuple[Any, Any, Vector] = memory.read(
            (self, X, y, sample_weight), lambda: self._check(X, y, sample_weight, **checks)
        )
        return read

    def _check(self, X: Any, y: Any, sample_weight: Any, **checks: Any) -> tuple[Any, Any, Vector]:
        X, y, sample_weight = to_numpy(X, y, sample_weight)
        sparse = "csr" if self.__sklearn_tags__().input_tags.sparse else False
        dtype = "numeric" if self._refuses_strings else (np.float64, np.float32)
        X, y = validate_data(self, X, y, accept_sparse=sparse, dtype=dtype, **checks)
        if X.dtype not in (np.float64, np.float32):
            X = X.astype(np.float64)
        if checks.get("y_numeric") and y.dtype.kind in "SU":  # numbers that are written out, as they may be in X
            y = y.astype(np.float64)
        if y.dtype.kind == "f" and not float(np.abs(y).max(initial=0.0)) <= _LARGEST_TARGET:
            raise ValueError("y contains values that are too large, and need to be rescaled.")
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        with np.errstate(over="ignore"):
            total = float(weight.sum())
        if not math.isfinite(total):
            raise ValueError(f"sample_weight must have a finite sum; got {total}, of weights up to {weight.max():g}.")
        return X, y, weight

    def _clock(self) -> Clock:
        return Clock(self.time_limit, time.perf_counter())

    def _minimize(
        self,
        objective: Objective,
        start: Mapping[Variable, Any] | None,
        clock: Clock,
        subject_to: Sequence[Constraint] = (),
    ) -> Solved:
        # The engine's tolerance is relative above one: in units of the smallest share it is relative all the way down.
        with np.errstate(over="ignore"):
            null = float(objective(np.zeros(objective.size)))
        if not math.isfinite(null):
            raise ValueError(
                f"{type(self).__name__} has an infinite objective without coefficients: y or sample_weight contain"
                " values that are too large, and need to be rescaled."
            )
        least = null * SMALLEST_SHARE
        if null > 0.0 and least < _LEAST_UNIT:
            self._refuse_few_digits(null)
        unit = 2.0 ** math.floor(math.log2(least)) if null > 0.0 else 1.0
        stopped = False

        def limit(state: Any) -> None:
            nonlocal stopped
            if state.steps >= self.max_iter:
                stopped = True
                raise StopIteration

        try:
            with np.errstate(over="ignore"):  # what comes of it has no bracket, or is not finite
                result = minimize(
                    (1.0 / unit) * objective, tol=self.tol, method=self._method, callback=limit,
                    resume=self._neighbour(objective, start), progress=bool(self.verbose), time_limit=clock.left,
                    subject_to=subject_to or None,
                )  # fmt: skip
        except np.linalg.LinAlgError:  # products of the data overflow
            result = None
        if result is not None and result.status is Status.INFEASIBLE:
            raise ValueError(
                f"no coefficients of {type(self).__name__} satisfy all of positive, bounds, monotone and constraints:"
                f" {result.proof}"
            )
        if result is None or not np.all(np.isfinite(result.x)) or result.status is Status.UNBOUNDED:
            self._refuse()
        certificate = replace(result.certificate, lower=unit * result.lower, upper=unit * result.upper)
        value = unit * result.fun
        wanted = max(self.tol * max(abs(value), unit), _NEGLIGIBLE_GAP * null)
        if result.status is Status.INTERRUPTED and not stopped:
            clock.stop()
        if clock.gives_up and clock.is_up:
            raise OutOfTime
        if not certificate.gap <= wanted:
            self._warn(value, certificate.gap, wanted, Status.INTERRUPTED if clock.stopped else result.status, stopped)
        values = {variable: result[variable] for variable in objective.variables}
        multipliers = {c: unit * np.asarray(y) for c, y in (result.multipliers or {}).items()}
        return Solved(value, certificate, max(1, result.nit), result.history["sigma"], values, multipliers=multipliers)

    def _neighbour(self, objective: Objective, start: Mapping[Variable, Any] | None) -> State | None:
        """The solution of a problem that is much the same, and the sigma at which to take it up."""
        if start is None:
            return None
        x = np.concatenate([np.ravel(start[v]).astype(np.float64) for v in objective.variables])
        if x.size > 2 and np.count_nonzero(x) <= 1:  # zeros beside an intercept say nothing that others begin with
            return None
        before = getattr(self, "objective_", None)  # of the last fit, where there was one, and of one problem
        changed = isinstance(before, float) and abs(float(objective(x)) - before) > _CHANGED * before
        return State(x, latest=x, sigma=_FARTHER if changed else _NEIGHBOUR)

    def _allowed(self, objective: Any, null: Any) -> Any:
        """The gap that an objective may have, or each of many, where that without a model is `null`."""
        return np.maximum(self.tol * np.maximum(objective, SMALLEST_SHARE * null), _NEGLIGIBLE_GAP * null)

    def _refuse_few_digits(self, null: float) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} has an objective without coefficients of {null:.3g}, of which double precision"
            " has few digits: y or sample_weight contain values that are too small, and need to be rescaled."
        )

    def _refuse(self) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} iterations resulted in non-finite parameter values. The input data may contain"
            " large values and need to be preprocessed."
        )

    def _warn(self, objective: float, gap: float, wanted: float, status: Status | None, stopped: bool) -> None:
        advice = {
            Status.TIME_LIMIT: f"Raise time_limit, now {self.time_limit} s.",
            Status.LOCAL: "The objective is not convex: this is the best fit that was found.",
            Status.INTERRUPTED: f"Raise max_iter, now {self.max_iter}." if stopped else "The fit was interrupted.",
        }.get(status or Status.GAP_OPEN, "Raise tol, or scale the features.")
        warnings.warn(
            f"{self._stalled}The certified gap is {gap:.3g} at an objective of {objective:.6g}; tol={self.tol:g} asks"
            f" for {wanted:.3g}. {advice}",
            ConvergenceWarning,
            stacklevel=frames_of_ours() + 1,
        )

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, Vector], memory: DataMemory, clock: Clock
    ) -> Lines | None:
        """Coefficients and intercepts for all settings of a path, where they come cheaper together; else None.

        They are NaN for settings that have to be fitted on their own, and after the end of the time.
        """
        return None

    def _keep(self, X: Any, arrays: dict[str, Any]) -> None:
        """Set fitted attributes, in the namespace and on the device of X."""
        for name, value in followers(X, arrays).items():
            setattr(self, name, value)

    def _publish(self, solves: Sequence[Solved], many: bool, X: Any, **arrays: Any) -> None:
        """Set the fitted attributes, in the namespace and on the device of X; per-problem ones as vectors if many."""
        certificates = [solved.certificate for solved in solves]
        paths = [solved.sigma_path for solved in solves]
        numbers = {
            "objective_": [solved.objective for solved in solves],
            "lower_bound_": [certificate.lower for certificate in certificates],
            "gap_": [certificate.gap for certificate in certificates],
        }
        arrays |= {name: np.array(values) if many else float(values[0]) for name, values in numbers.items()}
        if not many:
            arrays["sigma_path_"] = paths[0]
        self._keep(X, arrays)
        if many:
            self.sigma_path_ = paths
        self.certificate_ = certificates if many else certificates[0]
        self.n_iter_ = max(solved.n_iter for solved in solves)
        self.passes_ = max(solved.passes for solved in solves)


class CertifiedLinear(Constrained, Certified):
    """A linear model, or one per target or class. Subclasses state the objective and say what they make of the data."""

    fit_intercept: bool = parameter(default=True, rule=INTERCEPT)
    warm_start: bool = parameter(default=False, rule=_WARM)
    memory: Any = parameter(default=None, rule=_MEMORY)

    @property
    def _free_intercept(self) -> bool:
        """Whether no penalty touches the intercept, so that it makes up for shifts of targets and features."""
        return True

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training data. They need not be in memory: large `numpy.memmap` arrays, the paths of Parquet or ``.npy``
            files, and what `varopt.rows` returns are read in a few passes (`passes_`).
        y : array-like of shape (n_samples,), or (n_samples, n_targets) where several targets are taken
            Targets, or class labels; of files, the column or the file that holds them.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights: zero is an absent row, two is a row given twice.

        Returns
        -------
        self
        """
        self._validate_params()
        data = None if type(X) is np.ndarray else stored_rows(X, y, sample_weight)
        if data is None:
            return self._fit_data(X, y, sample_weight, self._clock(), DataMemory())
        small = data.in_memory(self.memory)
        if small is not None:
            self._fit_data(*small, self._clock(), DataMemory())
            self.passes_ = data.reads
        self.n_features_in_ = data.X.shape[1]
        if data.names is not None:
            self.feature_names_in_ = np.array(data.names, dtype=object)
        if small is not None:
            return self
        if self._constrained_by:
            raise ValueError(f"{self._constrained_by[0]} needs data in memory, and these are {data.X.where}.")
        return self._fit_stored(data, self._clock())

    def _fit_stored(self, data: StoredRows, clock: Clock) -> Any:
        """Fit to data that are not in memory, where the estimator can."""
        raise ValueError(f"{type(self).__name__} needs its data in memory, and these are {data.X.where}.")

    def _fits_stored(
        self, data: StoredRows, targets: Sequence[Any], clock: Clock, options: Sequence[dict[str, Any]] | None = None
    ) -> list[Fit]:
        """A fit for each target, or each set of options, in the same passes over the data."""
        total = data.total()
        problems = [StoredProblem(data, y, self.fit_intercept, total) for y in targets]
        objectives = [
            self._objective(p, **given) for p, given in zip(problems, options or [{}] * len(problems), strict=True)
        ]
        results = solve_together(objectives, clock, self.tol, self.memory, bool(self.verbose))
        return [self._fit_of(problem, result) for problem, result in zip(problems, results, strict=True)]

    def _fit_of(self, problem: LinearProblem, result: Result) -> Fit:
        """What a run over data that are not in memory has found; a warning where its gap is open."""
        if result.status is Status.UNBOUNDED or not np.all(np.isfinite(result.x)):
            self._refuse()
        if not result.success:
            unit = result.state.unit if result.state else 1.0
            self._warn(result.fun, result.gap, self.tol * max(abs(result.fun), unit), result.status, False)
        host = replace(result, place=None)
        values = {variable: host[variable] for variable in result.slices}
        steps, path = max(1, result.nit), result.history["sigma"]
        return self._fit(problem, Solved(result.fun, result.certificate, steps, path, values, result.passes), 0.0)

    def _fit_data(self, X: Any, y: Any, sample_weight: Any, clock: Clock, memory: DataMemory) -> Any:
        """Fit by a clock, which fits may share, to data that earlier fits may have read."""
        raise NotImplementedError

    def _starts(self, count: int, features: int) -> list[tuple[Vector, float] | None]:
        """The coefficients of the previous fit, where they are asked for and of this size."""
        coef = np.atleast_2d(getattr(self, "coef_", np.zeros((0, 0)))) if self.warm_start else np.zeros((0, 0))
        if coef.shape != (count, features):
            return [None] * count
        intercepts = np.broadcast_to(np.ravel(getattr(self, "intercept_", 0.0)), (count,))
        return [(row.astype(np.float64), float(b)) for row, b in zip(coef, intercepts, strict=True)]

    def _objective(self, problem: LinearProblem, **options: Any) -> Any:
        raise NotImplementedError

    def _fit_problem(
        self, problem: LinearProblem, start: tuple[Vector, float] | None, clock: Clock, shift: float, **options: Any
    ) -> Fit:
        """Minimise the objective of a linear problem whose targets were shifted by `shift`."""
        at: dict[Variable, Any] | None = None
        if start is not None:
            at = problem.at(start[0], start[1] - shift)
        limits = self._subject_to(problem, shift)
        solved = self._minimize(self._objective(problem, **options), at, clock, limits)
        return self._fit(problem, solved, shift)

    def _fit(self, problem: LinearProblem, solved: Solved, shift: float) -> Fit:
        with np.errstate(over="ignore"):  # of features so small that no coefficient is large enough
            coef = self._as_ordered(problem.coefficients(solved.values))
        if not np.all(np.isfinite(coef)):
            self._refuse()
        intercept = 0.0 if problem.b is None else shift + float(solved.values[problem.b]) - problem.moved(coef)
        return Fit(coef, intercept, solved)


def agreed(lower: float, upper: float) -> float:
    """A lower end that is not above the upper: where rounding made it so, the gap is what they disagree by."""
    return lower if lower <= upper else upper - (lower - upper)


def frames_of_ours() -> int:
    """How many calls, from the caller of this up, are varopt's own: warnings are of the user's line."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("varopt."):
        frame, count = frame.f_back, count + 1
    return count
