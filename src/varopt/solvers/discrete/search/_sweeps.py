"""Sweeps over all sites, one independent set at a time, for many replicas at once.

Everything that moves replicas is one operation: given the fields g_i = dE/dx_i of an independent set, write new values
there. Sampled at temperature T it is the rule of Metropolis for bits and the heat bath (Gibbs sampling) for choices;
with the mean instead of the sample it is mean field; at T = 0 it is local search, and started from probabilities it is
rounding by conditional expectations.

Of a bit both rules leave the same distribution as it is, and that of Metropolis turns it more often, for every field:
no other has smaller variances [Peskun73]. Of graphs of 5,000 nodes an anneal of 500 sweeps ends as low as one by the
heat bath with some 700 (random), 1,200 (tori) and more than 1,500 (planar).

FEM: Z.-S. Shen et al., *Free-energy machine for combinatorial optimization*, Nature Computational Science 5, 2025.
Peskun73: P. H. Peskun, *Optimum Monte-Carlo sampling using Markov chains*, Biometrika 60, 1973.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import LITERAL_DERIVATIVE, Energy
from varopt.solvers.discrete._matrices import permuted, row_sizes, signed_row_sums
from varopt.solvers.discrete.search._gathered import GatheredRows

__all__ = ["PASSES", "Sweeper", "whole_number_type"]

Array = NDArray[Any]

_DRAWN = 1 << 18  # random numbers drawn at once, besides those of one sweep
PASSES = 200  # of local search; where rounding makes it cycle, this ends it


def whole_number_type(energy: Energy) -> Any:
    """The shortest integers that hold every field in units of the energy's granularity; None where none does.

    Fields that are bytes take a quarter of the memory of single precision, and a processor adds up to four times as
    many at once.
    """
    if not (energy.is_binary and energy.granularity):
        return None
    down, up = signed_row_sums(energy.quadratic)
    longer = np.zeros(energy.size)
    for products in energy.products:
        for column in products.split(energy.size)[1].T:
            longer += np.bincount(column, weights=2.0 * np.abs(products.weights), minlength=energy.size)
    ends = np.abs(energy.linear + np.stack([down, up])).max(axis=0) + longer
    largest = float(ends.max(initial=0.0)) / energy.granularity
    return next((kind for kind in (np.int8, np.int16) if largest < np.iinfo(kind).max), None)


@dataclass(frozen=True)
class _Set:
    """An independent set of sites of one width: contiguous rows of the state."""

    rows: slice
    width: int
    linear: Any  # (rows, 1); None where it is the last column of the matrix, which meets a row of ones
    matrix: Any  # (rows, size), or as many columns as a state has rows; or `GatheredRows`
    products: tuple[tuple[Any, NDArray[np.intp]], ...]  # (weights (rows, M), codes of the other factors (d - 1, M))


class Sweeper:
    """An energy compiled for sweeps over replicas, which are the columns of a state.

    Parameters
    ----------
    energy : Energy
        What is minimised.
    replicas : int
        Number of columns.
    rng : numpy.random.Generator
        The only source of randomness.
    dtype : type
        Of the state and the fields; single precision halves the time. Of integers, as `whole_number_type` says, fields
        are in units of the energy's granularity, and so is the noise, rounded up: for a whole g, ``g < z`` wherever
        ``g < ceil(z)``, so that sampling stays exact.

    Notes
    -----
    A state holds the coordinates in the order of the sets, then, where there are products, the literals 1 - x and
    1 - 2x of every coordinate (where there are `GatheredRows` of negative couplings, 1 - x), then a row of ones. A
    sweep costs one product of the matrix with the state; memory is that of the matrix, where its precision or its order
    is another than the energy's, and of ``replicas`` columns.
    """

    def __init__(self, energy: Energy, replicas: int, rng: np.random.Generator, dtype: Any = np.float32) -> None:
        self.energy, self.replicas, self.rng, self.dtype = energy, replicas, rng, dtype
        size, site = energy.size, energy.site
        widths = np.ones(size, dtype=np.intp) if energy.widths is None else energy.widths
        label = energy.colours
        # Coordinates by colour, then by width, then by how much they are coupled: a set is a range of rows.
        self.order = np.lexsort((site, -_coupled(energy)[site], widths[site], label[site]))
        self._place = np.empty_like(self.order)
        self._place[self.order] = np.arange(size)
        keys = np.stack([label[site], widths[site]])[:, self.order]
        starts = np.flatnonzero(np.r_[True, np.any(keys[:, 1:] != keys[:, :-1], axis=0)]) if size else np.empty(0, int)
        ends = np.r_[starts[1:], size]
        self._ranges = list(zip(map(slice, starts.tolist(), ends.tolist()), keys[1, starts].tolist(), strict=True))
        self.grain = energy.granularity if np.issubdtype(dtype, np.integer) else 1.0
        self._gathers = sp.issparse(energy.quadratic) and not energy.products and GatheredRows.suits(dtype, replicas)
        signed = self._gathers and bool((energy.quadratic.data < 0.0).any())
        self._copies = 3 if energy.products else 2 if signed else 1
        self._length = self._copies * size + 1
        self._pools: dict[str, Array] = {}
        self._scaled: dict[str, tuple[float, Array]] = {}

    # -- Compilation --------------------------------------------------------------------------------------------------

    @cached_property
    def sets(self) -> list[_Set]:
        """The independent sets, compiled for the first sweep."""
        matrix = permuted(self.energy.quadratic, self.order)
        matrix = matrix if self.grain == 1.0 else matrix / self.grain
        matrix = matrix.astype(self.dtype, copy=False)
        linear = (self.energy.linear[self.order, None] / self.grain).astype(self.dtype)
        folded = sp.issparse(matrix)
        if folded:
            gap = sp.csr_array((matrix.shape[0], self._length - 1 - matrix.shape[1]), dtype=self.dtype)
            # scipy.sparse matrices of the older kind have less overhead per product; only rows are ever sliced.
            matrix = sp.csr_matrix(sp.hstack([matrix, gap, sp.csr_array(linear)], format="csr", dtype=self.dtype))
        products = [self._placed(p) for p in self.energy.products]
        return [
            _Set(
                rows, width, None if folded else linear[rows], self._rows(matrix[rows]),
                self._products(products, rows.start, rows.stop),
            )
            for rows, width in self._ranges
        ]  # fmt: skip

    def _rows(self, matrix: Any) -> Any:
        """The rows of a set, as they are best multiplied with."""
        return (GatheredRows.of(matrix, self.energy.size, self.replicas) if self._gathers else None) or matrix

    def _placed(self, products: Any) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """Rows of the coordinates, rows of the literals, and weights, of every product."""
        size = self.energy.size
        kind, coordinate = products.split(size)
        row = self._place[coordinate]
        return row, kind * size + row, products.weights[:, None] * (LITERAL_DERIVATIVE[kind] / self.grain)

    def _products(self, placed: list[Any], start: int, stop: int) -> tuple[tuple[Any, NDArray[np.intp]], ...]:
        result = []
        for row, literal, derivatives in placed:
            inside = (row >= start) & (row < stop)
            term, factor = np.nonzero(inside)
            if not term.size:
                continue
            others = np.ones((term.size, row.shape[1]), dtype=bool)
            others[np.arange(term.size), factor] = False
            codes = literal[term][others].reshape(term.size, -1)
            weights = sp.csr_matrix(
                (derivatives[term, factor].astype(self.dtype), (row[term, factor] - start, np.arange(term.size))),
                shape=(stop - start, term.size),
            )
            result.append((weights.toarray() if stop - start <= 2 else weights, np.ascontiguousarray(codes.T)))
        return tuple(result)

    # -- States -------------------------------------------------------------------------------------------------------

    def state(self, x: NDArray[Any]) -> Array:
        """A state from points, or probabilities, of shape (size, replicas) in the energy's order."""
        state = np.ones((self._length, x.shape[1]), dtype=self.dtype)
        self._write(state, slice(0, self.energy.size), x[self.order])
        return state

    def points(self, state: Array) -> Array:
        """The coordinates of a state, in the energy's order."""
        return state[self._place]

    def values(self, state: Array) -> NDArray[np.float64]:
        """The energies of all replicas, in double precision; of bytes from their fields, which is faster."""
        if self.energy.products or (self.grain == 1.0 and not np.issubdtype(self.dtype, np.integer)):
            return np.asarray(self.energy.value(self.points(state)))
        # E = constant + x'(g + linear) / 2, in whole numbers
        total = np.zeros(state.shape[1], dtype=np.int64)
        for part in self.sets:
            total += np.einsum("ij,ij->j", self._fields(part, state), state[part.rows], dtype=np.int64)
        linear = self.energy.linear[self.order] @ state[: self.energy.size]
        return np.asarray(self.energy.constant + 0.5 * (self.grain * total + linear))

    def choose(self, state: Array, chosen: NDArray[np.intp]) -> None:
        """Replace the replicas by those chosen, some of them more than once."""
        state[:] = state[:, chosen]

    def uniform(self) -> Array:
        """A state drawn uniformly."""
        x = np.empty((self.energy.size, self.replicas), dtype=self.dtype)
        for rows, width in self._ranges:
            shape = (rows.stop - rows.start) // width, self.replicas
            drawn = self.rng.integers(max(2, width), size=shape)
            x[self.order[rows]] = drawn if width == 1 else _one_hot(drawn, width, self.dtype).reshape(-1, self.replicas)
        return self.state(x)

    def _write(self, state: Array, rows: slice, new: Array) -> None:
        state[rows] = new
        size = self._place.size
        if self._copies > 1:
            state[rows.start + size : rows.stop + size] = 1 - state[rows]
        if self._copies > 2:
            state[rows.start + 2 * size : rows.stop + 2 * size] = 1 - 2 * state[rows]

    # -- Sweeps -------------------------------------------------------------------------------------------------------

    def _fields(self, part: _Set, state: Array) -> Array:
        fields: Array = part.matrix @ state[: part.matrix.shape[1]]
        if part.linear is not None:
            fields += part.linear
        for weights, codes in part.products:
            factors = state[codes[0]]
            for other in codes[1:]:
                factors *= state[other]
            fields += weights @ factors
        return fields

    def sample(self, state: Array, temperature: float) -> None:
        """One sweep of sampling, in place."""
        for part, noise in zip(self.sets, self._noise(temperature), strict=True):
            fields, old = self._fields(part, state), state[part.rows]
            draw = _turned if part.width == 1 else _drawn
            self._write(state, part.rows, draw(part.width, fields, old, noise))

    def mean(self, state: Array, temperature: float) -> None:
        """One sweep of mean field, in place: every probability minimises the free energy given the others."""
        for part in self.sets:
            g = self._fields(part, state) * self.dtype(-1.0 / temperature)
            if part.width == 1:
                new = 0.5 + 0.5 * np.tanh(0.5 * g)  # p_i = 1 / (1 + exp(g_i / T)) [FEM], without overflow
            else:
                blocks = _blocks(part.width, g)
                power = np.exp(blocks - blocks.max(axis=1, keepdims=True))  # p_ic ~ exp(-g_ic / T) [FEM]
                new = (power / power.sum(axis=1, keepdims=True)).reshape(g.shape)
            self._write(state, part.rows, new)

    def descend(self, state: Array, passes: int = PASSES, expired: Callable[[], bool] = lambda: False) -> None:
        """Local search in place: every site to its best value given the others, until none changes or time is up.

        The first pass rounds: E is linear in every site, so no pass makes a replica worse, wherever it starts.
        """
        for _ in range(passes):
            changed = False
            for part in self.sets:
                old = state[part.rows]
                new = _best(part.width, self._fields(part, state), old)
                if not np.array_equal(new, old):
                    changed = True
                    self._write(state, part.rows, new)
            if not changed or expired():
                return

    def _noise(self, temperature: float) -> Iterator[Array]:
        """Noise for the rows of every set, scaled: exponential for bits and Gumbel for choices.

        It is a random stretch of a pool, which is scaled when the temperature changes: to draw and transform fresh
        numbers would cost more than the fields.
        """
        starts = self.rng.integers(_DRAWN, size=len(self._ranges)).tolist()
        for (rows, width), start in zip(self._ranges, starts, strict=True):
            shape = (rows.stop - rows.start, self.replicas)
            pool = self._pool("exponential" if width == 1 else "gumbel", temperature)
            yield pool[start : start + shape[0] * shape[1]].reshape(shape)

    def _pool(self, kind: str, temperature: float) -> Array:
        if kind not in self._pools:
            longest = max(rows.stop - rows.start for rows, _ in self._ranges)
            self._pools[kind] = getattr(self.rng, kind)(size=_DRAWN + longest * self.replicas).astype(np.float32)
        known, pool = self._scaled.get(kind, (None, None))
        if known != temperature or pool is None:
            pool = self._rounded(self._pools[kind], temperature / self.grain)
            self._scaled[kind] = temperature, pool
        return pool

    def _rounded(self, pool: Array, scale: float) -> Array:
        """Noise of a scale in the type of the fields."""
        if not np.issubdtype(self.dtype, np.integer):
            return np.asarray(self.dtype(scale) * pool)
        most = np.iinfo(self.dtype).max
        scaled = np.float32(scale) * pool
        np.ceil(scaled, out=scaled)
        np.clip(scaled, -most, most, out=scaled)
        return scaled.astype(self.dtype)

    def refresh(self) -> None:
        """Draw new random numbers: between runs, so that none is a repetition."""
        self._pools.clear()
        self._scaled.clear()


