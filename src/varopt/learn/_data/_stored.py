"""Fits of data that are not in memory: what takes their place in a fit, and the problems that share passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import varopt.model as vo
from varopt._array import namespace
from varopt.learn._problem import LinearProblem
from varopt.model import Objective
from varopt.optimize import Result, Status, minimize_together
from varopt.places import (
    DataPart,
    Derived,
    DeviceColumn,
    Stored,
    Table,
    as_stored,
    at,
    columns_in,
    held_columns,
    rows,
    table_of,
)

if TYPE_CHECKING:
    from varopt.learn._base import Clock

__all__ = [
    "Classes",
    "StoredProblem",
    "StoredRows",
    "by_class",
    "classes_of",
    "signs",
    "solve_huber_centred",
    "solve_huber_stored",
    "solve_together",
    "stored_rows",
]

Vector = NDArray[np.float64]

_LABEL_ROWS = 1 << 16  # rows that are looked at together
_MOST_CLASSES = 1000  # more different labels than that are no classes


class StoredRows(NamedTuple):
    """Data, targets and weights, some of them not in memory."""

    X: Stored
    y: Any
    weight: Any
    names: list[str] | None

    @property
    def home(self) -> Any:
        """An array where results belong."""
        return self.X.array if isinstance(self.X, DeviceColumn) else np.zeros(1)

    @property
    def dtype(self) -> Any:
        """In which coefficients are given."""
        return np.dtype(np.float32) if self.X.dtype == np.float32 else np.dtype(np.float64)

    @property
    def ndim(self) -> int:
        """Of the targets."""
        return 1

    def in_memory(self, memory: Any) -> tuple[Any, Any, Any] | None:
        """The arrays themselves, where they are small; those of a device stay there."""
        from varopt.optimize import small_part  # loaded when first used

        part = None if isinstance(self.X, DeviceColumn) else small_part(self[:3], memory)
        if part is None:
            return None
        weight = None if self.weight is None else at(self.weight, part)
        return at(self.X, part), at(self.y, part), weight

    @property
    def reads(self) -> int:
        """How often all of the data are read where they are read at once."""
        return 2 if table_of(columns_in(self[:3])).counted else 1

    def total(self) -> float:
        """The sum of the weights, which have to be read for it."""
        if self.weight is None:
            return float(self.X.shape[0])
        if not isinstance(self.weight, Stored):
            return float(np.sum(self.weight))
        return float(_reduced([self.weight], _sum_of)[0])


def stored_rows(X: Any, y: Any, sample_weight: Any) -> StoredRows | None:
    """Data that are not in memory in the place of those of a fit, or None where all are."""
    names = None
    if isinstance(X, (str, Path)) or (isinstance(X, (list, tuple)) and X and isinstance(X[0], (str, Path))):
        X = rows(X, y=y, weight=sample_weight)
        X, y, sample_weight, names = X.X, X.y, X.weight, getattr(X, "features", None)
    elif not isinstance(X, Stored) and isinstance(getattr(X, "X", None), Stored):  # of `varopt.rows`
        y = X.y if y is None else y
        sample_weight = X.weight if sample_weight is None else sample_weight
        X, names = X.X, getattr(X, "features", None)
    data = as_stored(X)
    if data is None:
        return None
    if data.ndim != 2:
        raise ValueError(f"X must be a matrix; got shape {data.shape}.")
    y, sample_weight = (_vector(name, v, data.shape[0]) for name, v in (("y", y), ("sample_weight", sample_weight)))
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give y, or the column that holds it.")
    if isinstance(sample_weight, np.ndarray) and not np.all(sample_weight >= 0.0):
        raise ValueError("sample_weight must not be negative.")
    return StoredRows(data, y, sample_weight, names)


def _vector(name: str, value: Any, count: int) -> Any:
    if value is None:
        return None
    stored = as_stored(value, name)
    array: Any = stored if stored is not None else np.asarray(value)
    if np.ndim(array) == 0 and name == "sample_weight":
        return np.full(count, float(array))
    if array.ndim == 2 and array.shape[1] == 1 and stored is None:
        array = np.ravel(array)
    if array.ndim != 1 or array.shape[0] != count:
        raise ValueError(f"{name} must have one entry for each of {count} rows of X; got shape {array.shape}.")
    if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; got {array[~np.isfinite(array)][0]}.")
    return array


class StoredProblem(LinearProblem):
    """A linear problem of rows that are not in memory, by their weights in total."""

    def __init__(self, data: StoredRows, y: Any, intercept: bool, total: float) -> None:
        super().__init__(data.X, y, data.weight, intercept)
        object.__setattr__(self, "_total", total)

    def total(self, losses: Any) -> Any:
        """``sum_i s_i loss_i``."""
        weight: Any = self.weight
        return vo.sum(losses) if weight is None else vo.sum(weight * losses)

    def mean(self, losses: Any) -> Any:
        """``sum_i s_i loss_i / sum_i s_i``."""
        return (1.0 / self._total) * self.total(losses)  # type: ignore[attr-defined]


def solve_together(
    objectives: Sequence[Objective], clock: Clock, tol: float, memory: Any, progress: bool
) -> list[Result]:
    """Minimise objectives on the same data, in the same passes."""
    results = minimize_together(objectives, tol=tol, memory=memory, progress=progress, time_limit=clock.left)
    if results[0].status is Status.INTERRUPTED:
        clock.stop()
    return results


def solve_huber_stored(
    problem: LinearProblem, epsilon: float, alpha: float, clock: Clock, tol: float, memory: Any, progress: bool
) -> Result:
    """Minimise Huber's regression with its scale, which is the last entry of the point."""
    from varopt.optimize import minimize_huber_stored  # loaded when first used

    losses = problem.total(vo.huber(problem.residual, 1.0))
    result = minimize_huber_stored(
        losses, problem.scaled, epsilon=epsilon, alpha=alpha, tol=tol, memory=memory, progress=progress,
        time_limit=clock.left,
    )  # fmt: skip
    if result.status is Status.INTERRUPTED:
        clock.stop()
    return result


