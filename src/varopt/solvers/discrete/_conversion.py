"""Objectives of discrete variables, and models of dimod, as energies.

What coefficients lose to rounding on the way is kept with them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from varopt._domains import as_finite
from varopt._verified import SLACK, denominator, gamma
from varopt.model import Objective, as_polynomial
from varopt.model.blocks import AffineBlock, Block, PolynomialBlock, QuadraticBlock, TermBlock
from varopt.model.maps import Map
from varopt.solvers.discrete._energy import Energy, Products
from varopt.solvers.discrete._matrices import stored
from varopt.solvers.discrete._rounding import doubles, lost_by_adding

__all__ = ["NotPolynomial", "energy_of", "model_energy"]

Vector = NDArray[np.float64]


class NotPolynomial(ValueError):
    """The objective is no polynomial in Binary and Categorical variables."""


def energy_of(objective: Objective) -> Energy:
    """An objective of discrete variables as an energy; raises `NotPolynomial` naming the block that is none."""
    real = [str(v) for v in objective.variables if v.kind == "real"]
    if real:
        raise NotPolynomial(f"{', '.join(real)} is real, and a polynomial in bits has discrete variables only.")
    widths = np.concatenate(
        [
            np.full(v.size // w, w)
            for v in objective.variables
            for w in [v.dimensions[1] if v.kind == "categorical" else 1]
        ]
    )
    size = objective.size
    matrix: Any = sp.csr_array((size, size))
    linear, constant = np.zeros(size), 0.0
    polynomials: list[Block] = []
    sizes = _Sizes()
    for block in objective.blocks:
        if not block.variables:
            constant += float(block.value({}))
            sizes.add([constant], abs(constant))
        elif isinstance(block, AffineBlock):
            outer = block.argument.stacked(objective.variables)
            linear += block.weights * outer.transpose_apply(np.ones(1))
            constant += block.weights * float(np.ravel(block.argument.offset)[0])
            sizes.add_rows(outer, block.argument.offset, block.weights)
            sizes.add([block.argument.constant.rest, block.weights], 0.0)
        elif isinstance(block, (QuadraticBlock, TermBlock)) and (pair := _second_order(block)) is not None:
            inner, first = pair
            # z'Mz + first'z with z = Lx + d
            rows = block.argument.stacked(objective.variables)
            outer = rows.explicit()
            offset = np.broadcast_to(np.asarray(block.argument.offset, dtype=np.float64), (outer.shape[0],))
            matrix = matrix + stored(outer.T @ (inner @ outer))
            linear += np.asarray(outer.T @ (inner @ offset + inner.T @ offset + first)).ravel()
            constant += float(offset @ (inner @ offset) + first @ offset)
            constant += _at_zero(block, outer.shape[0])
            sizes.add_rows(rows, offset, inner, first)
        else:
            polynomials.append(block)
    energy = Energy.quadratic_form(matrix, linear, constant, widths)
    energy = _with_polynomial(energy, objective, polynomials, sizes) if polynomials else energy
    floor = math.fsum(map(_block_floor, objective.blocks))
    return replace(energy, floor=floor, rounding=energy.rounding + sizes.rounding())


class _Sizes:
    """How large the numbers are that coefficients are added up from, before anything cancels, and on which grid."""

    def __init__(self) -> None:
        self._size, self._finest, self._additions = 0.0, 1.0, 16.0

    def add(self, parts: Iterable[Any], size: float, additions: float = 1.0, finest: float = 1.0) -> None:
        """Products of one number of each of these parts: their sizes together, and how many make one coefficient.

        Of those that were added up already, the denominator of their grid is `finest`.
        """
        self._finest = max(self._finest, finest * math.prod(map(denominator, parts)))
        self._size += size
        self._additions += additions

    def add_rows(self, rows: Map, offset: Any, second: Any, first: Any = 0.0) -> None:
        """``z'Mz + first'z``, or a weight times z, of ``z = Lx + d``."""
        leaves = [leaf.explicit() if isinstance(leaf, Map) else leaf for leaf in rows.leaves()]
        inside = [*map(_entries, leaves), offset]
        reach = rows.absolute_row_sums() + np.abs(offset)
        inner = abs(second)
        form = inner @ reach if np.ndim(inner) else inner * reach
        size = float(reach @ form) if np.ndim(inner) else float(np.sum(form))
        additions = sum(max(np.shape(leaf), default=1) for leaf in leaves)
        # z twice: each of its numbers may be in a product with each.
        self.add(
            [*inside, *inside, _entries(second), first], size + float(np.sum(np.abs(first) * reach)), 2 * additions
        )

    def rounding(self) -> float:
        """What the coefficients may have lost, added up."""
        if self._finest * self._size * SLACK < 2.0**53:
            return 0.0
        return gamma(self._additions) * self._size * SLACK


def _entries(matrix: Any) -> Any:
    return matrix.tocsr().data if sp.issparse(matrix) else matrix


def _block_floor(block: Block) -> float:
    """What a block is known not to fall below, rounding included; minus infinity where nothing is known."""
    if not block.variables:
        low = float(block.value({}))
    elif isinstance(block, PolynomialBlock):
        low = block.weights * block.lowest if block.weights > 0.0 else -math.inf
    elif isinstance(block, TermBlock):
        low = float(np.broadcast_to(block.lowest, (block.argument.rows,)).sum())
    else:
        return -math.inf
    return low - 1e-12 * abs(low) if math.isfinite(low) else low


def _second_order(block: QuadraticBlock | TermBlock) -> tuple[Any, Vector] | None:
    """M and the linear part of a block ``z'Mz + first'z + const``; None where it is of another kind."""
    rows = block.argument.rows
    if isinstance(block, QuadraticBlock):
        return block.weights * block.matrix.explicit(), np.zeros(rows)
    if block.term.knots or block.term.degree > 2:
        return None
    weights = np.broadcast_to(np.asarray(block.weights, dtype=np.float64), (rows,))
    zero = np.zeros(rows)
    second = 0.5 * weights * block.term.derivative(zero, 2)
    return sp.dia_array((second[None], [0]), shape=(rows, rows)).tocsr(), weights * block.term.derivative(zero)


def _at_zero(block: QuadraticBlock | TermBlock, rows: int) -> float:
    if isinstance(block, QuadraticBlock):
        return 0.0
    return float(np.sum(block.weights * block.term.value(np.zeros(rows))))


def _with_polynomial(energy: Energy, objective: Objective, blocks: list[Block], sizes: _Sizes) -> Energy:
    whole = as_polynomial(Objective(blocks))
    if whole is None:
        culprit = next(b for b in blocks if as_polynomial(Objective([b])) is None)
        raise NotPolynomial(f"{culprit.describe()} is no polynomial in Binary and Categorical variables.")
    (block,) = whole.over(objective.variables).total().blocks
    if not isinstance(block, PolynomialBlock):
        raise NotPolynomial(f"{block.describe()} is no polynomial in Binary and Categorical variables.")
    linear, constant, quadratic = energy.linear.copy(), energy.constant + block.constant, energy.quadratic
    products = []
    stated = whole.sizes
    sizes.add([], float(stated.entries.sum()), stated.additions, stated.finest)
    for degree, (codes, coefficients) in block.monomials.items():
        weights = np.asarray(block.weights * coefficients, dtype=np.float64)
        if degree == 1:
            linear += np.bincount(codes[:, 0], weights=weights, minlength=energy.size)
        elif degree == 2:
            half = sp.csr_array((weights, (codes[:, 0], codes[:, 1])), shape=quadratic.shape)
            quadratic = stored(quadratic + half + half.T)
        else:
            products.append(Products(codes, weights))
    return replace(energy, constant=constant, linear=linear, quadratic=quadratic, products=tuple(products)).in_spins()


# -- From models of dimod ---------------------------------------------------------------------------------------------


def model_energy(model: Any, sign: float = 1.0, extra: Any = 0.0) -> tuple[Energy, list[Hashable]]:
    """A binary quadratic model of dimod, of bits or of spins, times a sign, as an energy; and its labels.

    To `extra`, coefficients of the bits, the sign applies too. The model's own numbers are read: dimod's change from
    spins to bits would round them, in single precision where they are stored so.
    """
    labels = list(model.variables)
    place = {label: k for k, label in enumerate(labels)}
    pairs = [(place[u], place[v]) for u, v in model.quadratic]
    rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
    entries, lost_of_pairs = doubles(model.quadratic.values())
    entries = np.asarray(as_finite("the quadratic biases", entries), dtype=np.float64)
    matrix = sp.csr_array((entries, (rows, columns)), shape=(len(labels), len(labels)))
    linear, lost = doubles([*(model.linear[label] for label in labels), model.offset])
    linear, offset = np.asarray(as_finite("the linear biases", linear[:-1]), dtype=np.float64), sign * float(linear[-1])
    if model.vartype.name == "BINARY":
        energy = Energy.quadratic_form(matrix, sign * linear, offset, weight=sign)
    else:
        energy = Energy.spin_form(matrix, sign * linear, offset, weight=sign)
    added = np.broadcast_to(sign * np.asarray(extra, dtype=np.float64), linear.shape)
    lost += lost_of_pairs + lost_by_adding(energy.linear, added)
    return replace(energy, linear=energy.linear + added, rounding=energy.rounding + lost), labels
