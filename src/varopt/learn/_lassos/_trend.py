"""Trend filtering: sums of piecewise polynomials whose breaks are found by the fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import spsolve_triangular
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

import varopt.model as vo
from varopt.learn._base import Certified, Clock, Lines
from varopt.learn._compat import Interval
from varopt.learn._data import DataMemory, WeightedRows
from varopt.learn._least_squares import Squares, homotopy, ordinary
from varopt.learn._parameters import STRENGTH, Rule, parameter
from varopt.learn._problem import squared_error
from varopt.model import Variable

__all__ = ["AdditiveModel", "TrendFilter", "additive", "divided_differences", "strongest"]

Vector = NDArray[np.float64]


_ORDER = Rule(
    "0 for piecewise constant functions, 1 for piecewise linear ones, 2 for quadratic ones, 3 for cubic ones.",
    Interval(Integral, 0, 3, closed="both"),
)
_LASSO = 300  # rows up to which one feature, too, is a lasso: that is exact at any spacing of the positions

_BANDED = 500  # knots from which on a band is worth keeping
_PATH_ENTRIES = 1 << 21  # of a matrix of rows by divided differences for which a path is made at once
_TREND_ROUNDING = (
    1e-11  # share of the objective without a model that bounds of rounding come to with a thousand differences
)
_DEPENDENT_POLYNOMIAL = 1e-12  # share of the largest singular value below which polynomials repeat others


class AdditiveModel(RegressorMixin):
    """The prediction of functions of the features, by their values at knots."""

    intercept_: float
    knots_: list[Vector]
    values_: list[Vector]
    order: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = False
        return tags

    def predict(self, X: Any) -> Any:
        """The sum of the functions.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Positions, which need not be those of the training data.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csc", dtype=(np.float64, np.float32), reset=False)
        return self.intercept_ + additive(X, self.knots_, self.values_, self.order)


def additive(X: Any, knots: Sequence[Vector], values: Sequence[Vector], order: int) -> Any:
    """The sum of functions of the features that have these values at these knots."""
    return sum(interpolate(column, x, f, order) for column, x, f in zip(_columns(X), knots, values, strict=True))


def _columns(X: Any) -> Iterator[Vector]:
    """One feature after the other, dense: a function has a value at every position, zero or not."""
    if not sp.issparse(X):
        yield from X.T
        return
    for j in range(X.shape[1]):
        yield X[:, [j]].toarray().ravel()