def solve_huber_centred(
    problem: LinearProblem, epsilon: float, alpha: float, clock: Clock, tol: float, progress: bool
) -> Result | None:
    """The same of data in memory, as one part: it takes from columns what their entries have in common.

    None where it has no answer.
    """
    X, y, weight = held_columns(problem.X, problem.y, problem.weight)
    data = StoredRows(X, y, weight, None)
    held = StoredProblem(data, data.y, problem.intercept, 1.0)
    try:
        return solve_huber_stored(held, epsilon, alpha, clock, tol, None, progress)
    except ValueError:  # scales that have no square, too little memory
        return None


# -- Labels -----------------------------------------------------------------------------------------------------------


class Classes(NamedTuple):
    """The labels that occur, and the weight of each in total."""

    labels: NDArray[Any]
    weights: Vector


@dataclass
class _Counted:
    """Labels and their weights, of some rows; they add up."""

    weights: dict[Any, float]

    def __add__(self, other: _Counted) -> _Counted:
        merged = dict(self.weights)
        for label, weight in other.weights.items():
            merged[label] = merged.get(label, 0.0) + weight
        if len(merged) > _MOST_CLASSES:
            raise ValueError(f"y has more than {_MOST_CLASSES} different labels: these are no classes.")
        return _Counted(merged)


def classes_of(data: StoredRows) -> Classes:
    """The classes of the targets, in a pass over them and the weights."""
    counted = _reduced([data.y, data.weight], _count)
    present = sorted(label for label, weight in counted.weights.items() if weight > 0.0)
    return Classes(np.array(present), np.array([counted.weights[label] for label in present]))


def _count(part: DataPart, y: Any, weight: Any) -> _Counted:
    labels, codes = np.unique(at(y, part), return_inverse=True)
    weights = np.ones(part.count) if weight is None else at(weight, part)
    totals = np.bincount(np.ravel(codes), weights=weights, minlength=labels.size)
    return _Counted({label: float(total) for label, total in zip(labels.tolist(), totals, strict=True)})


class _Sum(tuple[float]):
    def __add__(self, other: Any) -> _Sum:
        return _Sum((self[0] + other[0],))


def _sum_of(part: DataPart, weight: Any) -> _Sum:
    return _Sum((float(np.sum(at(weight, part))),))


def _reduced(values: Sequence[Any], task: Callable[..., Any]) -> Any:
    """The sum over all rows of what a task makes of some values."""
    columns = columns_in(values)
    if not columns:  # in memory after all
        return task(DataPart(slice(0, len(values[0])), {}), *values)
    table: Table = table_of(columns)
    return table.reduce(columns, partial(_applied, task=task, values=tuple(values)), _LABEL_ROWS, lambda _: None)


def _applied(part: DataPart, task: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    return task(part, *values)


def signs(y: Any, positive: Any) -> Any:
    """One for a class, minus one for the others."""
    return Derived(partial(_signs, positive=positive), (y,)) if isinstance(y, Stored) else _signs(y, positive)


def _signs(labels: NDArray[Any], positive: Any) -> Vector:
    xp = namespace(labels)  # labels may be on a device
    return 2.0 * xp.astype(labels == positive, xp.float64) - 1.0  # type: ignore[no-any-return]


def by_class(y: Any, weight: Any, classes: NDArray[Any], factors: Vector) -> Any:
    """Weights times a factor for each class."""
    if np.all(factors == 1.0):
        return weight
    function = partial(_by_class, classes=classes, factors=factors)
    values = (y,) if weight is None else (y, weight)
    return Derived(function, values) if columns_in(values) else function(*values)


def _by_class(labels: NDArray[Any], *weight: Any, classes: NDArray[Any], factors: Vector) -> Vector:
    xp = namespace(labels)
    scaled = sum(f * xp.astype(labels == one, xp.float64) for one, f in zip(classes.tolist(), factors, strict=True))
    return scaled * weight[0] if weight else scaled  # type: ignore[no-any-return]
