"""Sweeps where every bit sees most others: fields are kept up to date, and few bits that change are changed together.

No two bits are independent then, and to update them one at a time is slow. But near the end of an anneal one in fifty
changes in a sweep, and a field is a sum over all: a block of bits so small that some two of them change may be drawn at
once, as each hardly feels the other. What changes is added to all fields by one product of a few rows of the matrix.
Local search is exact: what changes together has to gain together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from varopt.solvers.discrete._energy import Energy
from varopt.solvers.discrete._matrices import as_dense, count_nonzero, row_norms

__all__ = ["DenseSweeper", "is_crowded"]

Array = NDArray[np.float32]

# Measured on random graphs of 1,000 to 10,000 nodes: from this share on fields that are kept beat fields that are
# computed by independent sets.
_CROWDED_ENERGY = 0.08
_LARGEST_MATRIX_ENTRIES = 1 << 28  # entries of the matrix, at most: 1 GiB
_BITS_TOGETHER = 2.0  # bits of a replica that may always change together, on average
_FEWEST_SWEEP_BLOCKS = 16  # blocks of a sweep, at least
_EXPONENTIALS = 1 << 16  # drawn at once, besides those of one sweep


def is_crowded(energy: Energy) -> bool:
    """Whether every bit sees so many others that fields are best kept."""
    if energy.products or not energy.is_binary or energy.size**2 > _LARGEST_MATRIX_ENTRIES:
        return False
    return count_nonzero(energy.quadratic) > _CROWDED_ENERGY * energy.size**2


class DenseState(NamedTuple):
    """Bits and fields of all replicas, a row each."""

    x: Array
    fields: Array


class DenseSweeper:
    """A quadratic energy of bits compiled for sweeps over replicas; a `Sweeper` for matrices that are dense.

    Parameters
    ----------
    energy : Energy
        What is minimised: bits, without products.
    replicas : int
        Number of points.
    rng : numpy.random.Generator
        The only source of randomness.

    Notes
    -----
    A sweep costs a row of the matrix for every bit that changes in some replica. Memory is that of the matrix in single
    precision.
    """

    def __init__(self, energy: Energy, replicas: int, rng: np.random.Generator) -> None:
        self.energy, self.replicas, self.rng = energy, replicas, rng
        self._block = max(1, energy.size // _FEWEST_SWEEP_BLOCKS)
        self._pool = np.empty(0, dtype=np.float32)

    @cached_property
    def matrix(self) -> Array:
        """Q in single precision."""
        return as_dense(self.energy.quadratic).astype(np.float32)

    @cached_property
    def _coupling(self) -> float:
        """The typical size of an entry of Q."""
        return float(np.linalg.norm(row_norms(self.energy.quadratic))) / self.energy.size or 1.0

    def state(self, x: NDArray[Any]) -> DenseState:
        """A state from points of shape (size, replicas)."""
        rows = np.ascontiguousarray(x.T, dtype=np.float32)
        fields = rows @ self.matrix
        fields += self.energy.linear.astype(np.float32)
        return DenseState(rows, fields)

    def points(self, state: DenseState) -> Array:
        """The bits, of shape (size, replicas)."""
        return state.x.T

    def values(self, state: DenseState) -> NDArray[np.float64]:
        """The energies of all replicas, as good as the fields are."""
        # E = constant + x'(g + linear) / 2
        twice = np.einsum("rk,rk->r", state.x, state.fields + self.energy.linear)
        return np.asarray(self.energy.constant + 0.5 * twice)

    def choose(self, state: DenseState, chosen: NDArray[np.intp]) -> None:
        """Replace the replicas by those chosen, some of them more than once."""
        state.x[:], state.fields[:] = state.x[chosen], state.fields[chosen]

    def uniform(self) -> DenseState:
        """A state drawn uniformly."""
        return self.state(self.rng.integers(2, size=(self.energy.size, self.replicas)).astype(np.float32))

    def sample(self, state: DenseState, temperature: float) -> None:
        """One sweep by the rule of Metropolis, in place, by blocks of bits that may change together."""
        if not self._pool.size:
            self._pool = self.rng.exponential(size=_EXPONENTIALS + self.energy.size * len(state.x)).astype(np.float32)
        scale, changes = np.float32(temperature), 0
        for rows in self._blocks():
            fields = state.fields[:, rows]
            start = int(self.rng.integers(_EXPONENTIALS))
            noise = self._pool[start : start + fields.size].reshape(fields.shape)
            turn = 1.0 - 2.0 * state.x[:, rows]
            turn *= fields * turn < scale * noise  # accepted with probability min(1, exp(-change / T))
            changes += self._apply(state, rows, turn)
        # What one change adds to a field is small beside the temperature; so is what as many add as make up for it.
        together = max(_BITS_TOGETHER, temperature / self._coupling)
        share = together * state.x.size / (changes + 1.0)
        self._block = int(np.clip(share, 1, max(1, self.energy.size // _FEWEST_SWEEP_BLOCKS)))

    def descend(self, state: DenseState, passes: int = 200, expired: Callable[[], bool] = lambda: False) -> None:
        """Local search in place: never worse, until no bit of any replica gains by a change, or time is up."""
        self._settle(state, passes, expired)
        every = np.arange(len(state.x))
        for _ in range(passes * self.energy.size):
            gain = np.where(state.x > 0.5, state.fields, -state.fields)  # of a change, each
            best = gain.argmax(axis=1)
            moving = gain[every, best] > 0.0
            if not moving.any() or expired():
                return
            at, place = np.unique(best[moving], return_inverse=True)
            change = np.zeros((len(state.x), at.size), dtype=np.float32)
            change[every[moving], place] = 1.0 - 2.0 * state.x[moving, best[moving]]
            self._add(state, at, change)

    def _settle(self, state: DenseState, passes: int, expired: Callable[[], bool]) -> None:
        """Many bits at a time, where that gains: for as long as one in a hundred changes in a pass."""
        block = max(1, self.energy.size // 256)
        for _ in range(passes):
            changes = 0
            for rows in self._blocks(block):
                fields, old = state.fields[:, rows], state.x[:, rows]
                change = np.where(fields < 0.0, 1.0 - old, np.where(fields > 0.0, -old, 0.0)).astype(np.float32)
                # E(x + d) - E(x) = g'd + d'Qd / 2
                worth = np.einsum("rk,rk->r", fields + 0.5 * (change @ self.matrix[rows, rows]), change)
                change[worth >= 0.0] = 0.0
                changes += self._apply(state, rows, change)
                if expired():
                    return
            if changes < 0.01 * state.x.size:
                return

    def _blocks(self, block: int | None = None) -> list[slice]:
        block = block or self._block
        starts = np.arange(0, self.energy.size, block)
        return [slice(k, k + block) for k in self.rng.permutation(starts).tolist()]

    def _apply(self, state: DenseState, rows: slice, change: Array) -> int:
        """Change some bits; how many there were."""
        differs = change != 0.0
        at = np.logical_or.reduce(differs, axis=0).nonzero()[0]
        if at.size:
            self._add(state, rows.start + at, change[:, at])
        return int(np.count_nonzero(differs))

    def _add(self, state: DenseState, at: NDArray[np.intp], change: Array) -> None:
        state.x[:, at] += change
        # F += change Q[at], in place: BLAS counts by columns, hence the transposes.
        sgemm(1.0, self.matrix[at].T, change.T, 1.0, state.fields.T, overwrite_c=True)

    def refresh(self) -> None:
        """Draw new random numbers: between runs, so that none is a repetition."""
        self._pool = np.empty(0, dtype=np.float32)
