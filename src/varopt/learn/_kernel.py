"""Kernel machines: scikit-learn's own, with LIBSVM as the pilot and an exact, certified finish.

The classes are subclasses of scikit-learn's, so that kernels, one-vs-one, sparse input and prediction are theirs.
LIBSVM's SMO comes close quickly and then crawls; it is stopped early, and `varopt.solvers.kernel` finishes.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import svm
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels

from varopt import terms
from varopt._clock import TimeUp, deadline, tick
from varopt._threads import one_thread
from varopt._verified import UNIT, Pair, two_sum
from varopt.certificates import Certificate, DualGap, NoCertificate
from varopt.learn._base import SMALLEST_SHARE, Certified, agreed
from varopt.learn._compat import PROBABILITY, BaseLibSVM, to_numpy
from varopt.learn._kernel_proof import Machine, prove
from varopt.learn._kernel_rounding import KernelValues, centred
from varopt.learn._parameters import CLASS_WEIGHT, NON_NEGATIVE, Declared, Rule, as_in, parameter
from varopt.solvers import State
from varopt.solvers.kernel import KernelProblem, solve_kernel

__all__ = ["SVC", "SVR"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]
_Block = Callable[[Index, Index], Vector]

_LIBSVM_STEPS = 100_000  # of LIBSVM's steps, and a hundred a sample: several times what it takes where it ends
# Seconds for an entry of the data and for an exponential, of a row of the kernel.
_KERNEL_ENTRY_SECONDS, _KERNEL_ROW_SECONDS = 1e-9, 2e-8
_FEWEST_LIBSVM_STEPS = 20  # of LIBSVM, however short the time
_PILOT_TOLERANCE = 1e-3  # LIBSVM's own tolerance while it is the pilot: scikit-learn's default
_WHOLE_KERNEL = 300  # samples up to which the whole kernel is computed at once
_KEPT_KERNEL = 2048  # samples up to which what is computed of it is kept
_LARGEST_C = 1e10  # what an infinite C is taken as
_SMALLEST_COST = 5e-324  # of a sample whose weight times C would underflow
_PRODUCTS_ROUNDED = 8.0 * UNIT  # share of a weight by which two products may be off
_KERNEL = (
    'The kernel. That of "sigmoid" is not positive semidefinite: its fits are LIBSVM\'s and have no lower bound. Of'
    ' "precomputed", callables and "poly" with a negative `coef0` the certificate assumes that it is, unless the matrix'
    " is small and seen to be, but for its own rounding."
)
_PROBABILITY = "As in scikit-learn; use `sklearn.calibration.CalibratedClassifierCV` instead."


def _among(block: _Block, samples: Index) -> _Block:
    """The kernel among some of the samples."""
    return lambda rows, columns: block(samples[rows], samples[columns])


class _Columns:
    """The kernel, columns of which are computed when they are first asked for, as a solve does and again its proof."""

    def __init__(self, block: _Block, count: int) -> None:
        self._block, self._every = block, np.arange(count)
        self._known, self._kept = np.zeros(count, dtype=bool), np.empty((count, count))  # as rows, which lie together

    def __call__(self, rows: Index, columns: Index) -> Vector:
        missing = columns[~self._known[columns]]
        if missing.size:
            missing = self._every if self._every.size <= _WHOLE_KERNEL else missing
            self._kept[missing] = self._block(missing, self._every)
            self._known[missing] = True
        if np.array_equal(rows, self._every):
            return self._kept.take(columns, axis=0).T
        return self._kept[np.ix_(columns, rows)].T


def _variance(X: Any, share: Vector) -> float:
    """Of all entries together, rows by their shares, from the mean and not from zero: far from zero squares cancel."""
    mean = float((share @ X).mean())
    if not sp.issparse(X):
        with np.errstate(over="ignore"):  # then gamma is zero
            return float((share @ np.square(X - mean)).mean())
    columns = X.shape[1]
    full = np.diff(sp.csr_array(X).indptr)
    stored = sp.csr_array((np.square(X.data - mean), X.indices, X.indptr), shape=X.shape)
    squares = float((share @ stored).sum()) + float(share @ (columns - full)) * mean * mean
    return float(squares / columns)


def _as_theirs(name: str, text: str = "As in scikit-learn.", type: str = "") -> Rule:
    return Rule(text, *svm.SVC._parameter_constraints[name], type=type)


class _Finished(Declared, BaseLibSVM):
    """What the two classes share: a fit by LIBSVM that is then finished and certified."""

    kernel: Any = parameter(default="rbf", rule=_as_theirs("kernel", _KERNEL))
    degree: int = parameter(default=3, rule=_as_theirs("degree", 'Degree of "poly".'))
    gamma: Any = parameter(default="scale", rule=_as_theirs("gamma", 'Coefficient of "rbf", "poly" and "sigmoid".'))
    coef0: float = parameter(default=0.0, rule=_as_theirs("coef0", 'Independent term of "poly" and "sigmoid".'))
    C: float = parameter(default=1.0, rule=_as_theirs("C", "Weight of the loss, positive."))
    shrinking: bool = parameter(default=True, rule=_as_theirs("shrinking", "Whether LIBSVM shrinks."))
    tol: float = parameter(default=1e-9, rule=as_in(Certified, "tol"))
    cache_size: float = parameter(default=200, rule=_as_theirs("cache_size", "Megabytes of LIBSVM's cache."))
    verbose: bool = parameter(default=False, rule=_as_theirs("verbose", "LIBSVM's output."))
    max_iter: int = parameter(default=-1, rule=_as_theirs("max_iter", "Most iterations of LIBSVM; -1 for no limit."))
    time_limit: float | None = parameter(default=None, rule=as_in(Certified, "time_limit"))

    #: The class of scikit-learn.
    _theirs: ClassVar[type[Any]]
    # What scikit-learn's code sets, and this changes.
    support_: Any = field(init=False)
    dual_coef_: Any = field(init=False)
    _n_support: Any = field(init=False)

    def __post_init__(self) -> None:
        """Have scikit-learn's class set what it sets."""
        self._theirs.__init__(self, **{name: getattr(self, name) for name in self._theirs._get_param_names()})

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features) or (n_samples, n_samples)
            Training data, or their kernel matrix for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights: zero is an absent sample, two is a sample given twice.

        Returns
        -------
        self
        """
        return super().fit(*to_numpy(X, y, sample_weight))

    def predict(self, X: Any) -> Any:
        """Predict the targets of samples, as scikit-learn does; arrays of other libraries give NumPy's."""
        return super().predict(*to_numpy(X))

    def _dense_fit(self, X: Any, y: Vector, sample_weight: Vector, *args: Any, **kwargs: Any) -> None:
        self._choose_gamma(X, sample_weight)
        near, mean = centred(X, self.kernel)
        self._pilot(super()._dense_fit, near, y, sample_weight, *args, **kwargs)
        self._finish(self._compute_kernel(X) if callable(self.kernel) else X, near, mean, y, sample_weight)

    def _sparse_fit(self, X: Any, y: Vector, sample_weight: Vector, *args: Any, **kwargs: Any) -> None:
        self._choose_gamma(X, sample_weight)
        near, mean = centred(X, self.kernel)
        data = near if sp.issparse(near) else type(X)(near)
        self._pilot(super()._sparse_fit, data, y, sample_weight, *args, **kwargs)
        self._finish(X, near, mean, y, sample_weight)

    def _choose_gamma(self, X: Any, sample_weight: Vector) -> None:
        """The gamma of "scale", from features as they are given: their means are in it."""
        own = sample_weight.size or sp.issparse(X)  # scikit-learn's variance of sparse data cancels far from zero
        if self.gamma == "scale" and own and not self._is_given():  # LIBSVM refuses a bad one beside any kernel
            # The variance with its weights, so that a weight of two is a sample given twice.
            weight = sample_weight if sample_weight.size else np.ones(X.shape[0])
            variance = _variance(X, weight / weight.sum()) if weight.any() else 0.0  # which LIBSVM then refuses
            self._gamma = 1.0 / (X.shape[1] * variance) if variance > 0.0 else 1.0

    def _pilot(
        self, fit: Callable[..., None], X: Any, y: Vector, sample_weight: Vector, *args: Any, **kwargs: Any
    ) -> None:
        """LIBSVM's fit to the samples with a weight, at its own tolerance, which scikit-learn reads from `tol`."""
        self._started = time.perf_counter()
        # LIBSVM leaves out samples without a weight, and scikit-learn then numbers the support among those that are
        # left. A callable's X is kept for predictions, and stays whole.
        kept = np.flatnonzero(sample_weight > 0) if sample_weight.size else np.arange(y.shape[0])
        if 0 < kept.size < y.shape[0] and not callable(self.kernel):
            X = X[np.ix_(kept, kept)] if self.kernel == "precomputed" else X[kept]
            y, sample_weight = y[kept], sample_weight[kept]
            self._check_labels(y)
        wanted, self.tol = self.tol, max(_PILOT_TOLERANCE, self.tol) * self._scale(y)
        asked = int(self.max_iter)
        self.max_iter = asked if asked >= 0 else min(_LIBSVM_STEPS + 100 * y.shape[0], self._steps_in_time(X, y))
        try:
            with warnings.catch_warnings():
                if asked < 0:  # in single precision, LIBSVM may never come to its tolerance: what is left is finished
                    warnings.filterwarnings("ignore", "Solver terminated early", ConvergenceWarning)
                fit(X, y, sample_weight, *args, **kwargs)
        finally:
            self.tol, self.max_iter = wanted, asked
        if asked < 0:
            self.fit_status_ = 0
        self.support_ = kept[self.support_].astype(np.int32)

    def _steps_in_time(self, X: Any, y: Vector) -> int:
        """Steps of LIBSVM, which knows no clock, in half of the time limit: each may take a row of the kernel."""
        if self.time_limit is None:
            return int(np.iinfo(np.int32).max)
        entries = X.nnz if sp.issparse(X) else X.size
        machines = max(1, np.unique(y).size - 1) if isinstance(self, svm.SVC) else 1  # which share the samples
        seconds = machines * (_KERNEL_ENTRY_SECONDS * entries + _KERNEL_ROW_SECONDS * X.shape[0])
        return max(_FEWEST_LIBSVM_STEPS, int(min(0.5 * self.time_limit / seconds, 1e9)))

    def _scale(self, y: Vector) -> float:
        """The size of what LIBSVM's tolerance, which is absolute, is compared with, where that is less than one."""
        return 1.0

    def _costs(self, weight: Vector) -> Vector:
        """C times the weights of samples, none of which underflows."""
        return np.maximum(min(self.C, _LARGEST_C) * weight, _SMALLEST_COST)

    def _check_labels(self, y: Vector) -> None:
        """Refuse what is left once samples without a weight are gone, where it cannot be fitted."""

    def _machines(self, block: _Block, y: Vector, weight: Vector) -> Iterator[Machine]:
        raise NotImplementedError

    def _assemble(self, y: Vector, machines: list[Machine], betas: list[Vector]) -> None:
        raise NotImplementedError

    def _finish(self, X: Any, near: Any, mean: Vector, y: Vector, sample_weight: Vector) -> None:
        """Finish every machine exactly, and put support, coefficients and intercepts where LIBSVM had put them."""
        if not self._can_be_finished(X, y.shape[0]):
            self._certify([State(np.zeros(0), upper=np.nan)], [np.nan])
            return
        block = self._kernel_blocks(X if self._is_given() else near, y.shape[0])
        weight = sample_weight if sample_weight.size else np.ones(y.shape[0])
        machines = list(self._machines(block, y, weight))
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # a value that overflows is told as infinite
            states = [self._solve(machine) for machine in machines]
            values = KernelValues(self.kernel, X, near, mean, block, float(self._gamma), self.degree, self.coef0)
            for machine, state in zip(machines, states, strict=True):
                if self.kernel != "sigmoid" and np.all(np.isfinite(state.x)):
                    prove(values, machine, state, self.tol, self._time_left())
        self._certify(states, [state.upper for state in states])
        self._assemble(y, machines, [state.x[:-1] for state in states])
        moved = self.kernel == "linear" and mean.any()  # features were counted from their means
        self.intercept_ = np.array(
            [
                s.x[-1] + m.shift - (mean @ (near[m.samples].T @ s.x[:-1]) if moved else 0.0)
                for s, m in zip(states, machines, strict=True)
            ]
        )
        if self.kernel != "precomputed" and not callable(self.kernel):
            self.support_vectors_ = X[self.support_]
        if sp.issparse(X):
            count = self.support_.size
            columns = np.tile(np.arange(count), self.dual_coef_.shape[0])
            ends = np.arange(self.dual_coef_.shape[0] + 1) * count
            shape = self.dual_coef_.shape
            pilot = type(self.support_vectors_)
            self.dual_coef_ = pilot(
                (self.dual_coef_.ravel(), columns, ends), shape=shape
            )  # zeros included, as LIBSVM's

    def _can_be_finished(self, X: Any, count: int) -> bool:
        """Whether LIBSVM left numbers to go on from, if only an intercept; scikit-learn deals with the rest."""
        numbers = self.dual_coef_.data if sp.issparse(self.dual_coef_) else self.dual_coef_
        square = not callable(self.kernel) or X.shape == (count, count)
        return bool(np.isfinite(numbers).all() and np.isfinite(self.intercept_).all() and square)

    def _solve(self, machine: Machine) -> State:
        def check(state: State) -> None:
            tick()

        p = machine.problem
        # The objective without a model, but with an intercept: of targets far from zero that is far less.
        null = min(float(p.weights @ p.term.value(p.positions(np.zeros(p.size), b))) for b in (0.0, machine.b))
        state = State(np.append(machine.beta, machine.b), unit=SMALLEST_SHARE * null if null > 0.0 else 1.0)
        if self.kernel != "sigmoid":  # not positive semidefinite: LIBSVM's stationary point is all there is
            with contextlib.suppress(TimeUp, KeyboardInterrupt), deadline(self._time_left()):
                solve_kernel(machine.problem, machine.beta, machine.b, state, self.tol, check)
        else:
            support = np.flatnonzero(machine.beta)
            values = p.product(np.arange(p.size), support, machine.beta[support])
            loss = float(p.weights @ p.term.value(p.positions(values, machine.b)))
            state.see(state.x, 0.5 * float(machine.beta @ values) + loss)
        return state

    def _time_left(self) -> float | None:
        return None if self.time_limit is None else self.time_limit - (time.perf_counter() - self._started)

    def _certify(self, states: list[State], values: list[float]) -> None:
        certificates: list[Certificate] = [
            DualGap(agreed(s.lower, s.upper), s.upper, s.assumption)
            if np.isfinite(s.lower)
            else NoCertificate(s.lower, s.upper)
            for s in states
        ]
        many = len(states) > 1
        for name, numbers in (
            ("objective_", values),
            ("lower_bound_", [c.lower for c in certificates]),
            ("gap_", [c.upper - c.lower for c in certificates]),
        ):
            setattr(self, name, np.array(numbers, dtype=float) if many else float(numbers[0]))
        self.certificate_ = certificates if many else certificates[0]
        self.sigma_path_ = np.zeros(0)  # the finish is exact: nothing is smoothed
        worst = max(states, key=lambda s: s.gap / s.allowed(1.0))
        if np.isfinite(worst.upper) and self.kernel != "sigmoid" and not worst.reached(self.tol):
            warnings.warn(
                f"The certified gap is {worst.gap:.3g} at an objective of {worst.upper:.6g}; tol={self.tol:g} asks for"
                f" {worst.allowed(self.tol):.3g}. Raise "
                + ("tol." if self.time_limit is None else f"time_limit, now {self.time_limit} s."),
                ConvergenceWarning,
                stacklevel=7,
            )

    def _is_given(self) -> bool:
        return callable(self.kernel) or self.kernel == "precomputed"

    def _kernel_blocks(self, X: Any, count: int) -> _Block:
        """The kernel between the samples of two index arrays, computed once where there are few."""
        if self._is_given():
            return lambda rows, columns: X[np.ix_(rows, columns)]
        options = {"gamma": self._gamma, "degree": self.degree, "coef0": self.coef0}

        def block(rows: Index, columns: Index) -> Vector:
            if not len(columns):  # which scikit-learn does not take
                return np.zeros((len(rows), 0))
            return np.asarray(pairwise_kernels(X[rows], X[columns], metric=self.kernel, filter_params=True, **options))

        return block if count > _KEPT_KERNEL else _Columns(block, count)

    def _dense_coefficients(self) -> Vector:
        return np.asarray(self.dual_coef_.toarray() if sp.issparse(self.dual_coef_) else self.dual_coef_)


