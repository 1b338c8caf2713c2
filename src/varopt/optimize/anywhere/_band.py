r"""How far from its optimum a pilot may be, row by row: which rows a pass has to keep.

The optimum of a sample lies about :math:`N(0, H^{-1} V H^{-1})` from that of the whole, with H the Hessian and V the
covariance of the gradient (Huber 1967); the position of a row with coefficients a moves by a deviation
:math:`|L^T a|`, with L a root of that covariance. V is estimated by differences of neighbouring stretches of the
sample, so that neither clustered nor sorted rows mislead it. Nothing is proved by it: too narrow a band costs a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from varopt.composite import Rows, composite, rows_of
from varopt.model import Objective
from varopt.optimize.anywhere._problem import Problem
from varopt.places import DataPart

__all__ = ["Band", "band_of", "strayed", "typical_lengths"]

Vector = NDArray[np.float64]

_STRETCH = 64  # rows of a sample that are taken together
_DEVIATIONS = 4.5  # within which rows are kept
_TIED_TO_KNOT = 1e-9  # share of the typical distance from a knot within which a row counts as lying on it
_SMALLEST_DISTANCE = 0.1  # share of the typical distance from a knot that tells how dense rows are there, at the least
# Times which a band gets wider that was too narrow, and a share of typical distances.
_BAND_WIDER, _NEARBY_SHARE = 4.0, 0.01
_STRETCHES = 8  # for each variable, however few rows a sample has
_BAND_ROWS_AT_ONCE = 1 << 13  # rows of which lengths are taken at once
_BEYOND_LONGEST = 1.5  # times the longest row of a sample: beyond, rows are not looked at


class Band(NamedTuple):
    """For each block the rows to keep: within ``|factor' a|`` of a knot, and within `reach`."""

    factor: Vector
    reaches: list[float]
    shares: list[float]  # of the rows of each block that lie within
    least: list[float]  # rows nearer than that are kept whatever their length: they lie on a knot, but for rounding
    typical: list[float]  # distance of rows from a knot

    @property
    def most(self) -> float:
        """The largest share of rows that lie within."""
        return max(self.shares, default=0.0)

    @classmethod
    def within(cls, reaches: Sequence[float], lengths: Sequence[float], size: int, share: float) -> Band:
        """All rows within a distance from a knot, for each block, where `lengths` are typical."""
        widths = [2.0 * r for r in reaches]
        return cls(np.zeros((size, 1)), widths, [share] * len(reaches), list(reaches), list(lengths))

    @classmethod
    def empty(cls, size: int, blocks: Sequence[object]) -> Band:
        """No rows, of blocks without knots."""
        none = [0.0] * len(blocks)
        return cls(np.zeros((size, 1)), none, none, none, none)

    def narrowed(self, share: float) -> Band:
        """The same, narrower by a share."""
        least = [share * r for r in self.least] if not self.factor.any() else self.least
        reaches = [max(share * r, 2.0 * each) for r, each in zip(self.reaches, least, strict=True)]
        return Band(share * self.factor, reaches, [min(1.0, share * s) for s in self.shares], least, self.typical)

    def wider(self, times: int) -> Band:
        """The same, wider each time, and at last all rows: what tells how far rows move may have been misled."""
        band, least = self.narrowed(_BAND_WIDER), [_NEARBY_SHARE * _BAND_WIDER**times * each for each in self.typical]
        least = [max(pair) for pair in zip(band.least, least, strict=True)]
        reaches = [max(r, 2.0 * each) for r, each in zip(band.reaches, least, strict=True)]
        shares = [min(1.0, s + _NEARBY_SHARE * _BAND_WIDER**times) for s in band.shares]
        return Band(band.factor, reaches, shares, least, self.typical)


