"""Columns that depend on each other in every row, as one-hot codes beside an intercept: a sample tells which may.

Along such a relation no row changes, so that the variable of a dependent column may be held at zero. A pass has to find
the relation in all rows, without rounding; then the equations that are left determine a dual, and the proof needs no
assumption.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from varopt.certificates import annihilates
from varopt.composite import rows_of
from varopt.optimize.anywhere._problem import Problem
from varopt.places import DataPart

__all__ = ["Relations", "relations_of"]

Vector = NDArray[np.float64]

_LOOKED_AT = 2000  # rows of the sample, or eight for each variable where that is more
_MOST_RELATED = 500  # variables up to which relations are looked for
_DEPENDENT_PIVOT = 1e-9  # share of the first pivot below which a column is taken to depend on others
_INTEGERS = range(1, 13)  # by which a relation is multiplied to make it one of whole numbers


class Relations(NamedTuple):
    """Vectors of whole numbers along which rows do not change, and the column that each of them spares."""

    vectors: Vector
    spared: NDArray[np.intp]

    @classmethod
    def none(cls, size: int) -> Relations:
        """Of columns that are independent."""
        return cls(np.zeros((0, size)), np.zeros(0, dtype=np.intp))

    def where(self, held: NDArray[np.bool_]) -> Relations:
        """Those that hold."""
        return Relations(self.vectors[held], self.spared[held])

    def moved(self, x: Vector) -> Vector:
        """The point with the same rows and zeros at what is spared."""
        shares = x[self.spared] / self.vectors[np.arange(self.spared.size), self.spared]
        moved = x - shares @ self.vectors
        moved[self.spared] = 0.0
        return np.asarray(moved)


def relations_of(problem: Problem, sample: DataPart) -> Relations:
    """What may hold in all rows, of variables without a penalty."""
    size, penalised = problem.size, {v for block in problem.others for v in block.variables}
    free = [np.r_[part] for v, part in problem.objective.slices.items() if v not in penalised]
    columns = np.concatenate(free) if free else np.zeros(0, dtype=np.intp)
    if not 0 < columns.size <= _MOST_RELATED:
        return Relations.none(size)
    spread = np.linspace(0, sample.count - 1, min(sample.count, max(_LOOKED_AT, 8 * size))).astype(np.intp)
    some = sample.take(np.unique(spread))
    maps = [rows_of(block.at(some), problem.variables).linear for block in problem.blocks]
    matrix = np.vstack([np.asarray(rows.dense()) for rows in maps])[:, columns]
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0.0, lengths, 1.0)
    triangle, order = qr(scaled, mode="r", pivoting=True)
    pivots = np.abs(np.diag(triangle))
    rank = int(np.count_nonzero(pivots > _DEPENDENT_PIVOT * max(pivots[0], np.finfo(float).tiny)))
    found, spared = [], []
    for j in order[rank:]:
        shares = np.linalg.lstsq(scaled[:, order[:rank]], scaled[:, j], rcond=None)[0]
        shares = shares * lengths[j] / lengths[order[:rank]]
        for factor in _INTEGERS:
            whole = np.round(factor * shares)
            if np.all(np.abs(factor * shares - whole) < 1e-5):
                vector = np.zeros(size)
                vector[columns[order[:rank]]], vector[columns[j]] = -whole, factor
                if all(annihilates(rows, vector) for rows in maps):  # not only nearly
                    found.append(vector)
                    spared.append(columns[j])
                break
    return Relations(np.array(found), np.array(spared, dtype=np.intp)) if found else Relations.none(size)