class SVC(_Finished, svm.SVC):
    """Support vector classification with a kernel and a certified gap.

    Minimises ``0.5 * ||w||^2_2 + C * sum_i max(1 - y_i * (w'phi(x_i) + b), 0)`` for every pair of classes: the
    objective of `sklearn.svm.SVC`, of which this is a subclass. LIBSVM finds which samples are support vectors, and
    their coefficients are then solved for exactly.

    {parameters}

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, classes_, class_weight_, fit_status_, n_iter_
        As in scikit-learn.
    {certified}

    Notes
    -----
    After LIBSVM, costs the kernel between all samples and the support vectors, once, and factorisations of the order of
    the support vectors that lie on the margin; memory is the square of their number. The proof costs that kernel once
    more; where C is so large that double precision leaves more than `tol`, it is computed with twice the digits.

    ``lower_bound_ <= optimum <= objective_`` holds in exact arithmetic, with all rounding charged, for the kernel as a
    function of X in double precision and gamma as in ``_gamma``; C above 1e10 counts as that. `objective_` is the value
    of coefficients and intercepts before they are rounded to `dual_coef_` and `intercept_`; where C is very large that
    may cost a millionth of it. Coefficients add up to zero exactly.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from varopt.learn import SVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SVC(C=10.0).fit(scale(X), y)
    >>> round(model.objective_, 6), bool(model.gap_ <= 1e-9 * model.objective_)
    (197.75127, True)
    """

    probability: Any = parameter(default=PROBABILITY, rule=_as_theirs("probability", _PROBABILITY, "bool"))
    class_weight: Any = parameter(default=None, rule=CLASS_WEIGHT)
    decision_function_shape: str = parameter(default="ovr", rule=_as_theirs("decision_function_shape"))
    break_ties: bool = parameter(default=False, rule=_as_theirs("break_ties"))
    random_state: Any = parameter(default=None, rule=_as_theirs("random_state"))
    _theirs = svm.SVC

    def decision_function(self, X: Any) -> Any:
        """Distances from the separating surfaces, as scikit-learn gives them."""
        return super().decision_function(*to_numpy(X))

    def _check_labels(self, y: Vector) -> None:
        present = np.unique(y).size
        if present == 1:
            raise ValueError("Invalid input - all samples with positive weights belong to the same class.")
        if present < len(self.classes_):
            raise ValueError("Invalid input - every class needs a sample with a positive weight.")

    def _machines(self, block: _Block, y: Vector, weight: Vector) -> Iterator[Machine]:
        coefficients = np.zeros((len(self.classes_) - 1, y.shape[0]))
        coefficients[:, self.support_] = self._dense_coefficients()
        for number, (i, j) in enumerate(itertools.combinations(range(len(self.classes_)), 2)):
            samples = np.flatnonzero(((y == i) | (y == j)) & (weight > 0))
            first = y[samples] == i
            # LIBSVM keeps the coefficients of class i against j in row j - 1, and those of j against i in row i.
            beta = coefficients[np.where(first, j - 1, i), samples]
            of_class, own = self.class_weight_[y[samples].astype(np.intp)], weight[samples]
            sign = np.where(first, 1.0, -1.0)
            zeros = np.zeros(sign.size)
            problem = KernelProblem(_among(block, samples), terms.hinge(), sign, zeros, self._costs(of_class * own))
            rounded = 0.0 if np.all(of_class == 1.0) and np.all(own == 1.0) else _PRODUCTS_ROUNDED
            yield Machine(problem, samples, beta, float(self.intercept_[number]), Pair.of(zeros), rounded=rounded)

    def _assemble(self, y: Vector, machines: list[Machine], betas: list[Vector]) -> None:
        count = len(self.classes_)
        table = np.zeros((count - 1, y.shape[0]))
        for (i, j), machine, beta in zip(itertools.combinations(range(count), 2), machines, betas, strict=True):
            table[np.where(y[machine.samples] == i, j - 1, i), machine.samples] = beta
        support = np.flatnonzero(table.any(axis=0))
        support = support[np.argsort(y[support], kind="stable")]
        self.support_ = support.astype(np.int32)
        self._n_support = np.bincount(y[support].astype(np.intp), minlength=count).astype(np.int32)
        self.dual_coef_ = np.ascontiguousarray(table[:, support])


