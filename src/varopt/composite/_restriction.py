"""A problem in some of its variables, the others fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from varopt.composite._form import Composite, Rows, single_variables
from varopt.composite._groups import Groups
from varopt.model.maps import Map, Scaled, Selection

__all__ = ["Restriction", "restricted"]

Vector = NDArray[np.float64]
Index = NDArray[np.intp]


class Restriction(NamedTuple):
    """The smaller problem, and for each block of rows which of them it has; blocks of which it has none are gone."""

    problem: Composite
    kept: tuple[Index | slice, ...]


def restricted(problem: Composite, index: Index, fixed: Vector, whole: int = 0) -> Restriction:
    """The problem in some of its variables; `fixed` are the values of the others, and zero for these.

    Rows of one variable that is fixed are part of the constant, but in the first `whole` blocks, which keep all rows.
    Groups are of variables that are all fixed, at zero, or all not.
    """
    constant = problem.scalar + float(problem.vector @ fixed)
    matrix, vector = problem.matrix, problem.vector[index]
    if matrix is not None:
        image = matrix @ fixed
        matrix, vector = matrix[index][:, index], vector + image[index]
        constant += 0.5 * float(fixed @ image)
    place = np.full(problem.size, -1)
    place[index] = np.arange(index.size)

    def live(rows: Rows, whole: bool = False) -> tuple[Rows | None, Index | slice]:
        nonlocal constant
        if whole or rows.single is None:
            offset = rows.positions(fixed) if fixed.any() else rows.offset
            return Rows(rows.linear.columns(index), offset, rows.term, rows.weights), slice(None)
        to, factor = place[rows.single[0]], rows.single[1]
        constant += float(np.where(to < 0, rows.weights, 0.0) @ rows.term.value(rows.positions(fixed)))
        kept = np.flatnonzero(to >= 0)
        linear: Map = Selection(to[kept], index.size)
        if np.any(factor != 1.0):
            linear = Scaled(factor[kept], linear)
        some = Rows(linear, rows.offset[kept], rows.term.take(kept), rows.weights[kept], rows.hard)
        return (some if kept.size else None), kept

    def present(group: Groups) -> Groups:
        to = place[cast("tuple[Index, Vector]", single_variables(group.linear))[0]]
        kept = to[group.starts] >= 0
        return replace(group.take(kept), linear=Selection(to[group.spread(kept)], index.size))

    rows = [live(r, b < whole) for b, r in enumerate(problem.rows)]
    groups = [present(group.take(group.weights > 0.0)) for group in problem.groups if np.any(group.weights > 0.0)]
    squares = [live(r)[0] for r in problem.squares]
    small = Composite(
        matrix, vector, constant, tuple(r for r, _ in rows if r is not None),
        squares=tuple(r for r in squares if r is not None), groups=tuple(g for g in groups if g.sizes.size),
    )  # fmt: skip
    return Restriction(small, tuple(kept for _, kept in rows))
