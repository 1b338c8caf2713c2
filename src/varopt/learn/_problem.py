"""Losses of predictions and penalties of coefficients, in the symbols of scikit-learn, as objectives of varopt."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import varopt.model as vo
from varopt.learn._parameters import Rule, one_of
from varopt.model import Variable
from varopt.model.maps import Matrix

__all__ = [
    "ANY_PENALTY",
    "CLASSIFICATION_LOSSES",
    "PENALTIES",
    "REGRESSION_LOSSES",
    "LinearProblem",
    "differences",
    "penalty",
]

Vector = NDArray[np.float64]


_OFFSET = 300.0  # standard deviations from zero beyond which the mean of a feature is in the way
_HUGE_FEATURE = 1e30  # sizes of features beyond which, or below whose inverse, they are divided by it
_LEAST_EXPONENT = -500  # of such a unit: the square of its inverse, which a ridge is multiplied by, is still a number
_MOST_EXPONENT = 1000  # of what is taken from a feature, in that unit
_SAMPLED = 1000  # rows that are looked at first
_FULL_FEATURE = 0.9  # share of entries below which a sparse feature varies too much to be far from zero


@dataclass(frozen=True)
class LinearProblem:
    """Predictions ``X w + b`` for targets `y` with weights `weight`; `b` is None where there is no intercept.

    Where `center` was taken from the rows of X, the intercept of the data as they were is ``b - center'w``. Where X was
    divided by `unit`, `scaled` is w times it: what is solved for.
    """

    X: Any
    y: Vector
    weight: Vector
    intercept: bool
    center: Vector | None = None
    unit: float = 1.0
    scaled: Variable = field(init=False)
    b: Variable | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scaled", vo.Variable(self.X.shape[1], name="coef"))
        object.__setattr__(self, "b", vo.Variable(name="intercept") if self.intercept else None)

    @property
    def w(self) -> Any:
        """The coefficients."""
        return self.scaled if self.unit == 1.0 else (1.0 / self.unit) * self.scaled

    def coefficients(self, values: Mapping[Variable, Any]) -> Vector:
        """Theirs, where the variables have these values."""
        return np.asarray(values[self.scaled]) / self.unit

    def moved(self, w: Vector) -> float:
        """What b is more than the intercept of the data as they were."""
        return 0.0 if self.center is None else float(self.center @ (self.unit * w))

    def at(self, w: Vector, intercept: float) -> dict[Variable, Any]:
        """The values of the variables where the data as they were have these coefficients and this intercept."""
        return {self.scaled: self.unit * w} | ({} if self.b is None else {self.b: intercept + self.moved(w)})

    @property
    def prediction(self) -> Any:
        """``X w + b``."""
        linear = self.X @ self.scaled
        return linear if self.b is None else linear + self.b

    @property
    def residual(self) -> Any:
        """``y - X w - b``."""
        linear = self.y - self.X @ self.scaled
        return linear if self.b is None else linear - self.b

    @property
    def margin(self) -> Any:
        """``y (X w + b)`` for labels y of -1 and +1."""
        return self.y * self.prediction

    def total(self, losses: Any) -> Any:
        """``sum_i s_i loss_i``."""
        equal = self.weight.size and np.all(self.weight == self.weight[0])
        return float(self.weight[0]) * vo.sum(losses) if equal else vo.sum(self.weight * losses)

    def mean(self, losses: Any) -> Any:
        """``sum_i s_i loss_i / sum_i s_i``."""
        return (1.0 / float(self.weight.sum())) * self.total(losses)


def in_unit(problem: LinearProblem, free: bool = False) -> LinearProblem:
    """The problem with its features divided by their size, where products of them would overflow or vanish.

    Constant features are then left out first, where a `free` intercept is as good: a ridge in such units may be no
    number, and would not tell the two apart.
    """
    largest = _largest(problem.X)
    if 1.0 / _HUGE_FEATURE <= largest <= _HUGE_FEATURE or largest == 0.0:
        return problem
    least = float(_LEAST_EXPONENT)
    if free and (center := _constants(problem.X)).any():
        index, count = np.flatnonzero(center), problem.X.shape[0]
        if sp.issparse(problem.X):
            X = _exchanged(problem.X, index, np.zeros((count, index.size)))
        else:
            X = np.array(problem.X)
            X[:, index] = 0.0
        problem, largest = replace(problem, X=X, center=center), _largest(X)
        least = max(least, math.log2(float(np.abs(center).max())) - _MOST_EXPONENT)
    if 1.0 / _HUGE_FEATURE <= largest <= _HUGE_FEATURE or largest == 0.0:
        return problem
    unit = 2.0 ** math.floor(max(math.floor(math.log2(largest)), least))
    given = None if problem.center is None else problem.center / unit
    return replace(problem, X=problem.X / unit, unit=unit, center=given)


def _largest(X: Any) -> float:
    """The largest size of an entry; one where there is none."""
    entries = X.data if sp.issparse(X) else X
    return float(max(entries.max(), -entries.min())) if entries.size else 1.0


def _constants(X: Any) -> Vector:
    """The values of features that are constant, zero for others."""
    low, high = X.min(axis=0), X.max(axis=0)
    low, high = (np.ravel(v.toarray() if sp.issparse(v) else v).astype(np.float64) for v in (low, high))
    return np.where(low == high, low, 0.0)


def near_zero(problem: LinearProblem) -> LinearProblem:
    """The problem with the means taken from its features, where they are far larger than what features vary by.

    The free intercept makes up for it. Products of features far from zero are nearly all the same, and their
    differences, which are what matters, are lost; and an intercept that balances large numbers leaves no digits for the
    rest. Of sparse features only those far from zero are moved: a zero among their entries would make them vary, so
    that they have hardly any, and stay as sparse as they were.
    """
    X, weight = problem.X, problem.weight
    sparse = sp.issparse(X)
    seen = np.flatnonzero(_full(X) if sparse else _far(X[:: X.shape[0] // _SAMPLED + 1]))
    if not seen.size:
        return problem
    part = X[:, seen].toarray() if sparse else X
    total, features = float(weight.sum()), Matrix(part)
    center = np.asarray(features.transpose_apply(weight) / total, dtype=np.float64)
    far = np.flatnonzero(features.gram_diagonal(weight) / total - center**2 < (center / _OFFSET) ** 2)
    far = far[np.ptp(part[:, far], axis=0) > 0.0]  # constant ones do no harm
    if not far.size:
        return problem
    if not sparse:
        return _less(problem, X - center, center)
    moved = np.zeros(X.shape[1])
    moved[seen[far]] = center[far]
    return _less(problem, _exchanged(X, seen[far], part[:, far] - center[far]), moved)


def _less(problem: LinearProblem, X: Any, center: Vector) -> LinearProblem:
    """The problem with what is left of its features when some more is taken from them."""
    return replace(problem, X=X, center=center if problem.center is None else problem.center + center)


def _full(X: Any) -> NDArray[np.bool_]:
    """Which sparse features have hardly any zeros."""
    return np.asarray(np.bincount(X.indices, minlength=X.shape[1]) >= _FULL_FEATURE * X.shape[0])


def _exchanged(X: Any, index: NDArray[np.intp], columns: NDArray[np.float64]) -> Any:
    """A sparse matrix with other columns in some places."""
    others = np.delete(np.arange(X.shape[1]), index)
    order = np.argsort(np.concatenate([others, index]), kind="stable")
    return sp.hstack([X[:, others], sp.csr_array(columns)], format="csr")[:, order]


def _far(sample: Any) -> NDArray[np.bool_]:
    """Which features may be far from zero, by a few of their rows."""
    largest = np.abs(sample).max(axis=0, initial=0.0)
    return np.asarray(np.ptp(sample, axis=0) < largest / 10.0)


# -- Losses ------------------------------------------------------------------------------------------------------------


def squared_error(residual: Any) -> Any:
    """``z^2 / 2``."""
    return 0.5 * vo.square(residual)


def squared_epsilon_insensitive(residual: Any, epsilon: float) -> Any:
    """``max(|z| - epsilon, 0)^2``."""
    low, high = [epsilon**2, 2.0 * epsilon, 1.0], [epsilon**2, -2.0 * epsilon, 1.0]
    if epsilon == 0.0:
        return vo.square(residual)
    return vo.piecewise(residual, knots=[-epsilon, epsilon], pieces=[low, [0.0], high])


def epsilon_insensitive(residual: Any, epsilon: float) -> Any:
    """``max(|z| - epsilon, 0)``."""
    return vo.epsilon_insensitive(residual, epsilon) if epsilon > 0.0 else vo.abs(residual)


def modified_huber(margin: Any) -> Any:
    """``max(1 - z, 0)^2`` down to z = -1, linear beyond."""
    return vo.piecewise(margin, knots=[-1.0, 1.0], pieces=[[0.0, -4.0], [1.0, -2.0, 1.0], [0.0]])


#: Losses of a residual, each with the name of the parameter it takes, if any.
REGRESSION_LOSSES: dict[str, tuple[Callable[..., Any], str | None]] = {
    "squared_error": (squared_error, None),
    "absolute_error": (vo.abs, None),
    "quantile": (vo.pinball, "quantile"),
    "huber": (vo.huber, "epsilon"),
    "epsilon_insensitive": (epsilon_insensitive, "epsilon"),
    "squared_epsilon_insensitive": (squared_epsilon_insensitive, "epsilon"),
}

#: Losses of a margin.
CLASSIFICATION_LOSSES: dict[str, Callable[[Any], Any]] = {
    "hinge": vo.hinge,
    "squared_hinge": vo.squared_hinge,
    "modified_huber": modified_huber,
    "ramp": vo.ramp,
    "zero_one": vo.zero_one,
}


# -- Penalties ---------------------------------------------------------------------------------------------------------


def differences(w: Any, order: int = 1) -> Any:
    """``||D w||_1`` with D the differences of neighbours taken `order` times; nothing where w is too short for one."""
    return vo.norm1(vo.diff(w, order)) if w.rows > order else 0.0


def _l1(w: Any, alpha: float, _: float) -> Any:
    return alpha * vo.norm1(w)


def _l2(w: Any, alpha: float, _: float) -> Any:
    return 0.5 * alpha * vo.sum_squares(w)


def _elastic_net(w: Any, alpha: float, l1_ratio: float) -> Any:
    return _some(_l1, w, alpha * l1_ratio) + _some(_l2, w, alpha * (1.0 - l1_ratio))


def _fused(w: Any, alpha: float, l1_ratio: float) -> Any:
    return _some(_l1, w, alpha * l1_ratio) + alpha * (1.0 - l1_ratio) * differences(w)


def _trend(w: Any, alpha: float, l1_ratio: float) -> Any:
    return _some(_l1, w, alpha * l1_ratio) + alpha * (1.0 - l1_ratio) * differences(w, 2)


#: Penalties of coefficients w with strength alpha, mixed with an L1 penalty where they have an l1_ratio.
PENALTIES: dict[str, Callable[[Any, float, float], Any]] = {
    "l1": _l1,
    "l2": _l2,
    "elasticnet": _elastic_net,
    "fused": _fused,
    "trend": _trend,
}


def _some(rule: Callable[..., Any], w: Any, alpha: float) -> Any:
    return rule(w, alpha, 0.0) if alpha > 0.0 else 0.0


def penalty(name: str | Callable[[Any], Any] | None, w: Any, alpha: float, l1_ratio: float = 0.5) -> Any:
    """``alpha R(w)``, zero for no name or no strength; a callable is R itself."""
    if name is None or alpha == 0.0:
        return 0.0
    return alpha * name(w) if callable(name) else PENALTIES[name](w, float(alpha), float(l1_ratio))


ANY_PENALTY = Rule(
    "R: ``0.5 ||w||^2_2``, ``||w||_1``, ``l1_ratio ||w||_1 + 0.5 (1 - l1_ratio) ||w||^2_2``, and with the L1 norm of"
    " first or second differences in place of the last; a callable maps coefficients to an objective, as `varopt.norm1`"
    " does.",
    one_of(*PENALTIES),
    callable,
    None,
)
