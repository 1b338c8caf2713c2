"""A family of problems, one for each value of a parameter, each started from its neighbour's solution."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from varopt._display import Progress, bracket_words, card, curves, fold, not_echoed, table
from varopt._domains import as_finite
from varopt.composite import shared_rows
from varopt.model import Parameter, Parametric, Variable
from varopt.optimize._minimize import check_options, minimize
from varopt.optimize._result import Result, Status, progress_line
from varopt.solvers import Auto, State, Way

__all__ = ["ResultPath", "path"]

Vector = NDArray[np.float64]

_MOST_LINES = 12  # coordinates that are drawn in a notebook, the largest
_LEAST_LEFT = 1e-9  # seconds in which the first problem has a point and a bracket
_NEIGHBOUR = 1 / 16  # relative sigma at which a neighbour's solution is taken up: farther in, too few rows may move


@dataclass(frozen=True)
class ResultPath(Sequence[Result]):
    """The results along a path: a sequence, and arrays with one entry for each value.

    ``p[3]`` is a `Result`; ``p[w]`` are the values of a variable, the first axis along the path.
    """

    parameter: Parameter
    values: Vector
    results: tuple[Result, ...]
    left_out: int = 0  # values that were not come to

    @property
    def x(self) -> Vector:
        """The points, one a row."""
        return np.stack([r.x for r in self.results])

    @property
    def fun(self) -> Vector:
        """The objective at each of them."""
        return np.array([r.fun for r in self.results])

    @property
    def lower(self) -> Vector:
        """Lower bounds on the optima."""
        return np.array([r.lower for r in self.results])

    @property
    def upper(self) -> Vector:
        """Upper bounds on the optima."""
        return np.array([r.upper for r in self.results])

    @property
    def gap(self) -> Vector:
        """``upper - lower``."""
        return np.array([r.gap for r in self.results])

    @property
    def success(self) -> bool:
        """Whether every problem was solved to its tolerance, none left out."""
        return not self.left_out and all(r.success for r in self.results)

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> ResultPath: ...
    @overload
    def __getitem__(self, index: Variable) -> Any: ...
    def __getitem__(self, index: int | slice | Variable) -> Any:
        if isinstance(index, Variable):
            place = self.results[0].place if self.results else None
            values = np.stack([r._here(index) for r in self.results])
            return values if place is None else place(values)
        if isinstance(index, slice):
            return ResultPath(self.parameter, self.values[index], self.results[index])
        return self.results[index]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __repr__(self) -> str:
        if not self.results:
            return f"path over {self.parameter}: nothing was solved"
        solved = sum(r.success for r in self.results)
        return (
            f"path over {self.parameter}: {solved} of {len(self) + self.left_out} within the tolerance, "
            f"{self.parameter} {self.values[0]:.4g} .. {self.values[-1]:.4g}, largest gap {self.gap.max():.3g}, "
            f"{sum(r.nit for r in self.results)} steps, {sum(r.time for r in self.results):.3g} s"
        )

    def explain(self) -> str:
        """One line for each problem: the value of the parameter, the optimum, and how the run ended."""
        lines = [
            f"{self.parameter} = {value:<10.6g} {r.status.name:<10} {bracket_words(r.lower, r.upper)}"
            for value, r in zip(self.values, self.results, strict=True)
        ]
        return "\n".join([repr(self), *lines])

    def _repr_html_(self) -> str:
        order = np.argsort(self.values)
        coordinates = self.x[order].T
        largest = np.argsort(-np.abs(coordinates).max(axis=1, initial=0.0))[:_MOST_LINES]
        columns = {
            str(self.parameter): self.values, "value": self.fun, "gap": self.gap,
            "not zero": np.count_nonzero(self.x, axis=1), "status": [r.status.name for r in self.results],
        }  # fmt: skip
        place = np.log(self.values[order]) if self.values.min() > 0 else self.values[order]
        drawing = curves(place, {self._names[i]: coordinates[i] for i in sorted(largest)})
        return card(repr(self), [], drawing, fold("the problems", table(columns)))

    @property
    def _names(self) -> list[str]:
        """What the coordinates are called, by variable and place."""
        names = [f"x[{i}]" for i in range(self.x.shape[1])]
        for variable, place in self.results[0].slices.items():
            size = len(names[place])
            names[place] = [f"{variable}[{i}]" for i in range(size)] if variable.dimensions else [str(variable)]
        return names

    def plot(self, variable: Variable | None = None, axes: Any = None) -> Any:
        """The coordinates (of one variable, or all) against the parameter. Needs Matplotlib; returns the axes."""
        import matplotlib.pyplot as plt

        axes = plt.subplots(figsize=(6, 3.6), layout="constrained")[1] if axes is None else axes
        coordinates = (self.x if variable is None else self[variable]).reshape(len(self), -1)
        order = np.argsort(self.values)
        axes.plot(self.values[order], coordinates[order], lw=1)
        axes.axhline(0.0, color="0.7", lw=0.8, zorder=0)
        if self.values.min() > 0 and self.values.max() > 30 * self.values.min():
            axes.set_xscale("log")
        axes.set(xlabel=str(self.parameter), ylabel="x" if variable is None else str(variable))
        return not_echoed(axes)


def path(
    f: Any, parameter: Parameter, values: Any, *, tol: float = 1e-9, method: str | Way | Auto = "auto", x0: Any = None,
    callback: Callable[[State], Any] | None = None, progress: bool = False, time_limit: float | None = None,
    subject_to: Any = None,
) -> ResultPath:  # fmt: skip
    """Minimise an objective for each value of a parameter in it.

    Every problem starts from the solution before it, so give the values in an order in which neighbours are alike.
    What does not depend on the parameter is built once.

    Parameters
    ----------
    f : objective with a parameter
        Such as ``loss + lam * vo.norm1(w)`` or ``vo.sum(vo.pinball(y - X @ w, tau))`` with ``lam = vo.Parameter()``.
    parameter : Parameter
        The one that varies; others keep their values.
    values : sequence of float
        Its values, in the order in which the problems are solved.
    tol, method, x0, callback, progress
        As for `minimize`, for every problem; `x0` starts the first.
    time_limit : float, optional
        Seconds for the whole path; what was solved by then is returned.
    subject_to : constraint, or list of them, optional
        As for `minimize`; the parameter may occur in them, and ``p[3].multipliers[c]`` is of the constraint as given.

    Returns
    -------
    ResultPath
        Shorter than `values` where the time limit or an interrupt ended the path; the first problem is always there.

    Examples
    --------
    >>> import numpy as np, varopt as vo
    >>> y = np.array([0.0, 1.0, 2.0, 3.0, 10.0])
    >>> q, tau = vo.Variable(name="q"), vo.Parameter(name="tau")
    >>> p = vo.path(vo.sum(vo.pinball(y - q, tau)), tau, [0.3, 0.5, 0.9])
    >>> p[q], p.success
    (array([ 1.,  2., 10.]), True)
    """
    if not isinstance(parameter, Parameter):
        raise ValueError(f"parameter must be a vo.Parameter; got {type(parameter).__name__}.")
    _, time_limit = check_options(tol, "auto", time_limit, callback)
    limits = list(subject_to) if isinstance(subject_to, (list, tuple)) else [] if subject_to is None else [subject_to]
    parts = [part for part in (f, *limits) if isinstance(part, Parametric)]
    if not any(parameter in part.parameters for part in parts):
        where = "f must be an objective" if not limits else "f or subject_to must be one"
        raise ValueError(f"{where} in which {parameter} occurs, such as loss + lam * vo.norm1(w).")
    grid = np.atleast_1d(as_finite("values", values)).astype(np.float64)
    if grid.ndim != 1 or not grid.size:
        raise ValueError(f"values must be a sequence of at least one number; got shape {grid.shape}.")
    started, results, line = time.perf_counter(), list[Result](), Progress(progress)

    def watch(state: State) -> Any:
        line.show(f"{parameter} = {grid[len(results)]:.4g}, {len(results) + 1} of {grid.size}  {progress_line(state)}")
        return None if callback is None else callback(state)

    with shared_rows():
        for value in grid:
            left = None if time_limit is None else time_limit - (time.perf_counter() - started)
            if left is not None and left <= 0.0:
                if results:
                    break
                left = _LEAST_LEFT
            before = _neighbour(results[-1]) if results else None
            given = {id(c): _given(c, parameter, value) for c in limits}
            try:
                found = minimize(
                    _given(f, parameter, value), tol=tol, method=method, x0=None if results else x0, resume=before,
                    callback=watch if progress else callback, time_limit=left, subject_to=list(given.values()) or None,
                )  # fmt: skip
            except KeyboardInterrupt:
                if results:  # what is solved is not lost to an interrupt between two problems
                    break
                raise
            by_given: Any = {c: found.multipliers[given[id(c)]] for c in limits if given[id(c)] in found.multipliers}
            results.append(replace(found, multipliers=by_given) if limits else found)
            if results[-1].status is Status.INTERRUPTED:
                break
    solved = ResultPath(parameter, grid[: len(results)], tuple(results), grid.size - len(results))
    line.end(repr(solved))
    return solved


def _given(part: Any, parameter: Parameter, value: float) -> Any:
    """An objective or a constraint with the value filled in."""
    return part.given({parameter: value}) if isinstance(part, Parametric) else part


def _neighbour(result: Result) -> State | None:
    """A state at the neighbour's solution, with the sigma at which to take it up."""
    if not np.all(np.isfinite(result.x)):
        return None
    return State(result.x, latest=result.x, sigma=_NEIGHBOUR)
