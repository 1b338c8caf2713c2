"""Fused lasso, group lasso and trend filter with strengths chosen by cross-validation."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from varopt.learn._base import Lines
from varopt.learn._lassos import AdditiveModel, FusedLasso, GroupLasso, TrendFilter, additive, strongest
from varopt.learn._least_squares import checked, gradient_at_zero, grid
from varopt.learn._parameters import Rule, as_in, parameter
from varopt.learn._paths._search import GRID, LENGTH, Path, RegressorCV, SearchCV

__all__ = ["FusedLassoCV", "GroupLassoCV", "TrendFilterCV"]

Vector = NDArray[np.float64]


class FusedLassoCV(RegressorCV):
    """`FusedLasso` with `alpha` and `fusion` chosen by cross-validation.

    Minimises the objective of `FusedLasso`, for the strengths of least mean squared error over the folds.

    {parameters}

    Attributes
    ----------
    alpha_, fusion_ : float
        What was chosen.
    alphas_, fusions_ : ndarray
        The grids.
    mse_path_ : ndarray of shape (n_fusions, n_alphas, n_folds)
        Mean squared errors of the test rows.
    {line}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import FusedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 12))
    >>> y = X @ np.repeat([0.0, 2.0, 0.0], 4) + rng.standard_normal(40)
    >>> model = FusedLassoCV(alphas=[0.0, 0.1], fusions=[0.01, 0.3], cv=3).fit(X, y)
    >>> model.fusion_, model.mse_path_.shape
    (0.3, (2, 2, 3))
    """

    alphas: Any = parameter(default=10, rule=GRID)
    fusions: Any = parameter(default=10, rule=GRID)
    eps: float = parameter(default=1e-3, rule=LENGTH)
    _model: ClassVar[type[Any]] = FusedLasso

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        gradient = gradient_at_zero(X, y, weight, self.fit_intercept)
        # Coefficients are all equal once no sum of gradients over the features up to one exceeds the strength.
        alphas = self._values(self.alphas, "alphas", float(np.max(np.abs(gradient))))
        fusions = self._values(self.fusions, "fusions", float(np.max(np.abs(np.cumsum(gradient - gradient.mean())))))
        return [[{"alpha": alpha, "fusion": fusion} for alpha in alphas] for fusion in fusions]

    def _values(self, given: Any, name: str, largest: float) -> list[float]:
        if isinstance(given, Integral):
            return [float(value) for value in grid(largest, self.eps, int(given))]
        return checked(given, name)

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        arrays = {
            "mse_path_": table,
            "alphas_": np.array([settings["alpha"] for settings in paths[0]]),
            "fusions_": np.array([path[0]["fusion"] for path in paths]),
        }
        self._keep(X, arrays)
        self.alpha_, self.fusion_ = chosen["alpha"], chosen["fusion"]


class GroupLassoCV(RegressorCV):
    """`GroupLasso` with `alpha` chosen by cross-validation.

    Minimises the objective of `GroupLasso`, for the alpha of least mean squared error over the folds.

    {parameters}

    Attributes
    ----------
    {chosen_by_squares}
    {line}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import GroupLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 6))
    >>> y = X @ [2.0, -1.0, 1.0, 0.0, 0.0, 0.0] + rng.standard_normal(60)
    >>> model = GroupLassoCV(groups=[0, 0, 0, 1, 1, 1], alphas=5, cv=3, rule="1se").fit(X, y)
    >>> np.flatnonzero(model.coef_), model.mse_path_.shape
    (array([0, 1, 2]), (5, 3))
    """

    alphas: Any = parameter(default=20, rule=GRID)
    eps: float = parameter(default=1e-3, rule=LENGTH)
    groups: Any = parameter(default=None, rule=as_in(GroupLasso, "groups"))
    group_weight: Any = parameter(default=None, rule=as_in(GroupLasso, "group_weight"))
    l1_ratio: float = parameter(default=0.0, rule=as_in(GroupLasso, "l1_ratio"))
    _model: ClassVar[type[Any]] = GroupLasso

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        if not isinstance(self.alphas, Integral):
            return [[{"alpha": alpha} for alpha in checked(self.alphas, "alphas")]]
        gradient = np.abs(gradient_at_zero(X, y, weight, self.fit_intercept))
        members, factors = GroupLasso(groups=self.groups, group_weight=self.group_weight)._groups(X.shape[1])
        largest = 0.0
        for group, factor in zip(members, factors, strict=True):
            if factor > 0.0:
                largest = _leaves_nothing(gradient[group], factor, self.l1_ratio, largest)
        return [[{"alpha": float(alpha)} for alpha in grid(largest, self.eps, int(self.alphas))]]

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        self._keep(X, {"mse_path_": table[0], "alphas_": np.array([settings["alpha"] for settings in paths[0]])})
        self.alpha_ = chosen["alpha"]


def _leaves_nothing(gradient: Vector, factor: float, l1_ratio: float, known: float) -> float:
    """The strength from which on a group vanishes, and others did: the root of a falling function, by bisection."""
    size = float(gradient.max())
    if size == 0.0:
        return known
    share, low, high = gradient / size, known / size, max(1.0, 2.0 * known / size)

    def left(strength: float) -> bool:
        beyond = np.linalg.norm(np.maximum(share - strength * l1_ratio, 0.0))
        return bool(beyond > strength * (1.0 - l1_ratio) * factor)

    if known and not left(low):
        return known
    while left(high):
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if left(middle) else (low, middle)
    return size * high


class TrendFilterCV(AdditiveModel, SearchCV):
    """`TrendFilter` with `alpha` chosen by cross-validation.

    Minimises the objective of `TrendFilter`, for the alpha of least mean squared error over the folds. Folds are drawn
    at random: whole stretches of the positions, as five of them in a row, could only be extrapolated.

    {parameters}

    Attributes
    ----------
    {chosen_by_squares}
    intercept_ : float
        The mean of the fitted values.
    knots_, values_ : list of ndarray
        As those of `TrendFilter`.
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import TrendFilterCV
    >>> t = np.linspace(0.0, 1.0, 60)[:, None]
    >>> y = np.abs(t[:, 0] - 0.5) + 0.02 * np.random.default_rng(0).standard_normal(60)
    >>> model = TrendFilterCV(alphas=6, cv=3).fit(t, y)
    >>> model.predict([[0.0], [0.5]]).round(1)
    array([0.5, 0. ])
    """

    order: int = parameter(default=1, rule=as_in(TrendFilter, "order"), kw_only=False)
    alphas: Any = parameter(default=20, rule=GRID)
    eps: float = parameter(default=1e-4, rule=LENGTH)
    cv: Any = parameter(
        default=None, rule=Rule("The folds; by default five, of rows drawn at random, always the same.", "cv_object")
    )
    _model: ClassVar[type[Any]] = TrendFilter
    _kept: ClassVar[tuple[str, ...]] = ("knots_", "values_")

    def _paths(self, X: Any, y: Vector, weight: Vector) -> list[Path]:
        if not isinstance(self.alphas, Integral):
            return [[{"alpha": alpha} for alpha in checked(self.alphas, "alphas")]]
        largest = strongest(X, y, weight, self.order)
        return [[{"alpha": float(alpha)} for alpha in grid(largest, self.eps, int(self.alphas))]]

    def _splitter(self, targets: Any) -> Any:
        return KFold(5, shuffle=True, random_state=0) if self.cv is None else super()._splitter(targets)

    def _losses(self, model: Any, lines: Lines, X: Any, y: Any, weight: Vector) -> list[float]:
        ends = np.cumsum([knots.size for knots in model.knots_])[:-1]
        fitted = [b + additive(X, model.knots_, np.split(f, ends), self.order) for f, b in zip(*lines, strict=True)]
        return [float(np.average((y - f) ** 2, weights=weight)) for f in fitted]

    def _report(self, paths: list[Path], table: Vector, chosen: dict[str, float], X: Any) -> None:
        self._keep(X, {"mse_path_": table[0], "alphas_": np.array([settings["alpha"] for settings in paths[0]])})
        self.alpha_ = chosen["alpha"]
