"""The discrete solver: what order the exact methods, the search and the relaxations come in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from varopt.certificates import Certificate, Exhaustive, Relaxation
from varopt.solvers._state import State
from varopt.solvers.discrete._branch import branch_and_bound
from varopt.solvers.discrete._distributions import (
    SAMPLED,
    Distribution,
    MeanField,
    NaturalGradient,
    ProjectedGradient,
)
from varopt.solvers.discrete._elimination import eliminate, elimination_order
from varopt.solvers.discrete._energy import SPIN, Energy
from varopt.solvers.discrete._matrices import pieces
from varopt.solvers.discrete._population import Found, search
from varopt.solvers.discrete._semidefinite import semidefinite_bound
from varopt.solvers.discrete._spins import Spins, quadratic_minorant, spins_of
from varopt.solvers.discrete._sweeps import Sweeper

__all__ = ["SEARCHES", "Outcome", "solve", "termwise_bound"]

Vector = NDArray[np.float64]

_BRANCHED = 130  # spins up to which branch and bound is tried
_NODES = 50  # of branch and bound, where no time limit ends it


_DISTRIBUTIONS: tuple[Distribution, ...] = (MeanField(), ProjectedGradient(), NaturalGradient(), *SAMPLED)
SEARCHES: dict[str, Callable[..., Iterator[Found]]] = {
    "free-energy": search,
    **{method.name: method.search for method in _DISTRIBUTIONS},
}
"""The searches by name: an energy, a generator, a start and `expired` in, better and better points out."""


class Outcome(Exception):
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
            if self.state.upper - self.state.lower <= self.tol * max(1.0, abs(self.state.upper)):
                raise Outcome("proved")
            if self.state.upper <= self.target:
                raise Outcome("target")


def solve(
    energy: Energy, state: State, tol: float, check: Callable[[State], None], rng: np.random.Generator, *,
    start: Vector | None = None, target: float = -math.inf, time_limit: float = math.inf,
    method: str = "free-energy", device: str | None = None,
) -> None:  # fmt: skip
    """Minimise an energy; it ends by raising an `Outcome`, or whatever `check` raises, with everything in `state`.

    First what is exact and cheap: elimination where the graph is narrow. Else a first epoch of the search, then the
    relaxation, so that a bracket is there early; then the search goes on. Small quadratic problems whose search has
    settled go to branch and bound. Where there is no time limit, a search that has settled ends the run.
    """
    run = _Run(energy, state, tol, target, check, time_limit, rng)
    try:
        if start is not None:
            run.see(start, 0)
        run.bound(termwise_bound(energy), "", Relaxation)
        order = elimination_order(energy)
        if order is not None:
            _exact(run, order)
        options = {} if device is None else {"device": device}
        _search_and_bound(run, SEARCHES[method](energy, rng, start, run.expired, **options))
    except Outcome as outcome:
        if str(outcome) == "target" and not run.relaxed and not run.expired():
            _relax(run)
        raise


def _exact(run: _Run, order: list[int]) -> None:
    x, value = eliminate(run.energy, order, lambda: run.check(run.state))
    # Tables are sums of as many terms as there are: their rounding.
    rounding = 4.0 * np.finfo(np.float64).eps * len(order) * run.energy.magnitude
    run.state.see(x, run.energy.value(x))
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
            spins = _relax(run)
        if found.epoch > epoch:
            epoch = found.epoch
            small = spins.size <= _BRANCHED and not run.energy.products and run.energy.is_binary
            if small and epoch == 1:
                _prove(run, spins, math.inf if limited else _NODES)
            # The epoch before had twice the sweeps of the one that found the best, and found none better.
            if epoch - improved > 1 and not limited:
                raise Outcome("settled")


def _relax(run: _Run) -> Spins:
    run.relaxed = True
    try:
        spins = spins_of(quadratic_minorant(run.energy))
        lower, assumption, _ = semidefinite_bound(spins, run.rng, run.within)
        run.bound(lower, assumption, Relaxation)
    except Outcome as outcome:
        if str(outcome) != "target":
            raise
    return spins


def _prove(run: _Run, spins: Spins, nodes: float) -> None:
    energy = run.energy
    # Where energies are real numbers, nothing is proved beyond the rounding of values.
    rounding = 8.0 * float(np.finfo(np.float64).eps) * energy.size * energy.magnitude
    real = max(0.5 * run.tol * max(1.0, abs(run.state.upper)), rounding)
    slack = 0.999 * energy.granularity if energy.granularity else real
    for progress in branch_and_bound(spins, run.state.upper, slack, run.expired):
        if progress.spins is not None and progress.value < run.state.upper:
            run.see(np.where(progress.spins[1:] == progress.spins[0], 1.0, 0.0), run.state.steps)
        closed = progress.lower if progress.lower < progress.value else progress.value - slack
        run.bound(closed, "", Relaxation)
        if progress.nodes >= nodes:
            return


def termwise_bound(energy: Energy) -> float:
    """Every term at its least: the bound that costs nothing."""
    total = energy.constant + 0.5 * math.fsum(float(np.minimum(part, 0.0).sum()) for part in pieces(energy.quadratic))
    if energy.is_binary:
        total += float(np.minimum(energy.linear, 0.0).sum())
    else:
        starts = np.flatnonzero(np.r_[True, energy.site[1:] != energy.site[:-1]])
        least = np.minimum.reduceat(energy.linear, starts)
        single = np.diff(np.r_[starts, energy.size]) == 1
        total += float(np.where(single, np.minimum(least, 0.0), least).sum())
    for products in energy.products:
        signed = np.any(products.split(energy.size)[0] == SPIN, axis=1)
        total -= float(np.where(signed, np.abs(products.weights), np.maximum(-products.weights, 0.0)).sum())
    return total - 8.0 * float(np.finfo(np.float64).eps) * energy.magnitude * math.log2(energy.size + 2)