def _coupled(energy: Energy) -> NDArray[np.float64]:
    """How much every site of bits is coupled to, of a sparse Q; of a dense one, and of choices, it does not matter."""
    if not (energy.is_binary and sp.issparse(energy.quadratic)):
        return np.zeros(energy.site.max(initial=-1) + 1)
    return row_sizes(energy.quadratic)


def _blocks(width: int, rows: Array) -> Array:
    return rows.reshape(-1, width, rows.shape[1])


def _one_hot(chosen: NDArray[np.intp], width: int, dtype: Any) -> Array:
    return np.asarray(chosen[:, None, :] == np.arange(width)[None, :, None], dtype=dtype)


def _turned(_: int, fields: Array, old: Array, noise: Array) -> Array:
    """Bits turned with probability min(1, exp(-change / T)), by exponential noise of scale T; it overwrites fields."""
    # E changes by g where a bit is set, and by -g where it is taken away.
    if fields.dtype.kind == "f":
        fields *= 1 - 2 * old
        return np.asarray(np.abs(old - (fields < noise)))
    minus = -old  # in whole numbers -g is all of its binary digits turned, and one: no multiplication
    fields ^= minus
    fields -= minus
    return np.asarray(old ^ (fields < noise).view(np.int8))


def _drawn(width: int, fields: Array, _: Array, noise: Array) -> Array:
    """A sample of choices given the fields, by Gumbel noise of scale T."""
    # The largest of -g plus T times Gumbel noise is a sample of the softmax of -g / T.
    return _one_hot(_blocks(width, noise - fields).argmax(axis=1), width, noise.dtype).reshape(noise.shape)


def _best(width: int, fields: Array, old: Array) -> Array:
    """The best value of each site; where nothing is gained, the value it has, rounded."""
    if width == 1:
        return np.where(fields == 0, old >= 0.5, fields < 0).astype(old.dtype)
    g = _blocks(width, fields)
    current = _blocks(width, old).argmax(axis=1)
    best = g.argmin(axis=1)
    gain = np.take_along_axis(g, current[:, None, :], 1) > np.take_along_axis(g, best[:, None, :], 1)
    return _one_hot(np.where(gain[:, 0, :], best, current), width, old.dtype).reshape(old.shape)
