"""The discrete solver: what order the exact methods, the search and the relaxations come in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.certificates import Certificate, Exhaustive, Relaxation
from varopt.solvers._method import State
from varopt.solvers.discrete._contraction import Contraction, contract
from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._matrices import as_dense
from varopt.solvers.discrete._pool import Collector
from varopt.solvers.discrete.bounds import (
    Spins,
    factorisation_seconds,
    quadratic_minorant,
    semidefinite_bound,
    spins_of,
    termwise_bound,
)
from varopt.solvers.discrete.proofs import (
    ProofProgress,
    are_branched,
    branch_and_bound,
    branch_and_cut,
    eliminate,
    elimination_order,
    is_sparse,
    partial_states,
)
from varopt.solvers.discrete.search import DESCENTS, Found, MeanFieldDescent, Sweeper, is_symmetric, population_search

__all__ = ["SEARCHES", "RunEnded", "solve"]

Vector = NDArray[np.float64]

# Spins up to which branch and bound is tried: 3-regular graphs of 120 nodes are proved in a second, and one of 140 is
# not in 300 (`docs/benchmarks/bits.md`).
_BRANCHED = 130
_FEW_SPINS = 64  # up to which branch and bound begins before the first search has ended
_BRANCH_NODES = 50  # where no time limit ends it; set by hand
_ROUNDS_TIMES_EDGES = 50_000  # of branch and cut, likewise: some seconds
_PARTIAL_STEPS = 200  # of branch and bound over choices, likewise
_ROUND_SECONDS = 6e-7  # about what a round of branch and cut takes, for each square of a spin: shortest paths
_LIKELY_CLOSED = 0.01  # of the couplings: a gap from which branch and cut is likely to close it
_HOPELESS_SHARE = 0.1  # of the time of the search, for a proof that is far from it
_FIRST_POINTS = 8  # local minima that are looked at before elimination, where the time is limited
_CONTRACTION_SHARE = 0.05  # of the time, to take bits out, and to look for an order of elimination
_RELAXATION_SHARES = (0.1, 0.15)  # of the time that is left, for the relaxation, then for its proof
_FACTORED_SHARE = 0.4  # for the proof of a dense one, where a factorisation fits in: few steps prove little there
_SINGLE = 2.0**24  # whole numbers up to this are exact in single precision

SEARCHES: dict[str, Callable[..., Iterator[Found]]] = {
    "free-energy": population_search,
    **{descent.name: descent.search for descent in DESCENTS},
}
"""The searches by name: an energy, a generator, a start and `expired` in, better and better points out."""


class RunEnded(Exception):
    """Why a run ended: ``proved``, ``target`` or ``settled``. No error: it ends the run from wherever it is."""


@dataclass(frozen=True)
class _Until:
    """Asked whether a time has come, or how far it is."""

    state: State
    end: float

    def __call__(self) -> bool:
        return self.state.elapsed > self.end

    def left(self) -> float:
        """Seconds until then."""
        return self.end - self.state.elapsed


@dataclass
class _Run:
    """One run: the energy, what is known, and who is asked whether to go on."""

    energy: Energy
    state: State
    tol: float
    target: float
    check: Callable[[State], None]
    limit: float  # seconds
    rng: np.random.Generator
    chain: list[str]  # what ran, in order
    small: Contraction  # what is searched
    pool: Collector | None = None
    polisher: Sweeper | None = field(init=False)
    relaxed: bool = False  # whether the relaxation has been solved

    def __post_init__(self) -> None:
        grain, largest = self.energy.granularity, self.energy.magnitude
        # In double precision: what single precision leaves at rounding is settled here, where it leaves any.
        exact = grain and largest < _SINGLE * grain
        self.polisher = None if exact else Sweeper(self.energy, 1, self.rng, np.float64)

    def within(self, share: float) -> _Until:
        """Asked whether this share of the time that is left now has passed."""
        now = self.state.elapsed
        return _Until(self.state, now + share * (self.limit - now))

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.state.elapsed > self.limit

    def left(self) -> float:
        """Seconds that are left."""
        return self.limit - self.state.elapsed

    def see(self, x: Vector, steps: int) -> None:
        """A point of the whole."""
        value = self.energy.value(x)
        self.state.steps = steps
        if value < self.state.upper:
            self.state.see(*self._polished(x, value))
        self.report()

    def found(self, found: Found) -> None:
        """What the search has found."""
        self.state.steps = found.sweeps
        if self.pool is not None:
            self.pool.add(*(found.others or (found.x[:, None], np.array([found.value]))))
        if found.value < self.state.upper + self.small.rounding:
            self.see(self.small.lift(found.x), found.sweeps)
        else:
            self.report()

    def _polished(self, x: Vector, value: float) -> tuple[Vector, float]:
        if self.polisher is None:
            return x, value
        state = self.polisher.state(x[:, None])
        self.polisher.descend(state, expired=self.expired)
        polished = self.polisher.points(state)[:, 0].astype(np.float64)
        better = self.energy.value(polished)
        return (polished, better) if better <= value else (x, value)

    def bound(self, lower: float, assumption: str, proof: type[Certificate]) -> None:
        """A lower bound on the optimum."""
        lower = max(lower, self.energy.round_up(lower))
        if lower > self.state.lower:
            self.state.lower, self.state.assumption, self.state.proof = lower, assumption, proof
        self.report()

    def report(self) -> None:
        self.state.record()
        self.check(self.state)
        if math.isfinite(self.state.upper):
            if self.state.upper - self.state.lower <= self.energy.tolerance(self.tol, self.state.upper):
                raise RunEnded("proved")
            if self.state.upper <= self.target:
                raise RunEnded("target")


def solve(
    energy: Energy, state: State, tol: float, check: Callable[[State], None], rng: np.random.Generator, *,
    start: Vector | None = None, target: float = -math.inf, time_limit: float = math.inf,
    method: str = "auto", device: str | None = None, chain: list[str] | None = None,
    beta: Callable[[float], float] | None = None, pool: int = 0,
) -> None:  # fmt: skip
    """Minimise an energy; it ends by raising a `RunEnded`, or whatever `check` raises, with everything in `state`.

    First what is exact and cheap: elimination where the graph is narrow. Else a first epoch of the search, then the
    relaxation, so that a bracket is there early; then the search goes on. Small quadratic problems whose search has
    settled go to branch and bound. Where there is no time limit, a search that has settled ends the run. A search that
    was named runs first: what is exact waits for the end of its first sweeps.

    `beta` is the schedule of a free-energy search, by name or by default. What ran is appended to `chain`, in order:
    ``"elimination"``, the name of the search, ``"semidefinite"``, ``"branch-and-bound"`` or ``"branch-and-cut"``. The
    bound that costs nothing, term by term, is always taken and not named. So many of the best different points as
    `pool` says are left in the state.
    """
    named = method != "auto"
    end = state.elapsed + _CONTRACTION_SHARE * (time_limit - state.elapsed)
    # Who names a search wants it to have the problem.
    small = Contraction.none(energy) if named else contract(energy, lambda: state.elapsed > end)
    run = _Run(energy, state, tol, target, check, time_limit, rng, [] if chain is None else chain, small)
    if pool:
        run.pool = Collector(pool, is_symmetric(small.energy))
    options: dict[str, Any] = {} if device is None else {"device": device}
    options |= {} if beta is None or method == "mean-field" else {"beta": beta}
    name = method if named else "free-energy"
    try:
        if start is not None:
            run.see(start, 0)
        if not named:
            _bound_termwise(run)
        brief = run.within(_CONTRACTION_SHARE)
        inner = run.small.energy
        order = elimination_order(inner, expired=brief, seconds=run.left()) if inner.size else []
        if not named:
            _exact(run, order)
        run.chain.append(name)
        inside = None if start is None else run.small.restrict(start)
        search = SEARCHES[name] if beta is None or name != "mean-field" else MeanFieldDescent(beta).search
        points = search(run.small.energy, rng, inside, run.expired, run.left, **options)
        if named and order is not None:
            _see_first_sweeps(run, points)
            _bound_termwise(run)
            _exact(run, order)
        _search_and_bound(run, points)
    except RunEnded as outcome:
        if str(outcome) == "target" and not run.relaxed and not run.expired():
            _relax(run)
        raise
    finally:
        if run.pool is not None:
            state.pool = [*small.lift(np.array(run.pool.points).T).T] if run.pool.points else []


def _bound_termwise(run: _Run) -> None:
    run.bound(termwise_bound(run.energy), "", Relaxation)


def _see_first_sweeps(run: _Run, points: Iterator[Found]) -> None:
    for found in points:
        run.found(found)
        if found.sweeps:
            return


def _exact(run: _Run, order: list[int] | None) -> None:
    if order is None:
        return
    run.chain.append("elimination")
    small = run.small
    if math.isfinite(run.limit) and small.energy.size:
        _see_local_minima(run)
    x, value = eliminate(small.energy, order, lambda: run.check(run.state))
    # Tables are sums of as many terms as there are: their rounding.
    rounding = 4.0 * np.finfo(np.float64).eps * max(1, len(order)) * run.energy.magnitude + small.rounding
    whole = small.lift(x)
    run.state.see(whole, run.energy.value(whole))
    run.state.steps += small.size  # a site each
    run.bound(value - rounding, "", Exhaustive)
    run.bound(run.state.upper - 2.0 * rounding, "", Exhaustive)


def _see_local_minima(run: _Run) -> None:
    """Points of little cost, for what may be stopped before it has one."""
    sweeper = Sweeper(run.small.energy, _FIRST_POINTS, run.rng)
    state = sweeper.uniform()
    sweeper.descend(state, expired=run.expired)
    best = int(sweeper.values(state).argmin())
    run.see(run.small.lift(sweeper.points(state)[:, best].astype(np.float64)), 0)


def _search_and_bound(run: _Run, points: Iterator[Found]) -> None:
    limited = math.isfinite(run.limit)
    spins: Spins | None = None
    proof: _Proof | None = None
    best, improved, epoch, paused = math.inf, 0, 0, 0.0
    for found in points:
        run.found(found)
        if run.state.upper < best:
            best, improved = run.state.upper, found.epoch
        if spins is None and found.sweeps:
            if not math.isfinite(run.state.lower):  # a search that was named came before all bounds
                _bound_termwise(run)
            spins = _relax(run)
        if spins is not None and proof is None and (proof := _proof_of(run, spins, found.epoch)) is not None:
            paused = run.state.elapsed if found.epoch else 0.0
            if not limited:
                _go_on(proof.progress, lambda work, most=proof.most: work >= most)  # type: ignore[misc]
        if limited and proof is not None:  # as long as the search since it paused, then that again
            now = run.state.elapsed
            end = now + proof.share(run) * (now - paused)
            _go_on(proof.progress, lambda _, end=end: run.state.elapsed >= end)  # type: ignore[misc]
            paused = run.state.elapsed
        if found.epoch > epoch:
            epoch = found.epoch
            # The epoch before had twice the sweeps of the one that found the best, and found none better.
            if epoch - improved > 1 and not limited:
                raise RunEnded("settled")


@dataclass(frozen=True)
class _Proof:
    """A proof that goes on in steps, and what it may take."""

    progress: Iterator[int]  # the work so far
    most: int  # of it, where no time limit ends it
    gap: float = math.inf  # up to which it has as much time as the search; a tenth beyond

    def share(self, run: _Run) -> float:
        """Its time, as a multiple of the search's."""
        return 1.0 if run.state.upper - run.state.lower <= self.gap else _HOPELESS_SHARE


