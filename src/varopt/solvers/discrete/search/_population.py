"""The search: a population of replicas, annealed, recombined and annealed again, in epochs that grow."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._matrices import count_nonzero
from varopt.solvers.discrete.search._annealing import (
    GeometricTemperature,
    Temperatures,
    anneal,
    temperatures_of,
    typical_field,
)
from varopt.solvers.discrete.search._dense_sweeps import DenseSweeper, is_crowded
from varopt.solvers.discrete.search._enumeration import block_minimum
from varopt.solvers.discrete.search._recombination import is_symmetric, largest_cluster, recombine
from varopt.solvers.discrete.search._sweeps import Sweeper, whole_number_type
from varopt.solvers.discrete.search._tabu_walk import TabuWalk

__all__ = ["Found", "population_search"]

Vector = NDArray[np.float64]

# The one default setting, for every problem. What it gives on G-set, graphs made afresh, Beasley's QUBOs, rudy graphs,
# MaxSAT and LABS is measured by the suite `discrete`.
_REPLICA_ENTRIES = 1 << 17  # replicas times coordinates that cost little more than one; of large problems fewer,
_REPLICAS = {np.int8: (32, 128), np.int16: (16, 64), None: (8, 64)}  # within these limits, by the type of the fields.
_FEWEST_REPLICAS = 8  # under a time limit: of 20,000 nodes 8 replicas with many sweeps beat 32 with few in 20 s,
_PLENTY_OF_SWEEPS = 16_000  # and more than are cheap where each has so many: of 5,000 nodes 32 meet within 4 s,
_MANY_REPLICAS = 64  # but no more: of G35, with 2,000 nodes, 128 end lower in 20 s,
_SWEPT_ENTRY_SECONDS = 2.5e-9, 1.3e-10  # by what an entry of the matrix takes in a sweep, and in one of its replicas,
_CROWDED_SECONDS = 0.0, 3e-11  # and where fields are kept,
_SWEEPING_SHARE = 0.6  # in the share of the time that goes into anneals
_CROWDED_REPLICAS = (8, 32)
# A GPU is idle with fewer; of 10^4 nodes 512 take twice as long as 128, and on tori find less in the same time.
_ON_DEVICE, _ENTRIES_ON_DEVICE = (64, 512), 1 << 21
_FIRST_EPOCH_SWEEPS = 64  # sweeps of the first epoch; each epoch has at least twice those of the one before
# From where the mean energy is about that of local minima (0.29 of the typical field on planar graphs, 0.40 to 0.44 on
# random ones and tori): hotter is wasted.
_COLD = GeometricTemperature(0.4, 0.05)
# After recombinations, in turns: from the lower one replicas keep what they are made of, from the higher one they stay
# different from each other. On planar graphs of 5,000 nodes the higher alone forgets, on 800 the lower alone converges.
_WARM = GeometricTemperature(0.12, 0.04), GeometricTemperature(0.2, 0.05)
# Where two points of the first epoch differ in one cluster but for a twentieth, as on all graphs that were tried but
# tori (0.66 to 0.9 there, 0.99 and more elsewhere, 800 to 20,000 nodes), there is little to recombine.
_PERCOLATES, _COMPARED_REPLICAS = 0.95, 8
# There replicas are drawn again while it grows colder, by so much of what would keep them in equilibrium: low basins
# can be told long before the end. Of planar graphs of 5,000 nodes 32 replicas with 3,000 sweeps have larger cuts on
# average than with 12,000 and without it. Three times as much leaves one basin.
_SELECTION = 0.1
_STALE = 2  # rounds without improvement that end an epoch
_MIXES = 3  # recombinations between two anneals, of all points;
_MIXES_OF_FEW = 6  # of a GPU's, which are more than there is time for, of as many of the best as can have so many each,
_FIRST_MIXED, _FEWEST_MIXED = 64, 32  # which are so many before it is known what that takes, and at least
# Of the time of the anneals that recombinations may take, where time is limited, of a processor's replicas and a GPU's;
_MIXING_SHARES = 0.3, 0.6
_MIXED_ENTRIES = 1 << 19  # the clock is looked at after so many coordinates
_SHARPENED = 64  # bits up to which exact moves on blocks are tried,
_BLOCKS, _BLOCK_BITS = 16, 18  # so many in a round, of so many bits
_WALKS = 32  # replicas that go on tabu walks,
_WALK_STEPS = 4  # of so many steps for each sweep, in the time of the anneal at most;
_WALK_SHARE = 4.0  # of products of spins for as many times that, where time is limited
_ELITES = 16  # best points of past epochs that are kept
_FIRST_EPOCH_SHARE = 0.1  # of the time for the first epoch, which tells what a sweep takes
# As many anneals fit in the time that is left, where points are recombined and where they are drawn again (with 8
# there, planar cuts of 5,000 nodes are smaller in 5 s); fewer,
_ANNEALS = 8, 2
_SHORT_ANNEAL_SWEEPS = 1500  # where they would have fewer sweeps each than these; and more,
_LONGEST_ANNEAL_SWEEPS = 4096, 16384  # where they would have more than these: then there is time for several epochs


class Found(NamedTuple):
    """A point, its energy, and where in the search it was found."""

    x: Vector
    value: float
    epoch: int
    sweeps: int
    others: tuple[Vector, Vector] | None = None  # all replicas, and about what their energies are


def population_search(
    energy: Energy, rng: np.random.Generator, start: Vector | None = None,
    expired: Callable[[], bool] = lambda: False, left: Callable[[], float] = lambda: math.inf,
    device: str | None = None, beta: Callable[[float], float] | None = None,
) -> Iterator[Found]:  # fmt: skip
    """Better and better points, for ever: the best of the population after every round; first, of local minima.

    An epoch anneals fresh replicas, then recombines and re-anneals them for as long as the best improves. Then they
    have mostly collapsed into one basin; the best is kept among the elites, with which later populations recombine,
    and the next epoch starts afresh with twice the sweeps. The first epoch is a short one without re-annealing.

    Where the time is limited, `left` says how many seconds there are. An epoch then has as many sweeps as fit, by what
    sweeps have taken so far: one long anneal is better than short ones that are thrown away. Not so of products of
    spins, where tabu walks find the best points: anneals stay short, and walks go on for longer than these. With
    `beta`, a function of progress in [0, 1], every anneal follows it instead of the temperatures that are set here.
    """
    population = _Population(energy, rng, expired, device, left())
    given = None if beta is None else temperatures_of(beta, population.unit)
    cold: Temperatures = given or _COLD
    warm: Iterator[Temperatures] = cycle((given,) if given else _WARM)
    elites = np.empty((energy.size, 0)) if start is None else start[:, None].astype(np.float64)
    epoch, sweeps = 0, _FIRST_EPOCH_SWEEPS
    x, value = population.descended(None)
    yield population.found(x, value, epoch)
    while True:
        pilot = epoch == 0
        if not (pilot or population.walk_share) and math.isfinite(left()):
            capacity = left() / population.pace
            anneals = float(np.clip(capacity / _SHORT_ANNEAL_SWEEPS, 1.0, _ANNEALS[population.percolates]))
            sweeps = max(sweeps, int(min(_LONGEST_ANNEAL_SWEEPS[population.percolates], capacity / anneals)))
        seconds = _FIRST_EPOCH_SHARE * left() if pilot else left()
        if start is not None and pilot:
            x, value = population.annealed(np.repeat(elites, population.replicas, axis=1), next(warm), sweeps, seconds)
        else:
            x, value = population.annealed(None, cold, sweeps, seconds)
        if pilot:
            population.compare(x)
        best, stale = np.inf, 0
        while stale <= _STALE:
            x, value = population.sharpened(*population.walked(x, value, sweeps, left))
            now = population.found(x, value, epoch)
            stale = 0 if now.value < best else stale + 1
            best = min(best, now.value)
            yield now
            if pilot and math.isfinite(left()):
                break
            seconds = _MIXING_SHARES[population.is_crowd] * population.pace * sweeps
            share = seconds if math.isfinite(left()) else math.inf
            x, value = population.descended(population.shuffled(x, value, share))
            yield population.found(x, value, epoch)
            if pilot:
                break
            fresh, score = population.annealed(x, next(warm), sweeps, left())
            worse = score > value
            x, value = np.where(worse, x, fresh), np.where(worse, value, score)
        if elites.shape[1]:
            x, value = population.descended(
                population.mixed(x, elites[:, rng.integers(elites.shape[1], size=population.replicas)])
            )
        last = population.found(x, value, epoch)
        yield last
        elites = np.concatenate([last.x[:, None], elites], axis=1)[:, :_ELITES]
        epoch, sweeps = epoch + 1, 2 * sweeps


class _Population:
    """Replicas of a compiled energy: what may be done to all of them at once, and what it has taken."""

    def __init__(
        self, energy: Energy, rng: np.random.Generator, expired: Callable[[], bool], device: str | None,
        seconds: float = math.inf,
    ) -> None:  # fmt: skip
        self.energy, self.rng, self.expired = energy, rng, expired
        self.unit, self.sweeper = typical_field(energy, rng), _sweeper(energy, rng, device, seconds)
        self.replicas: int = self.sweeper.replicas
        self.is_crowd = device is not None  # more than the processor can recombine in the time of an anneal
        self.symmetric = is_symmetric(energy)
        self.walk = TabuWalk(energy, rng) if device is None and TabuWalk.suits(energy) else None
        # Of rugged products it is the walk that counts: for so many times as long as an anneal, and these stay short.
        self.walk_share = _WALK_SHARE if self.walk is not None and energy.products else 0.0
        self.percolates = False  # whether what replicas differ in hangs together, so that there is little to recombine
        self.sweeps = 0
        self.pace = 0.0  # seconds of a sweep, by the last anneal,
        self._mixing_pace = 0.0  # and of a recombination of one point

    def _state(self, x: Vector | None) -> Any:
        return self.sweeper.uniform() if x is None else self.sweeper.state(x)

    def _points(self, state: Any) -> tuple[Vector, Vector]:
        return self.sweeper.points(state).astype(np.float64), self.sweeper.values(state)

    def descended(self, x: Vector | None) -> tuple[Vector, Vector]:
        """Local minima and their energies, from points or afresh."""
        state = self._state(x)
        self.sweeper.descend(state, expired=self.expired)
        return self._points(state)

    def annealed(self, x: Vector | None, schedule: Temperatures, sweeps: int, seconds: float) -> tuple[Vector, Vector]:
        """Points and their energies after an anneal, from points or afresh."""
        state = self._state(x)
        self.sweeper.refresh()
        began = time.perf_counter()
        done = anneal(
            self.sweeper, state, schedule, sweeps, self.unit,
            expired=self.expired, seconds=seconds, selection=_SELECTION if self.percolates else 0.0,
        )  # fmt: skip
        self.pace = (time.perf_counter() - began) / max(1, done)
        self.sweeps += done
        return self._points(state)

    def compare(self, x: Vector) -> None:
        """Learn from independent points whether there is anything to recombine."""
        few = x[:, :_COMPARED_REPLICAS]
        half = few.shape[1] // 2
        sparse = sp.issparse(self.energy.quadratic) and not self.energy.products and half > 0
        self.percolates = not sparse or largest_cluster(
            self.energy, few[:, :half], self._turned(few[:, :half], few[:, half : 2 * half])
        ) >= _PERCOLATES  # fmt: skip

    def walked(self, x: Vector, value: Vector, sweeps: int, left: Callable[[], float]) -> tuple[Vector, Vector]:
        """The best of the points, where tabu walks from them met better ones; of small problems, see `TabuWalk`."""
        if self.walk is None:
            return x, value
        limited = math.isfinite(left())
        end = time.perf_counter() + (self.walk_share or 1.0) * self.pace * sweeps if limited else math.inf
        steps = sys.maxsize if limited and self.walk_share else _WALK_STEPS * sweeps
        chosen = np.argsort(value, kind="stable")[:_WALKS]
        best, least = self.walk.walk(x[:, chosen], steps, lambda: self.expired() or time.perf_counter() > end)
        x, value = x.copy(), value.copy()
        better = least < value[chosen]
        x[:, chosen[better]], value[chosen[better]] = best[:, better], least[better]
        return x, value

    def sharpened(self, x: Vector, value: Vector) -> tuple[Vector, Vector]:
        """Exact moves on random blocks of the best and of some others, of small problems: see `block_minimum`."""
        size = self.energy.size
        if size > _SHARPENED or not self.energy.is_binary:
            return x, value
        x, value = x.copy(), value.copy()
        best = np.full(_BLOCKS // 4, value.argmin())
        for column in np.concatenate([best, self.rng.integers(self.replicas, size=_BLOCKS - best.size)]).tolist():
            block = self.rng.permutation(size)[:_BLOCK_BITS]
            x[:, column] = block_minimum(self.energy, x[:, column], block)
            value[column] = self.energy.value(x[:, column])
            if self.expired():
                break
        return x, value

    def shuffled(self, x: Vector, value: Vector, seconds: float) -> Vector:
        """Points recombined with one another at random, a few times or until the seconds are over.

        Of more than can be mixed well in the time, as a GPU has, the best are, and stand for all: parts of many points
        mixed once are worth less than a few that have met.
        """
        began = time.perf_counter()
        few = self._well_mixed(seconds)
        chosen = np.argsort(value, kind="stable")[:few] if few < self.replicas else np.arange(self.replicas)
        parents, times = x[:, chosen], 0
        while times < (_MIXES if few == self.replicas else _MIXES_OF_FEW):
            parents = self.mixed(parents, parents[:, self.rng.permutation(chosen.size)], began + seconds)
            times += 1
            if time.perf_counter() > began + seconds:
                break
        self._mixing_pace = (time.perf_counter() - began) / (times * chosen.size)
        return parents[:, np.resize(np.arange(chosen.size), self.replicas)]

    def _well_mixed(self, seconds: float) -> int:
        """How many points the time is enough for."""
        if not (self.is_crowd and math.isfinite(seconds)):
            return self.replicas
        pace = self._mixing_pace or seconds / (_MIXES_OF_FEW * _FIRST_MIXED)
        return min(self.replicas, max(_FEWEST_MIXED, _whole(max(1, int(seconds / (_MIXES_OF_FEW * pace))))))

    def mixed(self, x: Vector, partner: Vector, end: float = math.inf) -> Vector:
        """Points recombined with partners, until time ends; turned around first where that is the same and nearer."""
        partner = self._turned(x, partner)
        some, child = max(1, _MIXED_ENTRIES // max(1, self.energy.size)), x.copy()
        for first in range(0, x.shape[1], some):
            part = slice(first, first + some)
            child[:, part] = recombine(self.energy, x[:, part], partner[:, part], self.rng)
            if time.perf_counter() > end:
                break
        return child

    def _turned(self, x: Vector, partner: Vector) -> Vector:
        """Partners, turned around where that is the same and nearer."""
        if not self.symmetric:
            return partner
        far = np.abs(partner - x).sum(axis=0) > 0.5 * self.energy.size
        return np.where(far, 1.0 - partner, partner)

    def found(self, x: Vector, value: Vector, epoch: int) -> Found:
        """The best."""
        best = x[:, int(value.argmin())].copy()
        return Found(best, float(self.energy.value(best)), epoch, self.sweeps, (x, value))


def _sweeper(energy: Energy, rng: np.random.Generator, device: str | None, seconds: float) -> Any:
    """The energy compiled for as many replicas as cost little more than one."""
    size = max(1, energy.size)
    if device is not None:
        from varopt.solvers.discrete.search._torch_sweeps import TorchSweeper  # optional, and PyTorch is slow to load

        return TorchSweeper(energy, int(np.clip(_ENTRIES_ON_DEVICE // size, *_ON_DEVICE)), rng, device)
    if is_crowded(energy):
        most = int(np.clip(_REPLICA_ENTRIES // size, *_CROWDED_REPLICAS))
        return DenseSweeper(energy, _whole(min(most, _affordable(size**2, seconds, *_CROWDED_SECONDS))), rng)
    kind = whole_number_type(energy)
    fewest, most = _REPLICAS[kind]
    if math.isinf(seconds):
        return Sweeper(energy, _whole(int(np.clip(_REPLICA_ENTRIES // size, fewest, most))), rng, kind or np.float32)
    entries = max(1, count_nonzero(energy.quadratic) + sum(p.codes.size for p in energy.products) + energy.size)
    cheap = int(np.clip(1 << round(math.log2(max(1.0, _REPLICA_ENTRIES / size))), _FEWEST_REPLICAS, most))
    many = max(cheap, min(_MANY_REPLICAS, _affordable(entries, seconds, *_SWEPT_ENTRY_SECONDS, _PLENTY_OF_SWEEPS)))
    replicas = _whole(min(many, _affordable(entries, seconds, *_SWEPT_ENTRY_SECONDS)))
    return Sweeper(energy, replicas, rng, kind or np.float32)


def _affordable(entries: int, seconds: float, shared: float, own: float, sweeps: float = _SHORT_ANNEAL_SWEEPS) -> int:
    """As many replicas as leave enough sweeps for each in the time: long anneals are better than many short ones."""
    replicas = (_SWEEPING_SHARE * seconds / (sweeps * entries) - shared) / own
    return int(np.clip(min(replicas, 1e6), _FEWEST_REPLICAS, 1e6))


def _whole(replicas: int) -> int:
    """A power of two, at most as many: columns of other numbers are slow to gather (24 cost more than 32)."""
    return 1 << (replicas.bit_length() - 1)
