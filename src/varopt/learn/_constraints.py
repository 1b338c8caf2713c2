"""What coefficients must satisfy: signs, bounds, an order, or any linear constraints, for all linear models."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

import varopt.model as vo
from varopt.learn._parameters import BOOLEAN, Declared, Rule, parameter
from varopt.learn._problem import LinearProblem
from varopt.model import Constraint

__all__ = ["Constrained"]

Vector = NDArray[np.float64]
Columns = list[int | None]  # of an order; None is a category that was dropped, whose coefficient is zero

_ROUNDED_ORDER = 1e-12  # share of the largest coefficient by which rounding may break an order

_POSITIVE = Rule("Whether coefficients must not be negative.", BOOLEAN)
_BOUNDS = Rule(
    "Bounds of the coefficients: a pair (low, high) of numbers or of arrays with an entry for each feature, or a"
    " mapping from names or places of features to such pairs of numbers; None, or an infinite number, is no bound.",
    tuple,
    list,
    "array-like",
    dict,
    None,
    type="(low, high) or dict",
)
_MONOTONE = Rule(
    'A mapping from features to 1 or "increasing", -1 or "decreasing". Of a feature it is the sign of its coefficient.'
    ' Of a name such as ``"age"`` whose columns ``"age_18-30"``, ``"age_30-50"``, ... are a one-hot or a spline basis'
    " it is the order of their coefficients, and hence of the effect. A tuple of names or places names the columns in"
    " their order; None among them is a category that was dropped, whose coefficient is zero.",
    dict,
    None,
)
_CONSTRAINTS = Rule(
    "A function from the coefficients, or from the coefficients and the intercept, to a linear constraint or a list of"
    " them: ``lambda w: [vo.sum(w) == 1, A @ w <= b]``.",
    callable,
    None,
)
_DIRECTIONS: dict[Any, int] = {1: 1, -1: -1, "increasing": 1, "decreasing": -1, 0: 0}


class Constrained(Declared):
    """The constraints of a linear model, each target's or class's coefficients on their own."""

    positive: bool = parameter(default=False, rule=_POSITIVE)
    bounds: Any = parameter(default=None, rule=_BOUNDS)
    monotone: Any = parameter(default=None, rule=_MONOTONE)
    constraints: Callable[..., Any] | None = parameter(default=None, rule=_CONSTRAINTS)

    @property
    def _constrained_by(self) -> list[str]:
        """The parameters that constrain the coefficients."""
        given = [name for name in ("bounds", "monotone", "constraints") if getattr(self, name) is not None]
        return ["positive=True", *given] if self.positive else given

    def _subject_to(self, problem: LinearProblem, shift: float) -> list[Constraint]:
        """The constraints of a problem whose targets were shifted by `shift`."""
        if not self._constrained_by:
            return []
        w, names = problem.w, getattr(self, "feature_names_in_", None)
        low, high = self._limits(_Features(w.rows, names))
        found = [w[k] >= low[k] for k in [np.flatnonzero(np.isfinite(low))] if k.size]
        found += [w[k] <= high[k] for k in [np.flatnonzero(np.isfinite(high))] if k.size]
        for columns, direction in self._orders(_Features(w.rows, names)):
            found += [direction * step >= 0.0 for step in _steps(w, columns)]
        return found + self._given(w, problem, shift)

    def _by_place(self, count: int) -> dict[str, Any]:
        """The same constraints without names, for fits of the data alone."""
        if self.bounds is None and self.monotone is None:
            return {}
        features = _Features(count, getattr(self, "feature_names_in_", None))
        low, high = self._limits(features)
        orders = {tuple(columns): direction for columns, direction in self._orders(features)}
        return {"bounds": (low, high), "monotone": orders or None}

    def _limits(self, features: _Features) -> tuple[Vector, Vector]:
        """Lower and upper bounds of all coefficients."""
        low, high = np.full(features.count, -np.inf), np.full(features.count, np.inf)
        if isinstance(self.bounds, Mapping):
            seen: set[int] = set()
            for name, pair in self.bounds.items():
                if (k := features.place(name, "bounds")) in seen:
                    raise ValueError(f"bounds names {features.name(k)} more than once; give it one pair (low, high).")
                seen.add(k)
                low[k], high[k] = _pair(pair, f"bounds[{name!r}]", ())
        elif self.bounds is not None:
            low[:], high[:] = _pair(self.bounds, "bounds", low.shape)
        for k in range(features.count) if self.bounds is not None else ():
            if not low[k] <= high[k]:
                raise ValueError(f"bounds must not cross; got ({low[k]:g}, {high[k]:g}) for {features.name(k)}.")
        return np.maximum(low, 0.0) if self.positive else low, high

    def _orders(self, features: _Features) -> Iterator[tuple[Columns, int]]:
        """The columns of each order, and whether it rises or falls."""
        wanted = self.monotone or {}
        for key, value in wanted.items():
            if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, Real)) or value not in _DIRECTIONS:
                raise ValueError(f"monotone[{key!r}] must be 1, -1, 'increasing' or 'decreasing'; got {value!r}.")
            if (direction := _DIRECTIONS[value]) != 0:
                yield features.columns(key, wanted), direction

    def _as_ordered(self, coef: Vector) -> Vector:
        """The coefficients, with orders that no more than rounding has broken restored."""
        if self.monotone is None:
            return coef
        most, coef = _ROUNDED_ORDER * float(np.abs(coef).max(initial=0.0)), coef.copy()
        features = _Features(coef.size, getattr(self, "feature_names_in_", None))
        low, high = self._limits(features)
        for columns, direction in self._orders(features):
            places = [k for k in columns if k is not None]
            known = np.array([np.nan if k is None else direction * coef[k] for k in columns])
            for rising in (
                _rising(known),
                -_rising(-known[::-1])[::-1],
            ):  # up to the largest before, down to the least after
                own = direction * rising[~np.isnan(known)]
                within = np.all((own >= low[places]) & (own <= high[places]))
                if within and np.nanmax(np.abs(rising - known), initial=0.0) <= most:
                    coef[places] = own
                    break
        return coef

    def _given(self, w: Any, problem: LinearProblem, shift: float) -> list[Constraint]:
        if self.constraints is None:
            return []
        arguments = [w]
        if _takes_two(self.constraints):
            if problem.b is None:
                raise ValueError("constraints asks for an intercept as its second argument, and fit_intercept=False.")
            moved = problem.b + shift
            arguments.append(moved if problem.center is None else moved - problem.center @ problem.scaled)
        made = self.constraints(*arguments)
        listed = list(made) if isinstance(made, (list, tuple, Iterator)) else [made]
        for one in listed:
            if not isinstance(one, Constraint):
                raise ValueError(
                    "constraints must return a constraint on the coefficients, such as vo.sum(w) == 1, or a list of "
                    f"them; got {one!r}."
                )
        known = {variable for part in arguments for variable in part.variables}
        if listed and not any(known.intersection(one.normal.variables) for one in listed):
            raise ValueError("constraints must return constraints on the coefficients it is given; got others alone.")
        return listed


class _Features:
    """The features by name, where they have names, or place."""

    def __init__(self, count: int, names: Any) -> None:
        self.count = count
        self.names = [] if names is None else [str(name) for name in names]
        # A ColumnTransformer puts the name of its part before each.
        self.short = [name.split("__", 1)[-1] for name in self.names]

    def name(self, k: int) -> str:
        return repr(self.names[k]) if self.names else f"feature {k}"

    def place(self, key: Any, argument: str) -> int:
        """The place of one feature."""
        if isinstance(key, Integral) and not isinstance(key, (bool, np.bool_)):
            if not -self.count <= int(key) < self.count:
                raise ValueError(f"{argument} names feature {key}, and there are {self.count}.")
            return int(key) % self.count
        found = self._called(key) if isinstance(key, str) else []
        if len(found) != 1:
            several = f"{len(found)} features have that name" if found else self._known()
            raise ValueError(f"{argument} names the feature {key!r}, and {several}.")
        return found[0]

    def columns(self, key: Any, others: Mapping[Any, Any]) -> Columns:
        """The columns of an order: those of a tuple, a feature, or all whose names begin with the key."""
        if isinstance(key, tuple):
            if sum(one is not None for one in key) != len({one for one in key if one is not None}) or len(key) < 2:
                raise ValueError(f"monotone must name two or more columns, and each once; got {key!r}.")
            return [None if one is None else self.place(one, "monotone") for one in key]
        if not isinstance(key, str) or self._called(key):
            return [None, self.place(key, "monotone")]
        longer = tuple(f"{other}_" for other in others if isinstance(other, str) and other.startswith(f"{key}_"))
        found = [
            k
            for k, name in enumerate(self.short)
            if name.startswith(f"{key}_") and not (longer and name.startswith(longer)) and name not in others
        ]
        if not found:
            raise ValueError(f"monotone names {key!r}, and {self._known()}.")
        if found[-1] - found[0] >= len(found):
            raise ValueError(
                f"monotone names {key!r}, and the columns that begin with it are not side by side: give them in their"
                f" order, as a tuple; {', '.join(self.name(k) for k in found)}."
            )
        return list(found) if len(found) > 1 else [None, *found]

    def _called(self, key: str) -> list[int]:
        exact = [k for k, name in enumerate(self.names) if name == key]
        return exact or [k for k, name in enumerate(self.short) if name == key]

    def _known(self) -> str:
        if not self.names:
            return "X has no names of features: give places, or a DataFrame"
        shown = ", ".join(map(repr, self.names[:8])) + (", ..." if len(self.names) > 8 else "")
        return f"the features are {shown}"


def _steps(w: Any, columns: Columns) -> Iterator[Any]:
    """What must not be negative where the coefficients rise: their differences, zero in the place of None."""
    if None not in columns:
        yield vo.diff(w[np.array(columns, dtype=np.intp)])
        return
    for one, other in pairwise(columns):
        if one is None and other is not None:
            yield w[other]
        elif one is not None:
            yield -w[one] if other is None else w[other] - w[one]


def _rising(values: Vector) -> Vector:
    """Values that do not fall, each the largest so far; NaN stands for a zero that none before may exceed."""
    zeros = np.flatnonzero(np.isnan(values))
    if not zeros.size:
        return np.asarray(np.maximum.accumulate(values))
    rising, first, last = np.zeros(values.size), zeros[0], zeros[-1]
    rising[:first] = np.minimum.accumulate(np.minimum(values[:first], 0.0)[::-1])[::-1]
    rising[last + 1 :] = np.maximum.accumulate(np.maximum(values[last + 1 :], 0.0))
    return rising


def _pair(given: Any, argument: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A lower and an upper bound, of numbers or of arrays."""
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) != 2:
        raise ValueError(f"{argument} must be a pair (low, high); got {given!r}.")
    ends = []
    for side, none in zip(given, (-np.inf, np.inf), strict=True):
        entries = [none if one is None else one for one in np.ravel(np.asarray(side, dtype=object))]
        try:
            end = np.array(entries, dtype=np.float64).reshape(np.shape(side))
        except (TypeError, ValueError):
            raise ValueError(f"{argument} must hold numbers or None; got {side!r}.") from None
        if np.isnan(end).any() or end.shape not in ((), shape):
            wanted = f"a number, or one for each of {shape[0]} features" if shape else "a number"
            raise ValueError(f"each side of {argument} must be {wanted}; got {side!r}.")
        if np.any(end == -none):
            raise ValueError(f"{argument} leaves no coefficient: got {given!r}.")
        ends.append(end)
    return ends[0], ends[1]


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function asks for a second argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some built in
        return False
    needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(needed) > 1