class TrendFilter(AdditiveModel, Certified):
    r"""A sum of adaptive piecewise polynomials of the features, one of each, and a certified gap.

    Minimises over functions f_j of the features::

        1 / (2 * n_samples) * sum_i (y_i - sum_j f_j(x_ij))^2 + alpha * sum_j TV(f_j^(order))

    where the total variation of the derivative of the given order is that of discrete splines: for one feature and
    times 0, 1, 2, ... this is trend filtering, ``||D w||_1`` of differences of order ``order + 1``.

    {parameters}

    Attributes
    ----------
    intercept_ : float
        The mean of the fitted values.
    knots_ : list of ndarray
        For each feature, its distinct values in the training data.
    values_ : list of ndarray
        The functions there, each of mean zero over the training data.
    {fitted}

    Notes
    -----
    One feature with many distinct values m costs O(m) memory: all matrices are banded. Several features, or a few
    hundred values, are a lasso with a dense matrix of as many columns as there are distinct values. Between knots a
    function is the polynomial through the neighbouring ones, which is the discrete spline that the penalty speaks of;
    beyond the last it goes on as it was.

    References
    ----------
    Kim, Koh, Boyd and Gorinevsky (2009), "l1 trend filtering"; Tibshirani (2014), "Adaptive piecewise polynomial
    estimation via trend filtering"; Sadhanala and Tibshirani (2019), "Additive models with trend filtering".

    Examples
    --------
    >>> import numpy as np
    >>> from varopt.learn import TrendFilter
    >>> t = np.arange(9.0)[:, None]
    >>> model = TrendFilter(alpha=1e-3).fit(t, np.abs(t[:, 0] - 4.0))
    >>> model.predict([[0.5], [4.0], [10.0]]).round(2)
    array([3.5, 0. , 6. ])
    """

    alpha: float = parameter(default=1.0, rule=STRENGTH, kw_only=False)
    order: int = parameter(default=1, rule=_ORDER, kw_only=False)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Positions.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights: zero is an absent row, two is a row given twice.

        Returns
        -------
        self
        """
        self._validate_params()
        return self._fit_data(X, y, sample_weight, self._clock(), DataMemory())

    def _fit_data(self, X: Any, y: Any, sample_weight: Any, clock: Clock, memory: DataMemory) -> Any:
        data, targets, weight = self._read(X, y, sample_weight, memory, y_numeric=True)
        rows = memory.rows(data, targets, weight)
        share, mean = rows.weight / rows.total, float(rows.weight @ rows.y / rows.total)
        direct = _is_direct(rows)
        functions = [_Function(column, self.order, direct) for column in _columns(rows.X)]
        level = vo.Variable(name="level")
        fitted: Any = sum((function.at_rows for function in functions), start=0.0 if direct else level)
        loss = vo.sum(share * squared_error((rows.y - mean) - fitted))
        roughness = sum((function.roughness for function in functions), start=0.0)
        solved = self._minimize(loss + self.alpha * roughness if self.alpha > 0.0 else loss, None, clock)
        self._publish([solved], False, X)
        self.intercept_, self.knots_, self.values_ = mean + float(solved.values.get(level, 0.0)), [], []
        for function in functions:
            found = function.values(solved.values)
            center = float(share @ found[function.codes])
            self.intercept_ += center
            self.knots_.append(function.knots)
            self.values_.append(found - center)
        return self

    def _along(
        self, path: Sequence[Mapping[str, float]], data: tuple[Any, Any, Vector], memory: DataMemory, clock: Clock
    ) -> Lines | None:
        """Values at the knots of all features, and intercepts: a lasso of differences beside what has no penalty."""
        rows = memory.rows(*data)
        if _is_direct(rows) or rows.y.size * rows.X.size > _PATH_ENTRIES or not ordinary(rows.X, rows.y):
            return None
        functions = [_Function(column, self.order, False) for column in _columns(rows.X)]
        self.knots_ = [function.knots for function in functions]
        basis = _Basis(functions, rows)
        if not basis.differences.size:
            return None
        alphas = np.array([settings["alpha"] for settings in path])
        coefs = homotopy(basis.squares, alphas)
        values, gaps = basis.squares.brackets(coefs, alphas, np.zeros_like(alphas))
        coefs[~(gaps <= np.maximum(self._allowed(values, basis.null), _TREND_ROUNDING * basis.null))] = np.nan
        return basis.values(coefs)


def _is_direct(rows: WeightedRows) -> bool:
    return bool(rows.X.shape[1] == 1 and rows.y.size > _LASSO)


def strongest(X: Any, y: Vector, weight: Vector, order: int) -> float:
    """The strength from which on all functions are polynomials."""
    functions = [_Function(column, order, True) for column in _columns(X)]
    root = np.sqrt(weight)
    polynomials = np.column_stack([np.ones(y.size), *(function.polynomials[function.codes] for function in functions)])
    fitted = np.linalg.lstsq(root[:, None] * polynomials, root * y, rcond=None)[0]
    dual = weight / weight.sum() * (y - polynomials @ fitted)
    return max((function.strength(dual) for function in functions), default=0.0)


class _Basis:
    """Functions as combinations of differences, which are penalised, and of polynomials and a constant, which are not.

    What a fit leaves of the targets is orthogonal to the latter at any strength: projected out, they leave a lasso.
    """

    def __init__(self, functions: Sequence[_Function], rows: WeightedRows) -> None:
        self.functions = functions
        share = rows.weight / rows.total
        self.mean = float(share @ rows.y)
        self.null = 0.5 * float(share @ (rows.y - self.mean) ** 2)
        bent = [function for function in functions if function.differences is not None]
        self.differences = _side_by_side([function.parts[-1][0][function.codes] for function in bent], rows.y.size)
        root = np.sqrt(share * rows.y.size)[:, None]
        free = [function.polynomials[function.codes] for function in functions]
        self._free = root * _side_by_side([np.ones((rows.y.size, 1)), *free], rows.y.size)
        self._seen, self._y = root * self.differences, root[:, 0] * (rows.y - self.mean)
        left, size, _ = np.linalg.svd(self._free, full_matrices=False)
        left = left[:, size > _DEPENDENT_POLYNOMIAL * size[0]]
        projected = np.column_stack([self._seen, self._y])
        for _ in range(2):  # once more for what rounding leaves
            projected = projected - left @ (left.T @ projected)
        self.squares = Squares(projected[:, :-1], projected[:, -1], np.ones(rows.y.size), False)

    def values(self, coefs: Vector) -> Lines:
        """At the knots of all functions, by differences in rows, and the constants beside them; NaN where these are."""
        left = self._y[:, None] - self._seen @ coefs.T
        with_free = np.isfinite(left).all(axis=0)
        free = np.full((self._free.shape[1], len(coefs)), np.nan)
        free[:, with_free] = np.linalg.lstsq(self._free, left[:, with_free], rcond=None)[0]
        parts, start, power = [], 0, 1
        for function in self.functions:
            at_knots = function.polynomials @ free[power : power + function.degree]
            power += function.degree
            if function.differences is not None:
                matrix = function.parts[-1][0]
                at_knots = at_knots + matrix @ coefs[:, start : start + matrix.shape[1]].T
                start += matrix.shape[1]
            parts.append(at_knots.T)
        return np.hstack(parts), self.mean + free[0]


def _side_by_side(matrices: Sequence[Vector], rows: int) -> Vector:
    return np.hstack([np.zeros((rows, 0)), *matrices])


class _Function:
    """A function of one feature: directly by its values, or by its polynomial and its differences.

    The values keep all matrices banded. Where several features share rows nothing is banded: by polynomials and
    differences the problem is a lasso, and constants are left to the level that all have in common.
    """

    def __init__(self, column: Vector, order: int, direct: bool) -> None:
        self.knots, self.codes = np.unique(column.astype(np.float64), return_inverse=True)
        size, degree = self.knots.size, min(order, self.knots.size - 1)
        self.degree = degree
        self.differences = differences = divided_differences(self.knots, degree + 1) if size > degree + 1 else None
        self.at_knots: Variable | None = None  # the values
        self.parts: list[tuple[Any, Variable]] = []  # or matrices whose products with variables add up to them
        self.roughness: Any = 0.0
        if direct:
            self.at_knots = vo.Variable(size, name="f")
            self.roughness = vo.norm1(differences @ self.at_knots) if differences is not None else 0.0
            return
        if degree:
            self.parts.append((self.polynomials, vo.Variable(degree, name="polynomial")))
        if differences is not None:
            self.parts.append((self._splines(differences), vo.Variable(size - degree - 1, name="differences")))
            self.roughness = vo.norm1(self.parts[-1][1])

    def _splines(self, differences: Any) -> Vector:
        """The values of functions with one difference each that is not zero, and nothing else."""
        units = np.eye(self.knots.size)[:, self.degree + 1 :]
        if self.knots.size > _BANDED:
            return np.asarray(spsolve_triangular(self._fixed, units))
        fixed = np.eye(self.knots.size)
        fixed[self.degree + 1 :] = differences.toarray()
        return np.asarray(solve_triangular(fixed, units, lower=True, check_finite=False))

    @property
    def _fixed(self) -> Any:
        """The matrix from values to the first of them and the differences."""
        return sp.vstack([sp.eye_array(self.degree + 1, self.knots.size), self.differences], format="csr")

    @property
    def polynomials(self) -> Vector:
        """Powers at the distinct positions; a constant is none of them."""
        middle, reach = self.knots.mean(), float(np.ptp(self.knots)) or 1.0
        return np.asarray(((self.knots - middle) / reach)[:, None] ** np.arange(1, self.degree + 1))

    def strength(self, dual: Vector) -> float:
        """The largest derivative of a loss in a difference, by its derivatives in the values at the rows."""
        if self.differences is None:
            return 0.0
        at_knots = np.bincount(self.codes, weights=dual, minlength=self.knots.size)
        moved = spsolve_triangular(sp.csr_array(self._fixed.T), at_knots, lower=False)
        return float(np.abs(moved[self.degree + 1 :]).max())

    @property
    def at_rows(self) -> Any:
        """The values at the rows, as an expression; zero for a constant feature."""
        if self.at_knots is not None:
            in_order = np.array_equal(self.codes, np.arange(self.knots.size))  # as times are: no row looks elsewhere
            return self.at_knots if in_order else self.at_knots[self.codes]
        return sum((matrix[self.codes] @ variable for matrix, variable in self.parts), start=0.0)

    def values(self, solved: Mapping[Variable, Any]) -> Vector:
        """The values at the distinct positions."""
        if self.at_knots is not None:
            return np.asarray(solved[self.at_knots])
        return np.asarray(sum((m @ solved[v] for m, v in self.parts), start=np.zeros(self.knots.size)))


def divided_differences(knots: Vector, order: int) -> Any:
    """The matrix whose rows sum to the total variation of the derivative of order ``order - 1``, as a sparse array."""
    rows, band = knots.size, np.ones((knots.size, 1))  # each row begins at the diagonal
    for k in range(1, order + 1):
        rows, entries = rows - 1, band
        band = np.zeros((rows, k + 1))
        band[:, 1:] = entries[1:]
        band[:, :-1] -= entries[:-1]
        if k < order:
            band *= (k / (knots[k:] - knots[:-k]))[:, None]
    columns = np.arange(rows, dtype=np.int32)[:, None] + np.arange(order + 1, dtype=np.int32)
    starts = np.arange(0, band.size + 1, order + 1, dtype=np.int32)
    return sp.csr_array((band.ravel(), columns.ravel(), starts), shape=(rows, knots.size))


def interpolate(x: Vector, knots: Vector, values: Vector, order: int) -> Vector:
    """A discrete spline between its knots: the polynomial through the knot at or after x and those before it."""
    degree = min(order, knots.size - 1)
    last = np.clip(np.searchsorted(knots, x), degree, knots.size - 1)
    index = last[:, None] - np.arange(degree, -1, -1)
    positions, table = knots[index], values[index]
    for k in range(1, degree + 1):  # Neville's scheme
        left, right = positions[:, :-k], positions[:, k:]
        table = ((x[:, None] - left) * table[:, 1:] - (x[:, None] - right) * table[:, :-1]) / (right - left)
    return np.asarray(table[:, 0])
