r"""`minimize` of a bound: E(theta) is descended in the parameters themselves, the dispersion among them.

Theorem 1 of [SB12] is about all parameters jointly, each in coordinates that know no ends (`_free_parameters`). Bounds
in closed form or by quadrature are descended by L-BFGS, sampled ones by Adam on fresh samples.

Kingma and Ba, *Adam: a method for stochastic optimization*, 2015. SB12: J. Staines and D. Barber, *Variational
Optimization*, arXiv:1212.4507, 2012.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from varopt._display import Progress
from varopt.bounds import Bound, CompositeBound, NotFinite, PointNoise, PointsBound
from varopt.certificates import Certificate, NoCertificate, Relaxation, Sampled, bracket
from varopt.composite import Composite, NotComposite, composite
from varopt.families import OwnFamily
from varopt.optimize._composite import conclude
from varopt.optimize._free_parameters import FreeParameters
from varopt.optimize._result import Result, Status, final_line, progress_line
from varopt.solvers import State, settle

__all__ = ["BoundPath", "BoundResult", "minimize_bound"]

Vector = NDArray[np.float64]

_LAST_DISPERSION = 1e-9  # share of the first dispersion at which a schedule has nothing more to shrink
_WAITS = 100  # descents in a row to their end at one dispersion, after which a schedule has no other to give
_ITERATIONS_BY_SAMPLING = {True: 400, False: 1000}  # of a sampled bound, and of others
_ADAM_RATE = 0.05  # of Adam, in standard deviations of the family as it was given


class BoundStopped(Exception):
    """The time limit was reached."""


@dataclass(frozen=True, repr=False)
class BoundResult(Result):
    """The outcome of minimising a bound: a `Result` with the family that was reached.

    Attributes
    ----------
    family : Family
        p(x|theta) at the theta reached.
    bound : Bound
        E there: ``bound.value`` is an upper bound on the minimum for every theta.
    """

    family: Any = None
    bound: Any = field(default=None, compare=False)

    def mirrored(self) -> Self:
        """The outcome of maximising minus the objective."""
        return replace(super().mirrored(), bound=self.bound.mirrored())

    def _rows(self) -> list[tuple[str, str]]:
        return [*super()._rows(), ("bound", f"{self.bound.value:.12g}")]


@dataclass
class BoundPath:
    """Where the descent stands: what a schedule sees."""

    bound: Bound
    sigma: float  # root mean square of the standard deviations
    steps: int = 0
    level_steps: int = 0  # of these, at the present dispersion
    factor: float = 0.0  # for the adaptive schedule

    @property
    def family(self) -> Any:
        """The family there."""
        return self.bound.family


def minimize_bound(
    bound: Bound, *, parameters: str | Iterable[Any] | None = None, schedule: Callable[[Any], float] | None = None,
    tol: float = 1e-9, iterations: int | None = None, callback: Callable[[BoundPath], Any] | None = None,
    progress: bool = False, time_limit: float | None = None,
) -> BoundResult:  # fmt: skip
    """Minimise a bound over the parameters of its family.

    Parameters
    ----------
    bound : Bound
        Of `varopt.bound`; its family says where to begin.
    parameters : str or iterable, optional
        The names of those that move, ``"mean"`` or ``["mean", "sigma"]``; of a `Product`, pairs of key and name. All
        by default.
    schedule : callable, optional
        From the path to the next dispersion, as `varopt.solvers.Geometric`: after each descent the family is sharpened
        to it. The path has ``sigma`` (the root mean square of the standard deviations), ``steps``, ``level_steps``,
        ``family`` and ``bound``. It may wait, but not for ever: where it no longer lets the dispersion fall, the run
        ends. Without one there is a single descent.
    tol : float
        Relative: of the gap that is called optimal, and of the change of E that ends a descent.
    iterations : int, optional
        Most steps of one descent; by default 1000, 400 of a sampled bound, or what a schedule such as
        `varopt.solvers.Every` counts.
    callback : callable, optional
        Called with the path after every descent, and after every tenth step of a sampled one; it may raise
        `StopIteration`.
    progress : bool
        Show a live line on standard error.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    BoundResult
    """
    _check_options(schedule, iterations)
    iterations = iterations or getattr(schedule, "steps", None)  # of a schedule that counts them
    run = _Run(bound, FreeParameters.of(bound, parameters), tol, iterations, callback, time_limit, Progress(progress))
    status: Status | None = None
    try:
        run.descend()
        while schedule is not None and run.sharpen(schedule):
            run.descend()
    except BoundStopped:
        status = Status.TIME_LIMIT
    except (KeyboardInterrupt, StopIteration):
        status = Status.INTERRUPTED
    except NotFinite as error:  # a status, not a crash: what was seen before it is kept
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)
        status = Status.FAILURES
    result = run.concluded(status)
    run.line.end(final_line(result))
    return result


def _check_options(schedule: Any, iterations: Any) -> None:
    if schedule is not None and not callable(schedule):
        raise ValueError(f"schedule must be a function of the path, such as vo.solvers.Geometric(); got {schedule!r}.")
    if iterations is not None and (
        isinstance(iterations, bool) or not isinstance(iterations, (int, np.integer)) or iterations < 1
    ):
        raise ValueError(f"iterations must be an integer of at least 1; got {iterations!r}.")


class _Run:
    """A descent: the bound where it stands, and what is known of the optimum."""

    def __init__(
        self, bound: Bound, coordinates: FreeParameters, tol: float, iterations: int | None,
        callback: Callable[[BoundPath], Any] | None, time_limit: float | None, line: Progress,
    ) -> None:  # fmt: skip
        self.start, self.coordinates, self.tol, self.callback, self.line = bound, coordinates, tol, callback, line
        self.sampled = bound.method == "sampled"
        self.iterations = iterations or _ITERATIONS_BY_SAMPLING[self.sampled]
        self.limit = math.inf if time_limit is None else float(time_limit)
        self.path = BoundPath(bound, _spread(bound.family))
        self.first = self.path.sigma
        self.state = State(np.zeros(bound._target.size))
        self.evaluations = 0
        self.converged, self.waits = False, 0
        self.problem = _problem(bound)

    def at(self, free: Vector) -> Bound:
        """The bound at other parameters."""
        self.evaluations += 1
        return self.start.at(self.coordinates.family(self._inner(self.path.bound), free))

    def descend(self) -> None:
        """Lower E at this dispersion."""
        before = self.path.steps
        free = self.coordinates.free(self._inner(self.path.bound))
        (self._stochastic if self.sampled else self._deterministic)(free)
        self.path.level_steps = self.path.steps - before
        self.report()

    @staticmethod
    def _inner(bound: Bound) -> Any:
        return bound._target.family

    def _deterministic(self, free: Vector) -> None:
        from scipy.optimize import minimize

        best = self.path.bound

        def value_and_gradient(at: Vector) -> tuple[float, Vector]:
            nonlocal best
            bound = self.at(at)
            self.path.bound = best = bound if bound.value < best.value else best
            self._tick()
            return bound.value, self.coordinates.gradient(bound, self._inner(bound))

        found = minimize(
            value_and_gradient, free, jac=True, method="L-BFGS-B",
            options={"maxiter": self.iterations, "maxfun": 20 * self.iterations, "ftol": max(self.tol, 1e-15) * 0.01,
                     "gtol": 0.0, "maxcor": 20},
        )  # fmt: skip
        self.path.steps += int(found.nit)
        self.converged = found.nit < self.iterations

    def _stochastic(self, free: Vector) -> None:
        first, second = np.zeros_like(free), np.zeros_like(free)
        units, tail = self.coordinates.units, []
        for k in range(1, self.iterations + 1):
            bound = self.at(free)
            gradient = units * self.coordinates.gradient(bound, self._inner(bound))
            first, second = 0.9 * first + 0.1 * gradient, 0.99 * second + 0.01 * gradient**2
            step = (first / (1.0 - 0.9**k)) / (np.sqrt(second / (1.0 - 0.99**k)) + 1e-12)
            rate = _ADAM_RATE * min(1.0, 2.0 * (1.0 - k / (self.iterations + 1)))  # constant, then down to zero
            free = free - rate * units * step
            self.path.steps, self.path.bound = self.path.steps + 1, bound
            if k > 0.9 * self.iterations:
                tail.append(free)
            self._tick()
            if self.callback is not None and k % 10 == 0:
                self.callback(self.path)
        self.path.bound = self.at(np.mean(tail, axis=0))
        self.converged = True

    def _tick(self) -> None:
        if self.state.elapsed > self.limit:
            raise BoundStopped

    def sharpen(self, schedule: Callable[[Any], float]) -> bool:
        """Go to the next dispersion of a schedule; whether there is one."""
        path = self.path
        path.sigma = _spread(path.family)
        counts = getattr(schedule, "steps", None)
        # A descent that has converged has no use for the steps that are left to it.
        seen = replace(path, steps=counts, level_steps=counts) if counts and self.converged else path
        following = float(schedule(seen))
        if not (math.isfinite(following) and following > 0.0):
            raise ValueError(f"schedule must return a positive dispersion; got {following!r}.")
        self.waits = self.waits + 1 if following >= path.sigma and self.converged else 0
        stuck = self.waits > (_WAITS if path.level_steps else 0)
        if stuck or following <= _LAST_DISPERSION * self.first or self.state.reached(self.tol):
            return False
        if following < path.sigma:
            path.bound = self.start.at(_sharpened(path.bound._target.family, following / path.sigma))
        path.sigma = following
        return True

    def report(self) -> None:
        """See what the present family shows, and tell whoever wants to know."""
        bound, state = self.path.bound, self.state
        self.path.sigma = state.sigma = _spread(bound.family)
        state.bound, state.steps, state.evaluations = bound.value, self.path.steps, self.evaluations
        if isinstance(bound, PointsBound) and self.sampled:
            k = int(np.argmin(bound.values))
            state.see(bound.points[k].copy(), float(bound.values[k]))
        if not any(c.is_own for c in bound._target.components):
            x = np.concatenate([np.ravel(c.centre) for c in bound._target.components])
            state.see(x, float(bound._target.values(x[None, :])[0]))
            state.latest = x
            if self.problem is not None:  # where E is stationary, its derivatives by row are a dual point
                noise = PointNoise.of(self.problem, 1.0, _factor(bound._target.components, x.size))
                state.see(*bracket(CompositeBound(self.problem, x, noise)))
        state.record(bound.value)
        self.line.show(progress_line(state))
        if self.callback is not None:
            self.callback(self.path)

    def concluded(self, status: Status | None) -> BoundResult:
        """The result, with the best bracket that is known of this kind of objective."""
        bound, state = self.path.bound, self.state
        if not state.history:
            self.callback = None
            self.report()
        method = f"bound descent ({'adam' if self.sampled else 'lbfgs'})"
        state.runs([method])
        state.alone = True  # the point is that of the family
        result = _certified(bound, self.problem, state, self.tol, status) or self._seen(bound, status)
        fields = {**result.__dict__, "method": method}
        return BoundResult(**fields, family=bound.family, bound=bound)

    def _seen(self, bound: Bound, status: Status | None) -> Result:
        """What is known of a function of which only values are."""
        state = self.state
        certificate: Certificate = NoCertificate(-math.inf, state.upper)
        if isinstance(bound, PointsBound) and self.sampled:
            certificate = Sampled(-math.inf, state.upper, "", bound.value, bound.standard_error, bound.values.size)
        history = {name: np.array([row[name] for row in state.history]) for name in state.history[0]}
        layout = bound._target.layout
        slices = {} if layout is None else layout.objective.slices
        ended = status or (Status.SETTLED if self.converged else Status.BUDGET)
        return Result(
            state.x, state.upper, certificate, ended, "", state.sigma, state.steps, state.elapsed, history, slices,
            self.evaluations, state,
        )  # fmt: skip


def _problem(bound: Bound) -> Composite | None:
    """The canonical form of an objective that has a bracket by duality."""
    layout = bound._target.layout
    if layout is None or any(v.kind != "real" for v in layout.objective.variables):
        return None
    try:
        problem = composite(layout.objective)
    except NotComposite:
        return None
    return None if problem.not_convex or problem.not_quadratic else problem


def _factor(components: Iterable[Any], size: int) -> Vector:
    """C of the covariance CC' of real components: a vector, or a matrix where one of them has a matrix."""
    parts = [(c.part, np.asarray(c.factor)) for c in components]
    if all(own.ndim < 2 for _, own in parts):
        scales = np.empty(size)
        for part, own in parts:
            scales[part] = own
        return scales
    columns = []
    for part, own in parts:
        wide = own if own.ndim == 2 else np.diag(np.broadcast_to(own, part.stop - part.start))
        whole = np.zeros((size, wide.shape[1]))
        whole[part] = wide
        columns.append(whole)
    return np.hstack(columns)


