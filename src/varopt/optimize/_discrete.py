"""Runs of the discrete solver: options checked, time kept, a `Result` at the end."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt._display import Progress
from varopt._domains import as_finite, as_generator
from varopt._threads import one_thread
from varopt._verified import down, up
from varopt.certificates import NoCertificate, Relaxation
from varopt.model import Objective, split
from varopt.optimize._result import Result, Status, final_line, progress_line
from varopt.solvers import State
from varopt.solvers.discrete import (
    SEARCHES,
    Collector,
    Energy,
    RunEnded,
    SolutionPool,
    energy_of,
    is_symmetric,
    population_search,
    solve,
)

__all__ = ["ends", "minimize_discrete", "minimize_energy"]

Vector = NDArray[np.float64]

_LEAST_MAGNITUDE, _MOST_MAGNITUDE = 1e-30, 1e30  # sizes of energies with room on either side in single precision
_POOL_POINTS = 16  # points that are kept where nobody asks
_ROUNDS_FOR_MORE = 4  # of a search for more, where somebody does
_STATUS = {"proved": Status.PROVED, "target": Status.TARGET, "settled": Status.SETTLED}


class _TimeUp(Exception):
    """The time limit was reached."""


def minimize_discrete(objective: Objective, *, x0: Any = None, **options: Any) -> Result:
    """Minimise a polynomial in Binary and Categorical variables; see `minimize_energy` for the options."""
    started = time.perf_counter()
    energy = energy_of(objective)
    start = None
    if x0 is not None:
        values = split(objective.variables, (x0,))
        start = np.concatenate([as_finite("x0", values[v]).astype(np.float64) for v in objective.variables])
    return minimize_energy(energy, x0=start, slices=objective.slices, started=started, **options)


def minimize_energy(
    energy: Energy, *, tol: float = 1e-9, method: Any = "auto", x0: Any = None,
    callback: Callable[[State], Any] | None = None, progress: bool = False, time_limit: float | None = None,
    target: float | None = None, seed: Any = 0, device: str | None = None,
    beta: Callable[[float], float] | None = None, slices: dict[Any, slice] | None = None,
    started: float | None = None, pool: int | None = None,
) -> Result:  # fmt: skip
    """Minimise an energy of bits and choices.

    Parameters
    ----------
    energy : Energy
        What is minimised.
    tol : float
        The optimum counts as proved when ``upper - lower <= tol * max(unit, |upper|)``, unit the step between values,
        where they lie on a grid as those of whole numbers do, else the largest coefficient.
    method : str
        ``"auto"``, or the name of a search, `varopt.solvers.discrete.SEARCHES`, which then runs before anything else.
    x0 : ndarray, optional
        A point to start from.
    callback, progress, time_limit
        As for `varopt.minimize`.
    target : float, optional
        Stop at a point at least as good.
    seed : int or numpy.random.Generator
        Equal seeds give equal runs; a time limit only cuts them off.
    device : str, optional
        Run the search on PyTorch, on this device; free energy only.
    beta : callable, optional
        The schedule of a free-energy search (``"free-energy"``, which is also what ``"auto"`` runs, or
        ``"mean-field"``): from progress in [0, 1] to the beta of ``<log p> + beta <f>``, in units of one over f.
    slices : dict, optional
        Where the variables lie in x.
    pool : int, optional
        How many of the best different points the result keeps; where the run ends with fewer, some more are looked for.
        By default up to 16 that were met anyway.
    started : float, optional
        When the clock was started, as of `time.perf_counter`: before the energy was made, which takes its time too.

    Returns
    -------
    Result
        Its ``method`` tells what ran, in order: ``"elimination"``, or ``"free-energy > semidefinite"``, and
        ``"branch-and-bound"`` after these.
    """
    if pool is not None and not (_is_number(pool) and pool == int(pool) and pool >= 1):
        raise ValueError(f"pool must be a whole number >= 1, of points to keep; got {pool!r}.")
    _check_options(method, target, time_limit, device)
    _check_beta(method, beta)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of the state; got {callback!r}.")
    if not _is_number(tol) or not 0.0 <= float(tol) < math.inf:
        raise ValueError(f"tol must be a number >= 0; got {tol!r}.")
    if energy.magnitude > 0.0 and not _LEAST_MAGNITUDE <= energy.magnitude <= _MOST_MAGNITUDE:
        raise ValueError(
            f"coefficients must add up to between {_LEAST_MAGNITUDE:g} and {_MOST_MAGNITUDE:g} in size, as the search "
            f"is in single precision; got {energy.magnitude:.3g}. Give the problem in other units."
        )
    start = None if x0 is None else _checked_point(energy, x0)
    state = State(np.zeros(energy.size), sigma=0.0, proof=Relaxation)
    state.started = state.started if started is None else started
    chain: list[str] = []
    limit, line = math.inf if time_limit is None else float(time_limit), Progress(progress)

    def check(current: State) -> None:
        line.show(progress_line(current))
        if callback is not None:
            callback(current)
        if current.elapsed > limit:
            raise _TimeUp

    status = Status.SETTLED
    try:
        with one_thread():
            solve(
                energy, state, tol, check, as_generator(seed), start=start,
                target=-math.inf if target is None else target, time_limit=limit, method=method, device=device,
                chain=chain, beta=beta, pool=pool or _POOL_POINTS,
            )  # fmt: skip
    except RunEnded as outcome:
        status = _STATUS[str(outcome)]
    except _TimeUp:
        status = Status.TIME_LIMIT
    except (KeyboardInterrupt, StopIteration):
        status = Status.INTERRUPTED
    # Where nothing else ran, the bound term by term did, or the start was all that was wanted.
    ran = " > ".join(chain) or ("termwise" if math.isfinite(state.lower) else "x0")
    result = _conclude(energy, state, tol, status, ran, slices or {})
    if pool is not None and status is not Status.INTERRUPTED and len(state.pool) < pool:
        _look_for_more(energy, state, pool, as_generator(seed))
    result = replace(result, pool=_pool(energy, state, pool or _POOL_POINTS))
    line.end(final_line(result))
    return result


def _look_for_more(energy: Energy, state: State, most: int, rng: np.random.Generator) -> None:
    """A first epoch of the search, for the sake of its other points."""
    collector = Collector(most, is_symmetric(energy))
    for x in (state.x, *state.pool):
        collector.add(x[:, None], np.array([energy.value(x)]))
    with one_thread():
        for found in itertools.islice(population_search(energy, rng), _ROUNDS_FOR_MORE):
            if found.others is not None:
                collector.add(*found.others)
    for _ in range(most if energy.is_binary else 0):  # small problems have few local minima: what is one change away
        if len(collector.points) >= most:
            break
        for x in collector.points:
            change = 1.0 - 2.0 * x
            values = energy.value(x) + change * energy.gradient(x[:, None])[:, 0]
            best = np.argsort(values, kind="stable")[:most]
            near = np.repeat(x[:, None], best.size, axis=1)
            near[best, np.arange(best.size)] += change[best]
            collector.add(near, values[best])
    state.pool = collector.points


def _pool(energy: Energy, state: State, most: int) -> SolutionPool:
    """The best point and others, polished or not, with their own energies."""
    known = {x.tobytes(): x for x in (state.x, *(np.asarray(x, dtype=np.float64) for x in state.pool))}
    points = np.array([*known.values()])[:most]
    return SolutionPool.of(points, np.asarray(energy.value(points.T)), is_symmetric(energy))


def _conclude(
    energy: Energy, state: State, tol: float, status: Status, method: str, slices: dict[Any, slice]
) -> Result:
    if not math.isfinite(state.upper):  # stopped before the first point: any is better than none
        first = np.r_[True, energy.site[1:] != energy.site[:-1]]
        wide = np.bincount(energy.site)[energy.site] > 1
        state.see(np.where(first & wide, 1.0, 0.0), energy.value(np.where(first & wide, 1.0, 0.0)))
    value, lower, upper = ends(energy, state)
    if upper - lower <= energy.tolerance(tol, upper):
        status = Status.PROVED
    elif status is Status.PROVED:  # of the values as they are computed; their rounding alone is more than is allowed
        status = Status.SETTLED
    bracketed = math.isfinite(lower)
    certificate = state.proof(lower, upper, state.assumption) if bracketed else NoCertificate(lower, upper)
    names = ("time", "steps", "sigma", "upper", "lower")
    history = {key: np.array([row[key] for row in state.history]) for key in names}
    return Result(
        state.x, value, certificate, status, method, 0.0, state.steps, state.elapsed, history, slices, 0, state
    )


def ends(energy: Energy, state: State) -> tuple[float, float, float]:
    """The value of the best point, and the bracket of what was stated: rounding of coefficients and values included.

    Values of whole numbers are what they are; else the upper end is the value, added up again, with its error.
    """
    lower = min(state.lower, state.upper)
    if energy.is_exact:
        return state.upper, lower, state.upper
    if not math.isfinite(state.upper):  # no point was found
        return math.inf, float(down(lower - energy.rounding)), math.inf
    value, error = energy.enclosed(state.x)
    return value, float(down(min(lower - energy.rounding, value - error))), float(up(value + error))


def _check_options(method: Any, target: Any, time_limit: Any, device: Any) -> None:
    if method not in ("auto", *SEARCHES):
        names = ", ".join(map(repr, ("auto", *SEARCHES)))
        raise ValueError(f"method must be one of {names} for discrete variables; got {method!r}.")
    if device is not None and method not in ("auto", "free-energy"):
        raise ValueError(f"device applies to method 'free-energy' only; got method {method!r}.")
    if target is not None and not (_is_number(target) and math.isfinite(target)):
        raise ValueError(f"target must be a number; got {target!r}.")
    if time_limit is not None and not (_is_number(time_limit) and float(time_limit) > 0):
        raise ValueError(f"time_limit must be a positive number of seconds; got {time_limit!r}.")


def _check_beta(method: Any, beta: Any) -> None:
    if beta is None:
        return
    if not callable(beta):
        raise ValueError(f"beta must be a function from progress in [0, 1] to a positive number; got {beta!r}.")
    if method not in ("auto", "free-energy", "mean-field"):
        raise ValueError(f"beta applies to methods 'free-energy' and 'mean-field' only; got method {method!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _checked_point(energy: Energy, x0: Any) -> Vector:
    x = np.asarray(as_finite("x0", x0), dtype=np.float64)
    if x.shape != (energy.size,):
        raise ValueError(f"x0 must have {energy.size} entries; got shape {x.shape}.")
    if not np.all((x == 0.0) | (x == 1.0)):
        at = int(np.flatnonzero((x != 0.0) & (x != 1.0))[0])
        raise ValueError(f"x0 must be made of zeros and ones; got {x[at]:g} at index {at}.")
    ones = np.bincount(energy.site, weights=x)
    wrong = np.flatnonzero((np.bincount(energy.site) > 1) & (ones != 1.0))
    if wrong.size:
        raise ValueError(f"x0 must choose one category in every row; row {int(wrong[0])} has {ones[wrong[0]]:g}.")
    return x
