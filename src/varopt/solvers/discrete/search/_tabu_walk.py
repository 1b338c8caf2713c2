"""Tabu walks of many replicas at once, for landscapes in which no slope leads to the best points.

A step flips, in every replica, the bit that makes the energy least, whether that is lower or not, among those that were
not flipped lately [GCF09]. What every flip would change is kept: of pairs in the fields, and of products of spins in
their values, which a flip of one of their spins turns around. A replica that has not improved for as many steps as
there are bits goes on elsewhere: at random, or near its best.

GCF09: J. E. Gallardo, C. Cotta and A. J. Fernandez, *Finding low autocorrelation binary sequences with memetic
algorithms*, Applied Soft Computing 9(4), 2009.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import SPIN, Energy
from varopt.solvers.discrete._matrices import as_dense

__all__ = ["TabuWalk"]

Vector = NDArray[np.float64]

_BITS = 400  # up to which a step of all replicas costs little more than its overhead
_PRODUCT_ENTRIES = 1 << 22  # products times bits, at most
_STEPS_WITHOUT_GAIN = 2  # steps without a better point, as a multiple of the bits, after which a replica goes elsewhere
_TURNED_SHARE = 0.2  # share of the bits that are turned around then, in half of the replicas
_TENURES = 10, 8  # a flipped bit stays for n / 10 steps, and up to so many more


class TabuWalk:
    """The energy of bits, compiled for walks: pairs, and products of spins only.

    Parameters
    ----------
    energy : Energy
        What is minimised; `suits` says whether it can be.
    rng : numpy.random.Generator
        The only source of randomness.
    """

    def __init__(self, energy: Energy, rng: np.random.Generator) -> None:
        self.energy, self._rng = energy, rng
        self._pairs = as_dense(energy.quadratic)
        self._weights = np.concatenate([np.zeros(0), *(p.weights for p in energy.products)])
        self._holds = np.zeros((energy.size, self._weights.size), dtype=np.float32)  # which spins products have
        first = 0
        for products in energy.products:
            at = first + np.arange(products.weights.size)
            self._holds[products.split(energy.size)[1], at[:, None]] = 1.0
            first += products.weights.size
        self._turns = (1.0 - 2.0 * self._holds).astype(np.float32)

    @staticmethod
    def suits(energy: Energy) -> bool:
        """Whether all of it is in pairs of bits and products of spins, and small."""
        count = sum(p.weights.size for p in energy.products)
        if not energy.is_binary or energy.size > _BITS or count * energy.size > _PRODUCT_ENTRIES:
            return False
        return all(bool(np.all(p.split(energy.size)[0] == SPIN)) for p in energy.products)

    def walk(self, x: Vector, steps: int, expired: Callable[[], bool] = lambda: False) -> tuple[Vector, Vector]:
        """From the columns of x: the best that each has met, and their energies.

        Cost of a step: that of reading the pairs of one bit, and a product with all terms, for every replica.
        """
        n, replicas = x.shape
        columns = np.arange(replicas)
        x = x.copy()
        state = self._state(x)
        best, least = x.copy(), state.value.copy()
        recent, since = state.value.copy(), np.zeros(replicas, dtype=np.intp)  # since the last start
        until = np.zeros((n, replicas), dtype=np.intp)
        unit = 1e-6 * (self.energy.granularity or self.energy.unit)
        for step in range(1, steps + 1):
            if expired():
                break
            change = state.change()
            held = (until > step) & (state.value + change >= least)
            chosen = np.where(held, np.inf, change + unit * self._rng.random((n, replicas))).argmin(axis=0)
            state.flip(chosen, change[chosen, columns])
            tenure = n // _TENURES[0] + self._rng.integers(1, 1 + _TENURES[1], size=replicas)
            until[chosen, columns] = step + np.minimum(tenure, n // 2)
            better = state.value < least
            if better.any():
                best[:, better], least[better] = x[:, better], state.value[better]
            risen = state.value >= recent
            recent, since = np.minimum(recent, state.value), np.where(risen, since + 1, 0)
            stale = np.flatnonzero(since > _STEPS_WITHOUT_GAIN * n)
            if stale.size:
                x[:, stale] = self._elsewhere(best[:, stale])
                state.begin(stale)
                recent[stale], since[stale] = state.value[stale], 0
                until[:, stale] = 0
        return best, np.asarray(self.energy.value(best))

    def _elsewhere(self, best: Vector) -> Vector:
        turned = self._rng.random(best.shape) < np.where(self._rng.random(best.shape[1]) < 0.5, 0.5, _TURNED_SHARE)
        return np.where(turned, 1.0 - best, best)

    def _state(self, x: Vector) -> _State:
        return _State(self.energy, self._pairs, self._weights, self._holds, self._turns, x)


class _State:
    """Points, the columns of x, which is changed in place; their energies, fields and the values of their products."""

    def __init__(self, energy: Energy, pairs: Vector, weights: Vector, holds: Any, turns: Any, x: Vector) -> None:
        self._energy, self._pairs, self._weights, self._holds, self._turns = energy, pairs, weights, holds, turns
        self._x = x
        self.value = np.empty(x.shape[1])
        self._fields = np.empty(x.shape)
        self._products = np.empty((weights.size, x.shape[1]), dtype=np.float32)
        self.begin(np.arange(x.shape[1]))

    def begin(self, columns: NDArray[np.intp]) -> None:
        """Everything anew, for columns of x that were changed."""
        x = self._x[:, columns]
        self.value[columns] = self._energy.value(x)
        self._fields[:, columns] = self._pairs @ x + self._energy.linear[:, None]
        if self._weights.size:
            odd = (self._holds.T @ x.astype(np.float32)) % 2.0 != 0.0  # a product of spins 1 - 2 x
            self._products[:, columns] = np.where(odd, -self._weights[:, None], self._weights[:, None])

    def change(self) -> Vector:
        """What the flip of each bit would add."""
        change = (1.0 - 2.0 * self._x) * self._fields
        if self._weights.size:
            change -= 2.0 * (self._holds @ self._products)
        return np.asarray(change)

    def flip(self, chosen: NDArray[np.intp], change: Vector) -> None:
        """One bit in each column."""
        columns = np.arange(chosen.size)
        sign = 1.0 - 2.0 * self._x[chosen, columns]
        self._x[chosen, columns] += sign
        self._fields += self._pairs[chosen].T * sign
        if self._weights.size:
            self._products *= self._turns[chosen].T
        self.value += change
