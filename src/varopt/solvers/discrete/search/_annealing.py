r"""Free-energy annealing: minimise :math:`\langle E \rangle - T S` over independent sites while T falls.

At temperature T the minimiser given all other sites is the heat bath: P(x_i = 1) = 1 / (1 + exp(g_i / T)) with the
field g_i = dE/dx_i. *Mean field* puts the probabilities of the other sites into g_i: it descends the analytic bound
<E> - T S, site by site. *Sampled* puts a sample there instead, which makes it a Markov chain, and escapes the local
minima in which mean field saturates. Both update whole independent sets, so neither needs a step length and neither
oscillates.

HI03: K. Hukushima and Y. Iba, *Population annealing and its application to a spin glass*, AIP Conference Proceedings
690, 2003.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._matrices import row_norms
from varopt.solvers.discrete.search._sweeps import Sweeper

__all__ = ["GeometricTemperature", "LinearTemperature", "Temperatures", "anneal", "temperatures_of", "typical_field"]

Temperatures = Callable[[float], float]
"""From progress in [0, 1] to the temperature, in units of the typical field."""

_TEMPERATURE_LEVELS = 64  # steps in which the temperature falls, at most: noise is scaled once for each


@dataclass(frozen=True)
class GeometricTemperature:
    """Temperatures that fall by a constant factor: as much time in every decade."""

    hot: float = 0.5
    cold: float = 0.05

    def __post_init__(self) -> None:
        _check(self.hot, self.cold)

    def __call__(self, progress: float) -> float:
        return float(self.hot * (self.cold / self.hot) ** progress)


@dataclass(frozen=True)
class LinearTemperature:
    """Temperatures that fall by a constant amount: more time where it is hot."""

    hot: float = 0.5
    cold: float = 0.05

    def __post_init__(self) -> None:
        _check(self.hot, self.cold)

    def __call__(self, progress: float) -> float:
        return self.hot + (self.cold - self.hot) * progress


def _check(hot: float, cold: float) -> None:
    if not (math.isfinite(hot) and 0.0 < cold <= hot):
        raise ValueError(f"a schedule needs temperatures hot >= cold > 0; got hot={hot!r}, cold={cold!r}.")


def temperatures_of(beta: Callable[[float], float], unit: float) -> Temperatures:
    """The temperatures ``1 / beta``, from a schedule of beta in units of one over f, as the paper has it."""

    def schedule(progress: float) -> float:
        value = float(beta(progress))
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"beta must return a positive number; got {value!r} at progress {progress:g}.")
        return 1.0 / (value * unit)

    return schedule


def typical_field(energy: Energy, rng: np.random.Generator) -> float:
    """How much the field of a site varies over random points, on average: the natural unit of temperature."""
    if energy.is_binary and not energy.products:
        spread = 0.5 * row_norms(energy.quadratic)  # of independent bits, each of variance 1/4
    else:
        sweeper = Sweeper(energy, 32, rng)
        spread = energy.gradient(sweeper.points(sweeper.uniform())).std(axis=1)
    moving = spread[spread > 0.0]
    return float(moving.mean()) if moving.size else 1.0


def anneal(
    sweeper: Any, state: Any, schedule: Temperatures, sweeps: int, unit: float, *,
    analytic: bool = False, expired: Callable[[], bool] = lambda: False, seconds: float = math.inf,
    selection: float = 0.0,
) -> int:  # fmt: skip
    """Sweep a state in place while the temperature falls, then descend: it ends in a local minimum of every replica.

    The temperature falls in steps, some tens of them, each with its share of the sweeps and of the seconds. Where
    sweeps turn out to take longer than these allow, there are fewer at each step: the schedule is not cut off. With
    `selection` replicas are drawn again at each step, in proportion to a power of their weights at the temperature that
    comes next over those at the last one: with one, that is population annealing [HI03].

    Parameters
    ----------
    sweeper : Sweeper
        The compiled energy.
    state : ndarray
        Replicas; probabilities, where `analytic`.
    schedule : callable
        Progress in [0, 1] to temperature.
    sweeps : int
        Number of sweeps, at most.
    unit : float
        What the schedule's temperatures are multiplied by: `typical_field`.
    analytic : bool
        Mean field instead of samples.
    expired : callable
        Asked before every sweep; True goes straight to the descent.
    seconds : float
        What the sweeps may take, by the clock on the wall.
    selection : float
        The power of the weights; zero leaves every replica to itself.

    Returns
    -------
    int
        The sweeps that were done.
    """
    step = sweeper.mean if analytic else sweeper.sample
    levels = sweeps if analytic else max(1, min(_TEMPERATURE_LEVELS, sweeps // 4))
    started, done, before = time.perf_counter(), 0, math.inf
    for level in range(levels):
        temperature = unit * schedule(level / max(1, levels - 1))
        end = started + seconds * (level + 1) / levels
        if selection and temperature < before < math.inf:
            _resample(sweeper, state, selection * (1.0 / temperature - 1.0 / before))
        before = temperature
        for k in range(max(1, round((sweeps - done) / (levels - level)))):
            if expired() or (k and time.perf_counter() > end):
                break
            step(state, temperature)
            done += 1
    sweeper.descend(state, expired=expired)
    return done


def _resample(sweeper: Any, state: Any, colder: float) -> None:
    """Draw replicas again in place, in proportion to ``exp(-colder E)``: low ones come often, high ones may not.

    Each comes as often as expected, rounded down or up: one random number is for all of them.
    """
    value = sweeper.values(state)
    share = np.cumsum(np.exp(-colder * (value - value.min())))
    places = (np.arange(value.size) + sweeper.rng.random()) / value.size
    chosen = np.minimum(np.searchsorted(share / share[-1], places), value.size - 1)
    if np.any(chosen != np.arange(value.size)):
        sweeper.choose(state, chosen)