class SVR(_Finished, svm.SVR):
    """Support vector regression with a kernel and a certified gap.

    Minimises ``0.5 * ||w||^2_2 + C * sum_i max(|y_i - w'phi(x_i) - b| - epsilon, 0)``: the objective of
    `sklearn.svm.SVR`, of which this is a subclass. LIBSVM finds which samples are support vectors, and their
    coefficients are then solved for exactly.

    {parameters}

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, n_iter_
        As in scikit-learn.
    {certified}

    Notes
    -----
    Cost, and what the bracket says, are those of `SVC`.

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import SVR
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> model = SVR(C=10.0, epsilon=0.05).fit(X, np.sin(X[:, 0]))
    >>> bool(np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.06), bool(model.gap_ < 1e-9)
    (True, True)
    """

    epsilon: float = parameter(default=0.1, rule=Rule("Errors up to here cost nothing.", NON_NEGATIVE))
    _theirs = svm.SVR

    def _scale(self, y: Vector) -> float:
        return min(1.0, float(np.ptp(y))) or 1.0

    def _machines(self, block: _Block, y: Vector, weight: Vector) -> Iterator[Machine]:
        beta = np.zeros(y.shape[0])
        beta[self.support_] = self._dense_coefficients()[0]
        samples = np.flatnonzero(weight > 0)
        shift = float(np.median(y[samples]))  # of which, far from zero, differences are exact
        problem = KernelProblem(
            _among(block, samples), terms.epsilon_insensitive(self.epsilon) if self.epsilon > 0 else terms.abs_(),
            -np.ones(samples.size), y[samples] - shift, self._costs(weight[samples]),
        )  # fmt: skip
        offset, rounded = (
            Pair(*two_sum(y[samples], -shift)),
            0.0 if np.all(weight[samples] == 1.0) else _PRODUCTS_ROUNDED,
        )
        yield Machine(problem, samples, beta[samples], float(self.intercept_[0]) - shift, offset, shift, rounded)

    def _assemble(self, y: Vector, machines: list[Machine], betas: list[Vector]) -> None:
        nonzero = np.flatnonzero(betas[0])
        self.support_ = machines[0].samples[nonzero].astype(np.int32)
        self._n_support = np.zeros_like(self._n_support)  # LIBSVM keeps room for two classes
        self._n_support[0] = nonzero.size
        self.dual_coef_ = betas[0][None, nonzero].copy()
