"""Quadratic energies as homogeneous forms of spins: what semidefinite relaxations bound.

Which products a quadratic lies below, and where it touches them, is checked by enumeration in the tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt.solvers.discrete._energy import BIT, NEGATED, Energy
from varopt.solvers.discrete._matrices import pieces, row_sizes, stored

__all__ = ["Spins", "quadratic_minorant", "spins_of"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Spins:
    """``constant + s'Ms / 2`` over s in {-1, 1}^n, with a symmetric M of zero diagonal.

    The first spin is a reference: bits are ``x_i = (1 + s_0 s_i) / 2``, so that linear terms couple to it. Where there
    are none it is there all the same, alone; it costs nothing.
    """

    constant: float
    field: Vector  # what couples to the reference
    energy: Energy

    @property
    def quadratic(self) -> Any:
        """Four times what couples the others."""
        return self.energy.quadratic

    @property
    def colours(self) -> NDArray[np.intp]:
        """A colour for each spin such that those of one colour are not coupled: the reference has its own."""
        return np.concatenate(([0], 1 + self.energy.colours))

    @property
    def size(self) -> int:
        """Number of spins, the reference included."""
        return int(self.field.size) + 1

    @property
    def unit(self) -> float:
        """A power of two near the largest entry of M: in units of it, single precision has room for all."""
        largest = max(float(np.abs(part).max(initial=0.0)) for part in (self.field, *pieces(self.quadratic)))
        return 2.0 ** math.frexp(largest)[1] if largest > 0.0 else 1.0

    def matrix(self, dtype: Any = np.float64, unit: float = 1.0) -> Any:
        """M in units of `unit`, sparse or dense as the energy's: made anew, to be changed or dropped."""
        if sp.issparse(self.quadratic):
            column, inner = sp.csr_array(self.field[:, None] / unit), (0.25 / unit) * self.quadratic
            whole = sp.csr_array(sp.block_array([[None, column.T], [column, inner]], format="csr"))
            whole.eliminate_zeros()
            return whole.astype(dtype)
        whole = np.zeros((self.size, self.size), dtype)
        whole[0, 1:] = whole[1:, 0] = self.field / unit
        np.multiply(self.quadratic, 0.25 / unit, out=whole[1:, 1:], casting="same_kind")
        return whole


def spins_of(energy: Energy) -> Spins:
    """A quadratic energy of bits in spins."""
    linear, quadratic = energy.linear, energy.quadratic
    row_sums = np.asarray(quadratic.sum(axis=1)).ravel()
    # b'x + x'Qx/2 with x = (1 + s)/2
    field = 0.5 * linear + 0.25 * row_sums
    constant = energy.constant + 0.5 * float(linear.sum()) + 0.125 * float(row_sums.sum())
    return Spins(constant, field, energy)


def quadratic_minorant(energy: Energy) -> Energy:
    """A quadratic of bits that is nowhere above the energy: itself, where it is one.

    Products of three and more factors are bounded by the number k of factors that are one, among d:
    ``prod >= k (k - d + 1) / d`` (equal at k = d, d - 1 and 0), and ``-prod >= -k (k - 1) / (d (d - 1))`` (equal at
    k = d, 1 and 0). A product of spins is at least minus its weight, or its expansion in bits is bounded. Sites that
    are choices get ``penalty * (sum x - 1)^2``, which is zero wherever they are ones.
    """
    if energy.is_binary and not energy.products:
        return energy
    minorant = energy
    for products in energy.products:
        minorant = _add_minorant(minorant, products)
    minorant = Energy(minorant.constant, minorant.linear, minorant.quadratic)
    if not energy.is_binary:
        minorant = _add_penalty(minorant, energy)
    return minorant


def _add_minorant(energy: Energy, products: Any) -> Energy:
    kind, coordinate = products.split(energy.size)
    d, weights = products.degree, products.weights
    literal = np.isin(kind, (BIT, NEGATED)).all(axis=1)
    constant = energy.constant - float(np.abs(weights[~literal]).sum())  # a product of spins is -1 at worst
    linear = energy.linear.copy()
    kind, coordinate, weights = kind[literal], coordinate[literal], weights[literal]
    # k = sum of the factors, each a + b x.
    offset, coefficient = (kind == NEGATED).astype(np.float64), np.where(kind == NEGATED, -1.0, 1.0)
    # k^2 = k + 2 sum of pairs: weights of k and of a pair of factors.
    pair = np.where(weights > 0, 2.0 * weights / d, 2.0 * weights / (d * (d - 1)))
    single = np.where(weights > 0, weights * (2.0 - d) / d, 0.0)
    rows, columns, entries = [], [], []
    for i in range(d):
        constant += float(single @ offset[:, i])
        linear += np.bincount(coordinate[:, i], weights=single * coefficient[:, i], minlength=energy.size)
        for j in range(i):
            constant += float(pair @ (offset[:, i] * offset[:, j]))
            for a, b in ((i, j), (j, i)):
                linear += np.bincount(
                    coordinate[:, a], weights=pair * coefficient[:, a] * offset[:, b], minlength=energy.size
                )
            rows.append(coordinate[:, i])
            columns.append(coordinate[:, j])
            entries.append(pair * coefficient[:, i] * coefficient[:, j])
    half = sp.csr_array(
        (np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=energy.quadratic.shape
    )
    return Energy(constant, linear, stored(energy.quadratic + half + half.T), (), energy.widths)


def _add_penalty(minorant: Energy, energy: Energy) -> Energy:
    """Choices as bits: valid for any penalty; this one is of the size of what a coordinate may gain."""
    site = energy.site
    widths = np.bincount(site)
    chosen = (widths > 1)[site]
    gain = np.abs(minorant.linear) + 0.5 * row_sizes(minorant.quadratic)
    penalty = np.bincount(site, weights=gain) / widths
    indicator = sp.csr_array(
        (np.ones(int(chosen.sum())), (site[chosen], np.flatnonzero(chosen))), shape=(widths.size, energy.size)
    )
    # P (1'x - 1)^2 = P x'11'x - 2 P 1'x + P
    matrix = indicator.T @ sp.diags_array(penalty) @ indicator
    squares = Energy.quadratic_form(matrix, -2.0 * penalty[site] * chosen)
    constant = minorant.constant + float(penalty[widths > 1].sum())
    return Energy(constant, minorant.linear + squares.linear, stored(minorant.quadratic + squares.quadratic))