def band_of(problem: Problem, sample: DataPart, x: Vector, whole: int) -> Band:
    """The band around the optimum x of a sample of rows, for so many in all."""
    scale = whole / sample.count
    rows = [rows_of(block.at(sample), problem.variables) for block in problem.blocks]
    placed = [r.positions(x) for r in rows]
    hessian = _quadratic(problem)
    for r, z in zip(rows, placed, strict=True):
        hessian += scale * _dense(r.linear.gram(_curvature(r, z, problem.size)))
    gradients = np.add.reduce([_stretches(r, z) for r, z in zip(rows, placed, strict=True)])
    steps = np.diff(gradients, axis=0) if len(gradients) > 1 else gradients
    # Of stretches g_1, g_2, ... the sum has a variance of about sum |g_i - g_(i+1)|^2 / 2 [Wolter 2007, ch. 8].
    roots = np.asarray(np.linalg.qr(steps, mode="r")) * scale * np.sqrt(0.5 * max(0.0, 1.0 - 1.0 / scale))
    factor = _DEVIATIONS * np.linalg.lstsq(hessian, roots.T, rcond=1e-12)[0]
    reaches: list[float] = []
    shares: list[float] = []
    least: list[float] = []
    typical: list[float] = []
    for r, z in zip(rows, placed, strict=True):
        if not r.term.knots:
            reaches.append(0.0)
            shares.append(0.0)
            least.append(0.0)
            typical.append(0.0)
            continue
        moved = np.linalg.norm(np.asarray(r.linear.dense()) @ factor, axis=1)
        distance = r.knot_distance(z)
        typical.append(float(np.median(distance)) or float(np.max(distance)) or 1.0)
        least.append(_TIED_TO_KNOT * typical[-1])
        reaches.append(max(_BEYOND_LONGEST * float(moved.max()), 2.0 * least[-1]))
        shares.append(float(np.mean(distance < np.maximum(moved, least[-1]))))
    return Band(factor, reaches, shares, least, typical)


def _curvature(rows: Rows, z: Vector, size: int) -> Vector:
    """The second derivatives of rows, those of kinks from how many rows lie close by: few, but enough to tell."""
    weights = np.array(rows.weights * rows.term.derivative(z, 2), dtype=np.float64)
    few = min(rows.count - 1, max(10 * size, int(rows.count**0.6)))
    for knot, jump in rows.kinks:
        distance = np.abs(z - knot)
        # Where rows are tied, as with whole numbers, how dense they are is seen from farther away only.
        window = max(float(np.partition(distance, few)[few]), _SMALLEST_DISTANCE * float(np.median(distance)))
        if not window > 0.0:
            continue
        weights += np.where(distance <= window, rows.weights * jump / (2.0 * window), 0.0)
    return weights


def typical_lengths(problem: Problem, sample: DataPart, x: Vector) -> list[float]:
    """The typical distance of rows from a knot, for each block."""
    lengths = []
    for block in problem.blocks:
        rows = rows_of(block.at(sample), problem.variables)
        distance = rows.knot_distance(rows.positions(x)) if rows.term.knots else np.ones(1)
        lengths.append(float(np.median(distance)) or float(np.max(distance)) or 1.0)
    return lengths


def strayed(problem: Problem, kept: Sequence[DataPart | None], step: Vector, factor: Vector) -> bool:
    """Whether a step takes rows farther than the band that they were kept in: then others may have left it."""
    for block, part in zip(problem.blocks, kept, strict=True):
        if part is not None and block.term.knots:
            rows = rows_of(block.at(part), problem.variables).linear
            for first in range(0, part.count, _BAND_ROWS_AT_ONCE):  # beside the rows kept there is little room
                few = np.arange(first, min(first + _BAND_ROWS_AT_ONCE, part.count))
                matrix = np.asarray(rows.rows(few).dense())
                if np.any(np.abs(matrix @ step) > np.linalg.norm(matrix @ factor, axis=1)):
                    return True
    return False


def _quadratic(problem: Problem) -> Vector:
    """The Hessian of the quadratic penalties."""
    others = Objective(problem.others) if problem.others else None
    if others is None or not others.variables:
        return np.zeros((problem.size,) * 2)
    small, total = composite(others), np.zeros((problem.size,) * 2)
    if small.hessian is None:
        return total
    place = np.concatenate([np.r_[problem.objective.slices[v]] for v in others.variables])
    total[np.ix_(place, place)] = _dense(small.hessian)
    return total


def _dense(matrix: object) -> Vector:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def _stretches(rows: Rows, z: Vector) -> Vector:
    """The gradient of each stretch of the sample."""
    starts = np.arange(0, rows.count, min(_STRETCH, max(1, rows.count // (_STRETCHES * rows.linear.shape[1]))))
    products = np.asarray(rows.linear.dense()) * (rows.weights * rows.term.derivative(z))[:, None]
    return np.asarray(np.add.reduceat(products, starts, axis=0))