def _proof_of(run: _Run, spins: Spins, epoch: int) -> _Proof | None:
    energy = run.small.energy
    if energy.products:
        return None
    if not energy.is_binary:
        widths = np.bincount(energy.site)
        groups = np.split(np.arange(energy.size), np.cumsum(widths)[:-1])
        able = widths.min() > 1 and are_branched(energy, groups)
        return _Proof(_prove_choices(run, groups), _PARTIAL_STEPS) if able else None
    if is_sparse(spins) and _ROUND_SECONDS * spins.size**2 <= _HOPELESS_SHARE * run.left():
        edges = max(1, spins.quadratic.nnz // 2)
        near = _LIKELY_CLOSED * (float(np.abs(spins.field).sum()) + 0.125 * float(np.abs(spins.quadratic.data).sum()))
        return _Proof(_prove(run, spins, _cut_further), _ROUNDS_TIMES_EDGES // edges, near)
    # Of few spins the proof takes no longer than a search that has found nothing better.
    if spins.size <= _BRANCHED and (epoch or spins.size <= _FEW_SPINS):
        return _Proof(_prove(run, spins, _branch), _BRANCH_NODES)
    return None


def _go_on(proof: Iterator[int], enough: Callable[[int], bool]) -> None:
    for work in proof:
        if enough(work):
            return


def _relax(run: _Run) -> Spins:
    run.relaxed = True
    run.chain.append("semidefinite")
    try:
        spins = spins_of(quadratic_minorant(run.small.energy))
        shares = _shares(run, spins)
        lower, assumption, _ = semidefinite_bound(spins, run.rng, lambda: run.within(next(shares)))
        run.bound(lower - run.small.rounding, assumption, Relaxation)
    except RunEnded as outcome:
        if str(outcome) != "target":
            raise
    return spins


def _shares(run: _Run, spins: Spins) -> Iterator[float]:
    """Of the time that is left, for the relaxation, then for its proof."""
    relaxation, proof = _RELAXATION_SHARES
    yield relaxation
    factored = not sp.issparse(spins.quadratic) and factorisation_seconds(spins.size) < _FACTORED_SHARE * run.left()
    yield _FACTORED_SHARE if factored else proof


def _prove_choices(run: _Run, groups: list[NDArray[np.intp]]) -> Iterator[int]:
    """Partial states of choices, some at a time; how often."""
    run.chain.append("branch-and-bound")
    energy = run.small.energy
    slack = 0.999 * energy.granularity if energy.granularity else 0.5 * energy.tolerance(run.tol, run.state.upper)
    steps = partial_states(energy, groups, np.array(as_dense(energy.quadratic)), run.state.upper, slack=slack)
    for count, step in enumerate(steps, start=1):
        if step.x is not None:
            run.see(step.x, run.state.steps)
        run.bound(step.lower, "", Relaxation)
        yield count


def _prove(run: _Run, spins: Spins, method: Callable[[_Run, Spins, float], Iterator[ProofProgress]]) -> Iterator[int]:
    """Branch and bound, or cut, step by step; the work so far."""
    energy = run.energy
    # Where energies are real numbers, nothing is proved beyond the rounding of values.
    rounding = 8.0 * float(np.finfo(np.float64).eps) * energy.size * energy.magnitude
    real = max(0.5 * energy.tolerance(run.tol, run.state.upper), rounding)
    slack = 0.999 * energy.granularity if energy.granularity else real
    for progress in method(run, spins, slack):
        if progress.spins is not None and progress.value < run.state.upper:
            inside = np.where(progress.spins[1:] == progress.spins[0], 1.0, 0.0)
            run.see(run.small.lift(inside), run.state.steps)
        closed = progress.lower if progress.lower < progress.value else progress.value - slack
        run.bound(closed - run.small.rounding, "", Relaxation)
        yield progress.nodes


def _branch(run: _Run, spins: Spins, slack: float) -> Iterator[ProofProgress]:
    run.chain.append("branch-and-bound")
    return branch_and_bound(spins, run.state.upper, slack, run.expired)


def _cut_further(run: _Run, spins: Spins, slack: float) -> Iterator[ProofProgress]:
    run.chain.append("branch-and-cut")
    best = np.r_[1.0, 2.0 * run.small.restrict(run.state.x) - 1.0]
    return branch_and_cut(spins, best, slack, run.rng, run.expired)
