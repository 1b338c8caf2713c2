"""The search: a population of replicas, annealed, recombined and annealed again, in epochs that grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete.search._annealing import (
    GeometricTemperature,
    Temperatures,
    anneal,
    temperatures_of,
    typical_field,
)
from varopt.solvers.discrete.search._recombination import is_symmetric, recombine
from varopt.solvers.discrete.search._sweeps import Sweeper

__all__ = ["Found", "population_search"]

Vector = NDArray[np.float64]

# The one default setting, for every problem. What it gives on G-set, Beasley's QUBOs, rudy graphs, MaxSAT and LABS is
# measured by the suite `discrete`.
_POPULATION = 64
_POPULATION_ON_DEVICE = 256  # a GPU is idle with fewer
_ENTRIES = 1 << 22  # replicas times coordinates, at most: fewer replicas of large problems
_FIRST_SWEEPS = 64  # sweeps of the first epoch; each epoch has twice those of the one before
_COLD = GeometricTemperature(0.5, 0.05)
_WARM = GeometricTemperature(0.2, 0.05)  # after a recombination
_STALE = 2  # rounds without improvement that end an epoch
_MIXES = 3  # recombinations between two anneals
_ELITES = 16  # best points of past epochs that are kept


class Found(NamedTuple):
    """A point, its energy, and where in the search it was found."""

    x: Vector
    value: float
    epoch: int
    sweeps: int


def population_search(
    energy: Energy, rng: np.random.Generator, start: Vector | None = None,
    expired: Callable[[], bool] = lambda: False, device: str | None = None,
    beta: Callable[[float], float] | None = None,
) -> Iterator[Found]:  # fmt: skip
    """Better and better points, for ever: the best of the population after every round; first, of local minima.

    An epoch anneals fresh replicas, then recombines and re-anneals them for as long as the best improves. Then they
    have mostly collapsed into one basin; the best is kept among the elites, with which later populations recombine,
    and the next epoch starts afresh with twice the sweeps. With `beta`, a function of progress in [0, 1], every anneal
    follows it instead of the temperatures that are set here.
    """
    most = _POPULATION if device is None else _POPULATION_ON_DEVICE
    replicas = int(np.clip(_ENTRIES // max(1, energy.size), 8, most))
    unit = typical_field(energy, rng)
    cold, warm = (_COLD, _WARM) if beta is None else (temperatures_of(beta, unit),) * 2
    sweeper = _sweeper(energy, replicas, rng, device)
    symmetric = is_symmetric(energy)
    elites = np.empty((energy.size, 0)) if start is None else start[:, None].astype(np.float64)
    epoch, sweeps, total = 0, _FIRST_SWEEPS, 0

    def settled(x: Vector, schedule: Temperatures | None, count: int) -> tuple[Vector, Vector]:
        state = sweeper.uniform() if x.size == 0 else sweeper.state(x)
        if schedule is None:
            sweeper.descend(state, expired=expired)
        else:
            sweeper.refresh()
            anneal(sweeper, state, schedule, count, unit, expired=expired)
        x = sweeper.points(state).astype(np.float64)
        return x, energy.value(x)

    def mixed(x: Vector, partner: Vector) -> Vector:
        if symmetric:
            far = np.abs(partner - x).sum(axis=0) > 0.5 * energy.size
            partner = np.where(far, 1.0 - partner, partner)
        return recombine(energy, x, partner, rng)

    x, value = settled(np.empty(0), None, 0)
    k = int(value.argmin())
    yield Found(x[:, k].copy(), float(value[k]), epoch, total)
    while True:
        if start is not None and epoch == 0:
            x, value = settled(np.repeat(elites, replicas, axis=1), warm, sweeps)
        else:
            x, value = settled(np.empty(0), cold, sweeps)
        total += sweeps
        best, stale = np.inf, 0
        while stale <= _STALE:
            k = int(value.argmin())
            stale = 0 if value[k] < best else stale + 1
            best = min(best, float(value[k]))
            yield Found(x[:, k].copy(), float(value[k]), epoch, total)
            for _ in range(_MIXES):
                x = mixed(x, x[:, rng.permutation(replicas)])
            x, value = settled(x, None, 0)
            k = int(value.argmin())
            yield Found(x[:, k].copy(), float(value[k]), epoch, total)
            fresh, score = settled(x, warm, sweeps)
            total += sweeps
            worse = score > value
            x, value = np.where(worse, x, fresh), np.where(worse, value, score)
        if elites.shape[1]:
            x, value = settled(mixed(x, elites[:, rng.integers(elites.shape[1], size=replicas)]), None, 0)
        k = int(value.argmin())
        yield Found(x[:, k].copy(), float(value[k]), epoch, total)
        elites = np.concatenate([x[:, [k]], elites], axis=1)[:, :_ELITES]
        epoch, sweeps = epoch + 1, 2 * sweeps


def _sweeper(energy: Energy, replicas: int, rng: np.random.Generator, device: str | None) -> Sweeper:
    if device is None:
        return Sweeper(energy, replicas, rng)
    from varopt.solvers.discrete.search._torch_sweeps import TorchSweeper  # optional, and PyTorch is slow to load

    return TorchSweeper(energy, replicas, rng, device)