def _certified(
    bound: Bound, problem: Composite | None, state: State, tol: float, status: Status | None
) -> Result | None:
    """The result with a proved bracket, of objectives that have one."""
    layout = bound._target.layout
    if layout is None or not math.isfinite(state.upper):
        return None
    objective = layout.objective
    kinds = {v.kind == "real" for v in objective.variables}
    if kinds != {True}:
        return _bits(objective, layout.mean, state, status) if kinds == {False} else None
    if problem is None:
        try:
            problem = composite(objective)
        except NotComposite:
            return None
    state.unit, state.objective = problem.unit, objective
    if not state.reached(tol):  # other dispersions than the family's may prove more
        other = State(state.x, latest=state.latest)
        settle(problem, other)
        state.see(other.x, other.upper, other.upper - other.lower, other.assumption, other.dual, other.proof)
    return conclude(objective, problem, state, tol, status, "")


def _bits(objective: Any, probabilities: Vector, state: State, status: Status | None) -> Result | None:
    """Bits and choices rounded one by one, which never makes a point worse than E, and a bound term by term."""
    from varopt.solvers.discrete import Sweeper, energy_of  # bits bring forty modules along
    from varopt.solvers.discrete.bounds import termwise_bound  # likewise

    try:
        energy = energy_of(objective)
    except ValueError:
        return None
    sweeper = Sweeper(energy, 1, np.random.default_rng(0), np.float64)
    replica = sweeper.state(probabilities[:, None])
    sweeper.descend(replica)
    x = np.asarray(sweeper.points(replica)[:, 0], dtype=np.float64)
    state.see(x, energy.value(x))
    lower = min(energy.round_up(termwise_bound(energy)), state.upper)
    proved = state.upper - lower <= energy.tolerance(1e-9, state.upper)
    history = {name: np.array([row[name] for row in state.history]) for name in state.history[0]}
    return Result(
        state.x, state.upper, Relaxation(lower, state.upper), Status.PROVED if proved else status or Status.SETTLED, "",
        state.sigma, state.steps, state.elapsed, history, objective.slices, state.evaluations, state,
    )  # fmt: skip


def _spread(family: Any) -> float:
    """The root mean square of the standard deviations; NaN where the family does not tell."""
    variance = getattr(family, "variance", None)
    variance = variance() if callable(variance) else variance
    return math.nan if variance is None else float(np.sqrt(np.mean(variance)))


def _sharpened(family: Any, factor: float) -> Any:
    if isinstance(family, OwnFamily):
        if not callable(getattr(family.inner, "sharpen", None)):
            raise ValueError(f"a schedule needs sharpen(factor) of {family.name}, which returns a narrower copy.")
        return OwnFamily(family.inner.sharpen(factor))
    return family.sharpen(factor)
