"""The discrete solver: what order the exact methods, the search and the relaxations come in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import Certificate, Exhaustive, Relaxation
from varopt.solvers._state import State
from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.bounds import Spins, quadratic_minorant, semidefinite_bound, spins_of, termwise_bound
from varopt.solvers.discrete.proofs import branch_and_bound, eliminate, elimination_order
from varopt.solvers.discrete.search import DESCENTS, Found, MeanFieldDescent, Sweeper, population_search

__all__ = ["SEARCHES", "RunEnded", "solve"]

Vector = NDArray[np.float64]

# Spins up to which branch and bound is tried: 3-regular graphs of 120 nodes are proved in a second, and one of 140 is
# not in 300 (`docs/benchmarks.md`).
_BRANCHED = 130
_BRANCH_NODES = 50  # where no time limit ends it; set by hand

SEARCHES: dict[str, Callable[..., Iterator[Found]]] = {
    "free-energy": population_search,
    **{descent.name: descent.search for descent in DESCENTS},
}
"""The searches by name: an energy, a generator, a start and `expired` in, better and better points out."""


class RunEnded(Exception):
    """Why a run ended: ``proved``, ``target`` or ``settled``. No error: it ends the run from wherever it is."""


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
    polisher: Sweeper = field(init=False)
    relaxed: bool = False  # whether the relaxation has been solved

    def __post_init__(self) -> None:
        # In double precision: what single precision leaves at rounding is settled here.
        self.polisher = Sweeper(self.energy, 1, self.rng, np.float64)

    def within(self, share: float) -> Callable[[], bool]:
        """Asked whether this share of the time that is left now has passed."""
        now = self.state.elapsed
        end = now + share * (self.limit - now)
        return lambda: self.state.elapsed > end

    def expired(self) -> bool:
        """Whether the time is up."""
        return self.state.elapsed > self.limit

    def see(self, x: Vector, steps: int) -> None:
        """A point, polished."""
        value = self.energy.value(x)
        self.state.steps = steps
        if value < self.state.upper:
            start = self.polisher.state(x[:, None])
            self.polisher.descend(start, expired=self.expired)
            polished = self.polisher.points(start)[:, 0].astype(np.float64)
            if (better := self.energy.value(polished)) <= value:
                x, value = polished, better
            self.state.see(x, value)
        self.report()

    def bound(self, lower: float, assumption: str, proof: type[Certificate]) -> None:
        """A lower bound on the optimum."""
        lower = self.energy.round_up(lower)
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
    beta: Callable[[float], float] | None = None,
) -> None:  # fmt: skip
    """Minimise an energy; it ends by raising a `RunEnded`, or whatever `check` raises, with everything in `state`.

    First what is exact and cheap: elimination where the graph is narrow. Else a first epoch of the search, then the
    relaxation, so that a bracket is there early; then the search goes on. Small quadratic problems whose search has
    settled go to branch and bound. Where there is no time limit, a search that has settled ends the run. A search that
    was named runs first: what is exact waits for the end of its first sweeps.

    `beta` is the schedule of a free-energy search, by name or by default. What ran is appended to `chain`, in order:
    ``"elimination"``, the name of the search, ``"semidefinite"``, ``"branch-and-bound"``. The bound that costs nothing,
    term by term, is always taken and not named.
    """
    run = _Run(energy, state, tol, target, check, time_limit, rng, [] if chain is None else chain)
    options: dict[str, Any] = {} if device is None else {"device": device}
    options |= {} if beta is None or method == "mean-field" else {"beta": beta}
    named = method != "auto"
    name = method if named else "free-energy"
    try:
        if start is not None:
            run.see(start, 0)
        if not named:
            _bound_termwise(run)
        order = elimination_order(energy)
        if not named:
            _exact(run, order)
        run.chain.append(name)
        search = SEARCHES[name] if beta is None or name != "mean-field" else MeanFieldDescent(beta).search
        points = search(energy, rng, start, run.expired, **options)
        if named and order is not None:
            _see_first_sweeps(run, points)
            _bound_termwise(run)
            _exact(run, order)
        _search_and_bound(run, points)
    except RunEnded as outcome:
        if str(outcome) == "target" and not run.relaxed and not run.expired():
            _relax(run)
        raise


def _bound_termwise(run: _Run) -> None:
    run.bound(termwise_bound(run.energy), "", Relaxation)


def _see_first_sweeps(run: _Run, points: Iterator[Found]) -> None:
    for found in points:
        run.see(found.x, found.sweeps)
        if found.sweeps:
            return


def _exact(run: _Run, order: list[int] | None) -> None:
    if order is None:
        return
    run.chain.append("elimination")
    x, value = eliminate(run.energy, order, lambda: run.check(run.state))
    # Tables are sums of as many terms as there are: their rounding.
    rounding = 4.0 * np.finfo(np.float64).eps * len(order) * run.energy.magnitude
    run.state.see(x, run.energy.value(x))
    run.state.steps += len(order)  # a site each
    run.bound(value - rounding, "", Exhaustive)
    run.bound(run.state.upper - 2.0 * rounding, "", Exhaustive)


def _search_and_bound(run: _Run, points: Iterator[Found]) -> None:
    limited = math.isfinite(run.limit)
    spins: Spins | None = None
    best, improved, epoch = math.inf, 0, 0
    for found in points:
        run.see(found.x, found.sweeps)
        if run.state.upper < best:
            best, improved = run.state.upper, found.epoch
        if spins is None:
            if not math.isfinite(run.state.lower):  # a search that was named came before all bounds
                _bound_termwise(run)
            spins = _relax(run)
        if found.epoch > epoch:
            epoch = found.epoch
            small = spins.size <= _BRANCHED and not run.energy.products and run.energy.is_binary
            if small and epoch == 1:
                _prove(run, spins, math.inf if limited else _BRANCH_NODES)
            # The epoch before had twice the sweeps of the one that found the best, and found none better.
            if epoch - improved > 1 and not limited:
                raise RunEnded("settled")


def _relax(run: _Run) -> Spins:
    run.relaxed = True
    run.chain.append("semidefinite")
    try:
        spins = spins_of(quadratic_minorant(run.energy))
        lower, assumption, _ = semidefinite_bound(spins, run.rng, run.within)
        run.bound(lower, assumption, Relaxation)
    except RunEnded as outcome:
        if str(outcome) != "target":
            raise
    return spins


def _prove(run: _Run, spins: Spins, nodes: float) -> None:
    run.chain.append("branch-and-bound")
    energy = run.energy
    # Where energies are real numbers, nothing is proved beyond the rounding of values.
    rounding = 8.0 * float(np.finfo(np.float64).eps) * energy.size * energy.magnitude
    real = max(0.5 * energy.tolerance(run.tol, run.state.upper), rounding)
    slack = 0.999 * energy.granularity if energy.granularity else real
    for progress in branch_and_bound(spins, run.state.upper, slack, run.expired):
        if progress.spins is not None and progress.value < run.state.upper:
            run.see(np.where(progress.spins[1:] == progress.spins[0], 1.0, 0.0), run.state.steps)
        closed = progress.lower if progress.lower < progress.value else progress.value - slack
        run.bound(closed, "", Relaxation)
        if progress.nodes >= nodes:
            return
