"""Exact moves on blocks of bits: the best of all 2^k settings of k of them, the others held.

Where the landscape is rugged, as of numbers to be divided evenly or of sequences of low autocorrelation, no single
change leads down and annealing is little better than chance; but a million points at once are cheap. With the others
held the energy is a polynomial of the block; its coefficients, laid out by subsets, become its values at all settings
by k sums over half of the array each (the zeta transform of subsets).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import BIT, NEGATED, Energy
from varopt.solvers.discrete._matrices import as_dense

__all__ = ["block_minimum", "block_values"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]


def block_values(energy: Energy, x: Vector, block: Index) -> Vector:
    """The energies, up to a constant, at all settings of some bits of x; entry m sets bit j of the block to m >> j & 1.

    Cost: k 2^k additions, and the terms of the energy.
    """
    k = block.size
    coefficients = np.zeros(1 << k)
    rest = x.copy()
    rest[block] = 0.0
    bit = np.zeros(energy.size, dtype=np.int64)
    bit[block] = 1 << np.arange(k)
    quadratic = energy.quadratic
    coefficients[bit[block]] = energy.linear[block] + np.asarray(quadratic[block] @ rest).ravel()
    inner = np.triu(as_dense(quadratic[block][:, block]), 1)
    i, j = np.nonzero(inner)
    coefficients[bit[block[i]] | bit[block[j]]] += inner[i, j]
    for products in energy.products:
        kind, coordinate = products.split(energy.size)
        # A factor a + b x: of bits that are held a number, of others a and a multiple of a new bit.
        offset = np.where(kind == BIT, 0.0, 1.0)
        rise = np.where(kind == BIT, 1.0, np.where(kind == NEGATED, -1.0, -2.0))
        constant = offset + rise * rest[coordinate]
        masks, weights = np.zeros(len(kind), dtype=np.int64), products.weights.copy()
        for column in range(products.degree):
            mask = bit[coordinate[:, column]]
            free = mask != 0
            masks, weights = (
                np.concatenate([masks, (masks | mask)[free]]),
                np.concatenate([weights * constant[:, column], (weights * rise[:, column])[free]]),
            )
            # Terms that were split have their remaining factors twice.
            kind, coordinate = np.concatenate([kind, kind[free]]), np.concatenate([coordinate, coordinate[free]])
            constant, rise = np.concatenate([constant, constant[free]]), np.concatenate([rise, rise[free]])
        coefficients += np.bincount(masks, weights=weights, minlength=1 << k)
    for power in range(k):
        halves = coefficients.reshape(-1, 2, 1 << power)
        halves[:, 1] += halves[:, 0]
    return coefficients


def block_minimum(energy: Energy, x: Vector, block: Index) -> Vector:
    """The best of all settings of some bits of x; x itself where none is better."""
    values = block_values(energy, x, block)
    best = int(values.argmin())
    own = int((x[block].astype(np.int64) << np.arange(block.size)).sum())
    if not values[best] < values[own]:
        return x
    better = x.copy()
    better[block] = best >> np.arange(block.size) & 1
    return better
